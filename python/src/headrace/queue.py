# SPDX-License-Identifier: Apache-2.0
"""Queues of messages between threads or processes, in shared memory."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any, Never, NoReturn, Self

from headrace import _core
from headrace._arguments import byte_count, not_picklable
from headrace._buffers import ByteArray, flat_bytes
from headrace._closing import Closing
from headrace.errors import (
    ClosedError,
    CorruptDataError,
    Error,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)

FRAMINGS = ("variable", "fixed")

# Signals are answered between two waits of the library.
_SLICE_NS = 200_000_000


class PeerLostError(Error, ConnectionError):
    """The process at the other end was killed. Reported once; another may attach."""

    code = "closed"


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a queue is, and who is attached at this moment.

    Attributes:
        framing: "variable" or "fixed".
        message_bytes_max: Longest message; with fixed framing the length of all.
        capacity_bytes: For the messages of one producer.
        producers_max: How many producers may be attached.
        producer_count: How many are.
        has_consumer: Whether a consumer is.
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
    """A queue of messages from one or many producers to one consumer.

    It lies in shared memory: without a name, or in a file (best in /dev/shm). A queue can be given
    to a process of `multiprocessing`, whatever its start method; attach there.

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
        framing: str = "variable",
        message_bytes: int = 0,
        producers_max: int = 1,
        permissions: int = 0o600,
    ) -> None:
        """Make a queue.

        Args:
            path: Where nothing is yet; None for a queue without a name.
            capacity: For the messages of one producer: bytes, or a text such as "1MiB".
            framing: "variable": each message has its own length; "fixed": all have the same.
            message_bytes: That length, or the longest; 0 with variable framing: the longest that
                fits, which is half of the capacity.
            producers_max: How many producers may be attached at the same time, up to 64.
            permissions: Of the file, as chmod takes them.

        Raises:
            InvalidArgumentError: Something is at `path`, or the arguments do not fit together.
            CapacityExceededError: There is no room for it.
        """
        if framing not in FRAMINGS:
            raise InvalidArgumentError(
                "make a message queue",
                f"there is no framing '{framing}'",
                f"use {' or '.join(FRAMINGS)}",
            )
        self._path = None if path is None else os.path.abspath(path)  # noqa: PTH100 - A text.
        try:
            self._native = _core.MessageQueue.make(
                self._path,
                fixed=framing == "fixed",
                message_bytes=message_bytes,
                capacity_bytes=byte_count(capacity, "take the capacity of a message queue"),
                producers_max=producers_max,
                permissions=permissions,
            )
        except TypeError as problem:
            raise InvalidArgumentError(
                "make a message queue", "a number is negative or too large", "use another"
            ) from problem

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, owner: int | None = None) -> Self:
        """Open a queue that another process made with a name.

        Args:
            path: Its file.
            owner: User whose file is believed; None for the effective user of this process.

        Raises:
            NotFoundError: There is no such file.
            PermissionDeniedError: It is another user's, or may not be opened.
            CorruptDataError: It is no queue, damaged, or of another size.
            VersionMismatchError: It is of another version or byte order.
        """
        queue = cls.__new__(cls)
        queue._path = os.path.abspath(path)  # noqa: PTH100, SLF001 - A text; our own class.
        queue._native = _core.MessageQueue.open(queue._path, owner)  # noqa: SLF001
        return queue

    @classmethod
    def from_descriptor(cls, descriptor: int, *, owner: int | None = None) -> Self:
        """Open the queue that an inherited or received descriptor leads to; it stays yours.

        Raises:
            InvalidArgumentError: It is not open.
            CorruptDataError: It is no queue; else as `open`.
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
        """Descriptor of the queue, to be passed on."""
        return self._native.descriptor()

    def state(self) -> QueueState:
        """Who is attached, and what the queue is."""
        return QueueState(**self._native.state())

    def producer(self, *, placement: str = "cache") -> "QueueProducer":
        """Take a producer's place.

        Args:
            placement: Where messages are to lie: "cache", "demote", "memory" or "header"; see the
                page on messages.

        Raises:
            CapacityExceededError: As many as may be are attached.
            InvalidArgumentError: There is no such placement.
        """
        native = self._native.producer()
        native.place(placement)
        return QueueProducer(native)

    def consumer(self) -> "QueueConsumer":
        """Take the consumer's place.

        Raises:
            CapacityExceededError: Another consumer is attached.
        """
        return QueueConsumer(self._native.consumer())

    def end(self) -> None:
        """Let no more messages be sent: the consumer gets those that are there, then the end."""
        self._native.end()

    def close(self) -> None:
        """Give the handle back; the queue lives on with its ends. Idempotent."""
        self._native.close()


def _from_duplicate(duplicate: Any) -> Queue:  # noqa: ANN401 - multiprocessing's, without a type.
    descriptor = duplicate.detach()
    try:
        return Queue.from_descriptor(descriptor)
    finally:
        os.close(descriptor)


class QueueProducer(Closing):
    """The end that fills. Use it as a context manager, or close it: the place is free then.

    Threading: shared; calls take turns.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _core.MessageProducer) -> None:
        self._native = native

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a producer", "its place in the queue belongs to this process")

    def put(self, message: object, timeout: float | None = None) -> None:
        """Send a message; waits for room.

        Args:
            message: Bytes, a NumPy array, or anything with a buffer.
            timeout: Seconds to wait at most; 0 does not wait, None waits without limit.

        Raises:
            TimeoutError: There was no room in time.
            OutOfRangeError: The message is longer than the queue takes, or not of its length.
            ClosedError: The queue has ended, or this end was closed.
            PeerLostError: The consumer was killed, and there is no room.
            CorruptDataError: The shared memory is damaged.
        """
        data = _message_bytes(message)
        _wait(lambda wait_ns: (self._native.send(data, wait_ns), None), timeout, "send a message")

    def put_all(self, messages: Iterable[object]) -> int:
        """Send as many as there is room for; they become visible together. Does not wait.

        Returns:
            How many were sent.

        Raises:
            OutOfRangeError: The first that was not sent is too long; else as `put`.
        """
        outcome, sent = self._native.send_all([_message_bytes(each) for each in messages])
        if outcome not in {"done", "full"} and sent == 0:
            _raise(outcome, "send messages")
        return sent

    async def aput(
        self,
        message: object,
        timeout: float | None = None,  # noqa: ASYNC109 - As put's.
    ) -> None:
        """As `put`, for asyncio: other tasks run meanwhile."""
        data = _message_bytes(message)
        await _await(
            lambda wait_ns: (self._native.send(data, wait_ns), None),
            lambda wait_ns: self._native.wait(len(data), wait_ns),
            timeout,
            "send a message",
        )

    def close(self) -> None:
        """Detach; what was sent stays. Idempotent."""
        self._native.close()


class QueueConsumer(Closing):
    """The end that empties. Use it as a context manager, or close it: the place is free then.

    As an iterator, also with `async for`, it gives messages until the queue has ended.

    Threading: shared; calls take turns.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _core.MessageConsumer) -> None:
        self._native = native

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a consumer", "its place in the queue belongs to this process")

    def get(self, timeout: float | None = None) -> bytes:
        """Receive a message; waits for one.

        Args:
            timeout: Seconds to wait at most; 0 does not wait, None waits without limit.

        Raises:
            TimeoutError: None came in time.
            ClosedError: The queue has ended and is empty, or this end was closed.
            PeerLostError: A producer was killed, and all that it sent was received.
            NotFoundError: No producer is attached, and the name no longer leads to this queue.
            CorruptDataError: The shared memory is damaged.
        """
        return _bytes_of(_wait(self._native.receive, timeout, "receive a message"))

    def get_into(self, target: object, timeout: float | None = None) -> int:
        """Receive a message into memory of yours.

        Returns:
            Its length.

        Raises:
            OutOfRangeError: It is longer than `target`, and stays in the queue; else as `get`.
        """
        memory = flat_bytes(target, "target", writable=True)
        received: int = _wait(
            lambda wait_ns: self._native.receive_into(memory, wait_ns), timeout, "receive a message"
        )
        return received

    async def aget(self, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - As get's.
        """As `get`, for asyncio: other tasks run meanwhile."""
        return _bytes_of(
            await _await(self._native.receive, self._native.wait, timeout, "receive a message")
        )

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
        """Detach; what was not received is for the next consumer. Idempotent."""
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
) -> Any:  # noqa: ANN401 - What attempt gives.
    limit = _limit(timeout)
    while True:
        outcome, value = attempt(0)
        if outcome == "done":
            return value
        _go_on_or_raise(outcome, limit, tried)
        # The thread takes nothing, so that a task that is cancelled here loses nothing.
        outcome = await asyncio.to_thread(ready, _slice_ns(limit))
        if outcome != "done":
            _go_on_or_raise(outcome, limit, tried)


def _limit(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


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


def _message_bytes(message: object) -> bytes | bytearray | ByteArray:
    # A message of no bytes is one, too.
    return message if isinstance(message, bytes | bytearray) else flat_bytes(message, "message")


def _bytes_of(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise CorruptDataError("receive a message", "it has no bytes", "make the queue again")
    return value
