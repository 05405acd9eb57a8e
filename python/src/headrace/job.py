# SPDX-License-Identifier: Apache-2.0
"""Job: a submitted operation or batch."""

import weakref
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from headrace import _core
from headrace._arguments import seconds
from headrace._closing import OfOneProcess
from headrace.operation import Completion, checked, completion_of

if TYPE_CHECKING:  # Loading it takes longer than all of headrace.
    import asyncio

_ASK_AT_ONCE_S = 200e-6
_ASK_LATER_S = 1e-3
"""The shortest sleep of the asyncio selectors."""


class Job(OfOneProcess):
    """A submitted operation or batch; made by `Engine.submit` and `Engine.submit_batch`.

    The engine keeps the buffers alive until the job has ended, even if this handle is dropped.
    Dropping the handle does not stop the job.

    ``await job`` returns `result()`; the event loop runs meanwhile and polls the job, at first
    continuously, then once per millisecond. Cancelling the coroutine does not stop the job.

    Threading: shared.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _core.Job) -> None:
        self._native = native

    def poll(self) -> bool:
        """Whether the job has ended; never blocks. Drives device queues, which have no thread."""
        return self._native.poll()

    @property
    def done(self) -> bool:
        """Whether the job has ended, whatever the outcome: `poll()`."""
        return self._native.poll()

    @property
    def state(self) -> str:
        """State: "running", "done", "failed" or "stopped"."""
        return self._native.state()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the job has ended, whatever the outcome; other Python threads run meanwhile.

        Ctrl-C ends the wait, not the job.

        Args:
            timeout: Seconds; None waits without limit.

        Returns:
            Whether it has ended.

        Raises:
            InvalidArgumentError: The timeout is negative or NaN; or the caller is a completion
                callback, for which the job might itself wait.
        """
        if timeout is None:
            return self._native.wait(None)
        return self._native.wait(int(seconds(timeout, "take the timeout of a wait") * 1e9))

    def stop(self) -> None:
        """Request an early end and return at once.

        Work that a mover has started is finished; the rest never starts. No effect on an ended job.
        """
        self._native.stop()

    def result(self, timeout: float | None = None) -> Completion:
        """Wait for the job and return its completion.

        Args:
            timeout: Seconds; None waits without limit.

        Raises:
            JobFailedError: The job failed or was stopped; for a batch, the error names the
                operation that failed.
            TimeoutError: The job has not ended in time.
        """
        if not self.wait(timeout):
            message = f"the job has not ended after {timeout} s"
            raise TimeoutError(message)
        return checked(completion_of(self._native.completion()), self.completions)

    @property
    def completion(self) -> Completion | None:
        """The completion, whatever the outcome; None while the job runs."""
        return completion_of(self._native.completion()) if self._native.poll() else None

    @property
    def completions(self) -> list[Completion]:
        """Completion of each operation of a batch; empty while it runs, and for one operation."""
        if not self._native.poll():
            return []
        return [completion_of(one) for one in self._native.completions()]

    def __repr__(self) -> str:
        return f"<headrace.Job: {self.state}>"

    def native(self) -> _core.Job:
        """The job of the extension module."""
        return self._native

    def __await__(self) -> Generator[Any, None, Completion]:
        if not self._native.wait(0):  # Refused in completion callbacks, too.
            yield from _ended(self._native).__await__()
        return self.result()


class _Asker:
    """Polls all jobs that coroutines of one event loop await.

    A device queue has no thread, so the loop must poll; polling serves jobs of worker threads as
    well, without a thread or a lock.

    Threading: confined to the thread of the loop.
    """

    def __init__(self) -> None:
        self._awaited: list[tuple[_core.Job, asyncio.Future[None]]] = []
        self._at_once_until = 0.0
        self._is_scheduled = False

    def ended(self, job: _core.Job, loop: "asyncio.AbstractEventLoop") -> "asyncio.Future[None]":
        future: asyncio.Future[None] = loop.create_future()
        self._awaited.append((job, future))
        self._at_once_until = loop.time() + _ASK_AT_ONCE_S
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._ask, loop)
        return future

    def _ask(self, loop: "asyncio.AbstractEventLoop") -> None:
        # Polling may run callbacks that await more jobs or cancel awaited ones.
        asked, self._awaited = deque(self._awaited), []
        try:
            while asked:
                job, future = asked[0]
                if not self._has_ended(job, future, loop):
                    self._awaited.append((job, future))
                asked.popleft()
        finally:
            self._awaited += asked  # Not empty only if Ctrl-C ended this round.
            self._schedule(loop)

    def _has_ended(
        self, job: _core.Job, future: "asyncio.Future[None]", loop: "asyncio.AbstractEventLoop"
    ) -> bool:
        if future.done():  # Cancelled.
            return True
        try:
            if not job.poll():
                return future.done()
        except Exception as problem:  # noqa: BLE001 - Raised in the awaiting coroutine.
            if not future.done():
                future.set_exception(problem)
            return True
        if not future.done():
            future.set_result(None)
            self._at_once_until = loop.time() + _ASK_AT_ONCE_S
        return True

    def _schedule(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._is_scheduled = bool(self._awaited)
        if not self._is_scheduled:
            return
        if loop.time() < self._at_once_until:
            loop.call_soon(self._ask, loop)
        else:
            loop.call_later(_ASK_LATER_S, self._ask, loop)


_askers: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Asker]" = (
    weakref.WeakKeyDictionary()
)


def _ended(job: _core.Job) -> "asyncio.Future[None]":
    import asyncio  # noqa: PLC0415 - Loaded by who awaits.

    loop = asyncio.get_running_loop()
    return _askers.setdefault(loop, _Asker()).ended(job, loop)
