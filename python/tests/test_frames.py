# SPDX-License-Identifier: Apache-2.0
"""DataFusion and Polars on prefetched tables: the answers of TPC-H are those of DuckDB."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from conftest import SCALE_FACTOR

import headrace
from headrace.frames import Dataset, lazy_frame
from headrace_lab.sql.study import same_rows
from headrace_lab.sql.tables import tpch_queries
from headrace_lab.tpch.table import TABLES, ensure_tables

QUERIES = tpch_queries()


@pytest.fixture(scope="module")
def tables(data_directory: Path) -> dict[str, headrace.Table]:
    paths = ensure_tables(TABLES, SCALE_FACTOR, data_directory)
    return {name: headrace.Table(pq.read_table(path)) for name, path in paths.items()}


@pytest.fixture(scope="module")
def expected(tables: dict[str, headrace.Table]) -> dict[str, list[Any]]:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table.arrow)
        return {
            name: plain(connection.execute(query).fetchall()) for name, query in QUERIES.items()
        }


@pytest.fixture
def cache() -> Iterator[headrace.Cache]:
    with headrace.Cache(capacity="256MiB", placement="local") as made:
        yield made


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in frame.to_arrow_table().to_pylist()]


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Numbers with four digits: engines have other types for averages."""
    return [
        tuple(
            float(f"{value:.4g}") if isinstance(value, (int, float, Decimal)) else value
            for value in row
        )
        for row in rows
    ]


def test_datafusion_gives_the_answers_of_duckdb(
    tables: dict[str, headrace.Table], expected: dict[str, list[Any]], cache: headrace.Cache
) -> None:
    context = datafusion.SessionContext()
    datasets = {name: Dataset(table, cache) for name, table in tables.items()}
    for name, dataset in datasets.items():
        context.register_dataset(name, dataset)
    own = datafusion.SessionContext()
    for name, dataset in datasets.items():
        own.register_dataset(name, pds.dataset(dataset.to_table()))
    for name, query in QUERIES.items():
        rows = rows_of(context.sql(query))
        assert same_rows(rows, rows_of(own.sql(query))), name
        assert same_rows(plain(rows), expected[name]), name
    assert cache.statistics.bytes_moved > 0
    if cache.statistics.weak_hits == 0:  # The copies came too late: they serve the next run.
        for query in QUERIES.values():
            rows_of(context.sql(query))
    assert cache.statistics.weak_hits > 0
    for dataset in datasets.values():
        dataset.close()


def test_polars_gives_the_answers_of_duckdb(
    tables: dict[str, headrace.Table], expected: dict[str, list[Any]], cache: headrace.Cache
) -> None:
    context = pl.SQLContext({name: lazy_frame(each, cache) for name, each in tables.items()})
    for name, query in QUERIES.items():
        assert same_rows(plain(context.execute(query, eager=True).rows()), expected[name]), name
    assert cache.statistics.bytes_moved > 0
    if cache.statistics.weak_hits == 0:  # As above.
        for query in QUERIES.values():
            context.execute(query, eager=True)
    assert cache.statistics.weak_hits > 0


def test_a_dataset_is_read_as_pyarrow_reads_one(cache: headrace.Cache) -> None:
    days = [dt.date(1994, 1, 1) + dt.timedelta(row % 365) for row in range(20_000)]
    data = pa.table({"n": range(20_000), "day": days, "a b": [None, "x", "y", "z"] * 5000})
    dataset = Dataset(headrace.Table(data, chunk_rows=3000), cache)
    other = pds.dataset(data)
    condition = (pds.field("day") < dt.date(1994, 3, 1)) & (pds.field("a b") != "y")
    for options in (
        {},
        {"columns": ["n"]},
        {"columns": ["n"], "filter": condition},
        {"filter": pds.field("a b").is_null()},
        {"columns": ["a b"], "filter": pds.field("n") > 19_000},
    ):
        assert dataset.to_table(**options) == other.to_table(**options), options
    assert dataset.count_rows() == 20_000
    assert dataset.count_rows(filter=condition) == other.count_rows(filter=condition)
    dataset.close()


def test_a_lazy_frame_ends_early_when_less_is_asked_for(cache: headrace.Cache) -> None:
    table = headrace.Table(pa.table({"n": range(50_000), "m": range(50_000)}), chunk_rows=8000)
    frame = lazy_frame(table, cache)
    assert frame.head(5).collect()["n"].to_list() == [0, 1, 2, 3, 4]
    assert frame.filter(pl.col("n") >= 49_998).select("m").collect()["m"].to_list() == [
        49_998,
        49_999,
    ]
    assert frame.select(pl.len()).collect().item() == 50_000


def test_what_pyarrow_does_itself_has_the_rows(cache: headrace.Cache) -> None:
    data = pa.table({"n": range(5000), "m": [row % 7 for row in range(5000)]})
    dataset, other = Dataset(headrace.Table(data), cache), pds.dataset(data)
    order = [("m", "ascending"), ("n", "descending")]
    assert dataset.sort_by(order).to_table() == other.sort_by(order).to_table()
    names = pa.table({"m": range(7), "name": list("abcdefg")})
    for joined in (
        dataset.join(pds.dataset(names), "m"),
        pds.dataset(names).join(dataset, "m"),
    ):
        assert joined.count_rows() == 5000
    for each in (dataset.filter(pds.field("m") == 3), other.filter(pds.field("m") == 3)):
        assert each.to_table().num_rows == 714
    assert dataset.replace_schema(data.schema).count_rows() == 5000
    computed = {"m": pds.field("n") + 1}
    assert dataset.to_table(columns=computed) == other.to_table(columns=computed)
    with pytest.raises(pa.ArrowInvalid, match="absent"):
        dataset.to_table(columns=["absent"])
    dataset.close()


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_lazy_frame_counts_rows_without_columns(cache: headrace.Cache, engine: Any) -> None:
    frame = lazy_frame(headrace.Table(pa.table({"n": range(9)}), chunk_rows=4), cache)
    rows = frame.with_row_index().select("index").collect(engine=engine)
    assert rows["index"].to_list() == list(range(9))
    assert frame.select(pl.int_range(pl.len())).collect(engine=engine).height == 9
    assert frame.filter(pl.col("n") > 5).select(pl.len()).collect(engine=engine).item() == 3


def test_other_types_are_refused(cache: headrace.Cache) -> None:
    data = pa.table({"n": [1]})
    for make in (lazy_frame, Dataset):
        with pytest.raises(headrace.TypeMismatchError, match=r"headrace\.Table"):
            make(data, cache)
        with pytest.raises(headrace.TypeMismatchError, match=r"headrace\.Cache"):
            make(headrace.Table(data), None)  # type: ignore[arg-type]


def test_more_scans_than_prefetchers_are_kept_end_well(cache: headrace.Cache) -> None:
    data = pa.table({"n": range(20_000)})
    dataset = Dataset(headrace.Table(data, chunk_rows=1000), cache)
    scanners = [dataset.scanner() for _ in range(40)]
    assert all(scanner.to_table() == data for scanner in scanners)
    dataset.close()
