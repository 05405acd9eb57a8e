# SPDX-License-Identifier: Apache-2.0
"""Offloads a model's KV cache to HeadraceTier and reloads it, in an unmodified vLLM for CPUs.

First, the tier is a file. One process drops all but the store, reloads from it, and is killed; the
second reloads from the file. Then two engines, as vLLM's data-parallel ranks of such a model are,
use one store that 'headrace store serve' serves; each loads what the other one has stored.

Weights are random with a seed, prompts are token numbers. vLLM copies between its cache and its
first tier only on GPUs; ProcessorTiers replaces these copies.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # The tier's counts are read below.
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")

import numpy as np
from vllm import LLM, SamplingParams, TokensPrompt
from vllm.config import KVTransferConfig
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from headrace.integrations.vllm import HeadraceTier

BLOCK_TOKENS = 32
PROMPT_TOKENS = 256
PROMPTS = 8
HEADRACE = Path(__file__).parents[2] / ".venv/bin/headrace"
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "vocab_size": 1000,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
BLOCK_BYTES = BLOCK_TOKENS * MODEL["num_hidden_layers"] * 2 * MODEL["hidden_size"] * 4
RANDOM = np.random.default_rng(1)
PROMPTS_MADE = [
    TokensPrompt(prompt_token_ids=RANDOM.integers(3, 1000, PROMPT_TOKENS).tolist())
    for _ in range(PROMPTS)
]
TIERS: list["CountedTier"] = []


class CountedTier(HeadraceTier):
    """A HeadraceTier that registers itself in TIERS."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **named)
        TIERS.append(self)


class ProcessorWorker(OffloadingWorker):
    """Copies blocks synchronously between vLLM's cache and its first tier, both in memory."""

    def __init__(self, spec: TieringOffloadingSpec, caches: Any) -> None:  # noqa: ANN401
        region = SharedOffloadRegion(
            engine_id=spec.config.engine_id,
            num_chunks=spec.num_chunks,
            rank=0,
            kv_bytes_per_chunk=spec.kv_bytes_per_chunk,
            cpu_page_size=spec.cpu_page_size_per_worker,
        )
        self._pairs = [
            (each.tensor, region.create_next_worker_view(each.page_size_bytes))
            for each in caches.tensors
        ]
        self._ended: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:  # noqa: ANN401
        """Copy from vLLM's cache to the tier."""
        for cache, tier in self._pairs:
            tier[dst_spec.block_ids] = cache[src_spec.block_ids]
        self._ended.append(TransferResult(job_id, success=True))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:  # noqa: ANN401
        """Copy from the tier to vLLM's cache."""
        for cache, tier in self._pairs:
            cache[dst_spec.block_ids] = tier[src_spec.block_ids]
        self._ended.append(TransferResult(job_id, success=True))
        return True

    def get_finished(self) -> list[TransferResult]:
        """Return finished jobs, each once."""
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids: set[int]) -> None:
        """Do nothing: no job is in flight."""
        del job_ids


class ProcessorTiers(TieringOffloadingSpec):
    """vLLM's tiers with a ProcessorWorker."""

    def get_worker(self, kv_caches: Any) -> ProcessorWorker:  # noqa: ANN401
        """Return one worker for all caches."""
        self._worker = self._worker or ProcessorWorker(self, kv_caches)
        return self._worker


def engine_of(folder: Path, **tier_options: object) -> tuple[LLM, HeadraceTier]:
    """Make an engine and its tier."""
    # The first tier has room for two prompts.
    primary_bytes = 2 * PROMPT_TOKENS // BLOCK_TOKENS * BLOCK_BYTES
    tier_config = {"type": "CountedTier", "module_path": "model", **tier_options}
    model = LLM(
        str(folder),
        load_format="dummy",
        skip_tokenizer_init=True,
        seed=1,
        dtype="float32",
        enforce_eager=True,
        block_size=BLOCK_TOKENS,
        max_model_len=2 * PROMPT_TOKENS,
        enable_prefix_caching=True,
        disable_log_stats=False,
        kv_transfer_config=KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "spec_name": "ProcessorTiers",
                "spec_module_path": "model",
                "cpu_bytes_to_use": primary_bytes,
                "secondary_tiers": [tier_config],
            },
        ),
    )
    (tier,) = sys.modules["model"].TIERS
    return model, tier


def tokens_of(model: LLM, tier: HeadraceTier, prompts: Sequence[TokensPrompt]) -> list[list[int]]:
    """Generate tokens, and wait until all chunks are stored."""
    how = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    # Sequentially, so that the first tier has room for each.
    outputs = [model.generate(each, how, use_tqdm=False)[0] for each in prompts]
    tier.drain_jobs()
    return [list(each.outputs[0].token_ids) for each in outputs]


def metric(model: LLM, name: str) -> int:
    """Sum of a counter of vLLM."""
    return sum(each.value for each in model.get_metrics() if each.name == f"vllm:{name}")


def rank(folder: Path, number: int) -> None:
    """Generate tokens of one half of the prompts, then of those of the other rank."""
    model, tier = engine_of(folder, connect=str(folder / "socket"))
    begin = time.monotonic()
    found = tokens_of(model, tier, PROMPTS_MADE[number::2])
    assert metric(model, "kv_offload_tiering_chunk_hits") == 0
    new = folder / f"new {number}"
    new.write_text(json.dumps(found))
    new.rename(folder / f"rank {number}")
    other = folder / f"rank {1 - number}"
    while not other.exists():
        time.sleep(0.1)
    assert tokens_of(model, tier, PROMPTS_MADE[1 - number :: 2]) == json.loads(other.read_text())
    hits = metric(model, "kv_offload_tiering_chunk_hits")
    assert hits > 0
    assert tier._store.statistics.corrupt == 0  # noqa: SLF001
    print(
        f"vLLM, rank {number} of two with one store: {PROMPTS // 2} prompts give the same tokens "
        f"as at the other rank, from {hits:.0f} blocks that it had stored, "
        f"in {time.monotonic() - begin:.1f} s",
        flush=True,
    )


def live(folder: Path, *, is_first: bool) -> None:
    """Generate tokens, and compare them with those generated before from the same prompts."""
    model, tier = engine_of(folder, tiers=[{"capacity": "64MiB", "path": str(folder / "chunks")}])
    begin = time.monotonic()
    tokens = folder / "tokens.json"
    for is_again in (False, True) if is_first else (True,):
        before = tier._store.statistics.tiers[0]  # noqa: SLF001
        found = tokens_of(model, tier, PROMPTS_MADE)
        known = tier._store.statistics  # noqa: SLF001
        if is_again:
            assert found == json.loads(tokens.read_text())
            loaded = known.tiers[0].hits - before.hits
            assert loaded > 0
            assert known.corrupt == 0
            assert metric(model, "headrace_hits")
            print(
                f"vLLM with HeadraceTier: {PROMPTS} prompts give the same tokens from {loaded} "
                f"reloaded blocks ({known.tiers[0].puts} stored by this process, "
                f"{known.tiers[0].recovered} by one that was killed) "
                f"in {time.monotonic() - begin:.1f} s",
                flush=True,
            )
        tokens.write_text(json.dumps(found))
        assert model.reset_prefix_cache()
    if is_first:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run all processes."""
    if len(sys.argv) > 1:
        folder, role = Path(sys.argv[1]), sys.argv[2]
        if role.isdigit():
            rank(folder, int(role))
        else:
            live(folder, is_first=role == "first")
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL))
        for life, status in (("first", -signal.SIGKILL), ("second", 0)):
            command = [sys.executable, __file__, folder, life]
            assert subprocess.run(command, check=False).returncode == status  # noqa: S603
        serve = [HEADRACE, "store", "serve", f"{folder}/socket", "--memory", "64MiB", "--block"]
        serve.append(str(BLOCK_BYTES))
        with subprocess.Popen(serve, stdout=subprocess.PIPE) as server:  # noqa: S603
            assert server.stdout is not None
            assert server.stdout.readline()
            command = [sys.executable, __file__, folder]
            ranks = [subprocess.Popen([*command, number]) for number in "01"]  # noqa: S603
            try:
                while any(each.poll() is None for each in ranks):
                    assert not any(each.poll() for each in ranks)
                    time.sleep(0.1)
                assert not any(each.returncode for each in ranks)
            finally:
                for each in (*ranks, server):
                    each.terminate()


if __name__ == "__main__":
    main()
