# SPDX-License-Identifier: Apache-2.0
"""Errors: one class per error code, derived from a standard exception where one fits.

======================  ==========================  =====================
code                    class                       also
======================  ==========================  =====================
``invalid_argument``    `InvalidArgumentError`      `ValueError`
``not_found``           `NotFoundError`             `LookupError`
``out_of_range``        `OutOfRangeError`           `OverflowError`
``io_failed``           `IoFailedError`             `OSError`
``corrupt_data``        `CorruptDataError`          `ValueError`
``version_mismatch``    `VersionMismatchError`      `ValueError`
``type_mismatch``       `TypeMismatchError`         `TypeError`
``closed``              `ClosedError`               `RuntimeError`
``hardware_absent``     `HardwareAbsentError`       `RuntimeError`
``out_of_memory``       `OutOfMemoryError`          `MemoryError`
``capacity_exceeded``   `CapacityExceededError`     `RuntimeError`
``permission_denied``   `PermissionDeniedError`     `PermissionError`
``unsupported``         `UnsupportedError`          `RuntimeError`
``job_failed``          `headrace.JobFailedError`   `RuntimeError`
======================  ==========================  =====================
"""

import os
import re
from typing import Any, ClassVar


class Error(Exception):
    """Base of all errors: what failed, why, and the remedy.

    The text is one sentence: "cannot TRIED: CAUSE (ERRNO); REMEDY".

    Attributes:
        code: Name of the error code in the library.
        tried: What was tried, as a clause.
        cause: Why it failed.
        remedy: What to do about it; may be empty.
        os_errno: errno of the failed system call; 0 if none failed.
    """

    code: ClassVar[str] = "unsupported"

    def __init_subclass__(cls) -> None:
        """Derive the code from the name of the class, unless it states one."""
        if "code" not in vars(cls):
            words = re.findall("[A-Z][a-z]+", cls.__name__.removesuffix("Error"))
            cls.code = "_".join(words).lower()

    def __init__(self, tried: str, cause: str, remedy: str = "", os_errno: int = 0) -> None:
        super().__init__(f"cannot {tried}: {cause}")
        self.tried = tried
        self.cause = cause
        self.remedy = remedy
        self.os_errno = os_errno

    def __str__(self) -> str:
        system = f" ({os.strerror(self.os_errno)})" if self.os_errno else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"cannot {self.tried}: {self.cause}{system}{remedy}"

    def __reduce__(self) -> tuple[type["Error"], tuple[Any, ...]]:
        return type(self), (self.tried, self.cause, self.remedy, self.os_errno)


class _SystemError(Error, OSError):
    """An error that is also an `OSError`, with its `errno`."""

    def __init__(self, tried: str, cause: str, remedy: str = "", os_errno: int = 0) -> None:
        super().__init__(tried, cause, remedy, os_errno)
        self.errno: int | None = os_errno or None


class InvalidArgumentError(Error, ValueError):
    """An argument is invalid."""


class NotFoundError(Error, LookupError):
    """The named object does not exist."""


class OutOfRangeError(Error, OverflowError):
    """A value does not fit: a result its type, a message its queue or buffer."""


class IoFailedError(_SystemError):
    """A file could not be read or written."""


class CorruptDataError(Error, ValueError):
    """A file or shared memory is damaged, or has another format than expected."""


class VersionMismatchError(Error, ValueError):
    """A file has a version that this build cannot read."""


class TypeMismatchError(Error, TypeError):
    """A value has the wrong type."""


class ClosedError(Error, RuntimeError):
    """The object has been closed."""


class HardwareAbsentError(Error, RuntimeError):
    """The machine lacks the requested hardware."""


class OutOfMemoryError(Error, MemoryError):
    """There is not enough memory of the requested kind or on the requested node."""


class CapacityExceededError(Error, RuntimeError):
    """A configured limit has been reached."""


class PermissionDeniedError(_SystemError, PermissionError):
    """The process lacks the permission."""


class UnsupportedError(Error, RuntimeError):
    """This machine or build does not support the request."""


_BY_CODE: dict[str, type[Error]] = {
    kind.code: kind for kind in (*Error.__subclasses__(), *_SystemError.__subclasses__())
}


def from_code(code: str, tried: str, cause: str, remedy: str, os_errno: int) -> Error:
    """Make the error for a code of the library; called by the bindings."""
    return _BY_CODE[code](_in_python(tried), _in_python(cause), _in_python(remedy), os_errno)


def _in_python(text: str) -> str:
    """Convert C++ names to Python: "Engine::notes" to "Engine.notes"."""
    return re.sub(r"\b([A-Z]\w*)::(?=\w)", r"\1.", text)
