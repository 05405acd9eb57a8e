# SPDX-License-Identifier: Apache-2.0
"""Measures query 6: prefetching off, auto and on, and DuckDB, on the same columns.

Method. A round runs each mode once, in a shuffled (seeded) order. The first round warms up and is
not counted; short rounds are repeated more often. The cache is cleared before each run of Headrace,
so that each prefetching run moves its data, but keeps its memory, as in long use. DuckDB has its
table in memory and as many threads; the time is that of execution and fetch.
Headrace's query is timed in C++, from the start of the first worker to the end of the last.
Reported are medians with minimum and maximum; ratios are ratios of medians.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa

from headrace._apps.memory import peak_bytes
from headrace._apps.top import bytes_of_emulated_devices
from headrace._apps.tune.door import alternated
from headrace._arguments import PREFETCH_MODES
from headrace._cache_policies import Placement
from headrace.cache import Cache
from headrace.engine import Engine, MoverPath, Thresholds
from headrace.engine_statistics import DeviceStatistics, OperationStatistics
from headrace.errors import CorruptDataError
from headrace.machine import Machine
from headrace.table import Table
from headrace_lab.tpch.baseline import Baseline
from headrace_lab.tpch.lineitem import Columns
from headrace_lab.tpch.q6 import Q6Run, run_q6

DUCKDB = "duckdb"
MEASURE_S = 8.0
"""Approximate time of all measured rounds, unless their number is given."""
ROUNDS_MIN, ROUNDS_MAX = 5, 101
_SAMPLES, _SAMPLED_ROWS = 64, 8192
TIMELINE_RUN_COUNT = 5
"""Runs after the measured ones, of which the fastest gives the timeline."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the study.

    Attributes:
        chunk_bytes: Bytes of one 8-byte column per chunk.
        capacity_bytes: Capacity of the cache per node; None is enough for all moved data.
        placement: As for `headrace.Cache`; None is the fastest memory, or the caller's node if no
            memory is faster, so that "on" moves something.
    """

    prefetch: str
    chunk_bytes: int
    thread_count: int
    round_count: int | None
    capacity_bytes: int | None = None
    placement: Placement | None = None
    compare: bool = True
    path: MoverPath = "auto"

    @property
    def timeline_run_count(self) -> int:
        """Runs with a timeline, of which the fastest is shown: at most `round_count`."""
        return min(TIMELINE_RUN_COUNT, self.round_count or TIMELINE_RUN_COUNT)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one mode.

    Attributes:
        bytes_moved: Bytes that the engine had moved by its end, even for copies that came too
            late.
        bytes_by_device: Those of them that devices moved.
        fallbacks: Moves by processors instead of a device.
        hit_rate: Share of the aggregate's column chunks read from a copy; None without
            prefetching.
        copies_by_node: Column chunks read from copies, by the node of the copy.
    """

    time_ns: int
    prefetched: bool = False
    bytes_moved: int = 0
    bytes_by_device: int = 0
    fallbacks: int = 0
    evictions: int = 0
    hit_rate: float | None = None
    copies_by_node: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Series:
    runs: list[Measured]

    @property
    def times_ns(self) -> list[int]:
        return [run.time_ns for run in self.runs]

    @property
    def median_ns(self) -> float:
        return statistics.median(self.times_ns)

    @property
    def prefetched(self) -> bool:
        """Whether this mode prefetches on this machine."""
        return any(run.prefetched for run in self.runs)

    @property
    def bytes_moved(self) -> int:
        """Mean bytes moved by a run."""
        return round(statistics.fmean(run.bytes_moved for run in self.runs))

    @property
    def bytes_by_device(self) -> int:
        """Mean bytes moved by devices in a run."""
        return round(statistics.fmean(run.bytes_by_device for run in self.runs))

    @property
    def copies_by_node(self) -> dict[int, int]:
        """Column chunks that all runs read from copies, by the node of the copy."""
        nodes = sorted({node for run in self.runs for node in run.copies_by_node})
        return {node: sum(run.copies_by_node.get(node, 0) for run in self.runs) for node in nodes}

    @property
    def fallbacks(self) -> int:
        """Moves of all runs by processors instead of a device."""
        return sum(run.fallbacks for run in self.runs)

    @property
    def evictions(self) -> int:
        """Median number of copies that a run dropped to make room."""
        return round(statistics.median(run.evictions for run in self.runs))

    @property
    def hit_rate(self) -> float | None:
        """Median share of the aggregate's chunks read from a copy."""
        rates = [run.hit_rate for run in self.runs if run.hit_rate is not None]
        return statistics.median(rates) if rates else None


@dataclass(frozen=True, slots=True)
class Study:
    """The results.

    Attributes:
        answer_baseline: DuckDB's answer, if measured.
        baseline_version: DuckDB's version, if measured.
        device_statistics: Statistics of each queue over all runs.
        bytes_by_device: Bytes that each emulated device wrote in all runs, for all processes.
        engine_notes: Why devices, or some of their queues, are not among the movers.
        thresholds: Bytes from which the path "auto" uses a device, and their origin.
        operations: Statistics of the jobs by kind of operation.
        column_nodes: Bytes of all columns by node; None is unknown.
        copy_node: Node of the copies that "on" made, if any.
        timelines: Events of the fastest of some runs of "off" and of a prefetching mode.
    """

    machine: Machine
    settings: Settings
    row_count: int
    rows_selected: int
    answer: Decimal
    answer_baseline: Decimal | None
    baseline_version: str | None
    series: dict[str, Series]
    capacity_bytes: int
    placement: Placement
    movers: list[str]
    device_statistics: dict[str, DeviceStatistics]
    bytes_by_device: dict[str, int]
    engine_notes: list[str]
    thresholds: Thresholds
    operations: dict[str, OperationStatistics]
    column_nodes: dict[int | None, int]
    copy_node: int | None
    timelines: dict[str, Q6Run]
    memory_bytes_peak: int | None

    @property
    def chosen(self) -> Series:
        return self.series[self.settings.prefetch]

    def time_ratio(self, mode: str, reference: str) -> float | None:
        if mode not in self.series or reference not in self.series:
            return None
        return self.series[mode].median_ns / self.series[reference].median_ns

    @property
    def agrees(self) -> bool:
        """False if DuckDB was measured and has another answer."""
        return self.answer_baseline is None or self.answer_baseline == self.answer


def run_study(
    path: Path,
    columns: Columns,
    machine: Machine,
    settings: Settings,
    progress: Callable[[float], None] = lambda _share: None,
) -> Study:
    placement = settings.placement
    if placement is None:
        placement = "fastest" if machine.has_faster_node() else "local"
    capacity_bytes = settings.capacity_bytes or _bytes_moved_at_most(columns, machine, settings)
    with ExitStack() as stack:
        engine = stack.enter_context(make_engine(machine, settings.path))
        cache = stack.enter_context(Cache(engine, capacity_bytes, placement, recycle=True))
        baseline = None
        if settings.compare:
            baseline = stack.enter_context(Baseline(path, settings.thread_count))
        rounds = _Rounds(columns, settings, engine, cache, baseline)
        before = bytes_of_emulated_devices()
        rounds.run(progress)
        written = {
            device: count - before.get(device, 0)
            for device, count in bytes_of_emulated_devices().items()
        }
        # Draw "off" and the chosen mode, or "on" if that did not prefetch.
        other = settings.prefetch if rounds.series[settings.prefetch].prefetched else "on"
        timelines = {mode: rounds.fastest_with_timeline(mode) for mode in ("off", other)}
        copy_node = _node_of_last_copy(columns, cache, settings)
        arrays = {}
        for name, of in columns.arrays().items():  # pa.array() loads pandas.
            kind, buffers = pa.from_numpy_dtype(of.dtype), [None, pa.py_buffer(of)]
            arrays[name] = pa.Array.from_buffers(kind, len(of), buffers)
        sampled = Table(pa.table(arrays), chunk_rows=_SAMPLED_ROWS)
        cache.clear()
        return Study(
            machine=machine,
            settings=settings,
            row_count=columns.row_count,
            rows_selected=timelines["off"].rows_selected,
            answer=timelines["off"].answer,
            answer_baseline=rounds.answer_baseline,
            baseline_version=baseline.version if baseline else None,
            series=rounds.series,
            capacity_bytes=capacity_bytes,
            placement=placement,
            movers=engine.movers,
            device_statistics=engine.device_statistics,
            bytes_by_device={device: count for device, count in written.items() if count},
            engine_notes=engine.notes if settings.path != "cpu" else [],
            thresholds=engine.thresholds,
            operations={
                kind: totals
                for kind, totals in engine.statistics.operations.items()
                if totals.latencies
            },
            column_nodes=sampled.bytes_by_node(samples=_SAMPLES),
            copy_node=copy_node,
            timelines=timelines,
            memory_bytes_peak=peak_bytes(),
        )


def make_engine(machine: Machine, path: MoverPath) -> Engine:
    """Make an engine; that of processors opens no queues."""
    return Engine(machine, path=path, queues=() if path == "cpu" else None)


def _rounds_that_fit(round_s: float) -> int:
    """The number of rounds that takes `MEASURE_S` if each takes `round_s`, within bounds."""
    return max(ROUNDS_MIN, min(ROUNDS_MAX, round(MEASURE_S / max(round_s, 1e-6))))


@dataclass(slots=True)
class _Rounds:
    """Runs every mode once per round, and keeps the times."""

    columns: Columns
    settings: Settings
    engine: Engine
    cache: Cache
    baseline: Baseline | None
    series: dict[str, Series] = field(default_factory=dict)
    answer_baseline: Decimal | None = None
    _revenue: int | None = None

    def run(self, progress: Callable[[float], None]) -> None:
        """Run one round to warm up, then the counted rounds."""
        ways: dict[str, partial[Measured]] = {
            mode: partial(self._run_counted, mode) for mode in PREFETCH_MODES
        }
        if self.baseline is not None:
            ways[DUCKDB] = partial(self._run_baseline, self.baseline)
        count = self.settings.round_count
        if count is None:
            begin = time.monotonic()
            alternated(ways, 0)
            count = _rounds_that_fit(time.monotonic() - begin)
        self.series = {
            name: Series(runs) for name, runs in alternated(ways, count, progress).items()
        }

    def run_ours(self, mode: str, *, record_timeline: bool = False) -> Q6Run:
        """Run one mode with an empty cache and check that its answer equals the others'."""
        self.cache.clear()
        found = run_q6(
            self.columns,
            self.cache,
            machine=self.engine.machine,
            prefetch=mode,
            chunk_bytes=self.settings.chunk_bytes,
            thread_count=self.settings.thread_count,
            record_timeline=record_timeline,
        )
        if self._revenue is None:
            self._revenue = found.revenue
        if found.revenue != self._revenue:
            raise CorruptDataError(
                f"run query 6 with prefetching {mode}",
                f"its answer is {found.revenue} and that of the run before {self._revenue}",
                "this is an error of headrace: please report it with the machine's record",
            )
        return found

    def fastest_with_timeline(self, mode: str) -> Q6Run:
        """Return the fastest of some runs, the least disturbed one."""
        runs = (
            self.run_ours(mode, record_timeline=True)
            for _ in range(self.settings.timeline_run_count)
        )
        return min(runs, key=lambda run: run.time_ns)

    def _run_counted(self, mode: str) -> Measured:
        # Wait for moves of the previous run before the statistics are read.
        self.cache.clear()
        before, engine_before = self.cache.statistics, self.engine.statistics
        found = self.run_ours(mode)
        after, engine_after = self.cache.statistics, self.engine.statistics
        chunk_count = found.chunks_from_cache + found.chunks_from_source
        return Measured(
            time_ns=found.time_ns,
            prefetched=found.prefetched,
            # From the engine: the cache learns later of a finished copy.
            bytes_moved=engine_after.bytes_moved - engine_before.bytes_moved,
            bytes_by_device=engine_after.bytes_by_device - engine_before.bytes_by_device,
            fallbacks=engine_after.jobs_fell_back - engine_before.jobs_fell_back,
            evictions=after.evictions - before.evictions,
            hit_rate=found.chunks_from_cache / chunk_count if found.prefetched else None,
            copies_by_node=found.copies_by_node,
        )

    def _run_baseline(self, baseline: Baseline) -> Measured:
        self.answer_baseline, time_ns = baseline.run()
        return Measured(time_ns)


def _bytes_moved_at_most(columns: Columns, machine: Machine, settings: Settings) -> int:
    """Capacity for both columns of the aggregate, with each chunk in whole pages."""
    data_bytes = columns.extended_price.nbytes + columns.discount.nbytes
    chunk_count = 2 * (-(-columns.extended_price.nbytes // settings.chunk_bytes) + 1)
    return data_bytes + chunk_count * machine.page_bytes * 2


def _node_of_last_copy(columns: Columns, cache: Cache, settings: Settings) -> int | None:
    """The node of the last chunk's copy: it is cached unless every copy was refused."""
    row_count = columns.row_count
    chunk_rows = max(settings.chunk_bytes // 8 // 64 * 64, 1)
    begin = (row_count - 1) // chunk_rows * chunk_rows
    entry = cache.access(columns.extended_price[begin:])
    entry.wait()
    return entry.node
