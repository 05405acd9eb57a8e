# SPDX-License-Identifier: Apache-2.0
"""Files that commands read and write; every command uses this module.

An `Output` is opened before the work that produces its content. A regular file is replaced
atomically, after all bytes are on the disk; pipes and devices are written directly. Symbolic links
are followed, mode and owner are kept, "-" is stdout. Not for: files that grow, such as the sink of
a ring.
"""

import errno
import os
import stat
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Self

from headrace._signals import held, undone_at_signals
from headrace.errors import (
    CapacityExceededError,
    Error,
    InvalidArgumentError,
    IoFailedError,
    NotFoundError,
    PermissionDeniedError,
)

STDOUT = "-"
_NAME_BYTES = 8


class Output:
    """A file that is written whole or not at all.

    Threading: confined.
    """

    def __init__(self, path: str | os.PathLike[str], tried: str) -> None:
        """Check that the file can be written, and change nothing.

        Args:
            path: The file; "-" is stdout.
            tried: For errors: what was tried, as a clause.

        Raises:
            InvalidArgumentError: It is a directory or a disk, or not a path.
            IoFailedError: It cannot be written.
            PermissionDeniedError: Writing it is not permitted.
        """
        self.path: str = os.fspath(path)
        self._tried = tried
        self._stream: int | None = None
        self.is_stdout: bool = self.path == STDOUT
        self._target = ""
        if self.is_stdout:
            return
        if not self.path or "\0" in self.path:
            raise _no_path(self.path, tried)
        try:
            self._open()
        except OSError as problem:
            raise file_error(problem, tried) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    @property
    def is_replaced(self) -> bool:
        """Whether each `write` replaces the content: true for a regular file."""
        return not self.is_stdout and self._stream is None

    def close(self) -> None:
        """Close a pipe or device. Idempotent."""
        if self._stream is not None:
            os.close(self._stream)
            self._stream = None

    def write(self, content: str | bytes) -> None:
        """Write all of the content; a regular file is replaced, or unchanged on failure."""
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        try:
            if self.is_stdout:
                _write_stdout(data)
            elif self._stream is not None:
                _write_all(self._stream, data)
                self.close()
            else:
                self._replace(data)
        except BrokenPipeError:
            raise
        except OSError as problem:
            raise file_error(problem, self._tried) from None

    def _open(self) -> None:
        # Replace the target of a link, not the link.
        self._target = os.path.realpath(self.path)
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            self._check_directory()
            return
        if _is_stdout(status):
            self.is_stdout = True
            return
        kind = status.st_mode
        if stat.S_ISBLK(kind):
            raise InvalidArgumentError(self._tried, "it is a disk", "name a file")
        # Opening checks the permission, without truncating.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
        if stat.S_ISREG(kind):
            os.close(descriptor)
        else:
            self._stream = descriptor

    def _check_directory(self) -> None:
        if self.path.endswith("/"):
            raise InvalidArgumentError(self._tried, "it is a directory", "name a file in it")
        if not os.path.isdir(os.path.dirname(self._target)):
            raise NotFoundError(
                self._tried, "its directory does not exist", "make it, or choose another"
            )
        with held():
            descriptor, name = self._make_beside()
            os.close(descriptor)
            os.unlink(name)

    def _make_beside(self) -> tuple[int, str]:
        """Make a file in the target's directory, with the default mode of new files."""
        directory = os.path.dirname(self._target)
        name = f"{directory}/.headrace-{os.urandom(_NAME_BYTES).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(name, flags, 0o666), name

    def _replace(self, data: bytes) -> None:
        there: os.stat_result | None = None
        with suppress(FileNotFoundError):
            there = os.stat(self._target)
        with ExitStack() as left_behind:
            if there is not None and there.st_nlink > 1:
                _overwrite(self._target, data)  # Keeps hard links.
                return
            try:
                with held():
                    descriptor, name = self._make_beside()
                    left_behind.callback(_remove, name)
                    left_behind.enter_context(undone_at_signals(lambda: _remove(name)))
            except PermissionError:
                if there is None:
                    raise
                # The file may be writable in a directory that is not.
                _overwrite(self._target, data)
                return
            with os.fdopen(descriptor, "wb") as file:
                if there is not None and not _has_owner_and_mode_of(descriptor, there):
                    _overwrite(self._target, data)
                    return
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.rename(name, self._target)


def write_file(path: str | os.PathLike[str], content: str | bytes, tried: str) -> None:
    with Output(path, tried) as output:
        output.write(content)


def read_file(path: str | os.PathLike[str], tried: str, bytes_max: int) -> bytes:
    with _open_regular(path, tried) as file:
        try:
            data = file.read(bytes_max + 1)
        except OSError as problem:
            raise file_error(problem, tried) from None
    if len(data) > bytes_max:
        raise CapacityExceededError(
            tried, f"it is larger than {bytes_max >> 20} MiB", "check that it is the right file"
        )
    return data


def require_readable(path: str | os.PathLike[str], tried: str) -> None:
    """Refuse a file that is not regular or not readable, before another library opens it."""
    _open_regular(path, tried).close()


def is_there(path: Path, tried: str) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as problem:
        raise file_error(problem, tried) from None
    return True


_FULL = {errno.ENOSPC, errno.EDQUOT}
_REMEDIES: dict[type[OSError], tuple[type[Error], str, str]] = {
    FileNotFoundError: (NotFoundError, "there is no such file", "check the path"),
    PermissionError: (PermissionDeniedError, "permission denied", "choose another"),
    IsADirectoryError: (InvalidArgumentError, "it is a directory", "name a file in it"),
}


def file_error(problem: OSError, tried: str) -> Error:
    if isinstance(problem, Error):
        return problem
    number = problem.errno or 0
    if number in _FULL:
        return CapacityExceededError(tried, "there is no space left", "free some", number)
    for kind, (ours, cause, remedy) in _REMEDIES.items():
        if isinstance(problem, kind):
            return ours(tried, cause, remedy, number if ours is PermissionDeniedError else 0)
    return IoFailedError(tried, "the file system refuses", "choose another file", number)


def _no_path(path: str | os.PathLike[str], tried: str) -> InvalidArgumentError:
    return InvalidArgumentError(tried, f"{os.fspath(path)!r} is not a path", "name a file")


def _open_regular(path: str | os.PathLike[str], tried: str) -> BinaryIO:
    try:
        # O_NONBLOCK: open() would block on a pipe. No effect on a regular file.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = os.open(path, flags)
        kind = os.fstat(descriptor).st_mode
    except OSError as problem:
        raise file_error(problem, tried) from None
    except ValueError:
        raise _no_path(path, tried) from None
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise InvalidArgumentError(tried, "it is a directory", "name a file in it")
    raise InvalidArgumentError(tried, "it is not a regular file", "name a file")


def _is_stdout(status: os.stat_result) -> bool:
    """Whether a path is the file of fd 1: /dev/stdout, or the file that it is redirected to.

    A terminal and /dev/null are written like any other device.
    """
    with suppress(OSError):
        ours = os.fstat(1)
        return not stat.S_ISCHR(ours.st_mode) and os.path.samestat(status, ours)
    return False


def _write_stdout(data: bytes) -> None:
    if sys.stdout is None:
        raise IoFailedError("write to stdout", "it is closed", "direct it to a file")
    try:
        sys.stdout.write(data.decode())
    except UnicodeDecodeError:
        # Binary content, such as a picture; printed text comes after it.
        sys.stdout.flush()
        _write_all(1, data)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _overwrite(path: str, data: bytes) -> None:
    """Write a file in place; a full disk is detected before the content changes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        before_bytes = os.fstat(descriptor).st_size
        if len(data) > before_bytes:
            try:
                os.posix_fallocate(descriptor, before_bytes, len(data) - before_bytes)
            except OSError:
                os.ftruncate(descriptor, before_bytes)
                raise
        _write_all(descriptor, data)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _has_owner_and_mode_of(descriptor: int, there: os.stat_result) -> bool:
    """Give a new file the owner and mode of another; False if that is not permitted."""
    ours = os.fstat(descriptor)
    try:
        if (ours.st_uid, ours.st_gid) != (there.st_uid, there.st_gid):
            os.fchown(descriptor, there.st_uid, there.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
    except PermissionError:
        return False
    return True


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
