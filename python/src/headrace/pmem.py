# SPDX-License-Identifier: Apache-2.0
"""Rings in persistent memory: entries that survive a crash, in order, none torn and none twice."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from headrace import _core
from headrace._arguments import byte_count
from headrace._buffers import ByteArray, flat_bytes
from headrace._closing import Closing
from headrace.errors import CorruptDataError, InvalidArgumentError, IoFailedError

LAYOUTS = ("checksums", "positions")


@dataclass(frozen=True, slots=True)
class RingState:
    """What is in a ring.

    Attributes:
        layout: "checksums" or "positions".
        capacity_bytes: Bytes for entries and what is around them.
        generation: How often a producer attached.
        first_ordinal: Number of the oldest entry that is not acknowledged.
        entry_count: Entries that are not acknowledged.
        entry_bytes_max: Longest entry that the ring takes.
        has_producer: Somebody is the producer at this moment.
        has_consumer: Somebody is the consumer at this moment.
    """

    layout: str
    capacity_bytes: int
    generation: int
    first_ordinal: int
    entry_count: int
    entry_bytes_max: int
    has_producer: bool
    has_consumer: bool


@dataclass(frozen=True, slots=True)
class RingEntry:
    """An entry that was lent; `data` is a copy, so it stays what it is.

    Attributes:
        ordinal: Counts the entries of the ring, from 0.
        data: Its bytes.
    """

    ordinal: int
    data: bytes


class Ring:
    """A ring in a file: one producer, one consumer, in one process or two.

    The file may be on persistent memory (DAX) or anywhere; where it is not persistent memory, each
    entry waits for the disk. `granularity="line"` takes any file for persistent memory: entries
    then survive the end of the processes, and not that of the machine.

    Example:
        >>> import headrace, tempfile
        >>> ring = headrace.pmem.Ring.make(tempfile.mkdtemp() + "/ring", capacity="64KiB")
        >>> with ring.producer() as producer:
        ...     producer.enqueue(b"water")
        True
        >>> with ring.consumer() as consumer:
        ...     consumer.next().data
        ...     consumer.acknowledge()
        b'water'

    Threading: shared.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    @classmethod
    def make(
        cls,
        path: str | os.PathLike[str],
        *,
        capacity: int | str = "1MiB",
        layout: str = "checksums",
    ) -> Self:
        """Make a ring in a new file, or of a device (devdax), whole or not at all.

        Args:
            path: Where nothing is yet; or a device whose first 4096 bytes are zero, which is taken
                as a whole.
            capacity: Bytes, or a text such as "1MiB"; an entry may have an eighth of it.
            layout: "checksums" for the optimised ring, "positions" for the others.

        Raises:
            InvalidArgumentError: Something is there, or the capacity is below 4 KiB.
            CapacityExceededError: The disk has no room.
            NotFoundError: There is no such folder.
            PermissionDeniedError: The folder may not be written.
        """
        if layout not in LAYOUTS:
            raise InvalidArgumentError(
                "make a ring", f"there is no layout '{layout}'", f"use {' or '.join(LAYOUTS)}"
            )
        ring = cls(path)
        size_bytes = byte_count(capacity, "take the capacity of a ring")
        _core.make_ring(ring.path, size_bytes, layout == "checksums")
        return ring

    def state(self) -> RingState:
        """Look at the ring without a role; nothing is changed.

        Raises:
            CorruptDataError: It is no ring, or it is damaged.
            VersionMismatchError: It is of another version or byte order.
            NotFoundError: There is no such file.
        """
        return RingState(**_core.inspect_ring(self.path))

    def producer(
        self,
        *,
        variant: str | None = None,
        granularity: str | None = None,
        flush: str | None = None,
        prefault: bool = False,
    ) -> "RingProducer":
        """Take the role of the producer; recovers what a crash left.

        Args:
            variant: "optimised", or for the layout "positions" "naive", "clflushopt" or "clwb".
            granularity: "byte", "line" or "page", instead of asking the platform.
            flush: "clflush", "clflushopt" or "clwb", instead of the processor's best.
            prefault: Make every page present first.

        Raises:
            CapacityExceededError: Somebody else is the producer.
            CorruptDataError: The file is no ring, or damaged; it is left as it is.
            VersionMismatchError: It is of another version or byte order.
            PermissionDeniedError: The file may not be written.
            NotFoundError: There is no such file.
        """
        return RingProducer(
            _core.RingProducer.attach(self.path, variant, granularity, flush, prefault)
        )

    def consumer(
        self,
        *,
        variant: str | None = None,
        granularity: str | None = None,
        flush: str | None = None,
        lazy: bool = False,
        prefault: bool = False,
    ) -> "RingConsumer":
        """Take the role of the consumer.

        Args:
            variant: As for `producer`.
            granularity: As for `producer`.
            flush: As for `producer`.
            lazy: After a power failure, up to a quarter of the ring may come again.
            prefault: Make every page present first.

        Raises:
            CapacityExceededError: Somebody else is the consumer; else as for `producer`.
        """
        return RingConsumer(
            _core.RingConsumer.attach(self.path, variant, granularity, flush, lazy, prefault)
        )


_Native = TypeVar("_Native", _core.RingProducer, _core.RingConsumer)


class _RingEnd(Closing, Generic[_Native]):
    """What both ends of a ring can tell."""

    __slots__ = ("_native",)

    def __init__(self, native: _Native) -> None:
        self._native: _Native = native

    @property
    def note(self) -> str:
        """What the memory is, as a sentence."""
        return self._native.note()

    @property
    def is_persistent_memory(self) -> bool:
        """Whether power may fail without harm."""
        return self._native.is_persistent_memory()

    @property
    def recovered(self) -> RingState:
        """What was there when the role was taken."""
        return RingState(**self._native.recovered())

    def close(self) -> None:
        """Give the role back. Idempotent."""
        self._native.close()


class RingProducer(_RingEnd[_core.RingProducer]):
    """The end that fills. Use it as a context manager, or close it: the role ends then.

    Threading: shared; calls take turns.
    """

    __slots__ = ()

    def enqueue(self, entry: object) -> bool:
        """Put an entry at the end; when this returns True it is durable.

        Returns:
            False if the ring is full: the consumer has to acknowledge first.

        Raises:
            InvalidArgumentError: It is longer than `entry_bytes_max`, or no bytes.
            IoFailedError: The memory is gone: truncated, or the disk is full or has failed.
            ClosedError: This end has been closed.
        """
        return self.enqueue_all([entry])

    def enqueue_all(self, entries: Iterable[object]) -> bool:
        """Put all of them at the end, or none; they become durable together, with one fence.

        Returns:
            False if the ring is too full for all of them.

        Raises:
            InvalidArgumentError: One is too long, or together they take a quarter of the ring.
            IoFailedError: As for `enqueue`.
            ClosedError: As for `enqueue`.
        """
        outcome = self._native.enqueue([_entry_bytes(entry) for entry in entries])
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
        """Number of the next entry: how many were ever enqueued."""
        return self._native.next_ordinal()

    @property
    def entry_bytes_max(self) -> int:
        """Longest entry that the ring takes."""
        return self._native.entry_bytes_max()


class RingConsumer(_RingEnd[_core.RingConsumer]):
    """The end that empties. Use it as a context manager, or close it: the role ends then.

    What was taken and not acknowledged comes again to the next consumer.

    Threading: shared; calls take turns.
    """

    __slots__ = ()

    def next(self) -> RingEntry | None:
        """Take the oldest entry that was not yet taken.

        Returns:
            None if there is none at this moment.

        Raises:
            CorruptDataError: It is not what was enqueued.
            IoFailedError: The memory is gone: truncated, or the disk is full or has failed.
            ClosedError: This end has been closed.
        """
        outcome, ordinal, data = self._native.next()
        if outcome == "entry":
            return RingEntry(ordinal, data)
        if outcome == "damaged":
            raise CorruptDataError(
                "take the next entry", "it is damaged", "restore the file from a copy"
            )
        if outcome == "lost":
            raise _lost("take the next entry")
        return None

    def acknowledge(self) -> None:
        """Let everything go that was taken so far, by any thread: it will not come again.

        Raises:
            ClosedError: This end has been closed.
        """
        self._native.acknowledge()

    def __iter__(self) -> Iterator[RingEntry]:
        """Take entries as long as there are any at the moment; acknowledge them yourself."""
        while (entry := self.next()) is not None:
            yield entry


def _entry_bytes(entry: object) -> bytes | bytearray | ByteArray:
    # An entry of no bytes is one, too.
    return entry if isinstance(entry, bytes | bytearray) else flat_bytes(entry, "entry")


def _lost(tried: str) -> IoFailedError:
    return IoFailedError(
        tried,
        "the memory is gone: the file was truncated, or its disk is full or has failed",
        "attach again when file and disk are whole",
    )
