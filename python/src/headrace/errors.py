# SPDX-License-Identifier: Apache-2.0
"""Errors: one class for each code of the library, also the standard exception where one fits.

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
    """What could not be done, why, and what to do about it.

    The text is one sentence: "cannot TRIED: CAUSE (ERRNO); REMEDY".

    Attributes:
        code: Name of the code in the library.
        tried: What was tried, as a clause.
        cause: What was found.
        remedy: What to do about it; may be empty.
        os_errno: errno of the system call that failed, 0 if none did.
    """

    code: ClassVar[str] = "unsupported"

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
    """An error that is an `OSError` too, so that its errno is where Python looks for it."""

    def __init__(self, tried: str, cause: str, remedy: str = "", os_errno: int = 0) -> None:
        super().__init__(tried, cause, remedy, os_errno)
        self.errno: int | None = os_errno or None


class InvalidArgumentError(Error, ValueError):
    """An argument is not one that this call takes."""

    code = "invalid_argument"


class NotFoundError(Error, LookupError):
    """What was named does not exist."""

    code = "not_found"


class OutOfRangeError(Error, OverflowError):
    """A result does not fit the type that holds it."""

    code = "out_of_range"


class IoFailedError(_SystemError):
    """A file could not be read or written."""

    code = "io_failed"


class CorruptDataError(Error, ValueError):
    """A file is not what its name or beginning says."""

    code = "corrupt_data"


class VersionMismatchError(Error, ValueError):
    """A file is of a version that this build does not read."""

    code = "version_mismatch"


class TypeMismatchError(Error, TypeError):
    """Data is of another type than is needed."""

    code = "type_mismatch"


class ClosedError(Error, RuntimeError):
    """The engine or cache has been closed."""

    code = "closed"


class HardwareAbsentError(Error, RuntimeError):
    """The machine does not have what was asked for."""

    code = "hardware_absent"


class OutOfMemoryError(Error, MemoryError):
    """There is not enough memory, of the kind or on the node asked for."""

    code = "out_of_memory"


class CapacityExceededError(Error, RuntimeError):
    """A limit that somebody set has been reached."""

    code = "capacity_exceeded"


class PermissionDeniedError(_SystemError, PermissionError):
    """The process may not do this."""

    code = "permission_denied"


class UnsupportedError(Error, RuntimeError):
    """This machine or this build cannot do this."""

    code = "unsupported"


_BY_CODE: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        OutOfRangeError,
        IoFailedError,
        CorruptDataError,
        VersionMismatchError,
        TypeMismatchError,
        ClosedError,
        HardwareAbsentError,
        OutOfMemoryError,
        CapacityExceededError,
        PermissionDeniedError,
        UnsupportedError,
    )
}


def from_code(code: str, tried: str, cause: str, remedy: str, os_errno: int) -> Error:
    """Make the error of a code of the library; the bindings call this."""
    return _BY_CODE[code](_in_python(tried), _in_python(cause), _in_python(remedy), os_errno)


def _in_python(text: str) -> str:
    """The names of C++ as they are called in Python: "Engine::notes" is "Engine.notes"."""
    return re.sub(r"\b([A-Z]\w*)::(?=\w)", r"\1.", text)
