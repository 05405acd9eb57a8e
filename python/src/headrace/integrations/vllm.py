# SPDX-License-Identifier: Apache-2.0
"""A secondary tier for vLLM's KV-cache offloading that keeps chunks in a `headrace.Store`."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from headrace.errors import Error, InvalidArgumentError
from headrace.integrations import store_of
from headrace.store import StoreTransfer

_KEYS_VERSION = 1
"""Raised when the same chunk gets another key or other bytes."""
_NOT_OF_CHUNKS = frozenset({"engine_id", "extra_config", "enable_kv_cache_events"})
"""Fields of vLLM's configuration that do not change the bytes of a chunk."""
_METRIC = "vllm:headrace_"
_OF_TIER = ("store_tier",)
_COUNTERS = {
    "corrupt": ("Copies of chunks that differed from their checksum.", ()),
    "failed": ("Chunks that could not be copied or made durable.", ()),
    "dropped": ("Chunks evicted from the store.", ()),
    "hits": ("Chunks read from a tier of the store.", _OF_TIER),
    "evictions": ("Chunks evicted from a tier of the store.", _OF_TIER),
}


@dataclasses.dataclass(frozen=True)
class _Running:
    """A job in flight; `transfer` is None if it could not start."""

    keys: dict[bytes, int]  # Offset of each chunk in vLLM's memory.
    transfer: StoreTransfer | None
    is_load: bool
    begin_s: float


class HeadraceTier(SecondaryTierManager):
    """Keeps chunks in tiers of memory and files, copied by the engine, not the scheduler's thread.

    The store evicts on its own. Chunks in files survive a restart; those of another model, dtype,
    layout or parallel configuration are a miss.

    Threading: confined; vLLM calls it under a lock.
    """

    medium: ClassVar[Any] = Medium.CPU

    def __init__(  # noqa: PLR0913 - Keyword options of a configuration.
        self,
        offloading_spec: object,
        primary_kv_view: memoryview,
        tier_type: str,
        *,
        tiers: Sequence[int | str | Mapping[str, Any]] = (),
        checksums: bool = True,
        connect: str | None = None,
        locality: str | None = None,
        backpressure_detector: object = None,
    ) -> None:
        """Make the tier.

        Args:
            offloading_spec: Passed by vLLM; its `config` describes the model and the chunks.
            primary_kv_view: vLLM's chunks in memory.
            tier_type: vLLM's name for the tier.
            tiers: Fastest first: capacities, or mappings with the fields of `headrace.Tier`.
            checksums: Store a CRC-32C with each chunk and verify it on loads.
            connect: Instead of `tiers`: path of a store that other processes use as well.
            locality: "LOCAL" or "REMOTE", as vLLM publishes it.
            backpressure_detector: Passed by vLLM.

        Raises:
            InvalidArgumentError: `offloading_spec` does not describe the model; else as
                `headrace.Store`.
        """
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality: Any = None if locality is None else Locality(locality)
        self._namespace = _namespace_of(offloading_spec)
        # A memoryview, not an array: vLLM releases its view, which then must not be exported.
        self._chunks = primary_kv_view.cast("B")
        self._store = store_of(tiers, self.block_size_bytes, checksums=checksums, connect=connect)
        self._jobs: dict[int, _Running] = {}
        self._reported: dict[tuple[str, tuple[str, ...]], int] = {}

    def lookup(self, key: bytes, req_context: object) -> LookupResult:
        """Whether a chunk is present or being stored."""
        del req_context
        if self._namespace + key in self._store:
            return LookupResult.HIT
        stores = (each for each in self._jobs.values() if not each.is_load and each.transfer)
        return LookupResult.RETRY if any(key in each.keys for each in stores) else LookupResult.MISS

    def submit_store(self, job_metadata: Any) -> None:  # noqa: ANN401 - vLLM's TransferJob.
        """Start copying chunks into the store, except those already present."""
        self._submit(job_metadata, is_load=False)

    def submit_load(self, job_metadata: Any) -> None:  # noqa: ANN401 - vLLM's TransferJob.
        """Start copying chunks out of the store."""
        self._submit(job_metadata, is_load=True)

    def _submit(self, job: Any, *, is_load: bool) -> None:  # noqa: ANN401 - As above.
        length = self.block_size_bytes
        places = {
            key: int(number) * length
            for key, number in zip(job.keys, job.chunk_ids, strict=True)
            if is_load or self._namespace + key not in self._store
        }
        chunks = [self._chunks[begin : begin + length] for begin in places.values()]
        transfer = None
        with suppress(Error):
            submit = self._store.get_many if is_load else self._store.put_many
            transfer = submit([self._namespace + key for key in places], chunks)
        self._jobs[job.job_id] = _Running(places, transfer, is_load, time.monotonic())

    def get_finished_jobs(self) -> list[JobResult]:
        """Return the results of finished jobs, once each."""
        ended = [
            (job_id, job)
            for job_id, job in self._jobs.items()
            if job.transfer is None or job.transfer.poll()
        ]
        return [self._result(job_id, self._jobs.pop(job_id)) for job_id, _ in ended]

    def _result(self, job_id: int, job: _Running) -> JobResult:
        counts = [0] * len(job.keys) if job.transfer is None else job.transfer.byte_counts
        done = [
            key
            for key, count in zip(job.keys, counts, strict=True)
            if count == self.block_size_bytes
        ]
        success = job.transfer is not None and len(done) == len(job.keys)
        return JobResult(
            job_id=job_id,
            success=success,
            successful_keys=tuple(done) if job.is_load and done and not success else None,
            transfer_time=time.monotonic() - job.begin_s,
            transfer_bytes=len(done) * self.block_size_bytes,
        )

    def on_new_request(self, req_context: object) -> RequestOffloadingContext:
        """Return no preference."""
        del req_context
        return RequestOffloadingContext()

    def drain_jobs(self) -> None:
        """Wait until no transfer uses vLLM's memory."""
        for job in self._jobs.values():
            if job.transfer is not None:
                job.transfer.wait()

    @classmethod
    def build_metric_definitions(cls, extra_config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `get_stats` adds to vLLM's own metrics of tiers."""
        del extra_config
        healthy = OffloadingGaugeMetadata("1 if a tier of the store accepts chunks.", _OF_TIER)
        counters = {name: OffloadingCounterMetadata(*each) for name, each in _COUNTERS.items()}
        return {_METRIC + name: each for name, each in {"healthy": healthy, **counters}.items()}

    def get_stats(self) -> Any:  # noqa: ANN401 - vLLM's OffloadingConnectorStats.
        """Return what the store has counted since the last call."""
        known = self._store.statistics
        stats = OffloadingConnectorStats()
        for number, tier in enumerate(known.tiers):
            stats.set_gauge(_METRIC + "healthy", int(tier.is_healthy), (str(number),))
        for name, (_, labels) in _COUNTERS.items():
            for number, each in enumerate(known.tiers if labels else (known,)):
                key = (_METRIC + name, (str(number),) if labels else ())
                before = self._reported.get(key, 0)
                self._reported[key] = getattr(each, name)
                stats.increase_counter(key[0], self._reported[key] - before, key[1])
        return stats

    def shutdown(self) -> None:
        """Wait for transfers in flight and close the store. Idempotent."""
        self._store.close()
        self._jobs.clear()
        self._chunks.release()


def _namespace_of(spec: Any) -> bytes:  # noqa: ANN401 - vLLM's OffloadingSpec.
    """Return the prefix of keys: a digest of what determines the bytes of a chunk.

    vLLM's own key is a hash of tokens, the same for every model. Each field counts unless it is
    known not to, so that a field of a later vLLM causes misses and not foreign chunks.
    """
    try:
        described = {
            name: value for name, value in vars(spec.config).items() if name not in _NOT_OF_CHUNKS
        }
        parallel = vars(described["parallel"]).items()
        described |= {
            # Replicas of the same model have the same chunks.
            "parallel": {name: n for name, n in parallel if not name.startswith("data_parallel")},
            "storage_format": getattr(spec, "storage_format", None),
            "version": _KEYS_VERSION,
        }
        text = json.dumps(described, default=dataclasses.asdict, sort_keys=True)
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidArgumentError(
            "make a tier of vLLM",
            f"its specification has no configuration of the model: {error}",
            "use the version of vLLM in docs/guide/vllm.md",
        ) from None
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
