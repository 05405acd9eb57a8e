# SPDX-License-Identifier: Apache-2.0
"""Table: Arrow columns in chunks that a prefetcher can copy ahead of a query."""

import datetime as dt
import functools
import itertools
import os
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace import _core
from headrace._arguments import whole_number
from headrace._words import counted
from headrace.cache import Cache
from headrace.errors import InvalidArgumentError, NotFoundError, TypeMismatchError
from headrace.machine import Machine, topo

CHUNK_ROWS = 131_072
"""1 MiB of an 8-byte column, and the rows that a query engine gives to one thread at a time."""

_FILE_MAPPING = re.compile(rb"^(\w+)-(\w+) \S+ \S+ \S+ \d+ +/", re.MULTILINE)
_TRIED = "make a table"
_numbers = itertools.count(1)
"""Of tables and of readings of `_areas`, in the order of time."""
_areas: tuple[int, list[tuple[int, int]]] = (0, [])
_PLACE_TRIED = "place columns of a table"


@dataclass(frozen=True, slots=True)
class Range:
    """Values of a column that pass a filter.

    Attributes:
        column: The column.
        low: Lower bound, inclusive; None if there is none.
        high: Upper bound, inclusive; None if there is none.
    """

    column: str
    low: dt.date | Decimal | None
    high: dt.date | Decimal | None


class Table:
    """Arrow columns that a query engine reads in place or from nearer copies.

    A table keeps the Arrow data alive and copies nothing itself. Columns of fixed width, strings,
    binary data, booleans and dictionaries can be prefetched; nested columns are read in place.

    Threading: immutable.
    """

    def __init__(self, data: object, *, chunk_rows: int = CHUNK_ROWS) -> None:
        """Make a table from a pyarrow table, or anything that exports an Arrow stream.

        Args:
            data: A `pyarrow.Table`, a record batch, or an object with ``__arrow_c_stream__``. A
                reader is read to its end.
            chunk_rows: Rows per chunk, the unit of moving and reading.

        Raises:
            TypeMismatchError: `data` is not Arrow data.
            InvalidArgumentError: `chunk_rows` is 0, or two columns have the same name.
        """
        self._chunk_rows = whole_number(chunk_rows, _TRIED, 1, 2**31)
        self.arrow: Any = _arrow_table(data)
        """The same columns as a `pyarrow.Table`."""
        names = self.arrow.column_names
        if len(set(names)) != len(names):
            raise InvalidArgumentError(
                _TRIED, "two of its columns have the same name", "rename one of them"
            )
        self._number = next(_numbers)
        self._lock = threading.Lock()
        self._imported: _core.Table | None = None
        self._indexes = {name: index for index, name in enumerate(names)}
        self._bounds: dict[str, list[tuple[Any, Any]]] = {}
        self._asked: list[str] = []
        """Columns whose bounds are not known yet, for `learn_bounds`."""

    def __repr__(self) -> str:
        return (
            f"<headrace.Table: {counted(self.num_rows, 'row')}, "
            f"{counted(len(self._indexes), 'column')}, "
            f"{counted(self.native().chunk_count(), 'chunk')}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Table, chunk_rows=self._chunk_rows), (self.arrow,)

    def __len__(self) -> int:
        return self.num_rows

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.arrow.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self.arrow.schema

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self._indexes)

    def native(self) -> _core.Table:
        """The table of the extension module. The first call looks at all chunks."""
        with self._lock:
            if self._imported is None:
                stream = self.arrow.__arrow_c_stream__()
                self._imported = _core.Table.import_stream(stream, self._chunk_rows)
            return self._imported

    def leave(self, cache: Cache) -> None:
        """Drop the copies in a cache."""
        if self._imported is not None:
            self._imported.leave(cache.native())

    def indexes(self, names: Sequence[str]) -> list[int]:
        """Indexes of columns."""
        return [self._indexes[name] for name in names]

    def is_movable(self, name: str) -> bool:
        """Whether a column can be prefetched; nested columns and mapped files cannot."""
        return not self.lies_in_file and self.native().is_movable(self._indexes[name])

    def movable_bytes(self, names: Sequence[str] | None = None, *, with_views: bool = True) -> int:
        """Bytes that a prefetcher would move of these columns, or of all.

        Each row is read for the strings of views; they may be left out.
        """
        if self.lies_in_file:
            return 0
        chosen = self._indexes if names is None else names
        native = self.native()
        return sum(native.movable_bytes(self._indexes[name], with_views) for name in chosen)

    @functools.cached_property
    def lies_in_file(self) -> bool:
        """Whether a column is a part of a mapped file, which other programs can truncate."""
        native = self.native()
        columns = range(len(self._indexes))
        first = {region[0] for column in columns for region in native.addresses(column, 1)[:1]}
        return any(begin <= each < end for begin, end in _mapped(self._number) for each in first)

    def where(
        self, columns: Sequence[str] | None = None, *, samples: int | None = None
    ) -> dict[str, dict[int | None, int]]:
        """Return the bytes of columns by node; None is an unknown node.

        Each region of a chunk counts for the node of its first page. With `samples` only about so
        many regions of a column are looked at and the others counted as the one before that was.
        """
        found: dict[str, dict[int | None, int]] = {}
        for name in self.column_names if columns is None else columns:
            regions = self.native().addresses(self._indexes[name])
            step = 1 if samples is None else max(1, len(regions) // samples)
            nodes: dict[int | None, int] = {}
            for first in range(0, len(regions), step):
                node = _core.node_of_address(regions[first][0])
                byte_count = sum(each[1] for each in regions[first : first + step])
                nodes[node] = nodes.get(node, 0) + byte_count
            found[name] = nodes
        return found

    def bytes_by_node(
        self, columns: Sequence[str] | None = None, *, samples: int | None = None
    ) -> Counter[int | None]:
        """As `where`, of all the columns together."""
        found: Counter[int | None] = Counter()
        for nodes in self.where(columns, samples=samples).values():
            found.update(nodes)
        return found

    def place(
        self,
        node: int | str,
        columns: Sequence[str] | None = None,
        *,
        machine: Machine | None = None,
    ) -> "Table":
        """Copy whole columns to a node, and return a table that has them there.

        The other columns and this table stay in place. The memory is freed with the last table,
        Arrow array or copy that refers to it.

        Args:
            node: A node, or "fastest": the best node that is faster than the local memory of the
                processors that this process runs on; without one, nothing is copied.
            columns: Names of the columns; None: all.
            machine: The machine; None discovers it.

        Raises:
            NotFoundError: There is no such node or column.
            OutOfMemoryError: The node has not enough memory.
        """
        names = self.column_names if columns is None else list(columns)
        for name in names:
            if name not in self._indexes:
                raise NotFoundError(
                    _PLACE_TRIED, f"there is no column '{name}'", "name one of `column_names`"
                )
        machine = machine if machine is not None else topo()
        target = _fastest(machine) if node == "fastest" else node
        if target is None:
            return self
        if not isinstance(target, int) or machine.node(target) is None:
            there = ", ".join(str(known.id) for known in machine.nodes)
            raise NotFoundError(
                _PLACE_TRIED, f"there is no node {target!r}", f"use {there}, or 'fastest'"
            )
        placed = self.arrow
        for name in names:
            index = self._indexes[name]
            placed = placed.set_column(
                index, self.schema.field(index), _copied(self.arrow.select([name]), target)
            )
        placed = placed.replace_schema_metadata(self.schema.metadata)
        return Table(placed, chunk_rows=self._chunk_rows)

    def excluded_chunks(self, ranges: Sequence[Range], *, wait: bool = False) -> list[bool]:
        """For each chunk, whether no row can lie in all of these ranges.

        Compares with the minimum and maximum of each chunk, for integer and date columns only.
        Without `wait` they are known after `learn_bounds`.
        """
        excluded = [False] * self.native().chunk_count()
        for each in ranges:
            if not self._has_bounds(each):
                continue
            low, high = _number(each.low), _number(each.high)
            for chunk, (least, greatest) in enumerate(self._bounds_of(each.column, wait=wait)):
                is_outside = (
                    least is None  # Only nulls.
                    or (high is not None and least > high)
                    or (low is not None and greatest < low)
                )
                excluded[chunk] = excluded[chunk] or is_outside
        return excluded

    def _has_bounds(self, wanted: Range) -> bool:
        if wanted.column not in self._indexes:
            return False
        kind = self.schema.field(wanted.column).type
        of_dates = isinstance(wanted.low if wanted.low is not None else wanted.high, dt.date)
        return bool(pa.types.is_date32(kind) if of_dates else pa.types.is_integer(kind))

    def _bounds_of(self, name: str, *, wait: bool) -> list[tuple[Any, Any]]:
        if wait:
            return self._find_bounds(name)
        with self._lock:
            if name not in self._bounds:
                self._bounds[name] = []
                self._asked.append(name)
            return self._bounds[name]

    def learn_bounds(self) -> None:
        """Compute in a thread the bounds that `excluded_chunks` lacked."""
        with self._lock:
            asked, self._asked = self._asked, []
        if asked:
            threading.Thread(target=lambda: [self._find_bounds(name) for name in asked]).start()

    def _find_bounds(self, name: str) -> list[tuple[Any, Any]]:
        import pyarrow.compute as pc  # noqa: PLC0415 - Takes long, and few need it.

        native, column, bounds, first = self.native(), self.arrow[name], [], 0
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())  # Dates of Python end in the year 9999.
        for chunk in range(native.chunk_count()):
            rows = native.chunk_rows(chunk)
            found = pc.min_max(column.slice(first, rows)).as_py()
            bounds.append((found["min"], found["max"]))
            first += rows
        self._bounds[name] = bounds
        return bounds

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the columns without copying."""
        del requested_schema  # The protocol permits ignoring it.
        return self.native().stream(list(range(len(self._indexes))))


def _mapped(number: int) -> list[tuple[int, int]]:
    """Areas of mapped files, read after the table of that number was made."""
    global _areas  # noqa: PLW0603 - To read them takes milliseconds.
    if number > _areas[0]:
        read_at = next(_numbers)
        found = _FILE_MAPPING.findall(Path("/proc/self/maps").read_bytes())
        _areas = read_at, [(int(begin, 16), int(end, 16)) for begin, end in found]
    return _areas[1]


def _number(bound: dt.date | Decimal | None) -> Decimal | int | None:
    """A date as date32 has it."""
    return (bound - dt.date(1970, 1, 1)).days if isinstance(bound, dt.date) else bound


def _fastest(machine: Machine) -> int | None:
    allowed = os.sched_getaffinity(0)
    for node in machine.nodes:
        if allowed.intersection(node.cpus):
            faster = machine.faster_nodes(node.id)
            return faster[0] if faster else None
    return None


def _copied(column: Any, node: int) -> Any:
    """A one-column table with its buffers on a node; going through Arrow IPC keeps every type."""
    counted = pa.MockOutputStream()
    _write(column, counted)
    memory = pa.py_buffer(_core.node_memory(counted.size(), node))
    _write(column, pa.FixedSizeBufferWriter(memory))
    return pa.ipc.open_stream(memory).read_all().column(0)


def _write(column: Any, sink: Any) -> None:
    with pa.ipc.new_stream(sink, column.schema) as writer:
        writer.write_table(column)


def _arrow_table(data: object) -> Any:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise TypeMismatchError(
        _TRIED,
        f"an object of type {type(data).__name__} is not Arrow data",
        "pass a pyarrow table, or what exports an Arrow stream",
    )
