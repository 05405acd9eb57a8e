# SPDX-License-Identifier: Apache-2.0
"""Rings in persistent memory: entries survive a crash complete, in order and exactly once."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, NoReturn, Self, TypeVar

from headrace import _core
from headrace._arguments import byte_count, path_text
from headrace._buffers import readable
from headrace._closing import Closing, OfOneProcess
from headrace.errors import CorruptDataError, InvalidArgumentError, IoFailedError

Granularity = Literal["byte", "line", "page"]
"""What the platform writes when power fails."""
Flush = Literal["clflush", "clflushopt", "clwb"]
"""How lines are flushed."""
_TRIED = "take the path of a ring"


@dataclass(frozen=True, slots=True)
class RingState:
    """The state of a ring.

    Attributes:
        capacity_bytes: Bytes for entries and their headers.
        generation: Number of times a producer attached.
        first_ordinal: Ordinal of the oldest unacknowledged entry.
        entry_count: Unacknowledged entries.
        entry_bytes_max: Longest entry that the ring takes.
        has_producer: A process is attached as the producer now.
        has_consumer: A process is attached as the consumer now.
    """

    capacity_bytes: int
    generation: int
    first_ordinal: int
    entry_count: int
    entry_bytes_max: int
    has_producer: bool
    has_consumer: bool


@dataclass(frozen=True, slots=True)
class RingEntry:
    """An entry: `ordinal` numbers it in the ring, from 0; `data` is a copy of its bytes."""

    ordinal: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Salvage:
    """What `Ring.salvage` found.

    Attributes:
        entries: Every entry whose checksum verifies, in order.
        acknowledged_count: The first so many of them were acknowledged.
        missing_count: Ordinals between the first and the last without an entry.
    """

    entries: list[RingEntry]
    acknowledged_count: int
    missing_count: int


class Ring:
    """A ring in a file: one producer, one consumer, in one process or two.

    The file may be on persistent memory (DAX) or on any file system; where it is not persistent
    memory, each entry waits for the disk. `granularity="line"` treats any file as persistent
    memory: entries then survive the end of a process, and not a power failure.

    A damaged entry raises `CorruptDataError` and is never returned. One exception: after a power
    failure, damage to the newest entries looks like an interrupted enqueue, and they are absent.
    Methods raise it, too, if the file is not a ring, or is damaged (it is left unchanged),
    `VersionMismatchError` if the ring has another version, layout or byte order, and
    `NotFoundError` if the file does not exist.

    A child of `os.fork` cannot use an end that its parent attached: `ClosedError` ("forked").

    Example:
        >>> import headrace, tempfile
        >>> ring = headrace.pmem.Ring(tempfile.mkdtemp() + "/ring", capacity="64KiB")
        >>> with ring.producer() as producer:
        ...     producer.enqueue(b"water")
        True
        >>> with ring.consumer() as consumer:
        ...     consumer.next().data
        ...     consumer.acknowledge()
        b'water'

    Threading: shared.
    """

    def __init__(self, path: str | os.PathLike[str], *, capacity: int | str | None = None) -> None:
        """Make a ring in a new file, or on a device (devdax). On failure no file is left behind.

        Args:
            path: A file that does not exist; or a device whose first 4096 bytes are zero, which is
                used as a whole.
            capacity: Bytes, or a text such as "1MiB"; an entry takes at most an eighth of it.

        Raises:
            TypeMismatchError: The path is neither a str nor a pathlib.Path.
            InvalidArgumentError: The file exists, or the capacity is missing or below 4 KiB.
            CapacityExceededError: The disk is full.
            NotFoundError: The directory does not exist.
            PermissionDeniedError: The directory is not writable.
        """
        self.path: str = path_text(path, _TRIED)
        if capacity is None:
            raise InvalidArgumentError(
                "make a ring", "no capacity was given", "give one; Ring.open opens a ring"
            )
        _core.make_ring(self.path, byte_count(capacity, "take the capacity of a ring"))

    if not TYPE_CHECKING:

        @staticmethod
        def make(*_: object, **__: object) -> NoReturn:
            """Refuse the name of an earlier version."""
            cause = "'Ring.make' is 'Ring' now"
            raise InvalidArgumentError("make a ring", cause, "call Ring(path, capacity=...)")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Name an existing ring; its file is opened by each method that needs it.

        Raises:
            TypeMismatchError: The path is neither a str nor a pathlib.Path.
            InvalidArgumentError: It is empty or contains a zero byte.
        """
        ring = cls.__new__(cls)
        ring.path = path_text(path, _TRIED)
        return ring

    def state(self) -> RingState:
        """Read the state of the ring. Takes no role and changes nothing."""
        return RingState(**_core.inspect_ring(self.path))

    def salvage(self) -> Salvage:
        """Return every entry whose checksum verifies, and change nothing.

        For a ring that is refused as damaged, such as a copy of the file made while the ring was in
        use. Includes acknowledged entries that are not yet overwritten. An entry after a missing
        one may come from an enqueue that a crash interrupted. Only a damaged superblock is refused.
        """
        found = _core.salvage_ring(self.path)
        entries = [RingEntry(**entry) for entry in found["entries"]]
        return Salvage(**found | {"entries": entries})

    def producer(
        self,
        *,
        granularity: Granularity | None = None,
        flush: Flush | None = None,
        prefault: bool = False,
    ) -> "RingProducer":
        """Attach as the producer; recovers after a crash.

        Args:
            granularity: "byte", "line" or "page"; by default the platform's.
            flush: "clflush", "clflushopt" or "clwb"; by default the processor's best.
            prefault: Fault all pages in first.

        Raises:
            CapacityExceededError: Another process is the producer.
            PermissionDeniedError: The file is not writable.
        """
        return RingProducer(
            _core.RingProducer.attach(self.path, granularity, flush, False, prefault)
        )

    def consumer(
        self,
        *,
        granularity: Granularity | None = None,
        flush: Flush | None = None,
        lazy: bool = False,
        prefault: bool = False,
    ) -> "RingConsumer":
        """Attach as the consumer.

        Args:
            granularity: As for `producer`.
            flush: As for `producer`.
            lazy: Make acknowledgements durable once for a quarter of the ring; a power failure may
                bring those entries back.
            prefault: Fault all pages in first.

        Raises:
            CapacityExceededError: Another process is the consumer; else as for `producer`.
        """
        return RingConsumer(
            _core.RingConsumer.attach(self.path, granularity, flush, lazy, prefault)
        )


_Native = TypeVar("_Native", _core.RingProducer, _core.RingConsumer)


class _RingEnd(Closing, OfOneProcess, Generic[_Native]):
    __slots__ = ("_native",)

    def __init__(self, native: _Native) -> None:
        self._native: _Native = native

    @property
    def note(self) -> str:
        """One sentence about the memory."""
        return self._native.note()

    @property
    def is_persistent_memory(self) -> bool:
        """Whether entries survive a power failure."""
        return self._native.is_persistent_memory()

    @property
    def recovered(self) -> RingState:
        """The state that recovery found when this end attached."""
        return RingState(**self._native.recovered())

    def close(self) -> None:
        """Release the role. Idempotent."""
        self._native.close()


class RingProducer(_RingEnd[_core.RingProducer]):
    """The producing end. Use it as a context manager, or close it, to release the role.

    Afterwards its methods raise `ClosedError`, and so they do in a child of `os.fork`.

    Threading: shared; calls are serialised.
    """

    __slots__ = ()

    def enqueue(self, entry: object) -> bool:
        """Append an entry; it is durable when this returns True.

        Returns:
            False if the ring is full until the consumer acknowledges.

        Raises:
            InvalidArgumentError: It is longer than `entry_bytes_max`, or not a buffer of bytes.
            IoFailedError: The memory failed: truncated file, full disk or media error.
        """
        return self.enqueue_all([entry])

    def enqueue_all(self, entries: Iterable[object]) -> bool:
        """Append all entries or none; they become durable together, with one fence.

        Returns:
            False if the ring has no room for all of them until the consumer acknowledges.

        Raises:
            InvalidArgumentError: One is too long, or together they exceed a quarter of the ring.
            IoFailedError: As for `enqueue`.
        """
        outcome = self._native.enqueue([readable(entry, "entry") for entry in entries])
        if outcome == "too_large":
            raise InvalidArgumentError(
                "enqueue an entry",
                f"it is longer than {self.entry_bytes_max} bytes, or a batch too long",
                "make a larger ring, or split it",
            )
        if outcome == "lost":
            raise _lost("enqueue an entry")
        return outcome == "done"

    @property
    def next_ordinal(self) -> int:
        """Ordinal of the next entry, which is the number of entries enqueued so far."""
        return self._native.next_ordinal()

    @property
    def entry_bytes_max(self) -> int:
        """Longest entry that the ring takes."""
        return self._native.entry_bytes_max()


class RingConsumer(_RingEnd[_core.RingConsumer]):
    """The consuming end. Use it as a context manager, or close it, to release the role.

    Afterwards its methods raise `ClosedError`, and so they do in a child of `os.fork`.

    Entries taken and not acknowledged are returned again to the next consumer.

    Threading: shared; calls are serialised.
    """

    __slots__ = ()

    def next(self) -> RingEntry | None:
        """Take the oldest entry that was not yet taken.

        Returns:
            None if the ring is empty.

        Raises:
            CorruptDataError: The entry is damaged; every later call raises it again.
            IoFailedError: The memory failed: truncated file, full disk or media error.
        """
        outcome, ordinal, data = self._native.next()
        if outcome == "entry":
            return RingEntry(ordinal, data)
        if outcome == "damaged":
            raise CorruptDataError(
                "take the next entry",
                "it is damaged",
                "restore the file from a copy, or read what is left with Ring.salvage()",
            )
        if outcome == "lost":
            raise _lost("take the next entry")
        return None

    def acknowledge(self) -> None:
        """Acknowledge every entry taken so far, by any thread: they are not returned again."""
        self._native.acknowledge()

    def __iter__(self) -> Iterator[RingEntry]:
        """Take entries until the ring is empty. Acknowledging is up to the caller."""
        while (entry := self.next()) is not None:
            yield entry


def _lost(tried: str) -> IoFailedError:
    return IoFailedError(
        tried,
        "the memory failed: the file was truncated, or its disk is full or broken",
        "repair the file or disk, then attach again",
    )
