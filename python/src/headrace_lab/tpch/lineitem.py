# SPDX-License-Identifier: Apache-2.0
"""Reads the four columns of lineitem for query 6, as exact integers in NumPy arrays.

Reads batches into preallocated arrays, so that peak memory is little more than the columns, however
long a row group is. Values that do not fit 64 bits are refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace import _core
from headrace._apps.memory import available_bytes
from headrace._files import require_readable
from headrace.errors import (
    CapacityExceededError,
    CorruptDataError,
    IoFailedError,
    NotFoundError,
    TypeMismatchError,
)

Integers = npt.NDArray[np.int64]

_SCALE = 2
"""Digits after the point: values are hundredths."""
_DIGITS_MAX = 19


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of lineitem, all of the same length: days since 1970-01-01, the others hundredths."""

    ship_date: npt.NDArray[np.int32]
    discount: Integers
    quantity: Integers
    extended_price: Integers

    @property
    def row_count(self) -> int:
        return len(self.ship_date)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by their names in the file."""
        columns = self.ship_date, self.discount, self.quantity, self.extended_price
        return dict(zip(COLUMN_NAMES, columns, strict=True))


_BATCH_ROWS = 1 << 17
"""Rows decoded at a time: 6.5 MB in Arrow's format."""
_BUFFER_BYTES = 1 << 20
"""Bytes read of a column at a time; without it Arrow reads a whole row group of the column."""

BYTES_PER_ROW = 4 + 3 * 8
COLUMN_NAMES = ("l_shipdate", "l_discount", "l_quantity", "l_extendedprice")


def read_lineitem(path: Path, progress: Callable[[float], None] = lambda _share: None) -> Columns:
    """Read the columns of a Parquet file.

    Dates must be date32, numbers decimals of at most two digits after the point; both without
    nulls. Nothing is rounded.
    """
    require_readable(path, f"read '{path}'")
    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            _check_types(path, file.schema_arrow)
            return _read(path, file, progress)
    except (pa.ArrowException, OSError) as problem:
        if (code := getattr(problem, "errno", None)) is not None:
            raise IoFailedError(
                f"read '{path}'", "it cannot be opened", "check its permissions", code
            ) from problem
        # Arrow reports damage inside a file as an OSError without errno.
        raise CorruptDataError(
            f"read '{path}'",
            f"it is not a Parquet file, or is damaged ({_first_sentence(problem)})",
            "generate or download it again",
        ) from problem


def _check_types(path: Path, schema: pa.Schema) -> None:
    for name in COLUMN_NAMES:
        indices = schema.get_all_field_indices(name)
        if len(indices) != 1:
            raise NotFoundError(
                f"read '{path}'",
                f"it has {'no column' if not indices else 'several columns'} {name}",
                "give lineitem of TPC-H, or leave out --data to have it generated",
            )
        found = schema.field(indices[0]).type
        if name == "l_shipdate":
            fits, wanted = pa.types.is_date32(found), "date32"
            remedy = "write it with CAST(l_shipdate AS DATE)"
        else:
            # DuckDB reads decimal256 as double, which gives no exact answer to compare with.
            exact = pa.types.is_decimal(found) and not pa.types.is_decimal256(found)
            fits = exact and 0 <= found.scale <= _SCALE
            wanted = "a decimal with at most 38 digits, two of them after the point"
            remedy = f"write it with CAST({name} AS DECIMAL(15,2))"
        if not fits:
            raise TypeMismatchError(
                f"read column {name} of '{path}'", f"it is {found}, wanted is {wanted}", remedy
            )


def _read(path: Path, file: pq.ParquetFile, progress: Callable[[float], None]) -> Columns:
    row_count = file.metadata.num_rows
    if row_count == 0:
        raise CorruptDataError(f"read '{path}'", "it has no rows", "give a file with data")
    check_memory(f"read '{path}'", row_count * BYTES_PER_ROW)
    columns = Columns(
        ship_date=np.empty(row_count, np.int32),
        discount=np.empty(row_count, np.int64),
        quantity=np.empty(row_count, np.int64),
        extended_price=np.empty(row_count, np.int64),
    )
    row = 0
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=list(COLUMN_NAMES)):
            end = row + batch.num_rows
            if end > row_count:
                break
            for name, target in columns.arrays().items():
                _store(path, name, batch.column(name), target[row:end])
            row = end
            progress(row / row_count)
    if row != row_count:
        raise CorruptDataError(
            f"read '{path}'",
            f"its metadata states {row_count} rows and its row groups have another number",
            "generate or download it again",
        )
    return columns


def _store(path: Path, name: str, chunk: pa.Array, target: npt.NDArray[Any]) -> None:
    if chunk.null_count:
        raise CorruptDataError(
            f"read column {name} of '{path}'",
            f"it has nulls ({chunk.null_count} in one row group)",
            "lineitem has none: give another file",
        )
    try:
        if name != "l_shipdate":  # As hundredths.
            exact = chunk.cast(pa.decimal128(_DIGITS_MAX, _SCALE))
            whole = pa.decimal128(_DIGITS_MAX), len(chunk), exact.buffers()
            chunk = pa.Array.from_buffers(*whole, offset=exact.offset).cast(pa.int64())
    except pa.ArrowInvalid as problem:
        raise TypeMismatchError(
            f"read column {name} of '{path}'",
            "a value has more than 18 digits",
            f"write it with CAST({name} AS DECIMAL(15,2))",
        ) from problem
    values = np.frombuffer(chunk.buffers()[1], target.dtype)  # to_numpy() loads pandas, too.
    target[:] = values[chunk.offset : chunk.offset + len(chunk)]


def check_memory(tried: str, needed: int) -> None:
    """Check that so many bytes of tables fit in available memory."""
    free = available_bytes()
    if free is not None and needed > free:
        raise CapacityExceededError(
            tried,
            f"it takes about {_core.bytes_text(needed)} of memory and "
            f"{_core.bytes_text(free)} are free",
            "use a smaller scale factor",
        )


def _first_sentence(problem: BaseException) -> str:
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0].split(". ")[0].rstrip(".")
