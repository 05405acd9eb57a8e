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

    def _derive(self, *args: Any, **kwargs: Any) -> Any:
        derived = super()._derive(*args, **kwargs)
        derived.__class__ = Relation
        return derived

    def _submit(self, *args: Any, **kwargs: Any) -> Any:
        return self._prefetched(super()._submit, *args, **kwargs)

    def _write(self, *args: Any, **kwargs: Any) -> Any:
        return self._prefetched(super()._write, *args, **kwargs)

    def _prefetched(self, run: Any, *args: Any, **kwargs: Any) -> Any:
        connection = PREFETCHING.get(id(self._con))
        if connection is None:
            return run(*args, **kwargs)
        return connection._run(*self._statement(), run, *args, **kwargs)  # noqa: SLF001


__name__ = DuckDBPyRelation.__module__
"""DuckDB looks for a user's variables above the frames of its own modules: these count as such."""
