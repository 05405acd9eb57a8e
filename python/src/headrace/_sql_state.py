# SPDX-License-Identifier: Apache-2.0
"""What the cursors of a connection of `headrace.sql` share: tables, plans and what runs taught."""

import os
import re
import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from headrace import _core
from headrace._arguments import instance_of, prefetch_mode, whole_number
from headrace._arrow_source import ArrowSource
from headrace._gain import GAIN_MIN, Learned, Reading
from headrace._plan import PlannedScan, read_plan
from headrace._prefetched import ColumnRead, ExplainedColumn, Prefetched, ScanRead
from headrace.cache import Cache
from headrace.errors import ClosedError
from headrace.machine import Machine, topo
from headrace.table import Table

NOTES_MAX = 100
_Raw = duckdb.DuckDBPyConnection
_VIEW = re.compile(r"\b(?:view|macro|function)\s+(?:if\s+not\s+exists\s+)?(?:\w+\.)*\"?(\w+)")
_SCHEMA_CHANGES = {"alter", "attach", "create", "detach", "drop", "use"}
_WORD = re.compile(r"\w+")
_TRIED = "prefetch for a connection"
_PLANS_MAX = 256
_NOTE_TEXT = 60
_SAMPLES = 8
_PLAN_SHARE = 10
"""`auto` asks for a plan if a statement takes at least this many times as long as planning."""
_PLAN_NS_EXPECTED = 2_000_000


@dataclass(eq=False, slots=True)
class Running:
    """Prefetcher of a running statement; `is_following`: of scans as they start, without a plan."""

    native: _core.Prefetcher
    scans: list[PlannedScan]
    tables: dict[str, Table]
    plan_ns: int = 0
    is_following: bool = False

    def stream(self, table: Table, columns: list[int]) -> object:
        opened = self.native.stream(table.native(), columns)
        if self.is_following:  # As the native prefetcher does.
            names = tuple(table.column_names[each] for each in sorted(columns))
            name = next(name for name, each in self.tables.items() if each is table)
            scan = PlannedScan(name, (), names, table.movable_bytes(names, with_views=False))
            if scan not in self.scans:
                self.scans.append(scan)
        return opened

    def report(self) -> Prefetched:
        found = self.native.statistics()
        return Prefetched(
            self.plan_ns,
            tuple(map(self._scan, self.scans, found["scans"])),
            found["copies_by_node"],
        )

    def _scan(self, scan: PlannedScan, found: dict[str, Any]) -> ScanRead:
        table = self.tables[scan.table]
        columns = []
        for name, index in zip(scan.columns, table.indexes(scan.columns), strict=True):
            each = found["columns"][index]
            ahead = each["chunks_ahead"]
            lead_ns = each["lead_ns"] // ahead if ahead else None
            read = each["bytes_from_copies"], each["bytes_from_source"]
            columns.append(ColumnRead(name, *read, lead_ns))
        submitted, skipped = found["chunks_submitted"], found["chunks_skipped"]
        count, read_count = table.native().chunk_count(), found["chunks_read"]
        return ScanRead(scan.table, count, submitted, skipped, read_count, tuple(columns))


class Shared:
    """State shared by the cursors of a connection.

    Threading: shared. `lock` guards `running`, `plans`, `tables`, `sources`, `words` and `version`,
    which counts their changes.
    """

    def __init__(self, mode: str, cache: Cache | None, opened: _Raw, *, chunk_rows: int) -> None:
        if cache is not None:
            instance_of(cache, Cache, _TRIED)
        self.mode = prefetch_mode(mode)
        self.chunk_rows: int = whole_number(chunk_rows, _TRIED, 1, 2**31)
        self.machine: Machine = cache.machine if cache is not None else topo()
        allowed = os.sched_getaffinity(0)
        self.threads: int = len(allowed)
        nodes = self.machine.nodes
        self.worker: int = next((n.id for n in nodes if allowed.intersection(n.cpus)), 0)
        faster = self.machine.faster_nodes(self.worker)
        has_slower = any(not each.cpus for each in nodes)
        self.target: int | None = faster[0] if faster else self.worker if has_slower else None
        self.is_spare: bool = len(nodes) == 1
        """Copies cannot gain: they are made slowly, and without asking for plans."""
        self.is_bypassed: bool = mode == "auto" and self.target is None
        self._own_cache: Cache | None = None
        if cache is None and mode != "off" and not self.is_bypassed:
            cache = self._own_cache = Cache(
                placement="fastest" if faster else "local", machine=self.machine, recycle=True
            )
        self.cache = cache
        self.tables: dict[str, Table] = {}
        self.sources: dict[str, object] = {}
        self.words: dict[str, set[str]] = {}
        """Names of tables by their first words in lower case, which a text must have."""
        self.version: int = 0
        self.views: dict[str, set[str]] = {}
        """The words in the definitions of views and macros that statements here have made."""
        self.functions: set[str] = set()
        self.notes: dict[str, None] = {}
        self.plans: dict[str, list[PlannedScan]] = {}
        self.running: list[Running] = []
        self.lock: threading.Lock = threading.Lock()
        self.plan_ns: int = _PLAN_NS_EXPECTED
        self.learned: dict[str, Learned] = {}
        self.problem: str | None = cannot_prefetch(opened)
        if self.problem is not None:
            self.note(f"DuckDB {duckdb.__version__} is read without prefetching: {self.problem}")
            self.is_bypassed = True

    def is_prefetching(self) -> bool:
        return (
            self.mode != "off"
            and not self.is_bypassed
            and self.cache is not None
            and bool(self.tables)
        )

    def named(self, text: str) -> dict[str, Table]:
        """The tables that a statement names, itself or by a view."""
        lowered = text.lower()
        words = [*_WORD.findall(lowered), ""]
        with self.lock:
            if words[0] in _SCHEMA_CHANGES:
                self.plans.clear()
                for view in _VIEW.findall(lowered):
                    self.views.setdefault(view, set()).update(words)
            if not self.functions.isdisjoint(words):
                self.note(f"planning would call a Python function: {text[:_NOTE_TEXT]}")
                return {}
            return {
                name: self.tables[name] for name in self._names_by(words) if name in self.tables
            }

    def sources_in(self, text: str) -> list[tuple[str, object]]:
        """What DuckDB reads the tables from that a text names."""
        with self.lock:
            names = self._names_by([*_WORD.findall(text.lower()), ""])
            return [(name, self.sources[name]) for name in names]

    def _names_by(self, words: list[str]) -> list[str]:
        known, following = dict.fromkeys(words), list(words)
        while following:
            more = [each for each in self.views.get(following.pop(), ()) if each not in known]
            known.update(dict.fromkeys(more))
            following += more
        return [name for word in known for name in self.words.get(word, ())]

    def all_tables(self) -> dict[str, Table]:
        with self.lock:
            return dict(self.tables)

    def learned_of(self, text: str) -> Learned:
        with self.lock:
            if text not in self.learned and len(self.learned) >= _PLANS_MAX:
                self.learned.pop(next(iter(self.learned)))
            return self.learned.setdefault(text, Learned())

    def reading(self, scans: Sequence[PlannedScan]) -> Reading:
        tables, found = self.all_tables(), Counter[int | None]()
        for scan in scans:
            found += tables[scan.table].bytes_by_node(scan.columns, samples=_SAMPLES)
        return Reading(self.machine, self.worker, self.threads, self.target, found)

    def gains(self) -> list[str]:
        with self.lock:
            found = list(self.learned.items())
        return [
            f"{text[:_NOTE_TEXT]}: copies should gain {each.expected:.1%}, {each.outcome()}"
            for text, each in found
            if each.expected is not None
        ]

    def reason(self, scans: Sequence[PlannedScan], reading: Reading, learned: Learned) -> str:
        """Why the next run of a statement is prefetched, or not."""
        first = learned.off_ns is None
        unknown = (
            "the bandwidths of this machine's memory are unknown; measure them by "
            "'headrace topo --measure --record FILE' and pass Cache(machine=replay(FILE))"
        )
        causes = (
            (self.problem is not None, self.problem),
            (not any(scan.movable_bytes for scan in scans), "it reads no column that can be moved"),
            (self.mode == "off", "prefetching is off"),
            (self.mode == "on", None),
            (self.target is None, "this machine has one kind of memory"),
            (reading.gain() is None, unknown),
            (first, "the first run is measured without copies"),
            (not self.is_worth_a_plan(learned), "it is too short for a plan"),
            (not learned.pays(reading), f"copies gain less than {GAIN_MIN:.0%}"),
            (True, None),
        )
        cause = next(cause for applies, cause in causes if applies)
        return "yes" if cause is None else f"no: {cause}"

    def is_worth_a_plan(self, learned: Learned) -> bool:
        return learned.off_ns is not None and learned.off_ns >= _PLAN_SHARE * self.plan_ns

    def explained(self, scan: PlannedScan, name: str) -> ExplainedColumn:
        table = self.tables[scan.table]
        byte_count = table.movable_bytes([name])
        reason = "can be moved"
        if table.lies_in_file:
            reason = "it is a mapped file, which others can truncate"
        elif not table.is_movable(name):
            reason = "nested columns are read in place"
        elif byte_count == 0:
            reason = "its parts are shorter than 4 KiB"
        return ExplainedColumn(scan.table, name, name in scan.filter_columns, byte_count, reason)

    def can_move(self, tables: dict[str, Table]) -> bool:
        """Whether a statement that reads these tables is worth a plan."""
        for name, table in tables.items():
            if table.lies_in_file:
                self.note(f"'{name}' is a mapped file, which others can truncate: read in place")
        return any(table.movable_bytes(with_views=False) for table in tables.values())

    def keep_plan(self, text: str, version: int, scans: list[PlannedScan], plan_ns: int) -> None:
        with self.lock:
            self.plan_ns = (3 * self.plan_ns + plan_ns) // 4
            if version != self.version:
                return
            if len(self.plans) >= _PLANS_MAX:
                self.plans.pop(next(iter(self.plans)))
            self.plans[text] = scans

    def note(self, text: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes[text] = None

    def table_of(self, data: object) -> Table:
        return Table(data, chunk_rows=self.chunk_rows)

    def source_of(self, table: Table) -> object:
        return table.arrow if self.is_bypassed else ArrowSource(table, self)

    def add(self, name: str, table: Table, source: object) -> None:
        nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
        if nested and self.mode != "off":
            self.note(f"columns of '{name}' are not prefetched: {', '.join(nested)}")
        self._replace(name, table, source)

    def remove(self, name: str) -> None:
        self._replace(name, None, None)

    def _replace(self, name: str, table: Table | None, source: object) -> None:
        lowered = name.lower()  # Names in DuckDB are case-insensitive.
        # Most names are one word; to search takes as long as the rest of this.
        word = lowered if lowered.isidentifier() else (_WORD.findall(lowered) or [""])[0]
        with self.lock:
            self.version += 1
            self.plans.clear()
            self.learned.clear()
            same = self.words.setdefault(word, set())
            before = [key for key in same if key.lower() == lowered]
            gone = {self.tables.pop(key) for key in before if key in self.tables}
            for key in before:
                del self.sources[key]
            same.difference_update(before)
            if source is not None:
                same.add(name)
                self.sources[name] = source
            if table is not None:
                self.tables[name] = table
            if gone:
                gone.difference_update(self.tables.values())
            running = list(self.running)
        for each in gone:
            for reader in running:  # Its prefetcher could copy the table again.
                if each in reader.tables.values():
                    self.end(reader)
            if self.cache is not None:
                with suppress(ClosedError):  # A cache closed by its owner has dropped all copies.
                    each.leave(self.cache)

    def start(
        self,
        version: int,
        scans: list[PlannedScan] | None,
        plan_ns: int,
        tables: dict[str, Table],
        *,
        is_asked: bool,
    ) -> Running | None:
        """Start prefetching a plan; None: the scans of `tables` when they start."""
        cache = self.cache
        if cache is None:
            return None
        is_following = scans is None
        scans = [scan for scan in scans or () if scan.movable_bytes]
        with self.lock:
            if version != self.version:  # Copies of an unregistered table would stay.
                return None
            if not is_following:
                tables = {scan.table: self.tables[scan.table] for scan in scans}
            native: list[tuple[_core.Table, list[int], list[int], list[bool]]] = [
                (
                    tables[scan.table].native(),
                    tables[scan.table].indexes(scan.filter_columns),
                    tables[scan.table].indexes(scan.other_columns),
                    tables[scan.table].excluded_chunks(scan.ranges),
                )
                for scan in scans
            ]
            try:
                started = _core.Prefetcher(cache.native(), native, self.is_spare and not is_asked)
            except ClosedError:
                self.note("the cache is closed")
                return None
            running = Running(started, scans, tables, plan_ns, is_following)
            self.running.append(running)
        return running

    def end(self, running: Running) -> None:
        with self.lock, suppress(ValueError):
            self.running.remove(running)
        running.native.stop()
        for table in running.tables.values():  # Not beside the statement.
            table.learn_bounds()

    def stream(self, table: Table, columns: list[int]) -> object:
        """Open a stream of `columns` for the statement that expects it."""
        with self.lock:
            running = [each for each in self.running if not each.is_following]
            # If several statements read the table: the one with the fewest scans so far.
            for each in sorted(self.running, key=lambda each: len(each.scans)):
                if each.is_following and table in each.tables.values():
                    return each.stream(table, columns)
        for each in running:
            if each.native.expects(table.native(), columns):
                return each.stream(table, columns)
        if running:  # The plan lacked this scan, but copies may exist.
            return running[-1].native.stream(table.native(), columns)
        return table.native().stream(columns)

    def close(self) -> None:
        for running in list(self.running):
            self.end(running)
        if self._own_cache is not None:
            self._own_cache.close()
            self._own_cache = None
        elif self.cache is not None:
            for name in self.all_tables():
                self.remove(name)
        self.cache = None


class _Probe:
    """Records the columns of each stream that is opened, as by `Shared.stream`."""

    def __init__(self) -> None:
        self.opened: list[list[int]] = []

    def stream(self, table: Table, columns: list[int]) -> object:
        self.opened.append(columns)
        return table.native().stream(columns)


suitable: set[str] = set()
"""Versions of DuckDB with which prefetching works."""


def cannot_prefetch(connection: _Raw) -> str | None:
    """Why prefetching does not work with this DuckDB; None if it does.

    DuckDB must read a registered table by columns, through `ArrowSource`, and report its scans in
    the plan. No version guarantees that, so a small query tests it, on a cursor: to open another
    database takes longer.
    """
    if duckdb.__version__ in suitable:
        return None
    probe = _Probe()
    # From buffers: to convert lists, pyarrow imports pandas.
    numbers = pa.py_buffer(array("q", [7, 8, 9]))
    column = pa.Array.from_buffers(pa.int64(), 3, [None, numbers])
    table = Table(pa.Table.from_arrays([column] * 3, ["a", "b", "c"]))
    query = "SELECT sum(c) FROM probe WHERE a > 7"
    try:
        with connection.cursor() as cursor:
            cursor.register("probe", ArrowSource(table, probe))
            found = cursor.execute(query).fetchall()
            plan = cursor.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall()[0][1]
            scans = read_plan(plan, {"probe": table}, query)
    except Exception as problem:  # noqa: BLE001 - Other versions may raise anything.
        return (str(problem).splitlines() or [type(problem).__name__])[0]
    read = [sorted(scan.columns) for scan in scans]
    if found != [(17,)] or probe.opened != [[0, 2]] or read != [["a", "c"]]:
        return "it does not read tables as version 2.0 does"
    suitable.add(duckdb.__version__)
    return None
