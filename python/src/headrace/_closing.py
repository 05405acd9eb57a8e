# SPDX-License-Identifier: Apache-2.0
"""What holds something that has to be given back: a context manager that closes."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Closes at the end of a `with` block, however that ends."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Give back what is held. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
