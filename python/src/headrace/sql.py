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
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
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
from headrace._relation import PREFETCHING, Relation
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
_VIEWS = """SELECT lower(view_name) FROM duckdb_views() WHERE NOT internal
UNION SELECT lower(function_name) FROM duckdb_functions() WHERE NOT internal"""
_SCHEMA_CHANGES = {"alter", "attach", "create", "detach", "drop", "use"}
_WORD = re.compile(r"\w+")
_TRIED = "prefetch for a connection"
_PLANS_MAX = 256
_NOTE_TEXT = 60
_NOTES_MAX = 100
_PLAN_SHARE = 10
"""`auto` asks for a plan if moving the bytes takes at least this many times as long as planning."""
_PLAN_NS_EXPECTED = 5_000_000
_BANDWIDTH_EXPECTED = 10e9


def connect(
    database: str | Path = ":memory:",
    read_only: bool = False,
    config: dict[str, Any] | None = None,
    *,
    prefetch: PrefetchMode = "auto",
    cache: Cache | None = None,
    wait: bool = False,
    chunk_rows: int = CHUNK_ROWS,
) -> "Connection":
    """Open a DuckDB database whose queries prefetch; see `Connection`."""
    return wrap(
        duckdb.connect(database, read_only, config or {}),
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

    It has all methods of `duckdb.DuckDBPyConnection`, and `isinstance` takes it for one. Before a
    statement runs, DuckDB is asked for its plan, and a thread copies the columns in the plan's
    order. DuckDB reads a chunk from its copy if it is ready, else from the table, so results do not
    depend on prefetching. Queries that bypass the wrapper run without prefetching.

    The plan is asked for on a cursor of its own, so that the user's transaction and pending result
    stay untouched. Statements that a cursor cannot plan, because they need a temporary table or
    view, changes that are not committed, or a relation of variables, run without prefetching;
    `notes` says so. So do the first statement that reads tables only through a view, and statements
    that call a Python function, which planning would call, too.

    The mode is "on", "off" or "auto": on if the machine has memory that is faster than the local
    memory of a processor and the tables are large enough to be worth a plan. Without faster memory,
    "auto" passes the tables to DuckDB directly.

    A table must not change while it is registered.

    Threading: as DuckDB's: one thread at a time; use `cursor` for another thread.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, shared: "_Shared", *, owner: bool
    ) -> None:
        self._opened = connection
        self._shared = shared
        self._owner = owner
        self._lacks_tables = not owner
        self._current: _Running | None = None
        self._planner: duckdb.DuckDBPyConnection | None = None
        """The cursor that is asked for a plan at the moment."""
        PREFETCHING[id(connection)] = self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name.startswith("fetch"):
            return found

        @functools.wraps(found)
        def method(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if isinstance(result, duckdb.DuckDBPyRelation):
                result.__class__ = Relation
            return self if result is self._opened else result

        return method

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._opened), *object.__dir__(self)})

    def __repr__(self) -> str:
        return f"<headrace.sql.Connection: prefetch {self.prefetch}>"

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a connection", "its queries run in threads of this process")

    @property  # type: ignore[misc] # It cannot be set.
    def __class__(self) -> Any:
        """DuckDB's, for `isinstance`: its class can neither be made nor be derived from."""
        return duckdb.DuckDBPyConnection

    @property
    def _inner(self) -> duckdb.DuckDBPyConnection:
        """The wrapped connection; the tables are registered in a cursor when it is first used."""
        if self._lacks_tables:
            self._lacks_tables = False
            for name, source in self._shared.all_sources():
                self._opened.register(name, source)
        return self._opened

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

    def register(self, view_name: str, python_object: object) -> "Connection":
        """Register a table under a name; Arrow tables and `headrace.Table` are prefetched.

        Other objects, readers (which can be read only once) and tables with two columns of the same
        name are registered as DuckDB does.
        """
        name, data = view_name, python_object
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

    def unregister(self, view_name: str) -> "Connection":
        """Unregister a table and drop its copies."""
        self._inner.unregister(view_name)
        self._end()
        self._shared.remove(view_name)
        return self

    def create_function(self, name: str, *args: Any, **kwargs: Any) -> "Connection":
        """As DuckDB's. Statements that call the function run without prefetching."""
        self._inner.create_function(name, *args, **kwargs)
        if not kwargs.get("side_effects", False):  # Planning calls it for constants.
            self._shared.functions.add(name.lower())
        return self

    def execute(self, query: object, parameters: object = None) -> Any:
        """Run a statement; read its result with the `fetch` methods. None if there is none."""
        run = self._inner.execute
        return self if self._run(query, parameters, run, query, parameters) is not None else None

    def cursor(self) -> "Connection":
        """Open another connection to the same database, with the same tables and cache."""
        return Connection(self._opened.cursor(), self._shared, owner=False)

    def duplicate(self) -> "Connection":
        """As `cursor`."""
        return self.cursor()

    def plan(self, query: Statement, parameters: object = None) -> list[PlannedScan]:
        """Return what would be prefetched for a statement, in order, without running it.

        Raises:
            duckdb.Error: The statement is invalid, or a cursor cannot plan it.
        """
        text = self._text(query)
        if text is None:
            return []
        return self._ask(self._shared.named(text) or self._shared.all_tables(), text, parameters)[0]

    def interrupt(self) -> None:
        """Interrupt the running statement; for another thread."""
        planner = self._planner
        if planner is not None:
            with suppress(duckdb.ConnectionException):  # The plan has ended meanwhile.
                planner.interrupt()
        self._opened.interrupt()

    def close(self) -> None:
        """Stop prefetching and close the connection. Idempotent."""
        self._end()
        self._opened.close()
        if self._owner:
            self._shared.close()

    def wait_for_prefetch(self) -> None:
        """Wait for the moves of the last statement, as far as the cache has room."""
        if self._current is not None:
            self._current.native.finish()

    def begin_prefetch(self, query: Statement, parameters: object = None) -> None:
        """Start moving what a query will read, before it is executed.

        `execute` and relations do so themselves. The next statement stops it; copies stay.
        """
        failure = self._begin(query, parameters, is_asked=True)
        if failure is not None:
            self._shared.note(failure)

    def _run(
        self,
        query: object,
        parameters: object,
        run: Callable[..., Any],
        *args: Any,
    ) -> Any:
        """Prefetch for a statement while it runs; DuckDB answers it also where that fails."""
        failure = self._begin(query, parameters)
        try:
            result = run(*args)
        except duckdb.Error:
            self._end()
            raise
        if failure is not None:
            self._shared.note(failure)
        return result

    def _begin(self, query: object, parameters: object, *, is_asked: bool = False) -> str | None:
        """Start prefetching for a statement; return why that failed, if it did."""
        self._end()
        try:
            self._current = self._started(query, parameters, is_asked=is_asked)
        except duckdb.InterruptException:
            raise  # Planning is part of the interrupted statement.
        except UnreadablePlanError as problem:
            return f"the plan of DuckDB {duckdb.__version__} cannot be read: {problem}"
        except Exception as problem:  # noqa: BLE001 - What the statement does is up to DuckDB.
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            return f"a statement ran without prefetching: {reason}"
        return None

    def _started(self, query: object, parameters: object, *, is_asked: bool) -> "_Running | None":
        shared = self._shared
        text = query.query if isinstance(query, duckdb.Statement) else query
        if not shared.is_prefetching() or not isinstance(text, str):
            return None
        shared.learn(self._opened)
        version = shared.version
        tables = shared.named(text)
        scans, plan_ns = shared.plans.get(text), 0
        if scans is None:
            if not tables and is_asked:
                tables = shared.all_tables()
            statement = self._text(query) if shared.is_worth_a_plan(tables) else None
            if statement is None:
                return None
            scans, plan_ns = self._ask(tables, statement, parameters)
            shared.keep_plan(text, version, scans, plan_ns)
        if not any(scan.movable_bytes for scan in scans):
            return None
        return shared.start(version, scans, plan_ns)

    def _text(self, query: Any) -> str | None:
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
        self, tables: dict[str, Table], statement: str, parameters: object
    ) -> tuple[list[PlannedScan], int]:
        begin_ns = time.perf_counter_ns()
        with self._opened.cursor() as planner:
            self._planner = planner
            try:
                text = self._explained(planner, tables, statement, parameters)
            finally:
                self._planner = None
        scans = read_plan(text, tables, statement)
        return scans, time.perf_counter_ns() - begin_ns

    def _explained(
        self,
        planner: duckdb.DuckDBPyConnection,
        tables: dict[str, Table],
        statement: str,
        parameters: object,
    ) -> str:
        """The plan; adds the other tables if the statement needs them, too."""
        explain = f"EXPLAIN (FORMAT JSON) {statement}"
        others = self._shared.all_tables()
        wanted = tables
        while True:
            for name in wanted:
                planner.register(name, self._shared.sources[name])
                others.pop(name, None)
            try:
                return str(planner.execute(explain, parameters).fetchall()[0][1])
            except IndexError as problem:
                raise UnreadablePlanError("EXPLAIN gave nothing") from problem
            except duckdb.CatalogException:
                if not others:
                    raise
                tables |= others  # A view or a macro may read them.
                wanted = dict(others)

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

    Threading: shared. `lock` guards `running`, `plans`, `tables`, `sources`, `words` and `version`,
    which counts their changes.
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
        self.words: dict[str, set[str]] = {}
        """Names of tables by their first words in lower case, which a text must have."""
        self.version = 0
        self.views: set[str] = set()
        """Words of names through which statements have read tables that they do not name."""
        self.functions: set[str] = set()
        self.unplanned: str | None = None
        """The last statement that names no table."""
        self.unnamed: str | None = None
        """Such a statement that has read a table."""
        self.looks_left = _NOTES_MAX
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

    def named(self, text: str) -> dict[str, Table]:
        """The tables that a statement names, and all if it names a view that has read one."""
        words = [*_WORD.findall(text.lower()), ""]
        with self.lock:
            if words[0] in _SCHEMA_CHANGES:
                self.plans.clear()
            if not self.functions.isdisjoint(words):
                self.note(f"planning would call a Python function: {text[:_NOTE_TEXT]}")
                return {}
            if not self.views.isdisjoint(words):
                return dict(self.tables)
            names = {name: None for word in words for name in self.words.get(word, ())}
            self.unplanned = None if names else text
            return {name: self.tables[name] for name in names}

    def learn(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Find the views and macros of a statement that read tables without naming them."""
        text, self.unnamed = self.unnamed, None
        if text is not None:
            self.looks_left -= 1
            words = set(_WORD.findall(text.lower()))
            with connection.cursor() as cursor:
                names = cursor.execute(_VIEWS).fetchall()
            self.views.update(words & {each for (name,) in names for each in _WORD.findall(name)})

    def all_tables(self) -> dict[str, Table]:
        with self.lock:
            return dict(self.tables)

    def all_sources(self) -> list[tuple[str, object]]:
        with self.lock:
            return list(self.sources.items())

    def is_worth_a_plan(self, tables: dict[str, Table]) -> bool:
        byte_count = sum(table.movable_bytes() for table in tables.values())
        if self.mode == "on":
            return byte_count > 0
        move_ns = byte_count / (self.bandwidth or _BANDWIDTH_EXPECTED) * 1e9
        return move_ns > _PLAN_SHARE * self.plan_ns

    def keep_plan(self, text: str, version: int, scans: list[PlannedScan], plan_ns: int) -> None:
        with self.lock:
            self.plan_ns = (3 * self.plan_ns + plan_ns) // 4
            if version != self.version:
                return
            if len(self.plans) >= _PLANS_MAX:
                self.plans.pop(next(iter(self.plans)))
            self.plans[text] = scans

    def note(self, text: str) -> None:
        if len(self.notes) < _NOTES_MAX:
            self.notes[text] = None

    def table_of(self, data: object) -> Table:
        return Table(data, chunk_rows=self.chunk_rows)

    def source_of(self, table: Table) -> object:
        """What DuckDB reads the table from."""
        return table.arrow if self.is_bypassed else ArrowSource(table, self)

    def add(self, name: str, table: Table, source: object) -> None:
        nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
        if nested and self.mode != "off":
            self.note(f"columns of '{name}' are not prefetched: {', '.join(nested)}")
        self._replace(name, None if self.is_bypassed else table, source)

    def remove(self, name: str) -> None:
        self._replace(name, None, None)

    def _replace(self, name: str, table: Table | None, source: object) -> None:
        lowered = name.lower()  # Names in DuckDB are case-insensitive.
        word = (_WORD.findall(lowered) or [""])[0]
        with self.lock:
            self.version += 1
            self.plans.clear()
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
                    reader.native.stop()
            if self.cache is not None:
                with suppress(ClosedError):  # A cache closed by its owner has dropped all copies.
                    each.leave(self.cache)

    def start(self, version: int, scans: list[PlannedScan], plan_ns: int) -> _Running | None:
        cache = self.cache
        if cache is None:
            return None
        with self.lock:
            if version != self.version:  # Copies of an unregistered table would stay.
                return None
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
        if self.looks_left > 0:
            self.unnamed = self.unplanned
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


__name__ = duckdb.DuckDBPyRelation.__module__  # As in `_relation`.
