# SPDX-License-Identifier: Apache-2.0
"""Message queues between threads or processes, in shared memory."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any, ClassVar, Literal, Never, Self

from headrace import _core
from headrace._arguments import byte_count
from headrace._buffers import flat_bytes, readable
from headrace._closing import Closing, OfOneProcess
from headrace.errors import (
    ClosedError,
    CorruptDataError,
    Error,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)

Framing = Literal["variable", "fixed"]
"""Whether each message has its own length, or all have one."""
Writing = Literal["cache", "memory", "header"]
"""Where a producer leaves messages; the page on messages describes each."""

# Waits are split into slices, between which Python handles signals.
_SLICE_NS = 200_000_000
_WAIT_S_MAX = 1e9


class PeerLostError(Error, ConnectionError):
    """The process at the other end was killed. Reported once; another may attach."""

    code = "closed"


@dataclass(frozen=True, slots=True)
class QueueState:
    """Properties of a queue, and the ends attached now.

    Attributes:
        framing: "variable" or "fixed".
        message_bytes_max: Longest message; with fixed framing the length of every message.
        capacity_bytes: Bytes for the messages of one producer.
        producers_max: Maximum number of producers.
        producer_count: Producers attached now.
        has_consumer: A consumer is attached.
        closed: No more messages will be sent.
    """

    framing: str
    message_bytes_max: int
    capacity_bytes: int
    producers_max: int
    producer_count: int
    has_consumer: bool
    closed: bool


class Queue(Closing):
    """A message queue in shared memory, from one or more producers to one consumer.

    It is anonymous, or named by a file (best in /dev/shm). Pass it to a process of
    `multiprocessing`, with any start method, and attach there.

    Example:
        >>> import headrace
        >>> queue = headrace.Queue()
        >>> with queue.producer() as producer, queue.consumer() as consumer:
        ...     producer.put(b"water")
        ...     consumer.get()
        b'water'

    Threading: shared.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        capacity: int | str = "64KiB",
        framing: Framing = "variable",
        message_bytes: int = 0,
        producers_max: int = 1,
        permissions: int = 0o600,
    ) -> None:
        """Make a queue.

        Args:
            path: A file that does not exist; None for an anonymous queue.
            capacity: Bytes for the messages of one producer, or a text such as "1MiB".
            framing: "variable": each message has its own length; "fixed": all have the same.
            message_bytes: Longest message, or with fixed framing the length; 0 with variable
                framing: half of the capacity, the longest that fits.
            producers_max: Maximum number of producers attached at the same time, up to 64.
            permissions: Mode of the file.

        Raises:
            InvalidArgumentError: `path` exists, or the arguments do not fit together.
            CapacityExceededError: There is not enough room for the file.
        """
        self._path = None if path is None else os.path.abspath(path)  # noqa: PTH100 - A text.
        try:
            self._native = _core.MessageQueue.make(
                self._path,
                framing=framing,
                message_bytes=message_bytes,
                capacity_bytes=byte_count(capacity, "take the capacity of a message queue"),
                producers_max=producers_max,
                permissions=permissions,
            )
        except TypeError as problem:
            raise InvalidArgumentError(
                "make a message queue", "an argument has no valid value", "use another"
            ) from problem

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, owner: int | None = None) -> Self:
        """Open a named queue made by another process.

        Args:
            path: Its file.
            owner: User that must own the file; None: the effective user of this process.

        Raises:
            NotFoundError: There is no such file.
            PermissionDeniedError: Another user owns it, or it may not be opened.
            CorruptDataError: It is not a queue, damaged, or of another size.
            VersionMismatchError: It has another version or byte order.
        """
        queue = cls.__new__(cls)
        queue._path = os.path.abspath(path)  # noqa: PTH100, SLF001 - A text; our own class.
        queue._native = _core.MessageQueue.open(queue._path, owner)  # noqa: SLF001
        return queue

    @classmethod
    def from_descriptor(cls, descriptor: int, *, owner: int | None = None) -> Self:
        """Open the queue of an inherited or received descriptor, which the caller still owns.

        Raises:
            InvalidArgumentError: The descriptor is not open.
            CorruptDataError: It is not a queue; else as `open`.
        """
        queue = cls.__new__(cls)
        queue._path = None  # noqa: SLF001 - Our own class.
        queue._native = _core.MessageQueue.from_descriptor(descriptor, owner)  # noqa: SLF001
        return queue

    def __reduce__(self) -> tuple[Callable[..., "Queue"], tuple[Any, ...]]:
        if self._path is not None:
            return Queue.open, (self._path,)
        return _from_duplicate, (DupFd(self.fileno()),)

    def fileno(self) -> int:
        """Descriptor of the queue, to pass to other processes."""
        return self._native.descriptor()

    def state(self) -> QueueState:
        """Read the properties of the queue and which ends are attached."""
        return QueueState(**self._native.state())

    def producer(self, *, placement: Writing = "cache") -> "QueueProducer":
        """Attach as a producer.

        Args:
            placement: Where messages are written: "cache", "memory" or "header"; see the
                page on messages.

        Raises:
            CapacityExceededError: `producers_max` producers are attached.
            InvalidArgumentError: The placement is unknown.
        """
        native = self._native.producer()
        native.place(placement)
        return QueueProducer(native)

    def consumer(self) -> "QueueConsumer":
        """Attach as the consumer.

        Raises:
            CapacityExceededError: Another consumer is attached.
        """
        return QueueConsumer(self._native.consumer())

    def end(self) -> None:
        """Refuse further messages; the consumer gets the remaining ones, then `ClosedError`."""
        self._native.end()

    def close(self) -> None:
        """Close this handle; attached ends keep the queue alive. Idempotent."""
        self._native.close()


def _from_duplicate(duplicate: Any) -> Queue:  # noqa: ANN401 - multiprocessing has no type for it.
    descriptor = duplicate.detach()
    try:
        return Queue.from_descriptor(descriptor)
    finally:
        os.close(descriptor)


class QueueProducer(Closing, OfOneProcess):
    """The producing end. Use it as a context manager, or call `close`, to detach.

    Threading: shared; calls are serialised.
    """

    __slots__ = ("_native",)
    _renamed: ClassVar = {"put_all": "put_some"}

    def __init__(self, native: _core.MessageProducer) -> None:
        self._native = native

    def put(self, message: object, timeout: float | None = None) -> None:
        """Send a message; waits while the queue is full.

        Args:
            message: Bytes, a NumPy array, or any other buffer.
            timeout: Seconds; 0 does not wait, None waits without limit.

        Raises:
            TimeoutError: The queue stayed full.
            OutOfRangeError: The message is too long, or does not have the fixed length.
            ClosedError: The queue has ended, or this end was closed.
            PeerLostError: The queue is full and the consumer was killed.
            CorruptDataError: The shared memory is damaged.
        """
        data = readable(message, "message")
        _wait(lambda wait_ns: (self._native.send(data, wait_ns), None), timeout, "send a message")

    def put_some(self, messages: Iterable[object]) -> int:
        """Send as many messages as fit, which become visible together. Does not wait.

        Returns:
            Number of messages sent.

        Raises:
            OutOfRangeError: None was sent, because the first does not fit; else as `put`.
        """
        outcome, sent = self._native.send_all([readable(each, "message") for each in messages])
        if outcome not in {"done", "full"} and sent == 0:
            _raise(outcome, "send messages")
        return sent

    async def aput(
        self,
        message: object,
        timeout: float | None = None,  # noqa: ASYNC109 - As put's.
    ) -> None:
        """As `put`, for asyncio: other tasks run meanwhile."""
        data = readable(message, "message")
        await _await(
            lambda wait_ns: (self._native.send(data, wait_ns), None),
            lambda wait_ns: self._native.wait(len(data), wait_ns),
            timeout,
            "send a message",
        )

    def close(self) -> None:
        """Detach; sent messages stay in the queue. Idempotent."""
        self._native.close()


class QueueConsumer(Closing, OfOneProcess):
    """The consuming end. Use it as a context manager, or call `close`, to detach.

    Iterating, also with `async for`, receives messages until the queue has ended.

    Threading: shared; calls are serialised.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _core.MessageConsumer) -> None:
        self._native = native

    def get(self, timeout: float | None = None) -> bytes:
        """Receive a message; waits while the queue is empty.

        Args:
            timeout: Seconds; 0 does not wait, None waits without limit.

        Raises:
            TimeoutError: No message arrived in time.
            ClosedError: The queue has ended and is empty, or this end was closed.
            PeerLostError: A producer was killed; all that it sent has been received.
            NotFoundError: No producer is attached, and the file was removed or replaced.
            CorruptDataError: The shared memory is damaged.
        """
        message: bytes = _wait(self._native.receive, timeout, "receive a message")
        return message

    def get_into(self, target: object, timeout: float | None = None) -> int:
        """Receive a message into `target`.

        Returns:
            Length of the message.

        Raises:
            OutOfRangeError: The message is longer than `target` and stays in the queue; else as
                `get`.
        """
        memory = flat_bytes(target, "target", writable=True)
        received: int = _wait(
            lambda wait_ns: self._native.receive_into(memory, wait_ns), timeout, "receive a message"
        )
        return received

    async def aget(self, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - As get's.
        """As `get`, for asyncio: other tasks run meanwhile."""
        message: bytes = await _await(
            self._native.receive, self._native.wait, timeout, "receive a message"
        )
        return message

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                message = self.get()
            except ClosedError:
                return
            yield message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                message = await self.aget()
            except ClosedError:
                return
            yield message

    def close(self) -> None:
        """Detach; unreceived messages stay for the next consumer. Idempotent."""
        self._native.close()


_Try = Callable[[int], tuple[str, Any]]


def _wait(attempt: _Try, timeout: float | None, tried: str) -> Any:  # noqa: ANN401
    limit = _limit(timeout)
    while True:
        outcome, value = attempt(_slice_ns(limit))
        if outcome == "done":
            return value
        _go_on_or_raise(outcome, limit, tried)


async def _await(
    attempt: _Try,
    ready: Callable[[int], str],
    timeout: float | None,  # noqa: ASYNC109 - As _wait.
    tried: str,
) -> Any:  # noqa: ANN401 - Returned by attempt.
    limit = _limit(timeout)
    while True:
        outcome, value = attempt(0)
        if outcome == "done":
            return value
        _go_on_or_raise(outcome, limit, tried)
        # The thread only waits and receives nothing, so cancelling the task here loses no message.
        outcome = await asyncio.to_thread(ready, _slice_ns(limit))
        if outcome != "done":
            _go_on_or_raise(outcome, limit, tried)


def _limit(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + min(timeout, _WAIT_S_MAX)


def _slice_ns(limit: float | None) -> int:
    if limit is None:
        return _SLICE_NS
    return max(0, min(_SLICE_NS, int((limit - time.monotonic()) * 1e9)))


def _go_on_or_raise(outcome: str, limit: float | None, tried: str) -> None:
    if outcome in {"timed_out", "empty", "full"}:
        if limit is not None and time.monotonic() >= limit:
            raise TimeoutError(f"cannot {tried}: the time limit has passed")
        return
    _raise(outcome, tried)


def _raise(outcome: str, tried: str) -> Never:
    match outcome:
        case "closed":
            raise ClosedError(tried, "the queue has ended", "make another")
        case "too_large":
            raise OutOfRangeError(
                tried,
                "the message is longer than the queue or the target takes, or not of the fixed "
                "length",
                "see state().message_bytes_max",
            )
        case "peer_lost":
            raise PeerLostError(
                tried, "the process at the other end was killed", "start it again, or stop"
            )
        case "replaced":
            raise NotFoundError(
                tried, "its file was removed or replaced, and no peer is attached", "open it again"
            )
        case "forked":
            raise ClosedError(
                tried, "this process is a child of the one that attached", "attach in this process"
            )
        case _:
            raise CorruptDataError(tried, "the shared memory is damaged", "make the queue again")
