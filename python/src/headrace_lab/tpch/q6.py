# SPDX-License-Identifier: Apache-2.0
"""TPC-H query 6 on columns in memory, with query-driven prefetching, implemented in C++."""

from dataclasses import dataclass
from decimal import Decimal

from headrace.cache import Cache
from headrace.machine import Machine, topo
from headrace_lab import _lab
from headrace_lab.tpch.lineitem import Columns

CHUNK_BYTES = 1 << 20
CHUNK_BYTES_MIN = 4096


@dataclass(frozen=True, slots=True)
class Event:
    """One chunk on a pipeline: "scan", "prefetch" (the submission alone) or "aggregate"."""

    pipeline: str
    worker_index: int
    chunk_index: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Q6Run:
    """One run of the query.

    Attributes:
        revenue: The exact answer in ten-thousandths.
        rows_selected: Rows that passed the filter.
        prefetched: Whether it prefetched, as requested or as "auto" decided.
        chunks_from_cache: Column chunks that the aggregate read from a copy.
        chunks_from_source: Column chunks that it read from the source.
        copies_by_node: Column chunks read from copies, by the node of the copy.
    """

    revenue: int
    rows_selected: int
    time_ns: int
    prefetched: bool
    chunks_from_cache: int
    chunks_from_source: int
    copies_by_node: dict[int, int]
    timeline: tuple[Event, ...]

    @property
    def answer(self) -> Decimal:
        """The revenue with four decimal digits, as the query returns it."""
        return Decimal(self.revenue).scaleb(-4)


def run_q6(
    columns: Columns,
    cache: Cache | None = None,
    *,
    machine: Machine | None = None,
    prefetch: str = "auto",
    chunk_bytes: int = CHUNK_BYTES,
    thread_count: int | None = None,
    record_timeline: bool = False,
) -> Q6Run:
    """Run the query once; other Python threads run meanwhile.

    Args:
        columns: The columns; they must not be changed until the cache is cleared.
        cache: Where prefetched chunks go; needed if `prefetch` is "on".
        machine: The machine; None is the cache's, or discovers it.
        prefetch: "off", "on", or "auto": on if this machine has memory faster than that of the
            workers and its bandwidths, if known, predict a gain.
        chunk_bytes: Bytes of one 8-byte column per chunk.
        thread_count: Workers; None is one per processor that this process may use.
        record_timeline: Whether to record events.
    """
    if machine is None:
        machine = topo() if cache is None else cache.machine
    if cache is not None:
        for array in columns.arrays().values():
            cache.guard(array)
    found = _lab.run_q6(
        machine.native(),
        None if cache is None else cache.native(),
        *columns.arrays().values(),
        prefetch=prefetch,
        chunk_bytes=chunk_bytes,
        thread_count=thread_count or 0,
        record_timeline=record_timeline,
    )
    found["timeline"] = tuple(Event(**event) for event in found["timeline"])
    return Q6Run(**found)
