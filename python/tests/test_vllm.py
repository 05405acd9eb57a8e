# SPDX-License-Identifier: Apache-2.0
"""The secondary tier, behind a stand-in for what vLLM 0.33.0 documents of its interface."""

import enum
import importlib
import mmap
import resource
import sys
import time
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import TIME_LIMIT_S

import headrace

CHUNKS = 12
CHUNK_BYTES = 8192


class LookupResult(enum.Enum):
    MISS = 1
    HIT = 2
    HIT_PENDING = 3
    RETRY = 4


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


class RequestOffloadingContext:
    pass


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: tuple[bytes, ...] | None = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None


@dataclass
class TransferJob:
    job_id: int
    keys: list[bytes]
    chunk_ids: npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupConfig:
    tokens_per_block: int = 16
    layer_names: tuple[str, ...] = ("layers.0", "layers.1")
    group_id: int = 0


@dataclass(frozen=True)
class ModelConfig:
    name: str = "a/model"
    dtype: str = "bfloat16"


@dataclass(frozen=True)
class CacheConfig:
    tokens_per_hash: int = 16
    blocks_per_chunk: int = 1


@dataclass(frozen=True)
class ParallelConfig:
    rank: int = 0
    world_size: int = 4
    tp_size: int = 2
    pp_size: int = 2
    pcp_size: int = 1
    dcp_size: int = 1
    data_parallel_index: int = 0
    data_parallel_size: int = 1


@dataclass(frozen=True)
class OffloadingConfig:
    groups: tuple[GroupConfig, ...] = (GroupConfig(),)
    worker_kv_bytes_per_block: int = CHUNK_BYTES // 4
    enable_kv_cache_events: bool = False
    extra_config: dict[str, Any] = field(default_factory=dict)
    engine_id: str = "1"
    model: ModelConfig = ModelConfig()
    cache: CacheConfig = CacheConfig()
    parallel: ParallelConfig = ParallelConfig()
    kv_cache_layout: str | None = "NHD"


@dataclass
class OffloadingSpec:
    config: OffloadingConfig


@dataclass(frozen=True)
class OffloadingCounterMetadata:
    documentation: str
    labelnames: tuple[str, ...] = ()


class OffloadingGaugeMetadata(OffloadingCounterMetadata):
    pass


class OffloadingConnectorStats:
    def __init__(self) -> None:
        self.found: dict[tuple[str, tuple[str, ...]], int] = {}

    def increase_counter(self, name: str, by: int, label: tuple[str, ...]) -> None:
        self.found[name, label] = self.found.get((name, label), 0) + by

    set_gauge = increase_counter


class SecondaryTierManager:
    def __init__(
        self,
        offloading_spec: object,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: object = None,
    ) -> None:
        assert offloading_spec is not None
        assert backpressure_detector is None
        assert primary_kv_view.strides is not None
        self.block_size_bytes = primary_kv_view.strides[0]
        self.tier_type = tier_type


def key_of(number: int) -> bytes:
    """A hash and the number of a group, as vLLM packs them."""
    return number.to_bytes(32, "big") + (0).to_bytes(4, "big")


class Manager:
    """Calls the tier as vLLM's manager does; `memory` is what the processor's tier has."""

    def __init__(
        self,
        plugin: Any,
        engine: OffloadingConfig | None = None,
        spec: object = None,
        **config: Any,
    ) -> None:
        # The manager of the processor's tier: chunks as rows of a view.
        untouched = mmap.mmap(-1, CHUNKS * CHUNK_BYTES)
        self.memory = np.frombuffer(untouched, np.int64).reshape(CHUNKS, -1)
        self.view = self.memory.data
        self.tier = plugin.HeadraceTier(
            offloading_spec=spec or OffloadingSpec(engine or OffloadingConfig()),
            primary_kv_view=self.view,
            tier_type="HeadraceTier",
            backpressure_detector=None,
            **config,
        )
        self.jobs = 0

    def submit(self, method: Any, numbers: Iterable[int], ids: Iterable[int]) -> int:
        self.jobs += 1
        keys = [key_of(number) for number in numbers]
        method(TransferJob(self.jobs, keys, np.array(list(ids))))
        return self.jobs

    def ended(self, job_id: int) -> JobResult:
        limit = time.monotonic() + TIME_LIMIT_S
        while time.monotonic() < limit:
            results: list[JobResult] = self.tier.get_finished_jobs()
            if results:
                assert [each.job_id for each in results] == [job_id]
                return results[0]
            time.sleep(0.001)
        pytest.fail("the job did not end")

    def store(self, numbers: Iterable[int], ids: Iterable[int]) -> JobResult:
        return self.ended(self.submit(self.tier.submit_store, numbers, ids))

    def load(self, numbers: Iterable[int], ids: Iterable[int]) -> JobResult:
        return self.ended(self.submit(self.tier.submit_load, numbers, ids))

    def lookup(self, number: int) -> LookupResult:
        found: LookupResult = self.tier.lookup(key_of(number), object())
        return found


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the tier, imported beside the stand-in."""
    names: dict[str, list[type]] = {
        "vllm.v1.kv_offload.base": [
            *(Locality, LookupResult, Medium, RequestOffloadingContext),
            *(OffloadingCounterMetadata, OffloadingGaugeMetadata),
        ],
        "vllm.v1.kv_offload.tiering.base": [JobResult, SecondaryTierManager],
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics": [
            OffloadingConnectorStats
        ],
    }
    parents = {
        ".".join(name.split(".")[:n]) for name in names for n in range(1, name.count(".") + 1)
    }
    for name in (*sorted(parents), *names):
        module = types.ModuleType(name)
        vars(module).update({each.__name__: each for each in names.get(name, [])})
        monkeypatch.setitem(sys.modules, name, module)
    ours = "headrace.integrations.vllm"
    yield importlib.import_module(ours)
    del sys.modules[ours]


@pytest.fixture
def manager(plugin: Any) -> Iterator[Manager]:
    made = Manager(plugin, tiers=[16 * CHUNK_BYTES])
    yield made
    made.tier.shutdown()
    made.tier.shutdown()
    made.view.release()  # As vLLM does then: nothing of the tier's may use it.


def test_chunks_come_back_as_they_were_stored(manager: Manager) -> None:
    for number in range(4):
        manager.memory[number] = 100 + number
    stored = manager.store(range(4), range(4))
    assert stored.success
    assert stored.transfer_bytes == 4 * CHUNK_BYTES
    assert [manager.lookup(number) for number in (0, 3, 4)] == [
        LookupResult.HIT,
        LookupResult.HIT,
        LookupResult.MISS,
    ]
    assert manager.load([3, 0], [8, 11]).success
    assert (manager.memory[8] == 103).all()
    assert (manager.memory[11] == 100).all()
    assert not manager.memory[[9, 10]].any()


def test_replicas_load_what_another_one_has_stored(plugin: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with headrace.Store(["1MiB"], block_bytes=CHUNK_BYTES, share=path):
        one, two = (
            Manager(
                plugin,
                replace(OffloadingConfig(), parallel=ParallelConfig(data_parallel_index=rank)),
                connect=path,
            )
            for rank in range(2)
        )
        one.memory[0] = 7
        assert one.store([1], [0]).success
        assert two.lookup(1) is LookupResult.HIT
        assert two.load([1], [3]).success
        assert (two.memory[3] == 7).all()
        assert two.store([1], [0]).transfer_bytes == 0
        for each in (one, two):
            each.tier.shutdown()


def test_a_server_of_shorter_blocks_is_refused(plugin: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with headrace.Store(["1MiB"], block_bytes=CHUNK_BYTES - 1, share=path) as store:
        with pytest.raises(headrace.InvalidArgumentError, match=f"--block {CHUNK_BYTES}'"):
            Manager(plugin, connect=path)
        assert len(store) == 0
        assert store.statistics.clients == ()


def test_a_chunk_that_is_there_is_not_copied_again(manager: Manager) -> None:
    assert manager.store([1], [0]).transfer_bytes == CHUNK_BYTES
    again = manager.store([1, 2], [0, 1])
    assert again.success
    assert again.transfer_bytes == CHUNK_BYTES
    nothing = manager.store([1, 2], [0, 1])
    assert nothing.success
    assert nothing.transfer_bytes == 0


def test_a_load_says_which_chunks_it_has(manager: Manager) -> None:
    manager.memory[0] = 5
    manager.store([1], [0])
    part = manager.load([7, 1], [2, 3])
    assert not part.success
    assert part.successful_keys == (key_of(1),)
    assert (manager.memory[3] == 5).all()
    none = manager.load([7, 8], [2, 3])
    assert not none.success
    assert none.successful_keys is None


def test_a_tier_that_is_full_takes_new_chunks_for_old_ones(manager: Manager) -> None:
    for number in range(100):
        manager.memory[0] = number
        assert manager.store([number], [0]).success
    assert manager.lookup(99) is LookupResult.HIT
    found = [number for number in range(100) if manager.lookup(number) is LookupResult.HIT]
    assert 0 < len(found) <= 16
    for number in found:
        assert manager.load([number], [1]).success
        assert (manager.memory[1] == number).all()


def test_after_a_drain_every_job_has_its_result(manager: Manager) -> None:
    jobs = [manager.submit(manager.tier.submit_store, [number], [0]) for number in range(8)]
    manager.tier.drain_jobs()
    results = manager.tier.get_finished_jobs()
    assert [each.job_id for each in results] == jobs
    assert all(each.success for each in results)
    assert manager.tier.get_finished_jobs() == []


def test_small_jobs_are_not_copied_on_the_scheduler_s_thread(manager: Manager) -> None:
    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

    manager.store([0], [0])
    # The thread that copies takes the page faults of memory that was never touched.
    before = faults()
    job = manager.submit(manager.tier.submit_store, range(1, CHUNKS), range(1, CHUNKS))
    page_count = (CHUNKS - 1) * CHUNK_BYTES // mmap.PAGESIZE
    assert faults() - before < page_count // 2
    assert manager.ended(job).success


def test_a_chunk_that_is_being_stored_is_asked_for_again(manager: Manager) -> None:
    job = manager.submit(manager.tier.submit_store, [1], [0])
    assert manager.lookup(1) in {LookupResult.RETRY, LookupResult.HIT}
    assert manager.ended(job).success
    assert manager.lookup(1) is LookupResult.HIT


def test_chunks_in_a_file_are_there_after_a_restart(plugin: Any, tmp_path: Path) -> None:
    tier = {"capacity": "1MiB", "path": str(tmp_path / "chunks"), "durability": "process"}
    for attempt in range(2):
        manager = Manager(plugin, tiers=[tier], checksums=True, locality="LOCAL")
        assert manager.tier.locality is Locality.LOCAL
        assert manager.lookup(1) is (LookupResult.HIT if attempt else LookupResult.MISS)
        manager.memory[0] = 9
        assert manager.store([1], [0]).success
        assert manager.load([1], [1]).success
        assert (manager.memory[1] == 9).all()
        manager.tier.shutdown()


def test_chunks_of_another_model_dtype_layout_or_parallelism_are_a_miss(
    plugin: Any, tmp_path: Path
) -> None:
    tier = {"capacity": "1MiB", "path": str(tmp_path / "chunks"), "durability": "process"}
    ours = OffloadingConfig()
    manager = Manager(plugin, ours, tiers=[tier])
    manager.memory[0] = 9
    assert manager.store([1], [0]).success
    manager.tier.shutdown()
    foreign = [
        replace(ours, model=ModelConfig(name="another/model")),
        replace(ours, model=ModelConfig(dtype="fp8")),
        replace(ours, kv_cache_layout="HND"),
        replace(ours, groups=(GroupConfig(layer_names=("layers.1", "layers.0")),)),
        replace(ours, cache=CacheConfig(blocks_per_chunk=2)),
        replace(ours, parallel=ParallelConfig(tp_size=4, pp_size=1)),
        replace(ours, parallel=ParallelConfig(rank=1)),
        replace(ours, parallel=ParallelConfig(world_size=8)),
    ]
    for each in foreign:
        manager = Manager(plugin, each, tiers=[tier])
        assert manager.lookup(1) is LookupResult.MISS, each
        assert not manager.load([1], [1]).success
        assert not manager.memory[1].any()
        manager.tier.shutdown()
    replica = ParallelConfig(data_parallel_index=1, data_parallel_size=2)
    same = replace(ours, engine_id="2", extra_config={"a": object()}, parallel=replica)
    manager = Manager(plugin, same, tiers=[tier])
    assert manager.lookup(1) is LookupResult.HIT
    assert manager.load([1], [1]).success
    assert (manager.memory[1] == 9).all()
    manager.tier.shutdown()


def test_metrics_count_what_the_store_has_done_since_they_were_asked_for(
    plugin: Any, tmp_path: Path
) -> None:
    defined = plugin.HeadraceTier.build_metric_definitions({})
    path = tmp_path / "chunks"
    manager = Manager(plugin, tiers=["1MiB", {"capacity": "1MiB", "path": str(path)}])

    def counted() -> dict[tuple[str, tuple[str, ...]], int]:
        found: dict[tuple[str, tuple[str, ...]], int] = manager.tier.get_stats().found
        assert all(len(label) == len(defined[name].labelnames) for name, label in found)
        assert {name for name, _ in found} == set(defined)
        return {key: count for key, count in found.items() if count}

    healthy = {("vllm:headrace_healthy", (tier,)): 1 for tier in "01"}
    assert manager.store([1, 2], [0, 1]).success
    assert counted() == healthy
    assert not manager.load([1, 2, 3], [2, 3, 4]).success
    assert counted() == {**healthy, ("vllm:headrace_hits", ("0",)): 2}
    assert counted() == healthy
    manager.tier.shutdown()


def test_an_engine_that_does_not_describe_its_model_is_refused_by_name(plugin: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="no configuration of the model"):
        Manager(plugin, None, tiers=["1MiB"], spec=object())


def test_tiers_that_make_no_sense_are_refused_by_name(plugin: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="'room'"):
        Manager(plugin, tiers=[{"room": 1}])
