# SPDX-License-Identifier: Apache-2.0
"""Holds the launcher or its server before any of its system calls, by ptrace.

What a process has left outside itself changes by system calls only: a process that is killed before
each of them once has been killed at every moment.
"""

import ctypes
import os
import signal
import struct
import subprocess
from collections.abc import Iterator

import pytest

_CONT, _DETACH, _SYSCALL = 7, 17, 24
_SETOPTIONS, _GETEVENTMSG, _SEIZE, _GET_SYSCALL_INFO = 0x4200, 0x4201, 0x4206, 0x420E
_TRACE_GOOD, _TRACE_FORK, _KILL_WITH_TRACER = 1, 2, 1 << 20
_EVENT_FORK = 1
_ANY_CHILD = 0x40000000  # __WALL: threads and processes of whatever kind.
_ENTRY = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, process_id: int, address: int = 0, data: int | None = 0) -> None:
    if _libc.ptrace(request, process_id, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _system_call(process_id: int) -> int | None:
    """The number of the system call that is about to be made; None after one."""
    room = ctypes.create_string_buffer(128)
    _ptrace(_GET_SYSCALL_INFO, process_id, len(room), ctypes.addressof(room))
    kind, number = struct.unpack_from("=B23xQ", room.raw)
    return number if kind == _ENTRY else None


class Traced:
    """A process that stands still until it is stepped or let go."""

    def __init__(self, process_id: int) -> None:
        """Take over a process that stands still already."""
        self.process_id = process_id
        # Not its own children.
        _ptrace(_SETOPTIONS, process_id, 0, _TRACE_GOOD | _KILL_WITH_TRACER)

    def system_calls(self) -> Iterator[int]:
        """Go from one system call to the next, standing before it, until the process ends."""
        number = 0
        while True:
            try:
                _ptrace(_SYSCALL, self.process_id, 0, number)
                _, status = os.waitpid(self.process_id, _ANY_CHILD)
            except (ProcessLookupError, ChildProcessError):
                return
            if not os.WIFSTOPPED(status):
                return
            number = 0
            if os.WSTOPSIG(status) == signal.SIGTRAP | 0x80:
                call = _system_call(self.process_id)
                if call is not None:
                    yield call
            elif status >> 16 == 0:
                number = os.WSTOPSIG(status)  # A signal on its way.

    def let_go(self) -> None:
        """Let it run without being traced, if it has not been killed."""
        try:
            _ptrace(_DETACH, self.process_id)
        except ProcessLookupError:
            os.waitpid(self.process_id, _ANY_CHILD)


def start_until_fork(
    words: list[str], **more: object
) -> tuple[subprocess.Popen[bytes], Traced, Traced]:
    """Start a program, and hold it and its child when it forks for the first time."""
    process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
        ["sh", "-c", 'read line; exec "$@"', "sh", *words], stdin=subprocess.PIPE, **more
    )
    try:
        _ptrace(_SEIZE, process.pid, 0, _TRACE_GOOD | _TRACE_FORK | _KILL_WITH_TRACER)
    except OSError as problem:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        pytest.skip(f"no process can be traced here: {problem}")
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    while True:
        _, status = os.waitpid(process.pid, _ANY_CHILD)
        assert os.WIFSTOPPED(status), f"it ended before it forked: {status}"
        if status >> 16 == _EVENT_FORK:
            break
        number = os.WSTOPSIG(status) if status >> 16 == 0 else 0
        _ptrace(_CONT, process.pid, 0, number)
    child = ctypes.c_ulong()
    _ptrace(_GETEVENTMSG, process.pid, 0, ctypes.addressof(child))
    os.waitpid(child.value, _ANY_CHILD)
    return process, Traced(process.pid), Traced(child.value)
