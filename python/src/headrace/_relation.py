# SPDX-License-Identifier: Apache-2.0
"""DuckDB's relations with prefetching: DuckDB's class, which submits its statement through us."""

from typing import Any
from weakref import WeakValueDictionary

from duckdb import DuckDBPyRelation

PREFETCHING: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Our connections by the `id` of the DuckDB connection that they wrap."""


class Relation(DuckDBPyRelation):
    """A relation of a `headrace.sql.Connection`; it prefetches when it is read.

    Relations cannot be constructed: those that DuckDB makes get this class.
    """

    __slots__ = ()

    def _derive(self, step: Any, *args: Any, **kwargs: Any) -> Any:
        self._need(repr(step))
        return _ours(super()._derive(step, *args, **kwargs))

    def query(self, virtual_table_name: str, sql_query: str) -> Any:
        self._need(sql_query)
        return _ours(super().query(virtual_table_name, sql_query))

    def _need(self, text: str) -> None:
        if (connection := PREFETCHING.get(id(self._con))) is not None:
            connection.need(text)

    def _submit(self, *args: Any, **kwargs: Any) -> Any:
        return self._prefetched(super()._submit, *args, **kwargs)

    def _write(self, *args: Any, **kwargs: Any) -> Any:
        return self._prefetched(super()._write, *args, **kwargs)

    def _prefetched(self, run: Any, *args: Any, **kwargs: Any) -> Any:
        connection = PREFETCHING.get(id(self._con))
        if connection is None:
            return run(*args, **kwargs)
        return connection._run(*self._statement(), run, *args, **kwargs)  # noqa: SLF001


def _ours(made: Any) -> Any:
    if isinstance(made, DuckDBPyRelation):
        made.__class__ = Relation
    return made


__name__ = DuckDBPyRelation.__module__
"""DuckDB looks for a user's variables above the frames of its own modules: these count as such."""
