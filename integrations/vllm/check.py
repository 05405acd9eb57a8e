# SPDX-License-Identifier: Apache-2.0
"""Tests HeadraceTier with the classes of an unmodified vLLM; without a model or GPU.

Run by scripts/integrations in an environment that has vllm.
"""

import time
from types import SimpleNamespace

import numpy as np
from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

CHUNKS = 64
CHUNK_BYTES = 2**20
CONFIG = {
    "type": "HeadraceTier",
    "module_path": "headrace.integrations.vllm",
    "tiers": [CHUNKS * CHUNK_BYTES],
    "checksums": True,
}


def ended(tier: SecondaryTierManager) -> JobResult:
    """Poll until the one job in flight has completed."""
    while not (results := list(tier.get_finished_jobs())):
        time.sleep(0.001)
    (result,) = results
    return result


def main() -> None:
    """Store chunks, and load them into other places in another order."""
    random = np.random.default_rng(1)
    memory = np.zeros((2 * CHUNKS, CHUNK_BYTES), np.uint8)
    memory[:CHUNKS] = random.integers(0, 256, (CHUNKS, CHUNK_BYTES), np.uint8)
    view = memoryview(memory)
    # The tier reads only the configuration, which becomes a part of its keys.
    spec = SimpleNamespace(config=SimpleNamespace(model="none", parallel=SimpleNamespace(rank=0)))
    tier = SecondaryTierFactory.create_secondary_tier(CONFIG, view, offloading_spec=spec)
    assert isinstance(tier, SecondaryTierManager)
    request = ReqContext(req_id="1")
    tier.on_new_request(request)
    keys = [make_offload_key(random.bytes(32), 0) for _ in range(CHUNKS)]
    assert tier.lookup(keys[0], request) is LookupResult.MISS

    tier.submit_store(TransferJob(1, keys, np.arange(CHUNKS), False, request))
    stored = ended(tier)
    assert stored.success
    assert all(tier.lookup(key, request) is LookupResult.HIT for key in keys)

    order = random.permutation(CHUNKS)
    tier.submit_load(TransferJob(2, keys, order + CHUNKS, is_promotion=True, req_context=request))
    tier.drain_jobs()
    loaded = ended(tier)
    assert loaded.success
    assert (memory[CHUNKS + order] == memory[:CHUNKS]).all()

    unknown = [make_offload_key(b"?" * 32, 0), keys[5]]
    tier.submit_load(TransferJob(3, unknown, np.array([0, 1]), True, request))
    part = ended(tier)
    assert not part.success
    assert part.successful_keys == (keys[5],)
    tier.shutdown()
    view.release()
    print(f"vLLM with HeadraceTier: {CHUNKS} chunks are right")


if __name__ == "__main__":
    main()
