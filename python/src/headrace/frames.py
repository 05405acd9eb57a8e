# SPDX-License-Identifier: Apache-2.0
"""Prefetched tables for other engines: a dataset for DataFusion, a lazy frame for Polars.

Neither exposes its plan beforehand. DataFusion opens its scans during planning, Polars when it
reaches them; the columns of a scan are moved from that time on.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.dataset as pds

from headrace import _core
from headrace._arguments import instance_of
from headrace._arrow_source import reader_of
from headrace.cache import Cache
from headrace.errors import UnsupportedError
from headrace.table import Table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Dataset", "lazy_frame"]

_SCANS_MAX = 32
"""Maximum prefetchers of one table; with more concurrent scans, the oldest lose theirs."""


class Dataset(pds.InMemoryDataset):  # type: ignore[misc] # pyarrow publishes no types.
    """A pyarrow dataset over a table, whose scans prefetch their columns.

    For `datafusion.SessionContext.register_dataset`, and other readers that use `scanner` or
    `get_fragments`. pyarrow's scanner applies filters after reading, so results do not depend on
    prefetching. Operations of pyarrow itself (`join`, `sort_by`, `filter`, computed columns) read
    the table without prefetching.

    Threading: shared.
    """

    def __new__(cls, _table: Table, _cache: Cache) -> Self:
        """Create without arguments, as required by pyarrow's classes."""
        made: Self = super().__new__(cls)
        return made

    def __init__(self, table: Table, cache: Cache) -> None:
        """Read `table` through copies in `cache`.

        Args:
            table: The table. String view columns are converted, which copies them once, because
                pyarrow cannot filter them.
            cache: Keeps the copies; it must stay open.
        """
        table = _without_views(instance_of(table, Table, "make a dataset"))
        super().__init__(table.arrow)
        self._table = table
        self._scans = _Scans(table, cache)

    def scanner(
        self,
        columns: Sequence[str] | dict[str, Any] | None = None,
        filter: Any = None,  # noqa: A002 - As pyarrow's.
        **options: Any,
    ) -> Any:
        """Make a scanner and start to move the columns that it reads."""
        wanted = self._table.column_names if columns is None else list(columns)
        if isinstance(columns, dict) or not set(wanted) <= set(self._table.column_names):
            return super().scanner(columns=columns, filter=filter, **options)
        options = {name: options[name] for name in ("batch_size",) if name in options}
        tested = [] if filter is None else _columns_in(str(filter), self._table.column_names)
        reader = self._scans.open(tested, [name for name in wanted if name not in tested])
        return pds.Scanner.from_batches(reader, columns=wanted, filter=filter, **options)

    def filter(self, expression: Any) -> Any:
        """Filter as pyarrow does, without prefetching."""
        return pds.InMemoryDataset(self._table.arrow).filter(expression)

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:  # noqa: A002
        """Return the table as one fragment."""
        del filter
        yield _Fragment(self)

    def count_rows(self, **options: Any) -> int:
        """Count all rows, or those that pass a filter."""
        if options.get("filter") is None:
            return self._table.num_rows
        return int(self.scanner([], **options).count_rows())

    def close(self) -> None:
        """Stop prefetching for all scans, which continue from the source. Idempotent."""
        self._scans.close()


class _Fragment:
    """A dataset fragment, which DataFusion treats as one file."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def scanner(self, _schema: object = None, **options: Any) -> Any:
        """Make a scanner, as `Dataset.scanner`."""
        return self._dataset.scanner(**options)


def lazy_frame(table: Table, cache: Cache) -> "pl.LazyFrame":
    """Return a Polars lazy frame over a table, whose scans prefetch their columns.

    Args:
        table: The table.
        cache: Keeps the copies; it must stay open while the frame is used.

    Raises:
        UnsupportedError: Polars is not installed.
    """
    try:
        import polars as pl  # noqa: PLC0415 - An optional dependency.
        from polars.io.plugins import register_io_source  # noqa: PLC0415
    except ModuleNotFoundError as problem:
        raise UnsupportedError(
            "make a Polars frame",
            "Polars is not installed",
            "run 'pip install polars' in a virtual environment",
        ) from problem
    scans = _Scans(table, cache)

    def read(
        with_columns: list[str] | None,
        predicate: Any,
        n_rows: int | None,
        _batch_size: int | None,
    ) -> Iterator[Any]:
        wanted = table.column_names if with_columns is None else with_columns
        tested = [] if predicate is None else list(dict.fromkeys(predicate.meta.root_names()))
        others = [name for name in wanted if name not in tested]
        if not tested and not others:
            others = table.column_names[:1]  # Even without columns, rows must be counted.
        left = table.num_rows if n_rows is None else n_rows
        for batch in scans.open(tested, others):
            frame = pl.from_arrow(batch.slice(0, left))
            left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(wanted) if wanted else frame.drop(frame.columns)
            if left == 0:
                return

    schema = pl.from_arrow(table.schema.empty_table()).schema
    return register_io_source(read, schema=schema)


class _Scans:
    """Opens scans of one table, each with a prefetcher.

    Threading: shared. `running` is guarded by `lock`.
    """

    def __init__(self, table: Table, cache: Cache) -> None:
        self.table = instance_of(table, Table, "scan a table")
        self.cache = instance_of(cache, Cache, "scan a table")
        self.lock = threading.Lock()
        self.running: list[_core.Prefetcher] = []

    def __del__(self) -> None:
        if hasattr(self, "running"):
            self.close()

    def open(self, tested: Sequence[str], others: Sequence[str]) -> Any:
        """A record batch reader over these columns."""
        native = self.table.native()
        filters, rest = self.table.indexes(tested), self.table.indexes(others)
        prefetcher = _core.Prefetcher(self.cache.native(), [(native, filters, rest, [])])
        chunks = native.chunk_count()
        with self.lock:
            self.running.append(prefetcher)
            ended = [
                each
                for each in self.running
                if each.statistics()["scans"][0]["chunks_read"] == chunks
            ]
            ended += [each for each in self.running if each not in ended][:-_SCANS_MAX]
            self.running = [each for each in self.running if each not in ended]
        _stop(ended)
        return reader_of(prefetcher.stream(native, [*filters, *rest]))

    def close(self) -> None:
        with self.lock:
            ended, self.running = self.running, []
        _stop(ended)


def _without_views(table: Table) -> Table:
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    if not any(field.type in plain for field in table.schema):
        return table
    fields = [field.with_type(plain.get(field.type, field.type)) for field in table.schema]
    return Table(table.arrow.cast(pa.schema(fields, table.schema.metadata)))


def _stop(prefetchers: Iterable[_core.Prefetcher]) -> None:
    for each in prefetchers:
        each.stop()


def _columns_in(text: str, names: Iterable[str]) -> list[str]:
    """Columns that an expression may name: a superset of those that it does."""
    return [
        name
        for name in names
        if (re.search(rf"\b{name}\b", text) if name.isidentifier() else name in text)
    ]
