# SPDX-License-Identifier: Apache-2.0
"""Tables: what is read through a stream is what was put in, from copies or not."""

import datetime as dt
import decimal
import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace
from headrace import _core

ROWS = 20_001


class Stream:
    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        del requested_schema
        return self.capsule


def read(capsule: object) -> Any:
    table = pa.RecordBatchReader.from_stream(Stream(capsule)).read_all()
    table.validate(full=True)
    return table


INTEGERS = list(range(100))
TEXTS = ["", "a", "twelve bytes", "a string that is longer than twelve bytes", "\u00e9" * 30]
BYTES = [bytes(range(value)) for value in range(40)]
CENTS = [decimal.Decimal(cents) / 100 for cents in range(1000)]

VALUES: dict[Any, list[Any]] = {
    pa.int8(): INTEGERS,
    pa.uint16(): INTEGERS,
    pa.int32(): INTEGERS,
    pa.float64(): INTEGERS,
    pa.bool_(): [True, False, True],
    pa.date32(): [dt.date(1994, 1, day + 1) for day in range(28)],
    pa.date64(): [dt.date(1994, 1, day + 1) for day in range(28)],
    pa.timestamp("us", tz="UTC"): INTEGERS,
    pa.decimal128(15, 2): CENTS,
    pa.decimal256(40, 2): CENTS,
    pa.binary(5): [bytes([value] * 5) for value in range(200)],
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.string_view(): TEXTS,
    pa.binary_view(): BYTES,
    pa.list_(pa.int64()): [[value, value + 1] for value in range(50)],
    pa.struct([("x", pa.int32())]): [{"x": value} for value in range(50)],
    pa.null(): [None],
}


def column(kind: Any, row_count: int, *, nulls: bool) -> Any:
    values = VALUES[kind]
    repeated = [values[row * 7 % len(values)] for row in range(row_count)]
    if nulls:
        repeated = [None if row % 5 == 3 else value for row, value in enumerate(repeated)]
    return pa.array(repeated, type=kind)


def table_of_all_kinds(row_count: int) -> Any:
    columns = {
        f"{kind} {nulls}": column(kind, row_count, nulls=nulls)
        for kind in VALUES
        for nulls in (False, True)
    }
    columns["dictionary"] = column(pa.string(), row_count, nulls=True).dictionary_encode()
    return pa.table(columns)


@pytest.fixture(scope="module")
def everything() -> Any:
    return table_of_all_kinds(ROWS)


def prefetched(
    table: headrace.Table, columns: Sequence[int], capacity: str = "256MiB", *, finish: bool = True
) -> tuple[Any, dict[str, Any]]:
    with headrace.Cache(capacity=capacity, placement="local") as cache:
        prefetcher = _core.Prefetcher(
            cache.native(), [(table.native(), list(columns[:1]), list(columns[1:]), [])]
        )
        if finish:
            prefetcher.finish()
        found = read(prefetcher.stream(table.native(), list(columns)))
        found = (
            pa.table(
                {name: pa.concat_arrays(found[name].chunks) for name in found.column_names},
                schema=found.schema,
            )
            if found.num_rows
            else found
        )
        prefetcher.stop()
        return found, prefetcher.statistics()


@pytest.mark.parametrize("chunk_rows", [1, 5, 1000, 100_000])
@pytest.mark.parametrize("first", [0, 3, 8])
def test_a_stream_gives_the_columns_as_they_are(
    everything: Any, chunk_rows: int, first: int
) -> None:
    sliced = everything.slice(first, 101 if chunk_rows < 1000 else ROWS)
    table = headrace.Table(sliced, chunk_rows=chunk_rows)
    names = sliced.column_names
    assert read(table.__arrow_c_stream__()).equals(sliced)
    chosen = [3, 0, len(names) - 1]
    found = read(table.native().stream(chosen))
    assert found.equals(sliced.select(chosen))
    assert found.schema.equals(sliced.select(chosen).schema, check_metadata=True)


@pytest.mark.parametrize("first", [0, 3, 8])
def test_copies_are_what_they_are_copies_of(everything: Any, first: int) -> None:
    sliced = everything.slice(first)
    table = headrace.Table(sliced, chunk_rows=5000)
    found, statistics = prefetched(table, range(sliced.num_columns))
    assert found.equals(sliced)
    columns = statistics["scans"][0]["columns"]
    copied = sum(each["bytes_from_copies"] for each in columns)
    assert copied == table.movable_bytes() > 0
    assert sum(each["bytes_from_source"] for each in columns) == 0


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("first", [1, 8, 13])
def test_a_slice_without_nulls_shares_the_bitmap_of_one_with_nulls(first: int, kind: Any) -> None:
    values = pa.array([None] * first + list(range(first, ROWS)), pa.int64())
    texts = [None if value is None else f"the number {value}" for value in values.to_pylist()]
    whole = pa.table({"n": values if kind == pa.int64() else pa.array(texts, kind)})
    parts = pa.concat_tables([whole.slice(0, first), whole.slice(first)])
    assert parts["n"].chunk(1).null_count == 0
    table = headrace.Table(parts, chunk_rows=5000)
    for found in (read(table.__arrow_c_stream__()), prefetched(table, [0])[0]):
        assert pc.sum(pc.is_null(found["n"])).as_py() == first
        assert found["n"].to_pylist() == whole["n"].to_pylist()


@pytest.mark.parametrize("first", [0, 13])
def test_copies_of_strings_may_be_touched_as_whole_buffers(everything: Any, first: int) -> None:
    texts = everything.slice(first).select(
        [name for name in everything.column_names if name.startswith(("string", "large", "binary"))]
    )
    table = headrace.Table(texts, chunk_rows=5000)
    with headrace.Cache(capacity="64MiB", placement="local") as cache:
        columns = list(range(texts.num_columns))
        prefetcher = _core.Prefetcher(cache.native(), [(table.native(), [], columns, [])])
        prefetcher.finish()
        found = read(prefetcher.stream(table.native(), columns))
        prefetcher.stop()
        for name in texts.column_names:
            (source,) = texts[name].chunks
            theirs = {each.address for each in source.buffers() if each}
            for chunk in found[name].chunks:
                byte_count = sum(each.as_buffer().size for each in chunk if each.is_valid)
                for buffer in chunk.buffers()[2:]:
                    assert buffer.address in theirs or buffer.size <= byte_count, name
        for again in (
            pickle.loads(pickle.dumps(found)),  # noqa: S301 - It is ours.
            pa.ipc.open_stream(written(found)).read_all(),
            pa.concat_tables([found, found]).combine_chunks().slice(found.num_rows),
        ):
            again.validate(full=True)
            assert again.equals(texts)


def written(table: Any) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_nested_columns_are_read_where_they_lie(everything: Any) -> None:
    table = headrace.Table(everything)
    nested = [name for name in table.column_names if name.startswith(("list", "struct"))]
    assert len(nested) == 4
    assert not any(table.is_movable(name) for name in nested)
    assert table.is_movable("dictionary")


@pytest.mark.parametrize("capacity", ["4KiB", "64KiB", "256KiB", "1MiB"])
def test_a_small_cache_gives_the_same_and_is_never_waited_for(
    everything: Any, capacity: str
) -> None:
    table = headrace.Table(everything, chunk_rows=2000)
    found, _ = prefetched(table, range(everything.num_columns), capacity)
    assert found.equals(everything)


def test_a_query_that_is_faster_than_the_prefetcher_is_not_followed(everything: Any) -> None:
    table = headrace.Table(everything, chunk_rows=500)
    found, statistics = prefetched(table, range(everything.num_columns), finish=False)
    assert found.equals(everything)
    scan = statistics["scans"][0]
    assert scan["chunks_read"] == 41
    assert scan["chunks_submitted"] + scan["chunks_skipped"] <= 41


def test_excluded_chunks_are_not_moved(everything: Any) -> None:
    table = headrace.Table(everything.select(["int32 False"]), chunk_rows=10_000)
    with headrace.Cache(capacity="16MiB", placement="local") as cache:
        prefetcher = _core.Prefetcher(
            cache.native(), [(table.native(), [], [0], [True, False, False])]
        )
        prefetcher.finish()
        assert cache.statistics.misses == 1  # The third chunk is too short.
        prefetcher.stop()


def test_a_stopped_prefetcher_leaves_its_streams_at_the_source(everything: Any) -> None:
    table = headrace.Table(everything, chunk_rows=1000)
    with headrace.Cache(capacity="64MiB", placement="local") as cache:
        prefetcher = _core.Prefetcher(cache.native(), [(table.native(), [0], [1], [])])
        reader = pa.RecordBatchReader.from_stream(Stream(prefetcher.stream(table.native(), [0, 1])))
        first = reader.read_next_batch()
        prefetcher.stop()
    rest = pa.Table.from_batches([first, *reader])
    assert rest.equals(everything.select([0, 1]))


def test_a_table_without_rows_or_columns_is_a_table() -> None:
    for empty in (pa.table({"a": pa.array([], pa.int64())}), pa.table({})):
        table = headrace.Table(empty)
        assert table.num_rows == 0
        assert read(table.__arrow_c_stream__()).equals(empty)


def test_where_tells_the_node_of_every_byte(everything: Any) -> None:
    table = headrace.Table(everything)
    found = table.where()
    assert found.keys() == set(table.column_names)
    assert sum(found["int32 False"].values()) == 4 * ROWS


def test_placed_columns_lie_on_their_node_and_are_the_same(everything: Any) -> None:
    table = headrace.Table(everything.slice(3), chunk_rows=3000)
    node = headrace.topo().nodes[0].id
    placed = table.place(node)
    assert placed.arrow.equals(table.arrow)
    assert placed.schema.equals(table.schema, check_metadata=True)
    for name in ("int32 False", "string True", "string_view True", "dictionary"):
        assert set(placed.where()[name]) <= {node, None}
    some = table.place(node, ["int8 False"])
    moved = {
        name
        for index, name in enumerate(table.column_names)
        if some.native().addresses(index) != table.native().addresses(index)
    }
    assert moved == {"int8 False"}
    del table, placed
    assert some.arrow["int8 False"].equals(everything.slice(3)["int8 False"])


def test_fastest_places_nothing_where_no_memory_is_faster() -> None:
    table = headrace.Table(pa.table({"a": range(1000)}))
    if headrace.topo().has_faster_node():
        pytest.skip("this machine has faster memory")
    assert table.place("fastest") is table


def test_columns_cannot_be_placed_on_what_is_no_node(everything: Any) -> None:
    table = headrace.Table(everything)
    with pytest.raises(headrace.NotFoundError, match="no node 999"):
        table.place(999)
    with pytest.raises(headrace.NotFoundError, match="no node 'best'"):
        table.place("best")
    with pytest.raises(headrace.NotFoundError, match="no column 'x'"):
        table.place(0, ["x"])


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(headrace.TypeMismatchError, match="int is not Arrow data"):
        headrace.Table(3)
    with pytest.raises(headrace.InvalidArgumentError):
        headrace.Table(pa.table({"a": [1]}), chunk_rows=0)
    with pytest.raises(headrace.InvalidArgumentError, match="same name"):
        headrace.Table(pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(headrace.OutOfRangeError, match="no column 1"):
        headrace.Table(pa.table({"a": [1]})).native().stream([1])
