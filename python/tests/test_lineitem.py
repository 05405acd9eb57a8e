# SPDX-License-Identifier: Apache-2.0
"""Reading the columns: exact for what fits, one sentence for every file that does not."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace_lab.tpch import lineitem

DECIMAL = pa.decimal128(15, 2)


def write(path: Path, row_group_rows: int = 100, **changes: pa.Array) -> Path:
    """Write a small lineitem; a change to None leaves the column out."""
    columns: dict[str, pa.Array] = {
        "l_shipdate": pa.array([8766, 8767, 9131], pa.date32()),
        "l_discount": pa.array([Decimal("0.05"), Decimal("0.06"), Decimal("0.07")], DECIMAL),
        "l_quantity": pa.array([Decimal(1), Decimal("23.99"), Decimal(24)], DECIMAL),
        "l_extendedprice": pa.array([Decimal("1.01"), Decimal("-2.02"), Decimal(3)], DECIMAL),
        "l_comment": pa.array(["a", "b", "c"]),
    } | changes
    table = pa.table({name: array for name, array in columns.items() if array is not None})
    pq.write_table(table, path, row_group_size=row_group_rows)
    return path


def test_decimals_become_hundredths_and_dates_days(tmp_path: Path) -> None:
    columns = lineitem.read_lineitem(write(tmp_path / "a.parquet"))
    assert columns.row_count == 3
    assert columns.ship_date.tolist() == [8766, 8767, 9131]
    assert columns.discount.tolist() == [5, 6, 7]
    assert columns.quantity.tolist() == [100, 2399, 2400]
    assert columns.extended_price.tolist() == [101, -202, 300]
    assert sum(each.nbytes for each in columns.arrays().values()) == 3 * lineitem.BYTES_PER_ROW


def test_row_groups_are_joined_in_order(tmp_path: Path) -> None:
    shares: list[float] = []
    path = write(tmp_path / "a.parquet", row_group_rows=1)
    columns = lineitem.read_lineitem(path, shares.append)
    assert columns.ship_date.tolist() == [8766, 8767, 9131]
    assert shares == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1]


def test_batches_of_a_long_row_group_are_joined_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineitem, "_BATCH_ROWS", 2)
    columns = lineitem.read_lineitem(write(tmp_path / "a.parquet"))
    assert columns.ship_date.tolist() == [8766, 8767, 9131]
    assert columns.extended_price.tolist() == [101, -202, 300]


def test_a_long_row_group_takes_no_memory_of_its_length(tmp_path: Path) -> None:
    row_count = 2_000_000
    random = np.random.default_rng(1)
    hundredths = pa.array(random.integers(0, 10**6, row_count)).cast(pa.decimal128(21, 0))
    numbers = hundredths.cast(pa.decimal128(15, 0), safe=False)
    dates = pa.array(random.integers(8000, 10000, row_count), pa.int32()).cast(pa.date32())
    path = write(
        tmp_path / "a.parquet",
        row_count,
        l_shipdate=dates,
        l_discount=numbers,
        l_quantity=numbers,
        l_extendedprice=numbers,
        l_comment=None,
    )
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    try:
        assert lineitem.read_lineitem(path).row_count == row_count
    finally:
        pa.set_memory_pool(before)
    assert 0 < counted.max_memory() < row_count * 52 / 3  # All of it is 52 bytes per row.


HUNDREDTHS = st.integers(-(10**14), 10**14)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.tuples(st.integers(-(10**5), 10**5), HUNDREDTHS, HUNDREDTHS, HUNDREDTHS),
        min_size=1,
        max_size=50,
    ),
    precision=st.sampled_from([18, 38]),
    row_group_rows=st.integers(1, 60),
)
def test_what_is_written_is_read(
    tmp_path: Path, rows: list[tuple[int, int, int, int]], precision: int, row_group_rows: int
) -> None:
    days, *hundredths = zip(*rows, strict=True)
    discount, quantity, price = (
        pa.array([Decimal(value).scaleb(-2) for value in column], pa.decimal128(precision, 2))
        for column in hundredths
    )
    path = write(
        tmp_path / "a.parquet",
        row_group_rows,
        l_shipdate=pa.array(days, pa.int32()).cast(pa.date32()),
        l_discount=discount,
        l_quantity=quantity,
        l_extendedprice=price,
        l_comment=None,
    )
    columns = lineitem.read_lineitem(path)
    read = zip(*(array.tolist() for array in columns.arrays().values()), strict=True)
    assert list(read) == rows


@pytest.mark.parametrize("scale", [0, 1, 2])
def test_fewer_digits_after_the_point_are_hundredths_too(tmp_path: Path, scale: int) -> None:
    quantity = pa.array([Decimal(-3), Decimal(4), Decimal(0)], pa.decimal128(15, scale))
    columns = lineitem.read_lineitem(write(tmp_path / "a.parquet", l_quantity=quantity))
    assert columns.quantity.tolist() == [-300, 400, 0]


def test_the_largest_values_of_64_bits_are_exact(tmp_path: Path) -> None:
    ends = np.iinfo(np.int64)
    values = [Decimal(int(value)).scaleb(-2) for value in (ends.min, ends.max, -1)]
    price = pa.array(values, pa.decimal128(38, 2))
    columns = lineitem.read_lineitem(write(tmp_path / "a.parquet", l_extendedprice=price))
    assert columns.extended_price.tolist() == [ends.min, ends.max, -1]


@pytest.mark.parametrize(
    "values, scale",
    [([2**63, 0, 0], 2), ([-(2**63) - 1, 0, 0], 2), ([2**62, 0, 0], 1), ([-(2**62), 0, 0], 0)],
)
def test_what_does_not_fit_64_bits_is_refused(
    tmp_path: Path, values: list[int], scale: int
) -> None:
    price = pa.array([Decimal(value).scaleb(-scale) for value in values], pa.decimal128(38, scale))
    path = write(tmp_path / "a.parquet", l_extendedprice=price)
    with pytest.raises(headrace.TypeMismatchError, match=r"l_extendedprice.*more than 18 digits"):
        lineitem.read_lineitem(path)


@pytest.mark.parametrize(
    "name, array, words",
    [
        ("l_discount", pa.array([0.05, 0.06, 0.07]), ["double", "decimal", "DECIMAL(15,2)"]),
        ("l_quantity", pa.array([1, 2, 3]), ["int64", "decimal"]),
        (
            "l_extendedprice",
            pa.array([Decimal("1.001")] * 3, pa.decimal128(15, 3)),
            ["decimal128(15, 3)", "two of them after the point"],
        ),
        ("l_discount", pa.array([Decimal(1)] * 3, pa.decimal256(50, 2)), ["decimal256(50, 2)"]),
        ("l_shipdate", pa.array(["1994-01-01"] * 3), ["string", "date32", "AS DATE"]),
        ("l_shipdate", pa.array([0, 1, 2], pa.timestamp("us")), ["timestamp", "date32"]),
    ],
)
def test_a_wrong_type_names_column_found_and_wanted_and_the_remedy(
    tmp_path: Path, name: str, array: pa.Array, words: list[str]
) -> None:
    path = write(tmp_path / "a.parquet", 100, **{name: array})
    with pytest.raises(headrace.TypeMismatchError) as caught:
        lineitem.read_lineitem(path)
    for word in [name, str(path), *words]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", l_quantity=None)
    with pytest.raises(headrace.NotFoundError, match="no column l_quantity"):
        lineitem.read_lineitem(path)


def test_nulls_are_refused(tmp_path: Path) -> None:
    quantity = pa.array([Decimal(1), None, Decimal(3)], DECIMAL)
    path = write(tmp_path / "a.parquet", l_quantity=quantity)
    with pytest.raises(headrace.CorruptDataError, match=r"column l_quantity.*nulls"):
        lineitem.read_lineitem(path)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pq.read_table(write(tmp_path / "b.parquet")).slice(0, 0), path)
    with pytest.raises(headrace.CorruptDataError, match="no rows"):
        lineitem.read_lineitem(path)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(headrace.NotFoundError, match=r"none\.parquet.*no such file"):
        lineitem.read_lineitem(tmp_path / "none.parquet")


def test_a_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(headrace.Error, match="it is a directory"):
        lineitem.read_lineitem(tmp_path)


@pytest.mark.parametrize("content", [b"", b"x", b"PAR1", b"no parquet at all" * 100])
def test_a_foreign_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(headrace.CorruptDataError) as caught:
        lineitem.read_lineitem(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_truncated_anywhere_is_one_sentence(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "b.parquet"
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(headrace.CorruptDataError) as caught:
            lineitem.read_lineitem(path)
        assert "\n" not in str(caught.value)


def test_damage_inside_a_file_is_an_error_of_ours_or_harmless(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "b.parquet"
    for position in range(4, len(whole), 53):
        path.write_bytes(whole[:position] + b"\xff" * 8 + whole[position + 8 :])
        try:
            lineitem.read_lineitem(path)
        except headrace.Error as error:
            assert "\n" not in str(error)  # noqa: PT017 - Most damage is noticed, not all.
