# SPDX-License-Identifier: Apache-2.0
"""DuckDB with prefetching: moves the columns of a query before it reads them.

Example:
    >>> import headrace.sql, pyarrow
    >>> with headrace.sql.connect(prefetch="on") as connection:
    ...     _ = connection.register("numbers", pyarrow.table({"n": range(100_000)}))
    ...     connection.execute("SELECT sum(n) FROM numbers WHERE n > 10").fetchone()
    (4999949945,)
"""

import functools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import duckdb
import pyarrow as pa

from headrace import _core
from headrace._arguments import (
    PREFETCH_MODES,
    PrefetchMode,
    instance_of,
    not_picklable,
    whole_number,
)
from headrace._arrow_source import ArrowSource
from headrace._closing import Closing
from headrace._plan import PlannedScan, UnreadablePlanError, read_plan
from headrace._prefetched import ColumnRead, Prefetched, ScanRead
from headrace._relation import Relation, called_from, caller, text_of
from headrace.cache import Cache
from headrace.errors import ClosedError, InvalidArgumentError
from headrace.machine import Machine, topo
from headrace.table import CHUNK_ROWS, Table

__all__ = [
    "ColumnRead",
    "Connection",
    "PlannedScan",
    "Prefetched",
    "ScanRead",
    "connect",
    "wrap",
]

Statement = str | duckdb.Statement

_PLANNED_TYPES = {"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"}
"""Statements that may read tables and that EXPLAIN accepts."""
_TRIED = "prefetch for a connection"
_PLANS_MAX = 256
_NOTES_MAX = 100
_PLAN_SHARE = 10
"""`auto` asks for a plan if moving the bytes takes at least this many times as long as planning."""
_PLAN_NS_EXPECTED = 5_000_000
_BANDWIDTH_EXPECTED = 10e9
_CHAINED = frozenset(
    {
        "append",
        "begin",
        "checkpoint",
        "commit",
        "create_function",
        "remove_function",
        "rollback",
    }
)
"""Methods that return the connection itself."""


def connect(
    database: str = ":memory:",
    *,
    prefetch: PrefetchMode = "auto",
    cache: Cache | None = None,
    wait: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    **options: Any,
) -> "Connection":
    """Open a DuckDB database whose queries prefetch; see `Connection`."""
    return wrap(
        duckdb.connect(database, **options),
        prefetch=prefetch,
        cache=cache,
        wait=wait,
        chunk_rows=chunk_rows,
    )


def wrap(
    connection: duckdb.DuckDBPyConnection,
    *,
    prefetch: PrefetchMode = "auto",
    cache: Cache | None = None,
    wait: bool = False,
    chunk_rows: int = CHUNK_ROWS,
) -> "Connection":
    """Let the queries of an open DuckDB connection prefetch; see `Connection`."""
    return Connection(
        connection, _Shared(prefetch, cache, wait=wait, chunk_rows=chunk_rows), owner=True
    )


class Connection(Closing):
    """A DuckDB connection whose queries prefetch the registered Arrow tables that they read.

    It has all methods of `duckdb.DuckDBPyConnection`. Before a statement runs, DuckDB is asked for
    its plan, and a thread copies the columns in the plan's order. DuckDB reads a chunk from its
    copy if it is ready, else from the table, so results do not depend on prefetching. Queries that
    bypass the wrapper, such as those on a relation of the wrapped connection, run without
    prefetching.

    The plan is asked for on a cursor of its own, so that the user's transaction and pending result
    stay untouched. Statements that a cursor cannot plan, because they need a temporary table or
    view, changes that are not committed, or a relation of variables, run without prefetching;
    `notes` says so.

    The mode is "on", "off" or "auto": on if the machine has memory that is faster than the local
    memory of a processor and the tables are large enough to be worth a plan. Without faster memory,
    "auto" passes the tables to DuckDB directly.

    A table must not change while it is registered.

    Threading: as DuckDB's: one thread at a time; use `cursor` for another thread.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, shared: "_Shared", *, owner: bool
    ) -> None:
        self._inner = connection
        self._shared = shared
        self._owner = owner
        self._current: _Running | None = None
        self._planner: duckdb.DuckDBPyConnection | None = None
        """The cursor that is asked for a plan at the moment."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _CHAINED:
            return found

        def chained(*args: Any, **kwargs: Any) -> Connection:
            found(*args, **kwargs)
            return self

        return chained

    def __repr__(self) -> str:
        return f"<headrace.sql.Connection: prefetch {self.prefetch}>"

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a connection", "its queries run in threads of this process")

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The wrapped DuckDB connection."""
        return self._inner

    @property
    def machine(self) -> Machine:
        """The machine for which "auto" decides."""
        return self._shared.machine

    @property
    def prefetch(self) -> str:
        """The mode: "off", "auto" or "on"."""
        return self._shared.mode

    @property
    def notes(self) -> list[str]:
        """Why something was not prefetched, each reason once, and the first hundred of them."""
        return list(self._shared.notes)

    @property
    def prefetched(self) -> Prefetched | None:
        """Prefetching of the last statement so far; None without any."""
        return None if self._current is None else self._current.report()

    def register(self, name: str, data: object) -> "Connection":
        """Register a table under a name; Arrow tables and `headrace.Table` are prefetched.

        Other objects, readers (which can be read only once) and tables with two columns of the same
        name are registered as DuckDB does.
        """
        if isinstance(data, (pa.Table, pa.RecordBatch)):
            names = data.schema.names
            is_ours = len(set(names)) == len(names)
            if not is_ours:
                self._shared.note(f"two columns of '{name}' have the same name")
        else:
            is_ours = isinstance(data, Table)
        if is_ours:
            table = data if isinstance(data, Table) else self._shared.table_of(data)
            source = self._shared.source_of(table)
            self._inner.register(name, source)  # May refuse it: then the earlier one stays.
            self._end()
            self._shared.add(name, table, source)
        else:
            self._inner.register(name, data)
            self._end()
            self._shared.remove(name)
        return self

    def unregister(self, name: str) -> "Connection":
        """Unregister a table and drop its copies."""
        self._inner.unregister(name)
        self._end()
        self._shared.remove(name)
        return self

    def execute(self, query: Statement, *args: Any, **kwargs: Any) -> "Connection":
        """Run a statement; read its result with the `fetch` methods."""
        frame = caller()
        with self._prefetching(frame, query, *args, **kwargs):
            called_from(frame, self._inner.execute, query, *args, **kwargs)
        return self

    def executemany(self, query: Statement, *args: Any, **kwargs: Any) -> "Connection":
        """Run a statement for each set of parameters, without prefetching."""
        self._end()
        called_from(caller(), self._inner.executemany, query, *args, **kwargs)
        return self

    def sql(self, query: Statement, *args: Any, **kwargs: Any) -> Any:
        """Make a relation from a query; it prefetches when it is read."""
        return self._relation(called_from(caller(), self._inner.sql, query, *args, **kwargs))

    def query(self, query: str, *args: Any, **kwargs: Any) -> Any:
        """As `sql`."""
        return self._relation(called_from(caller(), self._inner.query, query, *args, **kwargs))

    def table(self, name: str) -> Any:
        """Make a relation from a table or a registered name."""
        return self._relation(called_from(caller(), self._inner.table, name))

    def view(self, name: str) -> Any:
        """Make a relation from a view."""
        return self._relation(called_from(caller(), self._inner.view, name))

    def cursor(self) -> "Connection":
        """Open another connection to the same database, with the same tables and cache."""
        opened = Connection(self._inner.cursor(), self._shared, owner=False)
        for name, source in self._shared.sources.items():
            opened.connection.register(name, source)
        return opened

    def duplicate(self) -> "Connection":
        """As `cursor`."""
        return self.cursor()

    def plan(self, query: Statement, *args: Any, **kwargs: Any) -> list[PlannedScan]:
        """Return what would be prefetched for a statement, in order, without running it.

        Raises:
            duckdb.Error: The statement is invalid, or a cursor cannot plan it.
        """
        statement = self._statement(query)
        if statement is None:
            return []
        return self._ask(caller(), self._shared.tables, statement, *args, **kwargs)[0]

    def interrupt(self) -> None:
        """Interrupt the running statement; for another thread."""
        planner = self._planner
        if planner is not None:
            with suppress(duckdb.ConnectionException):  # The plan has ended meanwhile.
                planner.interrupt()
        self._inner.interrupt()

    def close(self) -> None:
        """Stop prefetching and close the connection. Idempotent."""
        self._end()
        self._inner.close()
        if self._owner:
            self._shared.close()

    def wait_for_prefetch(self) -> None:
        """Wait for the moves of the last statement, as far as the cache has room."""
        if self._current is not None:
            self._current.native.finish()

    def begin_prefetch(self, query: Statement) -> None:
        """Start moving what a query will read, before it is executed.

        `execute` and relations do so themselves. The next statement stops it; copies stay.
        """
        with self._prefetching(caller(), query):
            pass

    def _relation(self, inner: object) -> Any:
        is_relation = isinstance(inner, duckdb.DuckDBPyRelation)
        return Relation(inner, self._prefetching) if is_relation else inner

    def _statement(self, query: Statement) -> str | None:
        """Text of the statement; None if there are several or it cannot be planned."""
        statements = (
            [query]
            if isinstance(query, duckdb.Statement)
            else self._inner.extract_statements(query)
        )
        if len(statements) > 1:
            self._shared.note("several statements at once run without prefetching")
        if len(statements) != 1 or statements[0].type.name not in _PLANNED_TYPES:
            return None
        return str(statements[0].query)

    def _ask(
        self, frame: FrameType, tables: dict[str, Table], statement: str, *args: Any, **kwargs: Any
    ) -> tuple[list[PlannedScan], int]:
        begin_ns = time.perf_counter_ns()
        with self._inner.cursor() as planner:
            self._planner = planner
            try:
                text = self._explained(planner, frame, statement, *args, **kwargs)
            finally:
                self._planner = None
        scans = read_plan(text, tables, statement)
        for scan in scans:  # The first plan that tests a column looks for its bounds.
            tables[scan.table].excluded_chunks(scan.ranges)
        return scans, time.perf_counter_ns() - begin_ns

    def _explained(
        self,
        planner: duckdb.DuckDBPyConnection,
        frame: FrameType,
        statement: str,
        *args: Any,
        **kwargs: Any,
    ) -> str:
        lowered = statement.lower()
        rest = dict(self._shared.sources)
        named = {name: rest.pop(name) for name in list(rest) if name.lower() in lowered}
        while True:
            for name, source in named.items():
                planner.register(name, source)
            try:
                explain = f"EXPLAIN (FORMAT JSON) {statement}"
                answer = called_from(frame, planner.execute, explain, *args, **kwargs).fetchall()
                return str(answer[0][1])
            except IndexError as problem:
                raise UnreadablePlanError("EXPLAIN gave nothing") from problem
            except duckdb.CatalogException:
                if not rest:
                    raise
                named, rest = rest, {}  # A view or a macro may read them.

    @contextmanager
    def _prefetching(
        self,
        frame: FrameType,
        query: Statement | duckdb.DuckDBPyRelation,
        *args: Any,
        **kwargs: Any,
    ) -> Iterator[None]:
        """Prefetch for a statement that runs inside; DuckDB answers it also where that fails."""
        self._end()
        failure: str | None = None
        try:
            self._current = self._started(frame, query, *args, **kwargs)
        except duckdb.InterruptException:
            raise  # Planning is part of the interrupted statement.
        except UnreadablePlanError as problem:
            failure = f"the plan of DuckDB {duckdb.__version__} cannot be read: {problem}"
        except Exception as problem:  # noqa: BLE001 - What the statement does is up to DuckDB.
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            failure = f"a statement ran without prefetching: {reason}"
        try:
            yield
        except duckdb.Error:
            self._end()
            raise
        if failure is not None:
            self._shared.note(failure)

    def _started(
        self,
        frame: FrameType,
        query: Statement | duckdb.DuckDBPyRelation,
        *args: Any,
        **kwargs: Any,
    ) -> "_Running | None":
        shared = self._shared
        if not shared.is_prefetching():
            return None
        if isinstance(query, duckdb.DuckDBPyRelation):
            text, *values = text_of(query)
            return self._started(frame, text, *values)
        statement = self._statement(query)
        if statement is None:
            shared.plans.clear()  # The statement may change the schema.
            return None
        if not shared.is_worth_a_plan(statement):
            return None
        plan_ns = 0
        tables, scans = shared.known_plan(statement)
        if scans is None:
            scans, plan_ns = self._ask(frame, tables, statement, *args, **kwargs)
            shared.keep_plan(statement, tables, scans, plan_ns)
        if not any(scan.movable_bytes for scan in scans):
            return None
        return shared.start(scans, tables, plan_ns)

    def _end(self) -> None:
        if self._current is not None:
            self._shared.end(self._current)
            self._current = None


@dataclass(eq=False, slots=True)
class _Running:
    """The prefetcher of a running statement."""

    native: _core.Prefetcher
    scans: Sequence[PlannedScan]
    tables: dict[str, Table]
    plan_ns: int

    def report(self) -> Prefetched:
        found = self.native.statistics()["scans"]
        return Prefetched(
            self.plan_ns,
            tuple(self._scan(*each) for each in zip(self.scans, found, strict=True)),
        )

    def _scan(self, scan: PlannedScan, found: dict[str, Any]) -> ScanRead:
        table = self.tables[scan.table]
        columns = []
        for name in (*scan.filter_columns, *scan.other_columns):
            column = found["columns"][table.indexes([name])[0]]
            ahead = column["chunks_ahead"]
            columns.append(
                ColumnRead(
                    name,
                    column["bytes_from_copies"],
                    column["bytes_from_source"],
                    column["lead_ns"] // ahead if ahead else None,
                )
            )
        return ScanRead(
            scan.table,
            table.native().chunk_count(),
            found["chunks_submitted"],
            found["chunks_skipped"],
            found["chunks_read"],
            tuple(columns),
        )


class _Shared:
    """State shared by the cursors of a connection.

    Threading: shared. `lock` guards `running`, `plans` and writes of `tables` and `sources`. The
    latter two are replaced, never modified, so reading them needs no lock.
    """

    def __init__(self, mode: str, cache: Cache | None, *, wait: bool, chunk_rows: int) -> None:
        if mode not in PREFETCH_MODES:
            raise InvalidArgumentError(
                f"prefetch {mode!r}", "there is no such mode", "use off, auto or on"
            )
        if cache is not None:
            instance_of(cache, Cache, _TRIED)
        self.mode = mode
        self.wait = wait
        self.chunk_rows: int = whole_number(chunk_rows, _TRIED, 1, 2**31)
        self.machine: Machine = cache.machine if cache is not None else topo()
        has_faster = self.machine.has_faster_node()
        self.is_bypassed: bool = mode == "auto" and not has_faster
        self._own_cache: Cache | None = None
        if cache is None and mode != "off" and not self.is_bypassed:
            cache = self._own_cache = Cache(
                placement="fastest" if has_faster else "local", machine=self.machine, recycle=True
            )
        self.cache = cache
        self.tables: dict[str, Table] = {}
        self.sources: dict[str, object] = {}
        self.notes: dict[str, None] = {}
        self.plans: dict[str, list[PlannedScan]] = {}
        self.running: list[_Running] = []
        self.lock: threading.Lock = threading.Lock()
        self.plan_ns: int = _PLAN_NS_EXPECTED
        self.bandwidth: float = max(
            (each.bandwidth_bytes_per_s or 0 for each in self.machine.accesses), default=0
        )
        if (reason := _cannot_prefetch()) is not None:
            self.note(f"DuckDB {duckdb.__version__} is read without prefetching: {reason}")
            self.is_bypassed = True

    def is_prefetching(self) -> bool:
        return (
            self.mode != "off"
            and not self.is_bypassed
            and self.cache is not None
            and bool(self.tables)
        )

    def is_worth_a_plan(self, statement: str) -> bool:
        if self.mode == "on" or statement in self.plans:
            return True
        text = statement.lower()
        byte_count = sum(
            table.movable_bytes() for name, table in self.tables.items() if name.lower() in text
        )
        move_ns = byte_count / (self.bandwidth or _BANDWIDTH_EXPECTED) * 1e9
        return move_ns > _PLAN_SHARE * self.plan_ns

    def known_plan(self, statement: str) -> tuple[dict[str, Table], list[PlannedScan] | None]:
        """The current tables, and the cached plan of a statement on them, if any."""
        with self.lock:
            return self.tables, self.plans.get(statement)

    def keep_plan(
        self, statement: str, tables: dict[str, Table], scans: list[PlannedScan], plan_ns: int
    ) -> None:
        with self.lock:
            self.plan_ns = (3 * self.plan_ns + plan_ns) // 4
            if tables is not self.tables:
                return
            if len(self.plans) >= _PLANS_MAX:
                self.plans.pop(next(iter(self.plans)))
            self.plans[statement] = scans

    def note(self, text: str) -> None:
        if len(self.notes) < _NOTES_MAX:
            self.notes[text] = None

    def table_of(self, data: object) -> Table:
        return Table(data, chunk_rows=self.chunk_rows)

    def source_of(self, table: Table) -> object:
        """What DuckDB reads the table from."""
        return table.arrow if self.is_bypassed else ArrowSource(table, self)

    def add(self, name: str, table: Table, source: object) -> None:
        nested = [each for each in table.column_names if not table.is_movable(each)]
        if nested and self.mode != "off":
            self.note(f"columns of '{name}' are not prefetched: {', '.join(nested)}")
        self._replace(name, {} if self.is_bypassed else {name: table}, {name: source})

    def remove(self, name: str) -> None:
        self._replace(name, {}, {})

    def _replace(self, name: str, table: dict[str, Table], source: dict[str, object]) -> None:
        def others(named: dict[str, Any]) -> dict[str, Any]:
            # Names in DuckDB are case-insensitive.
            return {key: named[key] for key in named if key.lower() != name.lower()}

        with self.lock:
            before = self.tables
            self.tables = others(before) | table
            self.sources = others(self.sources) | source
            self.plans.clear()
            running = list(self.running)
        for gone in set(before.values()) - set(self.tables.values()):
            for each in running:  # Its prefetcher could copy the table again.
                if gone in each.tables.values():
                    each.native.stop()
            if self.cache is not None:
                with suppress(ClosedError):  # A cache closed by its owner has dropped all copies.
                    gone.native().leave(self.cache.native())

    def start(
        self, scans: list[PlannedScan], tables: dict[str, Table], plan_ns: int
    ) -> _Running | None:
        cache = self.cache
        if cache is None:
            return None
        native: list[tuple[_core.Table, list[int], list[int], list[bool]]] = [
            (
                tables[scan.table].native(),
                tables[scan.table].indexes(scan.filter_columns),
                tables[scan.table].indexes(scan.other_columns),
                tables[scan.table].excluded_chunks(scan.ranges),
            )
            for scan in scans
        ]
        with self.lock:
            if tables is not self.tables:  # Copies of an unregistered table would stay.
                return None
            try:
                started = _core.Prefetcher(cache.native(), native, self.wait)
            except ClosedError:
                self.note("the cache is closed")
                return None
            running = _Running(started, scans, tables, plan_ns)
            self.running.append(running)
        return running

    def end(self, running: _Running) -> None:
        with self.lock, suppress(ValueError):
            self.running.remove(running)
        running.native.stop()

    def stream(self, table: Table, columns: list[int]) -> object:
        """Open a stream of `columns` for the statement that expects it."""
        with self.lock:
            running = list(self.running)
        for each in running:
            if each.native.expects(table.native(), columns):
                return each.native.stream(table.native(), columns)
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
            for name in list(self.tables):
                self.remove(name)
        self.cache = None


class _Probe:
    """Streams of a table; records the columns of each."""

    def __init__(self) -> None:
        self.opened: list[list[int]] = []

    def stream(self, table: Table, columns: list[int]) -> object:
        """Open a stream, as `_Shared.stream`."""
        self.opened.append(columns)
        return table.native().stream(columns)


@functools.cache
def _cannot_prefetch() -> str | None:
    """Why prefetching does not work with this DuckDB; None if it does.

    DuckDB must read a registered table by columns, through `ArrowSource`, and report its scans in
    the plan. No version guarantees that, so a small query tests it.
    """
    probe = _Probe()
    table = Table(pa.table({"a": [1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}))
    query = "SELECT sum(c) FROM probe WHERE a > 1"
    try:
        with duckdb.connect() as connection:
            connection.register("probe", ArrowSource(table, probe))
            found = connection.execute(query).fetchall()
            plan = connection.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall()[0][1]
            scans = read_plan(plan, {"probe": table}, query)
    except Exception as problem:  # noqa: BLE001 - Other versions may raise anything.
        return (str(problem).splitlines() or [type(problem).__name__])[0]
    read = [sorted((*scan.filter_columns, *scan.other_columns)) for scan in scans]
    if found != [(17,)] or probe.opened != [[0, 2]] or read != [["a", "c"]]:
        return "it does not read tables as version 2.0 does"
    return None
