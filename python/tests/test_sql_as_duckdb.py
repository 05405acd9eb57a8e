# SPDX-License-Identifier: Apache-2.0
"""A connection that prefetches behaves as DuckDB's in everything but speed."""

import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from conftest import TIME_LIMIT_S

import headrace
import headrace.sql
from headrace import _core
from headrace.table import Range

ROWS = 20_000
FACTS = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "kind": pa.array([row % 7 for row in range(ROWS)], pa.int32()),
    }
)
Work = Callable[[Any], Any]


def answered(work: Work, connection: Any) -> Any:
    """The value of a piece of work, or its error."""
    try:
        return work(connection)
    except (duckdb.Error, TypeError, AttributeError) as problem:
        return type(problem), str(problem).splitlines()[:1]


def chained(found: object, connection: object) -> object:
    """Whether a method gave its connection; a relation's rows."""
    return found is connection or found


def as_variable(connection: Any) -> Any:
    facts = connection.sql("SELECT * FROM facts WHERE kind = 2")
    assert facts is not None
    return connection.sql("SELECT count(*), max(id) FROM facts").fetchall()


def as_variable_with_parameters(connection: Any) -> Any:
    few = connection.sql("SELECT id FROM facts WHERE id < ?", params=[9])
    assert few is not None
    return connection.execute("SELECT sum(id) FROM few").fetchall()


def registered_relation(connection: Any) -> Any:
    connection.register("registered", connection.table("facts").filter("kind = 3"))
    return connection.execute("SELECT count(*) FROM registered").fetchall()


def united(connection: Any) -> Any:
    ours, other = connection.table("facts"), connection.from_arrow(FACTS)
    return [
        each.aggregate("count(*), sum(id)").fetchall()
        for each in (ours.union(other), other.union(ours), ours.except_(other))
    ]


def crossed(connection: Any) -> Any:
    few = connection.table("facts").filter("id < 3").set_alias("few")
    other = connection.from_arrow(FACTS).filter("id < 4").set_alias("other")
    return [each.count("*").fetchall() for each in (few.cross(other), other.cross(few))]


def from_all_frames(connection: Any) -> Any:
    outer = pa.table({"n": [1, 2, 3]})
    connection.execute("SET python_scan_all_frames = true")

    def inner() -> Any:
        return connection.execute("SELECT sum(n) FROM outer").fetchall()

    found = inner(), outer.num_rows
    connection.execute("SET python_scan_all_frames = false")
    return found


def with_a_function(connection: Any) -> Any:
    calls = []

    def seven(value: int) -> int:
        calls.append(value)
        return 7

    made = connection.create_function("seven", seven, ["BIGINT"], "BIGINT")
    found = connection.execute("SELECT count(*) FROM facts WHERE kind < seven(1)").fetchall()
    return chained(made, connection), found, len(calls)


def with_a_pending_result(connection: Any) -> Any:
    connection.execute("SELECT id FROM facts ORDER BY id")
    first = connection.fetchmany(3)
    relation = connection.table("facts").filter("id < 5")
    return first, relation.fetchall(), connection.fetchone()


WORK: dict[str, Work] = {
    "relation as variable": as_variable,
    "relation with parameters as variable": as_variable_with_parameters,
    "registered relation": registered_relation,
    "union and except": united,
    "cross": crossed,
    "all frames": from_all_frames,
    "function": with_a_function,
    "pending result": with_a_pending_result,
    "fetch before execute": lambda c: c.cursor().fetchall(),
    "fetchone before execute": lambda c: c.fetchone(),
    "description before execute": lambda c: (c.description, c.rowcount),
    "description": lambda c: c.execute("SELECT id FROM facts").description,
    "nothing": lambda c: chained(c.execute(""), c),
    "nothing, then a fetch": lambda c: c.execute("").fetchall(),
    "nothing as a relation": lambda c: c.sql(""),
    "a comment": lambda c: c.execute("-- nothing").fetchall(),
    "view_name=": lambda c: chained(c.register(view_name="a", python_object=FACTS), c),
    "unregister view_name=": lambda c: chained(c.unregister(view_name="a"), c),
    "table_name=": lambda c: c.table(table_name="facts").columns,
    "query= and parameters=": lambda c: c.execute(
        query="SELECT count(*) FROM facts WHERE id < $n", parameters={"n": 3}
    ).fetchall(),
    "too many arguments": lambda c: c.table("facts", 1),
    "no table": lambda c: c.table("missing").fetchall(),
    "no attribute": lambda c: c.no_such_method,
    "no attribute of a relation": lambda c: c.table("facts").no_such_column,
    "column": lambda c: c.table("facts").kind.distinct().order("kind").fetchall(),
    "iter_rows": lambda c: sum(row[0] for row in c.table("facts").iter_rows()),
    "to_dicts": lambda c: c.table("facts").limit(2).to_dicts(),
    "materialize": lambda c: c.table("facts").filter("id < 9").materialize().fetchall(),
    "arrow": lambda c: pa.table(c.table("facts").filter("id < 9")).to_pydict(),
    "to_arrow_table": lambda c: c.table("facts").to_arrow_table().num_rows,
    "query of a relation": lambda c: c.table("facts").query("v", "SELECT max(id) v FROM v").v.df(),
    "text of a relation": lambda c: str(c.table("facts").limit(2)),
    "relation of another connection": lambda c: c.table("facts").union(
        duckdb.connect().from_arrow(FACTS)
    ),
    "insert of a relation": lambda c: (
        c.execute("CREATE OR REPLACE TABLE copied AS SELECT * FROM facts LIMIT 0"),
        c.table("facts").insert_into("copied"),
        c.table("copied").count("*").fetchall(),
    )[1:],
    "executemany": lambda c: (
        c.execute("CREATE OR REPLACE TABLE many (a INTEGER)") and None,
        chained(c.executemany("INSERT INTO many VALUES (?)", [[1], [2]]), c),
        c.table("many").fetchall(),
    ),
    "chains": lambda c: [chained(each(), c) for each in (c.begin, c.commit, c.checkpoint)],
    "is a connection": lambda c: isinstance(c, duckdb.DuckDBPyConnection),
    "makes relations": lambda c: type(c.table("facts")).__mro__[-2] is duckdb.DuckDBPyRelation,
    "connection= of the module": lambda c: [duckdb.sql("FROM facts LIMIT 1", connection=c)],
    "names of attributes": lambda c: set(dir(duckdb.connect())) <= set(dir(c)),
    "get_table_names": lambda c: c.get_table_names("SELECT * FROM facts, other"),
    "extract_statements": lambda c: [each.query for each in c.extract_statements("FROM facts; ")],
    "a statement": lambda c: c.execute(c.extract_statements("SELECT 1; SELECT 2")[1]).fetchall(),
}


@pytest.mark.parametrize("name", WORK)
def test_it_does_as_duckdb_does(name: str) -> None:
    with duckdb.connect() as plain:
        plain.register("facts", FACTS)
        wanted = repr(answered(WORK[name], plain))
    modes: dict[str, Any] = {"off": "off", "auto": "auto", "on": "on", "planned": "on"}
    for mode, prefetch in modes.items():
        with headrace.sql.connect(prefetch=prefetch) as prefetching:
            prefetching._shared.is_spare &= mode != "planned"  # noqa: SLF001 - Of one node.
            prefetching.register("facts", FACTS)
            assert repr(answered(WORK[name], prefetching)) == wanted, mode


@pytest.mark.parametrize(
    "read", ["iter_rows", "to_dicts", "materialize", "fetchall", "fetchnumpy", "pl"]
)
def test_whatever_reads_a_relation_prefetches(read: str) -> None:
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register("facts", FACTS)
        found = getattr(connection.table("facts").filter("kind = 1"), read)()
        assert found is not None
        assert read != "iter_rows" or len(list(found)) > 0
        assert connection.prefetched is not None


def test_connect_takes_the_arguments_of_duckdb(tmp_path: Path) -> None:
    path = str(tmp_path / "some.duckdb")
    headrace.sql.connect(path, False, {"threads": 1}).close()
    with (
        headrace.sql.connect(path, read_only=True) as connection,
        pytest.raises(duckdb.InvalidInputException, match="read-only"),
    ):
        connection.execute("CREATE TABLE t (a INTEGER)")


def test_a_cursor_reads_the_tables_from_its_first_statement_on() -> None:
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register("facts", FACTS)
        works: tuple[Work, ...] = (
            lambda c: c.execute("SELECT count(*) FROM facts").fetchall(),
            lambda c: c.table("facts").count("*").fetchall(),
            lambda c: c.connection.execute("SELECT count(*) FROM facts").fetchall(),
        )
        for work in works:
            with connection.cursor() as cursor:
                assert work(cursor) == [(ROWS,)]


def test_a_cursor_takes_a_new_table_beside_a_pending_result_and_after_it_left_one() -> None:
    with headrace.sql.connect(prefetch="on") as connection, connection.cursor() as cursor:
        connection.register("facts", FACTS)
        connection.register("few", FACTS.slice(0, 3))
        assert cursor.execute("SELECT count(*) FROM facts").fetchone() == (ROWS,)
        assert cursor.execute("SELECT count(*) FROM few").fetchall() == [(3,)]
        cursor.unregister("few")
        connection.register("few", FACTS.slice(0, 2))
        assert cursor.execute("SELECT count(*) FROM few").fetchall() == [(2,)]


@pytest.mark.parametrize("name", ["chosen", "IF NOT EXISTS chosen", "main.chosen", '"chosen"'])
def test_views_and_macros_are_prefetched(name: str) -> None:
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register("facts", FACTS)
        view = f"CREATE VIEW {name} AS SELECT id FROM facts WHERE kind = 1"  # noqa: S608
        connection.execute(view)
        connection.execute("CREATE MACRO larger(n) AS TABLE SELECT id FROM facts WHERE id > n")
        for query in ("SELECT count(*) FROM chosen", "SELECT max(id) FROM larger(7)"):
            connection.execute(query).fetchall()
            assert connection.prefetched is not None
        connection.execute("SELECT 1").fetchall()
        assert connection.prefetched is None


def test_a_default_connection_can_be_the_wrapped_one() -> None:
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register("facts", FACTS)
        before = duckdb.default_connection()
        try:
            duckdb.set_default_connection(connection.connection)
            assert duckdb.execute("SELECT max(id) FROM facts").fetchall() == [(ROWS - 1,)]
        finally:
            duckdb.set_default_connection(before)


def test_registering_looks_at_no_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    with headrace.sql.connect(prefetch="on") as connection:
        with monkeypatch.context() as patched:
            patched.setattr(_core, "Table", None)
            connection.register("facts", FACTS)
            connection.execute("SELECT 1 + 1").fetchall()
        connection.execute("SELECT max(id) FROM facts").fetchall()
        assert connection.prefetched is not None


def test_the_first_statement_does_not_wait_for_the_bounds_of_its_filter() -> None:
    table = headrace.Table(FACTS, chunk_rows=4000)
    query = "SELECT count(*) FROM facts WHERE id < 100"
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register("facts", table)
        for submitted in (5, 1):
            connection.begin_prefetch(query)
            connection.wait_for_prefetch()
            assert connection.prefetched is not None
            assert connection.prefetched.scans[0].chunks_submitted == submitted
            table.excluded_chunks([Range("id", None, Decimal(99))], wait=True)


def test_statements_that_move_nothing_are_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(headrace.sql, "read_plan", refuse)
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register("short", FACTS.slice(0, 10))
        connection.register("nested", pa.table({"a": [[1, 2]] * 5000}))
        connection.execute("CREATE TABLE native AS SELECT range AS r FROM range(9)")
        for table in ("short", "nested", "native"):
            connection.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608
        connection.execute("SELECT 7").fetchall()
        assert connection.notes == ["columns of 'nested' are not prefetched: a"]


def test_thousands_of_tables_cost_statements_nothing() -> None:
    with headrace.sql.connect(prefetch="on") as connection:
        begin = time.perf_counter()
        for number in range(3_000):
            connection.register(f"facts_{number}", FACTS)
        registered_s = time.perf_counter() - begin
        begin = time.perf_counter()
        connection.execute("CREATE VIEW one AS SELECT max(id) m FROM facts_9")
        connection.execute("CREATE TEMP TABLE own AS SELECT 7::BIGINT AS id")
        for query in ("SELECT max(id) FROM facts_2999", "SELECT m FROM one"):
            assert connection.execute(query).fetchall() == [(ROWS - 1,)]
            assert connection.prefetched is not None
        joined = "SELECT max(id) FROM facts_5 JOIN own USING (id)"
        assert connection.execute(joined).fetchall() == [(7,)]
        with connection.cursor() as cursor:
            assert cursor.execute("SELECT m FROM one").fetchall() == [(ROWS - 1,)]
            few = cursor.table("facts_8").filter("id = (SELECT max(id) FROM facts_7)")
            assert few.query("few", "SELECT few.id FROM few, facts_6 LIMIT 1").fetchall()
            assert few.union(cursor.sql("FROM facts_3")).count("*").fetchall() == [(ROWS + 1,)]
        assert time.perf_counter() - begin < registered_s / 5


def test_what_gives_a_connection_gives_one_that_prefetches() -> None:
    query = "SELECT sum(n) FROM numbers"
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register("numbers", pa.table({"n": range(100_000)}))
        assert connection.begin().execute(query).fetchone() == (4999950000,)
        assert connection.prefetched is not None
        assert connection.commit() is connection
        with connection.duplicate() as other:
            assert other.execute(query).fetchone() == (4999950000,)
            assert other.prefetched is not None


TRUNCATED = """
import os, sys
import pyarrow as pa
import headrace.sql

with pa.ipc.new_file("facts.arrow", pa.schema({"id": pa.int64()})) as file:
    for _ in range(20):
        file.write_batch(pa.record_batch({"id": range(100_000)}))
with headrace.sql.connect(prefetch="on") as connection:
    connection.register("facts", pa.ipc.open_file(pa.memory_map("facts.arrow")).read_all())
    query = "SELECT max(id) FROM facts"
    assert connection.execute(query).fetchall() == [(99_999,)]
    assert connection.explain_prefetch(query).columns[0].reason.startswith("it is a mapped file")
    os.truncate("facts.arrow", 4096)
    connection.begin_prefetch(query)
    connection.wait_for_prefetch()
    assert connection.prefetched is None
    print(connection.notes)
"""


def test_a_mapped_file_that_is_truncated_is_not_touched(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=True,
    )
    text = "'facts' is a mapped file, which others can truncate: read in place"
    assert done.stdout == f"{[text]}\n"


def test_a_file_that_is_mapped_later_is_noticed(tmp_path: Path) -> None:
    assert not headrace.Table(FACTS).lies_in_file
    for number in range(2):
        path = str(tmp_path / f"{number}.arrow")
        with pa.ipc.new_file(path, FACTS.schema) as file:
            file.write_table(FACTS)
        mapped = pa.ipc.open_file(pa.memory_map(path)).read_all()
        assert headrace.Table(mapped).lies_in_file
        assert not headrace.Table(FACTS).lies_in_file


def test_an_interrupt_or_a_close_from_elsewhere_is_duckdbs_error() -> None:
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register("facts", FACTS)
        connection.interrupt()
        assert connection.execute("SELECT max(id) FROM facts").fetchall() == [(ROWS - 1,)]
        connection.connection.close()
        for work in (
            lambda: connection.execute("SELECT max(id) FROM facts"),
            lambda: connection.sql("SELECT 1"),
            lambda: connection.register("facts", FACTS),
            connection.cursor,
        ):
            with pytest.raises(duckdb.ConnectionException):
                work()


def test_a_table_may_be_registered_again_while_its_rows_are_read() -> None:
    with headrace.sql.connect(prefetch="on") as connection, connection.cursor() as other:
        connection.register("facts", FACTS)
        other.register("facts", FACTS)
        other.execute("SELECT id FROM facts ORDER BY id")
        first = other.fetchmany(10)
        connection.register("facts", FACTS.slice(5))
        assert first + other.fetchall() == [(row,) for row in range(ROWS)]
        assert connection.execute("SELECT count(*) FROM facts").fetchall() == [(ROWS - 5,)]


def test_a_database_closes_with_its_connection(tmp_path: Path) -> None:
    path = tmp_path / "data.duckdb"
    numbers = pa.table({"n": range(10_000)})
    opened = duckdb.connect(path)
    wrapped = headrace.sql.wrap(opened, prefetch="on").register("numbers", numbers)
    ours = headrace.sql.connect(tmp_path / "ours.duckdb", prefetch="on").register(
        "numbers", numbers
    )
    for connection in (wrapped, ours, ours):
        connection._shared.is_spare = False  # noqa: SLF001 - Plans need another cursor.
        connection.execute("SELECT sum(n) FROM numbers WHERE n > 1").fetchall()
        assert connection.prefetched is not None
    opened.close()
    ours.close()
    for each in tmp_path.iterdir():  # Refused while it is open.
        subprocess.run(
            [sys.executable, "-c", "import duckdb, sys; duckdb.connect(sys.argv[1])", each],
            check=True,
        )
