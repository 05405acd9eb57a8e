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
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headrace._arguments import PrefetchMode
from headrace._closing import Closing, OfOneProcess
from headrace._gain import Learned
from headrace._plan import PlannedScan, UnreadablePlanError, read_plan
from headrace._prefetched import ColumnRead, Explained, ExplainedColumn, Prefetched, ScanRead
from headrace._relation import PREFETCHING, Relation
from headrace._sql_state import NOTES_MAX, Running, Shared
from headrace.cache import Cache
from headrace.errors import InvalidArgumentError
from headrace.machine import Machine
from headrace.table import CHUNK_ROWS, Table

__all__ = [
    "ColumnRead",
    "Connection",
    "Explained",
    "ExplainedColumn",
    "PlannedScan",
    "Prefetched",
    "ScanRead",
    "connect",
    "wrap",
]

Statement = str | duckdb.Statement

_PLANNED_TYPES = {"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"}
"""Statements that may read tables and that EXPLAIN accepts."""


def connect(
    database: str | Path = ":memory:",
    read_only: bool = False,
    config: dict[str, Any] | None = None,
    *,
    prefetch: PrefetchMode = "auto",
    cache: Cache | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> "Connection":
    """Open a DuckDB database whose queries prefetch; see `Connection`."""
    return wrap(
        duckdb.connect(database, read_only, config or {}),
        prefetch=prefetch,
        cache=cache,
        chunk_rows=chunk_rows,
    )


def wrap(
    connection: duckdb.DuckDBPyConnection,
    *,
    prefetch: PrefetchMode = "auto",
    cache: Cache | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> "Connection":
    """Let the queries of an open DuckDB connection prefetch; see `Connection`."""
    shared = Shared(prefetch, cache, connection, chunk_rows=chunk_rows)
    return Connection(connection, shared, owner=True)


class Connection(Closing, OfOneProcess):
    """A DuckDB connection whose queries prefetch the registered Arrow tables that they read.

    It has all methods of `duckdb.DuckDBPyConnection`, and `isinstance` takes it for one. Before a
    statement runs, DuckDB is asked for its plan, and a thread copies the columns in the plan's
    order. DuckDB reads a chunk from its copy if it is ready, else from the table, so results do not
    depend on prefetching. Queries that bypass the wrapper run without prefetching.

    The plan is asked for on a cursor of its own, so that the user's transaction and pending result
    stay untouched. Statements that a cursor cannot plan, because they need a temporary table or
    view, changes that are not committed, or a relation of variables, run without prefetching;
    `notes` says so. So do statements that read tables only through a view or macro that was not
    made here, and those that call a Python function, which planning would call, too.

    The mode is "on", "off" or "auto". "on" prefetches every statement; on a machine with one node,
    where copies cannot gain, a tenth of the time only, and without a plan: from the start of each
    scan. On a machine with one kind of memory "auto" passes the tables to DuckDB directly. Else it
    measures the first run of a statement without copies, and prefetches the next ones if bandwidths
    and latencies of the memory predict a gain of at least 5 %. It stops if measured runs with
    copies gain less. `notes` and `explain_prefetch` give both gains.

    A table must not change while it is registered.

    Threading: as DuckDB's: one thread at a time; use `cursor` for another thread.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, shared: "Shared", *, owner: bool
    ) -> None:
        self._opened = connection
        self._shared = shared
        self._owner = owner
        self._registered: set[str] = set()
        """Tables that a cursor has; it gets each when a statement first names it."""
        self._current: Running | None = None
        self._learned: Learned | None = None
        """Of the current statement; None if nothing is to be learned."""
        self._spent_ns = 0
        """Time of the current statement inside DuckDB."""
        self._planner: duckdb.DuckDBPyConnection | None = None
        """The cursor that is asked for plans; to register tables takes as long as planning."""
        self._planned: tuple[int, set[str]] = (-1, set())
        """The version of the tables for which it has these."""
        PREFETCHING[id(connection)] = self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._opened, name)
        if not callable(found) or (self._learned is None and name.startswith("fetch")):
            return found

        @functools.wraps(found)
        def method(*args: Any, **kwargs: Any) -> Any:
            self.need(*args, *kwargs.values())
            begin_ns = time.perf_counter_ns()
            result = found(*args, **kwargs)
            self._spent_ns += time.perf_counter_ns() - begin_ns
            if isinstance(result, duckdb.DuckDBPyRelation):
                result.__class__ = Relation
            return self if result is self._opened else result

        return method

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._opened), *object.__dir__(self)})

    def __repr__(self) -> str:
        return f"<headrace.sql.Connection: prefetch {self.prefetch}>"

    @property  # type: ignore[misc] # It cannot be set.
    def __class__(self) -> Any:
        """DuckDB's, for `isinstance`: its class can neither be made nor be derived from."""
        return duckdb.DuckDBPyConnection

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The wrapped DuckDB connection."""
        self.need(*self._shared.all_tables())
        return self._opened

    def need(self, *texts: object, ends: bool = False) -> None:
        """Register the tables that texts name and this cursor lacks; `ends` a pending result."""
        for text in texts if not self._owner else ():
            for name, source in self._shared.sources_in(str(getattr(text, "query", text))):
                if name not in self._registered:
                    if ends:
                        self._opened.abort()
                    self._opened.register(name, source)
                    self._registered.add(name)

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
        """Why something was not prefetched, and gains by "auto"; the first hundred of them."""
        return [*self._shared.notes, *self._shared.gains()][:NOTES_MAX]

    @property
    def prefetched(self) -> Prefetched | None:
        """Prefetching of the last statement so far; None without any."""
        return self._current.report() if self._current and self._current.scans else None

    def register(self, view_name: str, python_object: object) -> "Connection":
        """Register a table under a name; Arrow tables and `headrace.Table` are prefetched.

        Other objects, readers (which can be read only once) and tables with two columns of the same
        name are registered as DuckDB does.
        """
        name, data = view_name, python_object
        table = data if isinstance(data, Table) else None
        if isinstance(data, (pa.Table, pa.RecordBatch)):
            try:
                table = self._shared.table_of(data)
            except InvalidArgumentError:
                self._shared.note(f"two columns of '{name}' have the same name")
        if table is not None:
            source = self._shared.source_of(table)
            self._opened.register(name, source)  # May refuse it: then the earlier one stays.
            self._leave()
            self._shared.add(name, table, source)
        else:
            self._opened.register(name, data)
            self._leave()
            self._shared.remove(name)
        return self

    def unregister(self, view_name: str) -> "Connection":
        """Unregister a table and drop its copies."""
        self.need(view_name)
        self._opened.unregister(view_name)
        self._registered.discard(view_name)
        self._leave()
        self._shared.remove(view_name)
        return self

    def create_function(self, name: str, *args: Any, **kwargs: Any) -> "Connection":
        """As DuckDB's. Statements that call the function run without prefetching."""
        self._opened.create_function(name, *args, **kwargs)
        if not kwargs.get("side_effects", False):  # Planning calls it for constants.
            self._shared.functions.add(name.lower())
        return self

    def execute(self, query: object, parameters: object = None) -> Any:
        """Run a statement; read its result with the `fetch` methods. None if there is none."""
        self.need(query, ends=True)
        run = self._opened.execute
        return self if self._run(query, parameters, run, query, parameters) is not None else None

    def cursor(self) -> "Connection":
        """Open another connection to the same database, with the same tables and cache."""
        return Connection(self._opened.cursor(), self._shared, owner=False)

    duplicate = cursor

    def plan(self, query: Statement, parameters: object = None) -> list[PlannedScan]:
        """Return what would be prefetched for a statement, in order, without running it.

        Raises:
            duckdb.Error: The statement is invalid, or a cursor cannot plan it.
        """
        text = self._text(query)
        if text is None:
            return []
        scans = self._ask(self._shared.named(text), text, parameters, is_asked=True)[0]
        tables = self._shared.all_tables()
        return [
            replace(each, movable_bytes=tables[each.table].movable_bytes(each.columns))
            for each in scans
        ]

    def explain_prefetch(self, query: Statement, parameters: object = None) -> Explained:
        """Tell which columns of a statement are prefetched, which not and why, and the gain.

        Raises:
            duckdb.Error: The statement is invalid, or a cursor cannot plan it.
        """
        shared = self._shared
        scans = self.plan(query, parameters)
        reading = shared.reading(scans)
        learned = shared.learned.get(str(getattr(query, "query", query)), Learned())
        return Explained(
            shared.reason(scans, reading, learned),
            reading.gain(learned.off_ns, learned.share),
            learned.observed,
            tuple(shared.explained(scan, name) for scan in scans for name in scan.columns),
            tuple(scans),
        )

    def interrupt(self) -> None:
        """Interrupt the running statement; for another thread."""
        planner = self._planner
        if planner is not None:
            with suppress(duckdb.ConnectionException):  # The plan has ended meanwhile.
                planner.interrupt()
        self._opened.interrupt()

    def close(self) -> None:
        """Stop prefetching and close the connection. Idempotent."""
        self._leave()
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
        begin_ns = time.perf_counter_ns()
        try:
            result = run(*args)
        except duckdb.Error:
            self._learned = None
            self._end()
            raise
        self._spent_ns = time.perf_counter_ns() - begin_ns
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

    def _started(self, query: object, parameters: object, *, is_asked: bool) -> "Running | None":
        shared = self._shared
        text = query.query if isinstance(query, duckdb.Statement) else query
        if not shared.is_prefetching() or not isinstance(text, str):
            return None
        version = shared.version
        tables = shared.named(text)
        scans, plan_ns = shared.plans.get(text), 0
        if shared.mode == "auto" and tables and not is_asked:
            self._learned = shared.learned_of(text)
            if not shared.is_worth_a_plan(self._learned):
                return None
        if scans is None:
            can_move = shared.can_move(tables) or (is_asked and not tables)
            if can_move and shared.is_spare and not is_asked:
                return shared.start(version, None, 0, tables, is_asked=False)
            statement = self._text(query) if can_move else None
            if statement is None:
                return None
            scans, plan_ns = self._ask(tables, statement, parameters, is_asked=is_asked)
            shared.keep_plan(text, version, scans, plan_ns)
        learned = self._learned
        if not any(scan.movable_bytes for scan in scans) or (
            learned is not None and not learned.pays(shared.reading(scans))
        ):
            return None
        return shared.start(version, scans, plan_ns, tables, is_asked=is_asked)

    def _text(self, query: Any) -> str | None:
        """Text of the statement; None if there are several or it cannot be planned."""
        statements = (
            [query]
            if isinstance(query, duckdb.Statement)
            else self._opened.extract_statements(query)
        )
        if len(statements) > 1:
            self._shared.note("several statements at once run without prefetching")
        if len(statements) != 1 or statements[0].type.name not in _PLANNED_TYPES:
            return None
        return str(statements[0].query)

    def _ask(
        self, tables: dict[str, Table], statement: str, parameters: object, *, is_asked: bool
    ) -> tuple[list[PlannedScan], int]:
        begin_ns = time.perf_counter_ns()
        try:
            text = self._explained(tables, statement, parameters)
        except duckdb.CatalogException:
            if not is_asked:
                raise
            tables = self._shared.all_tables()  # A view or a macro made elsewhere may read them.
            text = self._explained(tables, statement, parameters)
        scans = read_plan(text, tables, statement)
        return scans, time.perf_counter_ns() - begin_ns

    def _explained(self, tables: dict[str, Table], statement: str, parameters: object) -> str:
        version = self._shared.version
        if self._planner is None or self._planned[0] != version:
            self._planner, self._planned = self._opened.cursor(), (version, set())
        planner, known = self._planner, self._planned[1]
        try:
            for name in tables.keys() - known:
                planner.register(name, self._shared.sources[name])
                known.add(name)
            planner.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
            return str(planner.fetchall()[0][1])
        except IndexError as problem:
            raise UnreadablePlanError("EXPLAIN gave nothing") from problem

    def _leave(self) -> None:
        """End what holds tables."""
        self._end()
        self._planner = None

    def _end(self) -> None:
        if self._learned is not None and self._spent_ns > 0:
            self._learned.add(self._spent_ns, self.prefetched)
        self._learned, self._spent_ns = None, 0
        if self._current is not None:
            self._shared.end(self._current)
            self._current = None


__name__ = duckdb.DuckDBPyRelation.__module__  # As in `_relation`.
