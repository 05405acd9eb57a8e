# SPDX-License-Identifier: Apache-2.0
"""Base of objects that must be closed: a context manager."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self


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
