# SPDX-License-Identifier: Apache-2.0
"""Each public method of DuckDB's connection on a plain and on a prefetching connection."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace.sql

ROWS = 5000
FACTS = pa.table({"id": range(ROWS), "kind": [row % 7 for row in range(ROWS)]})
FRAME = pd.DataFrame({"id": [1, 2], "kind": [3, 4]})
EMPTY = "CREATE OR REPLACE TABLE own AS FROM facts LIMIT 0"
METHODS = [name for name in dir(duckdb.DuckDBPyConnection) if not name.startswith("_")]
Call = Callable[[Any, Path], Any]


# "Arrow output on a DB-API result makes an extra copy."
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(duckdb.Error) as found:
        work()
    return repr((type(found.value), str(found.value).splitlines()[0]))


def selected(c: Any, read: str, *args: Any) -> Any:
    """What a method reads of a pending result, and what it leaves."""
    c.execute("SELECT id, kind FROM facts WHERE id < 9 ORDER BY id")
    return getattr(c, read)(*args), c.fetchall()


def appended(c: Any, make: Callable[[Any], Any]) -> Any:
    c.execute(EMPTY)
    with make(c) as appender:
        appender.append_row(1, 2)
    return c.execute("FROM own").fetchall()


def created(c: Any) -> Any:
    made = c.create_function("next_of", lambda value: value + 1, ["BIGINT"], "BIGINT")
    return made, c.execute("SELECT sum(next_of(id)) FROM facts").fetchall()


def removed(c: Any) -> Any:
    created(c)
    return c.remove_function("next_of"), refused(lambda: c.execute("SELECT next_of(1)"))


def profiled(c: Any) -> Any:
    c.enable_profiling()
    c.execute("SELECT max(id) FROM facts").fetchall()
    return type(c.get_profiling_information()), c.disable_profiling()


def in_transaction(c: Any, end: str) -> Any:
    c.execute("CREATE OR REPLACE TABLE own AS FROM facts LIMIT 3")
    c.begin()
    c.execute("DELETE FROM own WHERE id IN (SELECT id FROM facts WHERE kind = 1)")
    return getattr(c, end)(), c.execute("FROM own").fetchall()


def file_of(folder: Path, ending: str) -> str:
    path = folder / f"file.{ending}"
    if ending == "parquet":
        pq.write_table(FACTS, path)
    else:
        path.write_text({"csv": "id,kind\n1,2\n", "json": '[{"id": 1, "kind": 2}]'}[ending])
    return str(path)


def reads(name: str) -> Call:
    return lambda c, _: selected(c, name)


CALLS: dict[str, Call] = {
    **{name: reads(name) for name in METHODS if name.startswith(("fetch", "df", "to_arrow"))},
    "tf": lambda c, _: (c.execute("SELECT 1"), c.tf()),
    "torch": lambda c, _: (c.execute("SELECT 1"), c.torch()),
    "fetchmany": lambda c, _: selected(c, "fetchmany", 2),
    "abort": lambda c, _: c.abort(),
    "append": lambda c, _: (c.execute(EMPTY), c.append("own", FRAME), c.table("own").fetchall()),
    "appender": lambda c, _: appended(c, lambda each: each.appender("own")),
    "array_type": lambda c, _: c.array_type(c.type("INTEGER"), 3),
    "begin": lambda c, _: (c.begin(), refused(c.begin), c.commit()),
    "checkpoint": lambda c, _: c.checkpoint(),
    "close": lambda c, _: (c.close(), c.close(), refused(lambda: c.execute("SELECT 1"))),
    "commit": lambda c, _: in_transaction(c, "commit"),
    "complete": lambda c, _: (c.execute("SELECT id FROM facts"), c.complete(), c.fetchall())[1:],
    "create_function": lambda c, _: created(c),
    "cursor": lambda c, _: c.cursor().execute("SELECT 1").fetchall(),
    "decimal_type": lambda c, _: (c.decimal_type(9, 2), refused(lambda: c.decimal_type(99, 2))),
    "description": lambda c, _: (c.execute("SELECT id FROM facts"), c.description)[1:],
    "disable_profiling": lambda c, _: profiled(c),
    "dtype": lambda c, _: c.dtype("DECIMAL(4, 1)"),
    "duplicate": lambda c, _: c.duplicate().execute("SELECT 1").fetchall(),
    "enable_profiling": lambda c, _: profiled(c),
    "enum_type": lambda c, _: c.enum_type("mood", c.type("VARCHAR"), ["a", "b"]),
    "execute": lambda c, _: [
        c.execute("SELECT count(*) FROM facts WHERE id < ?", [7]).fetchall(),
        c.execute("SELECT count(*) FROM facts WHERE kind = $k", {"k": 2}).fetchone(),
        c.execute(c.extract_statements("SELECT max(id) FROM facts")[0]).fetchall(),
        c.execute("SELECT 1; SELECT min(kind) FROM facts").fetchall(),
    ],
    "executemany": lambda c, _: (
        c.execute(EMPTY),
        c.executemany("INSERT INTO own VALUES (?, ?)", [[1, 2], [3, 4]]),
        c.execute("FROM own").fetchall(),
    ),
    "extract_statements": lambda c, _: [
        (each.query, each.type) for each in c.extract_statements("FROM facts; SELECT ?")
    ],
    "filesystem_is_registered": lambda c, _: c.filesystem_is_registered("memory"),
    "from_arrow": lambda c, _: c.from_arrow(FACTS).filter("id < 3"),
    "from_csv_auto": lambda c, folder: c.from_csv_auto(file_of(folder, "csv")),
    "from_df": lambda c, _: c.from_df(FRAME).union(c.table("facts").limit(1)),
    "from_parquet": lambda c, folder: c.from_parquet(file_of(folder, "parquet")).limit(3),
    "from_query": lambda c, _: c.from_query("SELECT sum(id) FROM facts"),
    "get_profiling_information": lambda c, _: profiled(c),
    "get_table_names": lambda c, _: c.get_table_names("FROM facts, main.x", qualified=True),
    "install_extension": lambda c, _: c.install_extension("no_such_thing", repository="/nowhere"),
    "interrupt": lambda c, _: (c.interrupt(), c.execute("SELECT max(id) FROM facts").fetchall()),
    "list_filesystems": lambda c, _: c.list_filesystems(),
    "list_type": lambda c, _: c.list_type(c.type("DATE")),
    "load_extension": lambda c, _: c.load_extension("/no/such/thing"),
    "map_type": lambda c, _: c.map_type(c.type("DATE"), c.type("BIGINT")),
    "query": lambda c, _: (
        c.query("SELECT max(id) FROM facts"),
        refused(lambda: c.query("FROM missing")),
    ),
    "query_appender": lambda c, _: appended(
        c,
        lambda each: each.query_appender(
            "INSERT INTO own SELECT * FROM given",
            {"id": "BIGINT", "kind": "BIGINT"},
            source="given",
        ),
    ),
    "query_progress": lambda c, _: c.query_progress(),
    "read_csv": lambda c, folder: c.read_csv(file_of(folder, "csv"), header=True),
    "read_json": lambda c, folder: c.read_json(file_of(folder, "json")),
    "read_parquet": lambda c, folder: c.read_parquet(file_of(folder, "parquet")).count("*"),
    "register": lambda c, _: [
        c.register("again", each).execute("SELECT count(*) FROM again").fetchall()
        for each in (FACTS, FRAME, FACTS.to_batches()[0], FACTS.to_reader(), c.table("facts"))
    ],
    "register_filesystem": lambda c, _: (
        c.register_filesystem(fsspec.filesystem("memory")),
        c.list_filesystems(),
    ),
    "remove_function": lambda c, _: removed(c),
    "rollback": lambda c, _: (in_transaction(c, "rollback"), refused(c.rollback)),
    "row_type": lambda c, _: c.row_type({"a": c.type("DATE")}),
    "rowcount": lambda c, _: (c.execute(EMPTY), c.rowcount)[1:],
    "sql": lambda c, _: [
        c.sql("SELECT max(id) FROM facts WHERE id < ?", params=[9]),
        c.sql("CREATE OR REPLACE TABLE own (a INTEGER)"),
        c.sql("SELECT kind FROM facts", alias="few").filter("few.kind > 5").limit(2),
    ],
    "sqltype": lambda c, _: c.sqltype("no_such_type"),
    "string_type": lambda c, _: c.string_type("NOCASE"),
    "struct_type": lambda c, _: c.struct_type({"a": c.type("DATE")}),
    "table": lambda c, _: (c.table("facts").filter("id = 7"), refused(lambda: c.table("missing"))),
    "table_function": lambda c, _: c.table_function("range", [3]),
    "type": lambda c, _: c.type("INTEGER[]"),
    "union_type": lambda c, _: c.union_type({"a": c.type("DATE"), "b": c.type("BIGINT")}),
    "unregister": lambda c, _: (c.unregister("facts"), refused(lambda: c.execute("FROM facts"))),
    "unregister_filesystem": lambda c, _: c.unregister_filesystem("memory"),
    "values": lambda c, _: c.values([1, "a"]),
    "view": lambda c, _: (c.execute("CREATE OR REPLACE VIEW v AS FROM facts LIMIT 2"), c.view("v")),
}


def test_no_method_is_forgotten() -> None:
    assert set(METHODS) == set(CALLS)


def shown(value: object, connection: object) -> object:
    """A value without what differs from run to run."""
    if value is connection:
        return "the connection"
    if isinstance(value, duckdb.DuckDBPyRelation):
        return value.columns, value.types, value.fetchall()
    if isinstance(value, (tuple, list)):
        return [shown(each, connection) for each in value]
    if isinstance(value, dict):
        return {key: shown(each, connection) for key, each in value.items()}
    if isinstance(value, (pd.DataFrame, pa.Table, pa.RecordBatchReader)):
        return pa.table(value).to_pydict()
    return value.tolist() if isinstance(value, np.ndarray) else repr(value)


def outcome(call: Call, target: Any, folder: Path, connection: object) -> object:
    try:
        return shown(call(target, folder), connection)
    except Exception as problem:  # noqa: BLE001 - Its type is compared.
        return type(problem), str(problem).splitlines()[:1]


@pytest.mark.parametrize("mode", ["off", "auto", "on"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_does_as_duckdbs(name: str, mode: Any, tmp_path: Path) -> None:
    with duckdb.connect() as plain, headrace.sql.connect(prefetch=mode) as ours:
        found = []
        for each in (plain, ours):
            each.register("facts", FACTS)
            found.append(outcome(CALLS[name], each, tmp_path, each))
        assert found[1] == found[0]


class Module:
    """The functions of the module with `connection=`, as methods."""

    def __init__(self, connection: object) -> None:
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        function = functools.partial(getattr(duckdb, name), connection=self.connection)
        return function() if name in {"description", "rowcount"} else function


@pytest.mark.parametrize("name", [name for name in METHODS if hasattr(duckdb, name)])
def test_functions_of_the_module_do_the_same_with_the_wrapped_connection(
    name: str, tmp_path: Path
) -> None:
    with duckdb.connect() as plain, headrace.sql.connect(prefetch="on") as ours:
        found = []
        for each, passed in ((plain, plain), (ours, ours.connection)):
            each.register("facts", FACTS)
            found.append(outcome(CALLS[name], Module(passed), tmp_path, passed))
        assert found[1] == found[0]
