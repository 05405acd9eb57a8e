# SPDX-License-Identifier: Apache-2.0
"""DuckDB's relations with prefetching, and calls of DuckDB as its user would make them."""

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

import duckdb

_CALL = "__headrace_call__"
_CALL_CODE = compile(f"{_CALL}()", "<headrace.sql>", "eval")


def caller() -> FrameType:
    """The frame of the code that called the method that calls this."""
    return sys._getframe(2)  # noqa: SLF001 - Python has no other name for it.


def called_from(frame: FrameType, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call DuckDB as the code of a frame would.

    DuckDB looks for tables that it does not know among the variables of its caller: those of the
    user, and not ours.
    """
    names = {**frame.f_locals, _CALL: functools.partial(method, *args, **kwargs)}
    return eval(_CALL_CODE, frame.f_globals, names)  # noqa: S307 - It is the call above.


_READS = frozenset(
    {
        "arrow",
        "create",
        "df",
        "fetch_arrow_reader",
        "fetch_arrow_table",
        "fetch_record_batch",
        "fetchall",
        "fetchdf",
        "fetchnumpy",
        "insert_into",
        "pl",
        "show",
        "tf",
        "to_arrow_reader",
        "to_arrow_table",
        "to_csv",
        "to_df",
        "to_parquet",
        "to_table",
        "torch",
        "write_csv",
        "write_parquet",
        "__arrow_c_stream__",
    }
)
"""Methods that run a relation, each to its end."""

_Prefetching = Callable[..., AbstractContextManager[None]]
"""`Connection._prefetching`."""


class Relation:
    """A DuckDB relation that prefetches when it is read; see `Connection.sql`."""

    def __init__(self, relation: Any, prefetching: _Prefetching) -> None:
        self.relation: Any = relation
        """The wrapped DuckDB relation."""
        self._prefetching = prefetching

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.relation, name)
        if not callable(found):
            return found

        def method(*args: Any, **kwargs: Any) -> Any:
            frame = caller()
            named = {key: _plain(each) for key, each in kwargs.items()}
            with self._prefetching(frame, self.relation) if name in _READS else nullcontext():
                result = called_from(frame, found, *map(_plain, args), **named)
            return self._wrapped(result)

        return method

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.__getattr__("__arrow_c_stream__")(requested_schema)

    def __repr__(self) -> str:
        return repr(self.relation)

    def __len__(self) -> int:
        return len(self.relation)

    def __contains__(self, column: object) -> bool:
        return column in self.relation

    def __getitem__(self, column: Any) -> Any:
        return self._wrapped(self.relation[column])

    def _wrapped(self, result: Any) -> Any:
        is_relation = isinstance(result, duckdb.DuckDBPyRelation)
        return Relation(result, self._prefetching) if is_relation else result


def text_of(relation: Any) -> tuple[Any, ...]:
    """The SQL of a relation, and the values of its parameters where DuckDB keeps them apart."""
    statement = getattr(relation, "_statement", None)
    return (relation.sql_query(),) if statement is None else statement()


def _plain(value: Any) -> Any:
    return value.relation if isinstance(value, Relation) else value
