# SPDX-License-Identifier: Apache-2.0
"""Bases of objects: those that must be closed, and those that belong to one process."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self

from headrace.errors import TypeMismatchError


class OfOneProcess:
    """Refused by `pickle` and `multiprocessing`."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        tried = f"pickle this {type(self).__name__}"
        cause = "it uses memory, threads or roles of this process"
        raise TypeMismatchError(tried, cause, "make one in each process")


class Closing(ABC):
    """Closes at the end of a `with` block, also after an exception."""

    __slots__ = ()

    _renamed: ClassVar[Mapping[str, str]] = {}
    """Names of an earlier version, with those of this one."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            cause = f"'{type(self).__name__}' has no '{name}'"
            if name in self._renamed:
                cause += f": it is '{self._renamed[name]}' now"
            raise AttributeError(cause, name=name, obj=self)

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()
