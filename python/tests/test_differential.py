# SPDX-License-Identifier: Apache-2.0
"""Random tables and SQL: what DuckDB, pyarrow, Polars and Dask answer is that without prefetching.

HEADRACE_SEED=N repeats a run.
"""

import datetime as dt
import decimal
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest
from conftest import TIME_LIMIT_S, wait_until

import headrace
import headrace.dask
import headrace.sql
from headrace import _core
from headrace.frames import Dataset, lazy_frame

# Random: another part in each run. 'make check PART=run' has twenty times as many.
PROGRAMS = 33 * int(os.environ.get("HEADRACE_TIMES", "1"))
STEPS = 12
QUERIES_MIN = PROGRAMS * 7
TABLES = 3 * PROGRAMS
DASK_TABLES = 60

Step = Callable[[Any], Any]

WORDS = ["", "a", "twelve bytes", "a string that is longer than twelve bytes", "\u00e9" * 30]
POOLS: dict[Any, list[Any]] = {
    pa.int8(): list(range(-20, 20)),
    pa.int64(): [each * 10**15 for each in range(-50, 50)],
    pa.uint32(): list(range(0, 2**32, 2**27)),
    pa.float64(): [each / 4 for each in range(-100, 100)] + [float("inf")],
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1990, 1, 1) + dt.timedelta(each * 100) for each in range(100)],
    pa.timestamp("us"): [dt.datetime(1990, 1, each + 1, 5) for each in range(31)],  # noqa: DTZ001
    pa.decimal128(38, 9): [decimal.Decimal(each) * 7**33 / 10**9 for each in range(-9, 10)],
    pa.string(): WORDS,
    pa.large_string(): WORDS,
    pa.string_view(): WORDS,
    pa.binary(): [each.encode() for each in WORDS],
    pa.dictionary(pa.int32(), pa.string()): WORDS,
    pa.list_(pa.int64()): [[], [1], [2, None, 3]],
    pa.struct([("x", pa.int32()), ("s", pa.string())]): [{"x": 1, "s": None}, {"x": None, "s": ""}],
    pa.null(): [None],
}
UNORDERED = (pa.list_(pa.int64()), pa.struct([("x", pa.int32()), ("s", pa.string())]), pa.null())


@pytest.fixture(scope="module")
def seed() -> int:
    given = os.environ.get("HEADRACE_SEED")
    return random.SystemRandom().getrandbits(32) if given is None else int(given)


@pytest.fixture
def rngs(seed: int, capsys: pytest.CaptureFixture[str]) -> Callable[[int], random.Random]:
    """Randomness of one round, which does not depend on the rounds before."""
    with capsys.disabled():
        print(f"[HEADRACE_SEED={seed}]", end=" ")  # noqa: T201 - It repeats the run.
    return lambda number: random.Random(f"{seed} {number}")  # noqa: S311 - It is repeated.


@pytest.fixture(scope="module")
def cache() -> Iterator[headrace.Cache]:
    with headrace.Cache(capacity="64MiB", placement="local") as made:
        yield made


def random_column(rng: random.Random, kind: Any, rows: int) -> Any:
    values = rng.choices(POOLS[kind], k=rows)
    nulls = rng.choice(["none", "some", "first", "all"])
    for row in range(rows):
        if nulls == "all" or (nulls == "some" and row % 5 == 3) or (nulls == "first" and row < 64):
            values[row] = None
    return pa.array(values, kind)


def random_table(rng: random.Random) -> Any:
    """Columns of odd types, in chunks that are slices of others and share their bitmaps."""
    rows = rng.choice([0, 1, 9, 100, 3000, 5000])
    kinds = rng.sample(list(POOLS), 5)
    columns = {"k": pa.array(rng.choices(range(50), k=rows), pa.int64())}
    columns |= {f"c{at}": random_column(rng, kind, rows) for at, kind in enumerate(kinds)}
    table = pa.table(columns).slice(rng.choice([0, 0, 3, 8]))
    cuts = sorted(rng.choices(range(table.num_rows + 1), k=rng.randrange(4)))
    if rng.random() < 0.5:
        cuts = [cut - cut % 8 for cut in cuts]
    ends = [*cuts, table.num_rows]
    return pa.concat_tables(
        [table.slice(at, end - at) for at, end in zip([0, *cuts], ends, strict=True)]
    )


def value_in(rng: random.Random, table: Any, name: str) -> Any:
    value = POOLS[table.schema.field(name).type] if name != "k" else range(50)
    return rng.choice(value)


def condition(rng: random.Random, table: Any, values: list[Any]) -> str:
    name = rng.choice(table.column_names)
    if table.schema.field(name).type in UNORDERED or rng.random() < 0.2:
        return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
    if name == "k" and rng.random() < 0.5:
        return f"k BETWEEN {rng.randrange(25)} AND {rng.randrange(25, 60)}"
    comparison = rng.choice([">= ?", "< ?", "= ?", "BETWEEN ? AND ?"])
    values += [value_in(rng, table, name) for _ in range(comparison.count("?"))]
    return f"{name} {comparison}"


def random_query(rng: random.Random, tables: dict[str, Any]) -> tuple[str, list[Any]]:
    """A query with one answer, and the values of its parameters."""
    name = rng.choice(list(tables))
    table = tables[name]
    values: list[Any] = []
    where = " AND ".join(condition(rng, table, values) for _ in range(rng.randrange(1, 3)))
    one, other = rng.choices(table.column_names, k=2)
    scan = f"FROM (SELECT * FROM {name} WHERE {where}) t"  # noqa: S608 - All of it is ours.
    query = rng.choice(
        [
            f"SELECT * {scan}",
            f"SELECT {one}, count(*), count({other}), max({other}), sum(k) {scan} GROUP BY {one}",
            f"SELECT count(*), count({one}), min({other}), sum(k) {scan}",
            f"SELECT count(*), sum(t.k), count(t.{one}) {scan} JOIN b ON t.k = b.k",
            f"SELECT {one} {scan} WHERE k IN (SELECT k FROM a)",  # noqa: S608 - As above.
        ]
    )
    return f"{query} ORDER BY ALL LIMIT {rng.choice([5, 2000])}", values


def random_step(rng: random.Random, tables: dict[str, Any]) -> tuple[str, Step]:
    """Something to do on a connection, with its description."""
    query, values = random_query(rng, tables)
    changes: list[tuple[str, Step]] = [
        (text, lambda c, text=text: c.execute(text).fetchall())  # type: ignore[misc]
        for text in (
            "BEGIN",
            "COMMIT",
            "ROLLBACK",
            "INSERT INTO kept SELECT k FROM a WHERE k < 7",
            "TRUNCATE kept",
            "SELECT sum(k), count(*) FROM kept JOIN a USING (k)",
            "CREATE OR REPLACE TEMP TABLE own AS SELECT k FROM b",
            "SELECT count(*) FROM own JOIN a USING (k)",
        )
    ]
    reads: list[tuple[str, Step]] = [
        ("execute", lambda c: c.execute(query, values).fetchall()),
        ("execute", lambda c: c.execute(query, values).fetchall()),
        ("arrow", lambda c: c.sql(query, params=values or None).to_arrow_table().to_pylist()),
        ("pending", lambda c: c.execute(query, values).fetchmany(3)),
        ("the rest", lambda c: c.fetchall()),
        ("relation", lambda c: c.sql(query, params=values or None).fetchall()),
        ("filtered", lambda c: c.table("a").filter("k < 20").aggregate("count(*)").fetchall()),
        ("variable", lambda c: from_variable(c, query, values)),
        ("union", lambda c: c.table("a").select("k").union(c.table("b").select("k")).fetchall()),
        ("wrong", lambda c: c.execute("SELECT missing FROM a").fetchall()),
    ]
    if rng.random() < 0.3:
        return rng.choice(changes)
    how, step = rng.choice(reads)
    return f"{how}: {query} {values}", step


def from_variable(connection: Any, query: str, values: list[Any]) -> Any:
    found = connection.sql(query, params=values or None)
    return connection.execute("SELECT count(*) FROM found").fetchall(), found.fetchall()


def outcome(step: Step, connection: Any) -> str:
    try:
        return repr(step(connection))
    except duckdb.Error as problem:
        return type(problem).__name__


@pytest.fixture(autouse=True)
def copies_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all copies before they are read, so that they are."""
    start = _core.Prefetcher

    def finished(*args: Any) -> Any:
        made = start(*args)
        made.finish()
        return made

    monkeypatch.setattr(_core, "Prefetcher", finished)


def test_duckdb_answers_as_on_its_own_connection(
    rngs: Callable[[int], random.Random], cache: headrace.Cache
) -> None:
    from_copies = queries = 0
    for number in range(PROGRAMS):
        rng = rngs(number)
        tables = {"a": random_table(rng), "b": random_table(rng)}
        with (
            duckdb.connect() as plain,
            headrace.sql.connect(
                prefetch="on", cache=cache, chunk_rows=rng.choice([600, 1000, 4096])
            ) as prefetching,
        ):
            prefetching._shared.is_spare = rng.random() < 0.5  # noqa: SLF001 - Without plans.
            for connection in (plain, prefetching):
                for name, table in tables.items():
                    connection.register(name, table)
                connection.execute("CREATE TABLE kept (k BIGINT)")
            done = []
            for _ in range(STEPS):
                what, step = random_step(rng, tables)
                done.append(what)
                queries += ":" in what
                expected, found = (outcome(step, each) for each in (plain, prefetching))
                assert found == expected, (number, done)
                if prefetching.prefetched is not None:
                    from_copies += prefetching.prefetched.bytes_from_copies
    assert from_copies > 0
    assert queries >= QUERIES_MIN


def assert_same(found: Any, expected: Any, where: object) -> None:
    """Also for kernels of pyarrow, which may look at a bitmap whatever its null_count says."""
    assert found.equals(expected), where
    # pyarrow makes empty chunks of views that it does not find valid.
    chunks = [batch for batch in found.to_batches() if batch.num_rows]
    pa.Table.from_batches(chunks, found.schema).validate(full=True)
    for name in expected.column_names:
        one, other = found[name], expected[name]
        for kernel in (lambda column: pc.sum(pc.is_null(column)), pc.count):
            assert kernel(one) == kernel(other), (where, name)
        if other.type in (pa.int8(), pa.int64(), pa.uint32(), pa.decimal128(38, 9)):
            assert pc.sum(one) == pc.sum(other), (where, name)
            assert pc.min_max(one) == pc.min_max(other), (where, name)


def test_frames_give_what_their_table_has(
    rngs: Callable[[int], random.Random], cache: headrace.Cache
) -> None:
    hits = cache.statistics.weak_hits
    for number in range(TABLES):
        rng = rngs(number)
        data = random_table(rng)
        table = headrace.Table(data, chunk_rows=rng.choice([600, 1000, 4096]))
        assert_same(pa.table(table), data, number)
        limit = rng.randrange(50)
        dataset, plain = Dataset(table, cache), pds.dataset(data)
        lazy, eager = lazy_frame(table, cache), pl.from_arrow(data)
        names = rng.sample(data.column_names, rng.randrange(1, 4))
        for _ in range(2):  # The second time all is in copies.
            found = dataset.to_table()
            assert_same(found.cast(data.schema), data, number)
            assert lazy.collect().equals(eager), number
        for field in (pds.field("k") < limit, pds.field(names[0]).is_null()):
            if pa.string_view() not in data.schema.types:
                options = {"columns": names, "filter": field}
                assert_same(dataset.to_table(**options), plain.to_table(**options), number)
            assert dataset.count_rows(filter=field) == plain.count_rows(filter=field)
        for predicate in (pl.col("k") < limit, pl.col(names[0]).is_null()):
            found = lazy.filter(predicate).select(names).collect()
            assert found.equals(eager.filter(predicate).select(names)), number
        dataset.close()
    assert cache.statistics.weak_hits > hits


def read_whole(data: Any) -> Any:
    return headrace.dask.read(data).read_all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tasks_of_dask_read_what_their_table_has(
    rngs: Callable[[int], random.Random], tmp_path: Path
) -> None:
    tables = [random_table(rngs(number)) for number in range(DASK_TABLES)]
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            local_directory=str(tmp_path),
        ) as cluster,
        cluster.get_client() as client,
    ):
        plugin = headrace.dask.Prefetch(prefetch="on", ahead=DASK_TABLES)
        headrace.dask.install(client, plugin)
        holding = client.submit(distributed.Event("read").wait, TIME_LIMIT_S)
        # Tasks whose inputs are on the worker are put there at once.
        futures = client.map(read_whole, client.scatter(tables, hash=False))
        wait_until(lambda: only(client).inputs_prefetched == DASK_TABLES)
        distributed.Event("read", client=client).set()
        for number, found in enumerate(client.gather(futures)):
            assert_same(found, tables[number], number)
        assert client.gather(holding)
        assert only(client).bytes_from_copies > 0


def only(client: distributed.Client) -> headrace.dask.WorkerStatistics:
    (found,) = headrace.dask.statistics(client).values()
    return found
