# SPDX-License-Identifier: Apache-2.0
"""Signals to end: what is half made is undone, then the process ends with 128 and their number.

The handler never raises. An exception can be lost on its way, in a callback, in the import
machinery or in a finalizer, and the signal with it; what has to be undone is registered instead.
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
"""What a signal would leave behind otherwise, oldest first."""

_ignored: list[signal.Signals] = []
"""What the caller had us ignore."""


def end_at_signals() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end this process, quietly and for certain.

    A SIGHUP that is ignored stays so: that is what nohup is for.
    """
    for number in _ENDING:
        if signal.getsignal(number) == signal.SIG_IGN:
            _ignored.append(number)
        if number != signal.SIGHUP or number not in _ignored:
            signal.signal(number, _end)


def as_we_found_them() -> None:
    """Restore what a program that takes this process's place inherits.

    The interpreter ignores two signals that programs expect to be ended by.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    for number in _ignored:
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, _frame: FrameType | None) -> None:
    # Nothing below blocks, so a second signal has nothing to interrupt.
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
    """Have `undo` called if a signal ends the process before the block has ended.

    It is called in the middle of whatever runs: it must take no lock and bear to be called twice.
    """
    _undos.append(undo)
    try:
        yield
    finally:
        _undos.remove(undo)


def kill_child(process_id: int) -> None:
    """Kill a child and wait for its end, unless that has been seen already.

    Not by `Popen.wait`: it holds a lock, which a signal handler may find taken by its own thread.
    """
    with suppress(ChildProcessError):
        # Until it has been waited for, its number is not given to anybody else.
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
    """Put signals to end off until the block has ended.

    For the moment between the making of something and the knowledge of it: a child process or a
    directory that would stay behind. Not by masking: another thread would take the signal.
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
def noticed() -> Iterator[Callable[[], bool]]:
    """Let a signal to end be noticed by the block, which ends in its own time; then it counts.

    A second one does not wait.

    Yields:
        Whether one has come.
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
        yield lambda: bool(arrived)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        raise EndedBySignalError(arrived[0])


class EndedBySignalError(Exception):
    """A noticed signal ended the block; what the block has printed is still to be written."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number
