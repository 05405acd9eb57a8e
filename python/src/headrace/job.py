# SPDX-License-Identifier: Apache-2.0
"""Job: an operation, or a batch of them, that was submitted."""

import asyncio
import weakref
from collections import deque
from collections.abc import Generator
from typing import Any, NoReturn

from headrace import _core
from headrace._arguments import not_picklable, seconds
from headrace.operation import Completion, checked, completion_of

_TIMEOUT_S_MAX = 1e9
"""A third of a century: for ever."""
_ASK_AT_ONCE_S = 200e-6
_ASK_LATER_S = 1e-3
"""The selectors of asyncio sleep no shorter."""


class Job:
    """What was submitted; made by `Engine.submit` and `Engine.submit_batch`.

    Its buffers are kept alive until the job has ended, also when this handle is dropped before;
    dropping it does not stop the job.

    A coroutine may await it, which gives its `result()`; the event loop goes on meanwhile and asks
    it now and then, a job of some length at most a millisecond late. Who cancels the coroutine does
    not stop the job.

    Threading: shared.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _core.Job) -> None:
        self._native = native

    def poll(self) -> bool:
        """Tell whether the job has ended; never blocks. Drives devices, which have no thread."""
        return self._native.poll()

    @property
    def done(self) -> bool:
        """Whether it has ended, however: `poll()`."""
        return self._native.poll()

    @property
    def state(self) -> str:
        """How it stands: "running", "done", "failed" or "stopped"."""
        return self._native.state()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the job has ended, however; other Python threads run meanwhile.

        Ctrl-C ends the wait, not the job.

        Args:
            timeout: Seconds at most; None is for ever.

        Returns:
            Whether it has ended.

        Raises:
            InvalidArgumentError: The time is negative or no number; or this is called by a function
                that a job calls, which may be what the job waits for.
        """
        return self._native.wait(None if timeout is None else _nanoseconds(timeout))

    def stop(self) -> None:
        """Ask for an early end and return at once.

        What a mover has begun is finished, the rest never starts. No effect on an ended job.
        """
        self._native.stop()

    def result(self, timeout: float | None = None) -> Completion:
        """Wait for the end and tell how it was.

        Args:
            timeout: Seconds at most; None is for ever.

        Raises:
            JobFailedError: The job failed or was stopped; of a batch, the error says which
                operation failed.
            TimeoutError: It has not ended.
        """
        if not self.wait(timeout):
            message = f"the job has not ended after {timeout} s"
            raise TimeoutError(message)
        return checked(completion_of(self._native.completion()), self.completions)

    @property
    def completion(self) -> Completion | None:
        """How it ended, well or not; None while it runs."""
        return completion_of(self._native.completion()) if self._native.poll() else None

    @property
    def completions(self) -> list[Completion]:
        """How each operation of a batch ended; empty while it runs, and for a single operation."""
        if not self._native.poll():
            return []
        return [completion_of(one) for one in self._native.completions()]

    def __repr__(self) -> str:
        return f"<headrace.Job: {self.state}>"

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a job", "it belongs to an engine of this process")

    def native(self) -> _core.Job:
        """The job as the extension knows it."""
        return self._native

    def __await__(self) -> Generator[Any, None, Completion]:
        if not self._native.wait(0):  # Which a function that a job calls may not ask, either.
            yield from _asker().ended(self._native).__await__()
        return self.result()


class _Asker:
    """Asks all jobs that the coroutines of one event loop wait for.

    A device has no thread, so somebody has to ask; and one who asks serves processors as well,
    without a thread or a lock.

    Threading: confined to the thread of the loop.
    """

    def __init__(self) -> None:
        self._awaited: list[tuple[_core.Job, asyncio.Future[None]]] = []
        self._at_once_until = 0.0
        self._is_scheduled = False

    def ended(self, job: _core.Job) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._awaited.append((job, future))
        self._at_once_until = loop.time() + _ASK_AT_ONCE_S
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._ask, loop)
        return future

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        # Polling may call functions that await more, or cancel what is awaited.
        asked, self._awaited = deque(self._awaited), []
        try:
            while asked:
                job, future = asked[0]
                if not self._has_ended(job, future, loop):
                    self._awaited.append((job, future))
                asked.popleft()
        finally:
            self._awaited += asked  # Ctrl-C ended this round.
            self._schedule(loop)

    def _has_ended(
        self, job: _core.Job, future: asyncio.Future[None], loop: asyncio.AbstractEventLoop
    ) -> bool:
        if future.done():  # Cancelled.
            return True
        try:
            if not job.poll():
                return future.done()
        except Exception as problem:  # noqa: BLE001 - It is for the one who awaits the job.
            if not future.done():
                future.set_exception(problem)
            return True
        if not future.done():
            future.set_result(None)
            self._at_once_until = loop.time() + _ASK_AT_ONCE_S
        return True

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_scheduled = bool(self._awaited)
        if not self._is_scheduled:
            return
        if loop.time() < self._at_once_until:
            loop.call_soon(self._ask, loop)
        else:
            loop.call_later(_ASK_LATER_S, self._ask, loop)


_askers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Asker] = weakref.WeakKeyDictionary()


def _asker() -> _Asker:
    return _askers.setdefault(asyncio.get_running_loop(), _Asker())


def _nanoseconds(timeout: object) -> int:
    return int(min(seconds(timeout, "take the timeout of a wait"), _TIMEOUT_S_MAX) * 1e9)
