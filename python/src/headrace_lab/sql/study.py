# SPDX-License-Identifier: Apache-2.0
"""Measures queries: prefetching off, auto and on, and DuckDB, on the same Arrow tables.

Method. Each query first runs once with prefetching and an empty cache: its first run. Peak memory
is that of these runs, because later DuckDB keeps a second copy of the tables in its own storage.
Then follow the rounds, query by query. Each runs every mode once, in orders in which every mode
follows each other one equally often, because a run affects caches and allocators. The first round
warms up and is not counted. Copies are made before it and persist: the counted runs show the cache,
the first run shows prefetching.

All modes use one DuckDB instance through separate cursors, because two equal instances differ by
some percent; only DuckDB's own storage uses another one. Execution and fetch are timed. Reported
are ratios of the sums of the queries' medians, and for each query the median of the rounds' ratios.
"""

import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import duckdb

from headrace._apps.figures import Figure, figure_of
from headrace._apps.memory import begin_peak, peak_bytes, resident_bytes
from headrace._arguments import PREFETCH_MODES, PrefetchMode
from headrace._cache_policies import Placement
from headrace.cache import Cache
from headrace.engine import MoverPath
from headrace.errors import InvalidArgumentError
from headrace.machine import Machine
from headrace.sql import Connection, Explained, PlannedScan, Prefetched, connect, wrap
from headrace.table import Table
from headrace_lab.tpch.study import make_engine

DUCKDB, STORAGE = "duckdb", "storage"
MODES = (DUCKDB, STORAGE, *PREFETCH_MODES)
Row = tuple[Any, ...]

_TOLERANCE = 1e-9
"""Relative tolerance of floating-point results: threads add in any order."""
_CAPACITY_SLACK = 1.25
_CAPACITY_MIN = 64 << 20
ROWS_KEPT = 20
_PEAK_SLACK = 300 << 20
"""Memory of a process beside the tables and the capacity, including DuckDB's hash tables."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the study.

    Attributes:
        capacity_bytes: Capacity of the cache per node; None is enough for all tables.
        base_bytes: `resident_bytes` of this process before it read the tables; None if unknown.
    """

    prefetch: str
    thread_count: int
    round_count: int
    path: MoverPath = "auto"
    capacity_bytes: int | None = None
    base_bytes: int | None = None


@dataclass(slots=True)
class QueryStudy:
    """One query; `is_equal` if every run of every mode gave the same result.

    `cpu_ns` is the time of all processors in all threads of this process.
    """

    text: str
    plan: list[PlannedScan] = field(default_factory=list)
    column_names: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    row_count: int = 0
    is_equal: bool = True
    times_ns: dict[str, list[int]] = field(default_factory=dict)
    cpu_ns: dict[str, list[int]] = field(default_factory=dict)
    first: Prefetched | None = None
    repeated: list[Prefetched] = field(default_factory=list)

    def median_ns(self, mode: str) -> float:
        return statistics.median(self.times_ns[mode])

    def spread(self, mode: str) -> Figure:
        """Time of a mode relative to DuckDB on the same Arrow tables, over the rounds."""
        pairs = zip(self.times_ns[mode], self.times_ns[DUCKDB], strict=True)
        return figure_of([own / other for own, other in pairs])


@dataclass(frozen=True, slots=True)
class Study:
    """The results.

    Attributes:
        column_nodes: Bytes of all columns by node; None is unknown.
        bytes_moved: Bytes of the copies made in all runs.
        bytes_by_device: Those of them that devices moved.
        peak_bytes: Peak memory of this process during the first runs; None if unknown.
        peak_limit_bytes: Limit for the peak: the tables, the capacity and 300 MiB.
    """

    settings: Settings
    machine: Machine
    queries: dict[str, QueryStudy]
    tables: dict[str, Table]
    column_nodes: dict[int | None, int]
    bytes_moved: int
    bytes_by_device: int
    capacity_bytes: int
    peak_bytes: int | None
    peak_limit_bytes: int
    notes: list[str]

    @property
    def equal_count(self) -> int:
        return sum(each.is_equal for each in self.queries.values())

    def ratio(self, mode: str, reference: str, *, cpu: bool = False) -> float:
        """Sum of the queries' median times, or processor times, in a mode relative to another."""
        own, other = (
            sum(
                statistics.median((each.cpu_ns if cpu else each.times_ns)[name])
                for each in self.queries.values()
            )
            for name in (mode, reference)
        )
        return own / other

    def spread(self, mode: str, reference: str) -> Figure:
        """The same ratio over the rounds."""

        def sums(name: str) -> list[int]:
            series = (each.times_ns[name] for each in self.queries.values())
            return [sum(round_ns) for round_ns in zip(*series, strict=True)]

        pairs = zip(sums(mode), sums(reference), strict=True)
        return figure_of([own / other for own, other in pairs])

    def worst(self, mode: str) -> tuple[str, Figure]:
        """The query with the highest time in a mode relative to DuckDB on the same Arrow tables."""
        found = {name: each.spread(mode) for name, each in self.queries.items()}
        name = max(found, key=lambda each: found[each].median)
        return name, found[name]

    @property
    def share_first_run(self) -> float | None:
        """Share of bytes that first runs read from copies; each began with an empty cache."""
        return share([each.first for each in self.queries.values() if each.first is not None])

    @property
    def share_from_copies(self) -> float | None:
        """Share of bytes that the counted runs read from copies."""
        return share([run for each in self.queries.values() for run in each.repeated])

    @property
    def copies_by_node(self) -> dict[int, int]:
        """Chunks of columns that the counted runs read from copies, by the node of the copy."""
        runs = itertools.chain(*(each.repeated for each in self.queries.values()))
        return sum((Counter(run.copies_by_node) for run in runs), Counter())


def share(runs: list[Prefetched]) -> float | None:
    """Share of the runs' bytes that came from copies; None if nothing can be moved."""
    copies = sum(run.bytes_from_copies for run in runs)
    total = copies + sum(run.bytes_from_source for run in runs)
    return copies / total if total else None


def make_plans(
    tables: Mapping[str, Any], queries: Mapping[str, str], mode: PrefetchMode
) -> dict[str, Explained]:
    """Make the plans without running the queries."""
    check_queries(queries.values())
    with Cache(placement="none") as cache, connect(prefetch=mode, cache=cache) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return {name: connection.explain_prefetch(text) for name, text in queries.items()}


def run_study(
    tables: Mapping[str, Any],
    queries: Mapping[str, str],
    machine: Machine,
    settings: Settings,
    progress: Callable[[float], None] = lambda _share: None,
) -> Study:
    registered = {name: Table(table) for name, table in tables.items()}
    movable_bytes = sum(table.movable_bytes() for table in registered.values())
    capacity_bytes = settings.capacity_bytes or max(
        math.ceil(movable_bytes * _CAPACITY_SLACK), _CAPACITY_MIN
    )
    # Without faster memory, too, "on" moves something.
    placement: Placement = "fastest" if machine.has_faster_node() else "local"
    with ExitStack() as stack:
        check_queries(queries.values())
        engine = stack.enter_context(make_engine(machine, settings.path))
        cache = stack.enter_context(Cache(engine, capacity_bytes, placement, recycle=True))
        options: Any = {"config": {"threads": settings.thread_count}}
        plain = stack.enter_context(duckdb.connect(**options))
        ours: dict[str, Connection] = {
            mode: stack.enter_context(wrap(plain.cursor(), prefetch=mode, cache=cache))
            for mode in PREFETCH_MODES
        }
        on = ours["on"]
        for name, table in registered.items():
            on.register(name, table)
        peak_limit = _tables_bytes(registered, settings) + capacity_bytes + _PEAK_SLACK
        can_tell = begin_peak()
        found, answers = {}, {}
        for name, text in queries.items():
            cache.clear()
            found[name], answers[name] = _first_run(on, text)
        peak = peak_bytes() if can_tell else None
        storage = stack.enter_context(duckdb.connect(**options))
        for name, table in registered.items():
            plain.register(name, table.arrow)
            storage.register("_headrace_source", table.arrow)
            quoted = name.replace('"', '""')
            storage.execute(f'CREATE TABLE "{quoted}" AS FROM _headrace_source')
            storage.unregister("_headrace_source")
            for mode in ("off", "auto"):
                ours[mode].register(name, table)
        for index, (name, query) in enumerate(found.items()):
            cache.clear()
            connections = {DUCKDB: plain, STORAGE: storage, **ours}
            _measure(query, answers.pop(name), connections, settings)
            progress((index + 1) / len(queries))
        nodes = Counter[int | None]()
        for table in registered.values():
            nodes += table.bytes_by_node()
        statistics_ = engine.statistics
        return Study(
            settings=settings,
            machine=machine,
            queries=found,
            tables=registered,
            column_nodes=nodes,
            bytes_moved=statistics_.bytes_moved,
            bytes_by_device=statistics_.bytes_by_device,
            capacity_bytes=capacity_bytes,
            peak_bytes=peak,
            peak_limit_bytes=peak_limit,
            notes=list(dict.fromkeys([*on.notes, *ours["auto"].notes])),
        )


def check_queries(texts: Iterable[str]) -> None:
    """Refuse what is not one query: each text runs many times, and its answers are compared."""
    for text in texts:
        kinds = [each.type.name for each in duckdb.extract_statements(text)]
        if kinds != ["SELECT"]:
            raise InvalidArgumentError(
                "run the query",
                f"it is not one SELECT, but {' and '.join(kinds) or 'nothing'}",
                "write one query; it runs many times, so it must not change anything",
            )


def _tables_bytes(tables: Mapping[str, Table], settings: Settings) -> int:
    """Memory of the tables: at least their bytes; resident memory includes allocator overhead."""
    counted = sum(int(table.arrow.nbytes) for table in tables.values())
    now = resident_bytes()
    if now is None or settings.base_bytes is None:
        return counted
    return max(counted, now - settings.base_bytes)


def _first_run(on: Connection, text: str) -> tuple[QueryStudy, list[Row]]:
    found = QueryStudy(text, plan=on.plan(text))
    rows = on.execute(text).fetchall()
    found.first = on.prefetched
    return found, rows


def _measure(
    found: QueryStudy,
    first_answer: list[Row],
    connections: Mapping[str, Any],
    settings: Settings,
) -> None:
    on: Connection = connections["on"]
    answer = connections[DUCKDB].execute(found.text)
    found.column_names = [each[0] for each in answer.description]
    expected = answer.fetchall()
    found.row_count = len(expected)
    found.rows = expected[:ROWS_KEPT]
    found.is_equal = same_rows(first_answer, expected)

    def run(mode: str) -> tuple[int, int]:
        begin_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        rows = connections[mode].execute(found.text).fetchall()
        times = time.perf_counter_ns() - begin_ns, time.process_time_ns() - cpu_ns
        found.is_equal = found.is_equal and same_rows(rows, expected)
        return times

    on.begin_prefetch(found.text)
    on.wait_for_prefetch()
    found.times_ns = {mode: [] for mode in MODES}
    found.cpu_ns = {mode: [] for mode in MODES}
    rounds = itertools.islice(itertools.cycle(balanced_orders(MODES)), settings.round_count)
    for is_counted, modes in [(False, MODES), *((True, modes) for modes in rounds)]:
        for mode in modes:
            time_ns, cpu_ns = run(mode)
            if is_counted:
                found.times_ns[mode].append(time_ns)
                found.cpu_ns[mode].append(cpu_ns)
                if mode == "on" and on.prefetched is not None:
                    found.repeated.append(on.prefetched)


def balanced_orders(items: Sequence[str]) -> list[list[str]]:
    """Orders in which each item directly follows each other one equally often (Williams design)."""
    count = len(items)
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(count)]
    orders = [[items[(each + first) % count] for each in zigzag] for first in range(count)]
    return orders + [order[::-1] for order in orders]


def same_rows(rows: list[Row], expected: list[Row]) -> bool:
    """Whether two results are equal up to the order of rows."""
    if rows == expected:
        return True
    if len(rows) != len(expected):
        return False
    return all(
        len(row) == len(other) and all(map(_same_value, row, other))
        for row, other in zip(sorted(rows, key=_key), sorted(expected, key=_key), strict=True)
    )


def _key(row: Row) -> tuple[str, ...]:
    # Floating-point values come last and are rounded: equal results may differ in low digits.
    exact = [repr(value) for value in row if not isinstance(value, float)]
    return (*exact, *(f"{value:.6e}" for value in row if isinstance(value, float)))


def _same_value(value: object, other: object) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=_TOLERANCE) or (
            math.isnan(value) and math.isnan(other)
        )
    return value == other
