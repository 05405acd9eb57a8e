# SPDX-License-Identifier: Apache-2.0
"""DuckDB with prefetching: the same answers, from copies."""

import datetime as dt
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
import headrace.sql
from headrace import _core, _sql_state
from headrace._plan import UnreadablePlanError, read_plan
from headrace.table import Range

ROWS = 300_000

FACTS = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "kind": pa.array([row % 7 for row in range(ROWS)], pa.int32()),
        "word": pa.array([f"the word of row {row % 1000}" for row in range(ROWS)]),
        "price": pa.array([row % 100 for row in range(ROWS)], pa.decimal128(15, 2)),
    }
)
KINDS = pa.table({"kind": pa.array(range(7), pa.int32()), "name": [f"kind {i}" for i in range(7)]})

QUERIES = {
    "aggregate": "SELECT kind, sum(price), count(*) FROM facts GROUP BY kind ORDER BY kind",
    "filter": "SELECT sum(id) FROM facts WHERE kind = 3 AND word LIKE '%9' AND price < 50",
    "join": "SELECT name, sum(price) FROM facts JOIN kinds USING (kind) GROUP BY name ORDER BY 1",
    "self-join": "SELECT count(*) FROM facts a JOIN facts b ON a.id = b.id + 1 AND a.kind = b.kind",
    "subquery": "SELECT max(id) FROM facts WHERE price = (SELECT max(price) FROM facts)",
    "cte": "WITH t AS (SELECT kind, max(id) m FROM facts GROUP BY kind) "
    "SELECT sum(m) FROM t WHERE kind IN (SELECT kind FROM kinds WHERE name < 'kind 4')",
    "view": "SELECT sum(price) FROM expensive",
    "union": "SELECT sum(x) FROM (SELECT id x FROM facts UNION ALL SELECT kind FROM kinds)",
    "count": "SELECT count(*) FROM facts",
    "limit": "SELECT id, word FROM facts ORDER BY id DESC LIMIT 5",
}


def prepare(connection: Any) -> Any:
    connection.register("facts", FACTS)
    connection.register("kinds", KINDS)
    connection.execute("CREATE OR REPLACE VIEW expensive AS SELECT * FROM facts WHERE price > 90")
    return connection


@pytest.fixture(scope="module")
def expected() -> dict[str, list[Any]]:
    with duckdb.connect() as connection:
        prepare(connection)
        return {name: connection.execute(query).fetchall() for name, query in QUERIES.items()}


@pytest.fixture(scope="module")
def cache() -> Iterator[headrace.Cache]:
    with headrace.Cache(capacity="256MiB", placement="local") as made:
        yield made


@pytest.fixture(params=["planned", "followed"])
def connection(
    cache: headrace.Cache, request: pytest.FixtureRequest
) -> Iterator[headrace.sql.Connection]:
    """By plans, and as on a machine with one node."""
    with headrace.sql.connect(prefetch="on", cache=cache) as opened:
        opened._shared.is_spare = request.param == "followed"  # noqa: SLF001
        yield prepare(opened)


planned = pytest.mark.parametrize("connection", ["planned"], indirect=True)


@pytest.mark.parametrize("mode", ["off", "auto", "on"])
def test_answers_do_not_depend_on_prefetching(
    mode: Literal["off", "auto", "on"], expected: dict[str, list[Any]]
) -> None:
    with headrace.sql.connect(prefetch=mode) as connection:
        prepare(connection)
        for _ in range(2):
            found = {name: connection.execute(each).fetchall() for name, each in QUERIES.items()}
            assert found == expected
        assert connection.notes == []


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "count"])
def test_what_was_moved_before_is_read_from_copies_alone(
    connection: headrace.sql.Connection, name: str
) -> None:
    connection.begin_prefetch(QUERIES[name])
    connection.wait_for_prefetch()
    connection.execute(QUERIES[name]).fetchall()
    prefetched = connection.prefetched
    assert prefetched is not None
    assert prefetched.plan_ns == 0  # It was kept.
    assert prefetched.bytes_from_copies > 0
    assert prefetched.bytes_from_source == 0


def test_a_plan_puts_filter_columns_and_build_sides_first(
    connection: headrace.sql.Connection,
) -> None:
    scans = connection.plan(
        "SELECT name, sum(price) FROM facts JOIN kinds USING (kind) WHERE word > 'a' GROUP BY name"
    )
    assert [scan.table for scan in scans] == ["kinds", "facts"]
    assert scans[1].filter_columns == ("word",)
    assert set(scans[1].other_columns) == {"kind", "price"}
    assert connection.prefetched is None


def test_relations_prefetch_when_they_are_read(
    connection: headrace.sql.Connection, expected: dict[str, list[Any]]
) -> None:
    relation = connection.sql(QUERIES["aggregate"])
    assert connection.prefetched is None
    assert relation.fetchall() == expected["aggregate"]
    assert connection.prefetched is not None
    derived = connection.table("facts").filter("kind = 2").aggregate("sum(id)")
    assert (
        derived.fetchall()
        == connection.execute("SELECT sum(id) FROM facts WHERE kind = 2").fetchall()
    )
    assert pa.table(connection.query("SELECT id FROM facts LIMIT 3")).num_rows == 3
    kinds = connection.table("kinds")
    joined = connection.table("facts").join(other_rel=kinds, condition="kind")
    assert "name" in kinds
    assert min(kinds["name"].fetchall()) == ("kind 0",)
    assert joined.aggregate("count(*)").fetchall() == [(ROWS,)]


def test_parameters_reach_the_plan_and_the_query(connection: headrace.sql.Connection) -> None:
    found = connection.execute("SELECT count(*) FROM facts WHERE id < ?", [10]).fetchall()
    assert found == [(10,)]
    assert connection.prefetched is not None


def test_other_tables_can_be_written_from_prefetched_ones(
    connection: headrace.sql.Connection,
) -> None:
    connection.execute("CREATE TABLE kept AS SELECT * FROM facts WHERE kind = 1")
    assert connection.prefetched is not None
    connection.execute("INSERT INTO kept SELECT * FROM facts WHERE kind = 2")
    connection.execute(
        "UPDATE kept SET price = 0 WHERE id IN (SELECT id FROM facts WHERE kind = 2)"
    )
    found = connection.execute("SELECT kind, sum(price) > 0 FROM kept GROUP BY kind ORDER BY kind")
    assert found.fetchall() == [(1, True), (2, False)]


def test_errors_are_those_of_the_statement(connection: headrace.sql.Connection) -> None:
    with pytest.raises(duckdb.BinderException, match="missing"):
        connection.execute("SELECT missing FROM facts")
    with pytest.raises(duckdb.ParserException):
        connection.execute("SELEC 1")
    connection.execute("BEGIN")
    with pytest.raises(duckdb.BinderException, match="missing"):
        connection.execute("SELECT missing FROM facts")
    connection.execute("ROLLBACK")
    with pytest.raises(duckdb.ConversionException):
        connection.execute("SELECT sum(word::INTEGER) FROM facts").fetchall()
    assert connection.execute("SELECT count(*) FROM facts").fetchall() == [(ROWS,)]


def answered(work: Callable[[Any], Any], connection: Any) -> Any:
    """What a piece of work gives on a connection: its value, or the kind of its error."""
    try:
        return work(connection)
    except duckdb.Error as problem:
        return type(problem)


def on_both(setup: Callable[[Any], object], *steps: Callable[[Any], Any]) -> list[str]:
    """Do the same on a plain connection and on one that prefetches; return the latter's notes."""
    with duckdb.connect() as plain, headrace.sql.connect(prefetch="on") as prefetching:
        prefetching._shared.is_spare = False  # noqa: SLF001 - Plans touch more.
        found = []
        for each in (plain, prefetching):
            setup(each)
            found.append([answered(step, each) for step in steps])
        assert found[1] == found[0]
        return prefetching.notes


def register_facts(connection: Any) -> Any:
    return connection.register("facts", FACTS)


def test_a_query_leaves_the_rows_of_a_pending_result() -> None:
    on_both(
        register_facts,
        lambda c: c.execute("SELECT id FROM facts WHERE id < 5000").fetchmany(10),
        lambda c: c.sql("SELECT count(*) FROM facts").fetchall(),
        lambda c: c.fetchall(),
    )


def test_planning_leaves_the_rows_of_a_pending_result(connection: headrace.sql.Connection) -> None:
    connection.execute("SELECT id FROM facts WHERE id < 5000")
    rows = connection.fetchmany(10)
    assert connection.plan("SELECT sum(id) FROM facts")[0].table == "facts"
    connection.begin_prefetch("SELECT sum(price) FROM facts")
    rows += connection.fetchall()
    assert rows == [(row,) for row in range(5000)]


def test_a_transaction_survives_a_query_with_parameters() -> None:
    notes = on_both(
        lambda c: (register_facts(c), c.execute("CREATE TABLE kept (a BIGINT)")),
        lambda c: c.begin() and c.execute("INSERT INTO kept VALUES (1)").fetchall(),
        lambda c: c.sql("SELECT count(*) FROM facts WHERE id < ?", params=[3]).fetchall(),
        lambda c: (
            c.sql("SELECT id FROM facts WHERE id < $n", params={"n": 3}).filter("id > 1").fetchall()
        ),
        lambda c: c.execute("SELECT count(*) FROM facts WHERE id < ?", [4]).fetchall(),
        lambda c: c.commit() and None,
        lambda c: c.execute("SELECT * FROM kept").fetchall(),
    )
    assert notes == []


def test_a_query_with_parameters_is_prefetched_as_a_relation_too(
    connection: headrace.sql.Connection,
) -> None:
    relation = connection.sql("SELECT sum(id) FROM facts WHERE id < ?", params=[3])
    assert relation.fetchall() == [(3,)]
    assert connection.prefetched is not None


def test_a_transaction_survives_what_duckdb_cannot_explain() -> None:
    on_both(
        lambda c: (register_facts(c), c.execute("CREATE TABLE kept AS SELECT 1 AS a")),
        lambda c: c.begin() and None,
        lambda c: c.execute("TRUNCATE kept").fetchall(),
        lambda c: c.execute("SELECT count(*) FROM kept").fetchall(),
        lambda c: c.commit() and None,
    )


def test_what_only_its_connection_sees_is_read_without_prefetching() -> None:
    notes = on_both(
        register_facts,
        lambda c: c.execute("CREATE TEMP TABLE own AS SELECT 7::BIGINT AS id").fetchall(),
        lambda c: c.execute("SELECT word FROM facts JOIN own USING (id)").fetchall(),
        lambda c: c.begin() and None,
        lambda c: c.execute("CREATE TABLE uncommitted AS SELECT 8::BIGINT AS id").fetchall(),
        lambda c: c.execute("SELECT word FROM facts JOIN uncommitted USING (id)").fetchall(),
        lambda c: c.execute("SELECT missing FROM facts").fetchall(),
        lambda c: c.rollback() and None,
        lambda c: c.execute("SELECT word FROM facts JOIN uncommitted USING (id)").fetchall(),
    )
    begin = "a statement ran without prefetching: Catalog Error: Table with name"
    assert notes == [f"{begin} own does not exist!", f"{begin} uncommitted does not exist!"]


@planned
def test_notes_of_a_long_run_are_bounded(
    connection: headrace.sql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sql_state, "NOTES_MAX", 2)
    for number in range(4):
        connection.execute(f"CREATE TEMP TABLE own_{number} AS SELECT 7::BIGINT AS id")
        connection.execute(f"SELECT count(*) FROM facts JOIN own_{number} USING (id)")  # noqa: S608
    assert len(connection.notes) == 2


def test_wrapping_leaves_a_pending_result() -> None:
    with duckdb.connect() as inner:
        inner.execute("SELECT * FROM range(3)")
        assert headrace.sql.wrap(inner, prefetch="on").fetchall() == [(0,), (1,), (2,)]


def test_a_table_that_duckdb_refuses_leaves_the_earlier_one(
    connection: headrace.sql.Connection,
) -> None:
    connection.register("table", KINDS)
    with pytest.raises(duckdb.NotImplementedException):
        connection.register("table", pa.table({"h": pa.array([1.0], pa.float16())}))
    for each in (connection, connection.cursor()):
        assert each.execute('SELECT count(*) FROM "table"').fetchall() == [(7,)]
        assert each.prefetched is None  # Too short to be moved.


@pytest.mark.parametrize(
    "name",
    [
        "args",
        "duckdb",
        "found",
        "frame",
        "kwargs",
        "method",
        "name",
        "names",
        "pa",
        "query",
        "result",
        "self",
        "statement",
        "time",
        "topo",
    ],
)
def test_a_variable_of_the_user_may_have_any_name(
    connection: headrace.sql.Connection, name: str
) -> None:
    namespace: dict[str, Any] = {"opened": connection, "arrow": pa}
    code = f"""def read():
    {name} = arrow.table({{"v": [42]}})
    text = 'SELECT v FROM "{name}", facts WHERE id = 7'
    made = opened.sql('SELECT * FROM facts').query("rows", text.replace("facts", "rows"))
    return [opened.execute(text).fetchall(), opened.sql(text).fetchall(), made.fetchall()]
"""  # noqa: S608 - The names are ours.
    exec(code, namespace)  # noqa: S102 - The name is a parameter.
    assert namespace["read"]() == [[(42,)]] * 3


def test_a_variable_of_a_caller_further_away_is_found_as_duckdb_finds_it() -> None:
    further = KINDS

    def read(connection: Any) -> Any:
        return connection.execute("SELECT count(*) FROM further").fetchall()

    on_both(
        register_facts,
        read,
        lambda c: c.execute("SET python_scan_all_frames = true") and None,
        read,
    )
    assert further.num_rows == 7


@planned
def test_several_statements_run_without_prefetching_and_a_note_says_so(
    connection: headrace.sql.Connection,
) -> None:
    assert connection.execute("SELECT 1; SELECT max(id) FROM facts").fetchall() == [(ROWS - 1,)]
    assert connection.prefetched is None
    assert connection.notes == ["several statements at once run without prefetching"]


@planned
def test_a_plan_that_cannot_be_read_is_a_note(
    connection: headrace.sql.Connection,
    expected: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        message = "it is in a new form"
        raise UnreadablePlanError(message)

    monkeypatch.setattr(headrace.sql, "read_plan", refuse)
    assert connection.execute(QUERIES["join"]).fetchall() == expected["join"]
    assert connection.prefetched is None
    assert len(connection.notes) == 1
    assert "cannot be read: it is in a new form" in connection.notes[0]


def test_another_duckdb_is_read_without_prefetching_and_a_note_says_so(
    expected: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UnreadablePlanError("it is in a new form")

    _sql_state.suitable.clear()
    monkeypatch.setattr(_sql_state, "read_plan", refuse)
    try:
        with headrace.sql.connect(prefetch="on") as connection:
            prepare(connection)
            assert connection.execute(QUERIES["join"]).fetchall() == expected["join"]
            assert connection.prefetched is None
            assert len(connection.notes) == 1
            assert "is read without prefetching: it is in a new form" in connection.notes[0]
    finally:
        _sql_state.suitable.clear()


@pytest.mark.parametrize("text", ["", "no json", "[1]", '[{"name": "X"}]', '{"name": 3}', "[[]]"])
def test_what_is_no_plan_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadablePlanError):
        read_plan(text, {}, "")


def test_cursors_in_threads_share_the_tables(
    connection: headrace.sql.Connection, expected: dict[str, list[Any]]
) -> None:
    found: list[bool] = []

    def run(cursor: headrace.sql.Connection) -> None:
        with cursor:
            found.extend(
                cursor.execute(QUERIES[name]).fetchall() == expected[name]
                for name in ("aggregate", "filter", "join", "self-join")
            )

    threads = [threading.Thread(target=run, args=(connection.cursor(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 12


def test_an_interrupted_query_leaves_the_connection_usable(
    connection: headrace.sql.Connection,
) -> None:
    slow = "SELECT count(*) FROM facts a, facts b WHERE a.id * b.id % 7 = 1"
    ended = threading.Event()

    def interrupt() -> None:
        # Again and again: the first one may come before there is anything to interrupt.
        while not ended.wait(0.1):
            connection.interrupt()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(duckdb.InterruptException):
        connection.execute(slow).fetchall()
    ended.set()
    interrupting.join()
    assert connection.execute("SELECT count(*) FROM facts").fetchall() == [(ROWS,)]


@planned
def test_an_interrupted_plan_interrupts_its_statement(
    connection: headrace.sql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise duckdb.InterruptException

    monkeypatch.setattr(headrace.sql, "read_plan", interrupt)
    with pytest.raises(duckdb.InterruptException):
        connection.execute(QUERIES["join"])


def test_chunks_that_the_filter_excludes_are_not_moved(cache: headrace.Cache) -> None:
    days = [dt.date(1994, 1, 1) + dt.timedelta(row // 100) for row in range(40_000)]
    data = pa.table({"n": pa.array(range(40_000)), "day": days, "x": [1.0] * 40_000})
    with headrace.sql.connect(prefetch="on", cache=cache, chunk_rows=8000) as connection:
        table = headrace.Table(data, chunk_rows=8000)
        connection.register("t", table)
        # Later a thread would take the bounds, during the first statement.
        table.excluded_chunks([Range("n", Decimal(0), None)], wait=True)
        table.excluded_chunks([Range("day", data["day"][0].as_py(), None)], wait=True)
        for condition, moved, count in (
            ("n > 32499", 1, 7500),
            ("n BETWEEN 100 AND 9000 AND x = 1", 2, 8901),
            ("day < DATE '1994-01-02'", 1, 100),
            ("day >= DATE '1994-03-22' AND n < 8001", 1, 1),
            ("n > 31999 OR n < 10", 5, 8010),
            ("n = 100000", 0, 0),
        ):
            query = f"SELECT count(x) FROM t WHERE {condition}"  # noqa: S608
            connection.begin_prefetch(query)
            connection.wait_for_prefetch()
            prefetched = connection.prefetched
            assert prefetched is not None, condition
            assert prefetched.scans[0].chunks_submitted == moved, condition
            assert connection.execute(query).fetchone() == (count,), condition
            cache.clear()


def test_dates_that_python_does_not_have_are_prefetched(cache: headrace.Cache) -> None:
    days = pa.array([0, 10_000, 4_000_000, 20_000] * 10_000, pa.int32()).cast(pa.date32())
    with headrace.sql.connect(prefetch="on", cache=cache, chunk_rows=8000) as connection:
        connection.register("t", pa.table({"day": days, "n": pa.array([1] * 40_000)}))
        for condition, count in (
            ("day >= DATE '1990-01-01'", 30_000),
            ("day < DATE '10000-01-01'", 30_000),
            ("day BETWEEN DATE '1990-01-01' AND DATE '15000-01-01'", 30_000),
            ("day > DATE '9999-12-31'", 10_000),
        ):
            query = f"SELECT sum(n) FROM t WHERE {condition}"  # noqa: S608
            assert connection.execute(query).fetchall() == [(count,)]
            prefetched = connection.prefetched
            assert prefetched is not None, connection.notes
            assert prefetched.scans[0].chunks == 5


def test_rows_are_fetched_one_by_one_with_one_prefetcher(
    connection: headrace.sql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    start = _core.Prefetcher

    def count(*args: Any) -> Any:
        started.append(args)
        return start(*args)

    monkeypatch.setattr(_core, "Prefetcher", count)
    connection.execute("SELECT id FROM facts ORDER BY id")
    assert [connection.fetchone() for _ in range(50)] == [(row,) for row in range(50)]
    assert connection.fetchmany(2) == [(50,), (51,)]
    assert len(started) == 1
    # A relation keeps no result between its reads.
    assert not hasattr(connection.table("facts"), "fetchone")


def test_a_result_that_is_not_read_to_its_end_holds_nothing_up(
    connection: headrace.sql.Connection,
) -> None:
    for _ in range(3):
        assert connection.execute("SELECT id, word FROM facts").fetchone() is not None


@pytest.mark.parametrize("capacity", ["8KiB", "2MiB"])
def test_a_cache_that_is_too_small_changes_no_answer(
    capacity: str, expected: dict[str, list[Any]]
) -> None:
    with (
        headrace.Cache(capacity=capacity, placement="local") as small,
        headrace.sql.connect(prefetch="on", cache=small) as connection,
    ):
        prepare(connection)
        for name, query in QUERIES.items():
            assert connection.execute(query).fetchall() == expected[name]


def test_a_table_may_be_replaced_under_its_name(connection: headrace.sql.Connection) -> None:
    for value in range(3):
        connection.register("numbers", pa.table({"n": pa.array([value] * 10_000)}))
        for _ in range(2):
            found = connection.execute("SELECT sum(n) FROM numbers").fetchall()
            assert found == [(value * 10_000,)]
    connection.unregister("numbers")
    with pytest.raises(duckdb.CatalogException):
        connection.execute("SELECT sum(n) FROM numbers")


def test_a_file_may_change_between_and_within_queries(
    connection: headrace.sql.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("more.parquet")

    def write(rows: int, value: int) -> None:
        pq.write_table(pa.table({"id": range(rows), "more": [value] * rows}), path)

    write(ROWS, 1)
    connection.register("copied", pq.read_table(path, memory_map=True))
    alone = "SELECT sum(more) FROM copied"
    # The plan is kept for the statement, whatever becomes of the file.
    joined = "SELECT count(*), sum(more) FROM facts JOIN 'more.parquet' USING (id)"
    assert connection.execute(joined).fetchall() == [(ROWS, ROWS)]
    write(1_000, 3)
    assert connection.execute(joined).fetchall() == [(1_000, 3_000)]
    assert connection.prefetched is not None
    late = connection.sql(joined)
    write(2_000, 4)
    assert late.fetchall() == [(2_000, 8_000)]

    result = connection.execute("SELECT more FROM facts JOIN 'more.parquet' USING (id)")
    assert result.fetchone() == (4,)
    os.truncate(path, path.stat().st_size // 2)
    with suppress(duckdb.Error):  # Only what DuckDB has read already can be complete.
        assert result.fetchall() == [(4,)] * 1_999
    with pytest.raises(duckdb.Error, match=r"more\.parquet"):
        connection.execute(joined)
    pq.write_table(pa.table({"id": [1, 2], "other": ["a", "b"]}), path)
    with pytest.raises(duckdb.BinderException, match="more"):
        connection.execute(joined)
    # A table that was read from it has its own bytes.
    for _ in range(2):
        assert connection.execute(alone).fetchall() == [(ROWS,)]
    write(5, 5)
    assert connection.execute(joined).fetchall() == [(5, 25)]
    assert connection.notes == []


def test_a_cursor_has_what_the_name_means_now(connection: headrace.sql.Connection) -> None:
    connection.register("Numbers", pa.table({"n": [1]}))
    connection.register("numbers", pl.DataFrame({"n": [2]}))
    assert connection.execute("SELECT n FROM numbers").fetchall() == [(2,)]
    with pytest.raises(duckdb.CatalogException):
        connection.cursor().execute("SELECT n FROM numbers")
    connection.register("numbers", pa.table({"n": [3]}))
    connection.unregister("NUMBERS")
    with pytest.raises(duckdb.CatalogException):
        connection.cursor().execute("SELECT n FROM numbers")


def test_cursors_open_while_tables_are_replaced(connection: headrace.sql.Connection) -> None:
    first = connection.cursor()
    columns = [pa.table({name: range(5000), "b": range(5000)}) for name in ("a", "c")]
    connection.register("changing", columns[0])
    failures: list[BaseException] = []
    is_over = threading.Event()

    def query() -> None:
        try:
            while not is_over.is_set():
                cursor = first.cursor()
                assert cursor.execute("SELECT max(b) FROM changing").fetchall() == [(4999,)]
                cursor.close()
        except BaseException as problem:  # noqa: BLE001 - It is compared in the other thread.
            failures.append(problem)

    thread = threading.Thread(target=query)
    thread.start()
    for i in range(200):
        connection.register("changing", columns[i % 2])
        connection.register(f"other {i}", columns[0])
    is_over.set()
    thread.join()
    assert failures == []


def test_queries_go_on_when_their_cache_is_closed() -> None:
    with headrace.Cache(capacity="64MiB", placement="local") as cache:
        connection = prepare(headrace.sql.connect(prefetch="on", cache=cache))
        before = connection.execute(QUERIES["aggregate"]).fetchall()
    assert connection.execute(QUERIES["aggregate"]).fetchall() == before
    assert connection.notes == ["the cache is closed"]
    connection.close()


def test_copies_go_with_their_table() -> None:
    with (
        headrace.Cache(capacity="64MiB", placement="local") as cache,
        headrace.sql.connect(prefetch="on", cache=cache) as connection,
    ):
        prepare(connection)
        connection.begin_prefetch(QUERIES["aggregate"])
        connection.wait_for_prefetch()
        assert cache.statistics.bytes_cached > 0
        connection.unregister("facts")
        assert cache.statistics.bytes_cached == 0


def test_wrapping_keeps_what_the_connection_has(tmp_path: Path) -> None:
    inner = duckdb.connect(tmp_path / "kept.duckdb")
    inner.execute("CREATE TABLE own AS SELECT range AS r FROM range(100)")
    with headrace.sql.wrap(inner, prefetch="on") as connection:
        connection.register("facts", FACTS)
        query = "SELECT count(*) FROM own JOIN facts ON r = id"
        assert connection.execute(query).fetchall() == [(100,)]
        frame = pa.table({"x": [1, 2, 3]})
        assert connection.execute("SELECT sum(x) FROM frame").fetchall() == [(6,)]
        assert frame.num_rows == 3


def test_nested_columns_are_noted_once(connection: headrace.sql.Connection) -> None:
    nested = pa.table({"a": [[1, 2]] * 5000, "b": range(5000)})
    connection.register("nested", nested)
    for _ in range(2):
        found = connection.execute("SELECT sum(len(a)), sum(b) FROM nested").fetchall()
        assert found == [(10_000, sum(range(5000)))]
    assert connection.notes == ["columns of 'nested' are not prefetched: a"]


def test_columns_of_one_name_are_read_as_duckdb_does(
    connection: headrace.sql.Connection,
) -> None:
    double = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    connection.register("double", double)
    assert connection.execute("SELECT a, a_1 FROM double").fetchall() == [(1, 2)]
    assert connection.notes == ["two columns of 'double' have the same name"]


def test_auto_gives_duckdb_the_tables_where_no_memory_is_faster() -> None:
    with headrace.sql.connect(prefetch="auto") as connection:
        if connection.machine.has_faster_node():
            pytest.skip("this machine has faster memory")
        prepare(connection)
        connection.execute(QUERIES["aggregate"]).fetchall()
        assert connection.prefetched is None


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="off, auto or on"):
        headrace.sql.connect(prefetch="sometimes")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="from 1 to"):
        headrace.sql.connect(chunk_rows=0)
    with pytest.raises(headrace.TypeMismatchError, match=r"headrace\.Cache"):
        headrace.sql.connect(cache=1)  # type: ignore[arg-type]
