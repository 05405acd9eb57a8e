# SPDX-License-Identifier: Apache-2.0
"""Terminating signals: run the registered cleanups, then exit with 128 plus the signal number.

The handler never raises: an exception can be lost in a callback, the import machinery or a
finalizer, and the signal with it. Cleanups are registered instead.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_undos: list[Callable[[], object]] = []
"""Cleanups, oldest first."""

_ignored: list[signal.Signals] = []
"""Signals ignored when the process started."""


def end_at_signals() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end this process without output.

    An ignored SIGHUP stays ignored, for nohup.
    """
    for number in _ENDING:
        if signal.getsignal(number) == signal.SIG_IGN:
            _ignored.append(number)
        if number != signal.SIGHUP or number not in _ignored:
            signal.signal(number, _end)


def as_we_found_them() -> None:
    """Restore the inherited signal dispositions before an exec.

    The interpreter ignores two signals that must terminate other programs.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    for number in _ignored:
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, _frame: FrameType | None) -> None:
    # Nothing below blocks, so a second signal is not needed to interrupt it.
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    try:
        for undo in reversed(_undos):
            with suppress(Exception):
                undo()
    finally:
        os._exit(128 + number)


@contextmanager
def undone_at_signals(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if a signal ends the process within the block.

    It runs in the signal handler: it must take no lock and be idempotent.
    """
    _undos.append(undo)
    try:
        yield
    finally:
        _undos.remove(undo)


def kill_child(process_id: int) -> None:
    """Kill a child and reap it, unless it has been reaped.

    Not by `Popen.wait`: it takes a lock that the interrupted thread may hold.
    """
    with suppress(ChildProcessError):
        # The PID of an unreaped child is not reused.
        os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.kill(process_id, signal.SIGKILL)
        os.waitpid(process_id, 0)


def show_cursor() -> None:
    """Clear the line of a progress bar on stderr and show the cursor that it hid."""
    if sys.stderr is not None:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), b"\r\x1b[2K\x1b[?25h")


@contextmanager
def held() -> Iterator[None]:
    """Defer terminating signals until the block has ended.

    For the time between the creation of a child process or directory and the registration of its
    cleanup. Not by masking: another thread would receive the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []
    before = {
        number: signal.signal(number, lambda number, frame: arrived.append((number, frame)))
        for number in _ENDING
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrived_number, frame in arrived:
            put_off = before[signal.Signals(arrived_number)]
            if callable(put_off):
                put_off(arrived_number, frame)
            elif put_off == signal.SIG_DFL:
                signal.raise_signal(arrived_number)


@contextmanager
def noticed() -> Iterator[Callable[[], int]]:
    """Let the block poll for a terminating signal and finish; then raise `EndedBySignalError`.

    A second signal ends the process at once.

    Yields:
        A function that returns the number of the signal; 0 before it has arrived.
    """
    arrived: list[int] = []

    def notice(number: int, frame: FrameType | None) -> None:
        if arrived:
            _end(number, frame)
        arrived.append(number)

    before = {
        number: signal.signal(number, notice)
        for number in _ENDING
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield lambda: arrived[0] if arrived else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        raise EndedBySignalError(arrived[0])


class EndedBySignalError(SystemExit):
    """A noticed signal ended the block; its collected output must still be written."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
