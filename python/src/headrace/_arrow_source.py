# SPDX-License-Identifier: Apache-2.0
"""How other libraries read a table: by Arrow streams, and DuckDB by a stand-in class."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import pyarrow as pa

from headrace.table import Table


class _Stream:
    """What `open_stream` opens, in the Arrow PyCapsule protocol."""

    def __init__(self, open_stream: Callable[[], object]) -> None:
        self._open = open_stream

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        del requested_schema
        return self._open()


def reader_of(capsule: object) -> Any:
    """A `pyarrow.RecordBatchReader` over an Arrow stream capsule."""
    return pa.RecordBatchReader.from_stream(_Stream(lambda: capsule))


class Streams(Protocol):
    """Opens a stream for a statement that starts to read a table."""

    def stream(self, table: Table, columns: list[int]) -> object:
        """An Arrow stream capsule of these columns."""


class ArrowSource(pa.Table):  # type: ignore[misc] # pyarrow publishes no types.
    """Stands in for a pyarrow table in DuckDB.

    DuckDB uses the row count of a `pyarrow.Table`, but of no other class, for planning; without it,
    joins run in a bad order. It reads the table through the methods below. The base class is not
    initialised, so all other attributes are refused.

    Threading: immutable.
    """

    _ALLOWED = frozenset(
        {
            "__arrow_c_schema__",
            "__arrow_c_stream__",
            "__class__",
            "__dict__",
            "__len__",
            "__repr__",
            "_headrace",
            "column_names",
            "num_columns",
            "num_rows",
            "schema",
            "select",
            "shape",
        }
    )

    def __new__(cls, _table: Table, _shared: Streams) -> Self:
        made: Self = super().__new__(cls)
        return made

    def __init__(self, table: Table, shared: Streams) -> None:
        # Weak, because DuckDB may keep the source longer than the connection lives.
        self._headrace = (table, weakref.ref(shared))

    def __getattribute__(self, name: str) -> Any:
        if name not in ArrowSource._ALLOWED:
            raise AttributeError(f"a prefetched table has no {name!r}: use the table itself")
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return repr(self._headrace[0])

    def __len__(self) -> int:
        return len(self._headrace[0])

    @property
    def schema(self) -> pa.Schema:
        return self._headrace[0].schema

    @property
    def column_names(self) -> list[str]:
        return self._headrace[0].column_names

    @property
    def num_rows(self) -> int:
        return len(self._headrace[0])

    @property
    def num_columns(self) -> int:
        return len(self._headrace[0].column_names)

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_rows, self.num_columns

    def __arrow_c_schema__(self) -> object:
        return self._headrace[0].__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.select(self.column_names).__arrow_c_stream__(requested_schema)

    def select(self, columns: Sequence[str | int]) -> Any:
        table, reference = self._headrace
        shared = reference()
        indexes = [each if isinstance(each, int) else table.indexes([each])[0] for each in columns]
        if shared is None:
            return table.arrow.select(indexes)
        return _Stream(lambda: shared.stream(table, indexes))
