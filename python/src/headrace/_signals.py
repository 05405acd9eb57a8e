# SPDX-License-Identifier: Apache-2.0
"""Interrupts: turned into exceptions once, and put off where they would leave something behind."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_once() -> None:
    """Let the first signal to end raise an exception, and later ones do nothing.

    Whatever is to be undone is undone while the exception passes; a second Ctrl-C must not cut
    that short. SIGINT becomes `KeyboardInterrupt`, the others exit with 128 and their number.
    """
    for number in _ENDING:
        signal.signal(number, _raise)


def _raise(number: int, _frame: FrameType | None) -> None:
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


@contextmanager
def held() -> Iterator[None]:
    """Put signals to end off until the block has ended.

    For the moment between the making of something and the knowledge of it: a child process or a
    directory that nobody would remove. Not by masking: another thread would take the signal.
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
