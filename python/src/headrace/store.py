# SPDX-License-Identifier: Apache-2.0
"""Store: blocks by key in tiers of memory and files, copied by the engine."""

import asyncio
import math
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from headrace import _core
from headrace._arguments import (
    NODE_MAX,
    byte_count,
    instance_of,
    path_text,
    seconds,
    whole_number,
)
from headrace._buffers import Memory, flat_bytes
from headrace._closing import Closing, OfOneProcess
from headrace.engine import Engine
from headrace.errors import (
    CapacityExceededError,
    ClosedError,
    CorruptDataError,
    Error,
    InvalidArgumentError,
    IoFailedError,
    NotFoundError,
)

Key = bytes | str
"""1 to 192 bytes; a str is encoded as UTF-8."""
_NUMBER_MAX = 2**31
_TRIED = "make a store"
_ERRORS: dict[str, type[Error]] = {
    "unknown_key": NotFoundError,
    "bad_key": InvalidArgumentError,
    "wrong_length": InvalidArgumentError,
    "no_such_tier": InvalidArgumentError,
    "full": CapacityExceededError,
    "corrupt": CorruptDataError,
    "failed": IoFailedError,
    "late_write": IoFailedError,
    "io_failed": IoFailedError,
    "closed": ClosedError,
    "timed_out": IoFailedError,
    "disk_full": CapacityExceededError,
}


@dataclass(frozen=True, slots=True)
class Tier:
    """Where a store keeps blocks: memory or a file.

    Attributes:
        capacity: Bytes, as a number or text such as "8GiB"; 0 for an existing file: its capacity.
        node: NUMA node of the memory; None: chosen by the kernel.
        path: The file of the tier, regular or on DAX, or a DAX device; None for memory.
        durability: What an acknowledged block in a file survives: "power", a power failure;
            "process", the end of the process; after a restart of the machine, and in a copy of the
            file, blocks are kept that match their checksum.
        deadline_s: Seconds after which a transfer ends as "timed_out" that the disk has not carried
            out. Not for persistent memory, which is mapped.
        unwritten: For memory above a file: blocks put here are written to the file in the
            background, and while more than this many are not yet written, a put ends when its
            block is; 0: write-through. None: they are written when they are evicted.
    """

    capacity: int | str
    node: int | None = None
    path: str | os.PathLike[str] | None = None
    durability: Literal["power", "process"] = "power"
    deadline_s: float = 30.0
    unwritten: int | None = None


@dataclass(frozen=True, slots=True)
class TierStatistics:
    """Totals of a tier since the store was made.

    Attributes:
        capacity_blocks: Capacity in blocks.
        blocks: Blocks present.
        hits: Blocks read from the tier.
        puts: Blocks put into the tier.
        evictions: Blocks evicted from the tier.
        promotions: Blocks copied into the tier because they were read.
        demotions: Blocks copied into the tier from the one above.
        recovered: Blocks found in the file when it was opened.
        dropped_torn: Entries of the file dropped when it was opened: torn, or without their data.
        blocks_lost: Slots not reused: the disk failed there, or an abandoned device may write to
            them.
        is_healthy: Whether a put could be done now: the disk answers, and could make the last
            blocks durable.
        access: How blocks are read and written: "memory", "mapped", or for a file on a disk such as
            "io_uring, O_DIRECT".
    """

    capacity_blocks: int
    blocks: int
    hits: int
    puts: int
    evictions: int
    promotions: int
    demotions: int
    recovered: int
    dropped_torn: int
    blocks_lost: int
    is_healthy: bool
    access: str


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Totals of a client of a shared store since it connected.

    Attributes:
        process: Its process ID; 0 if it is in another PID namespace.
        requests: Requests to the server.
        reads_in_place: Reads without the server, as the client says.
        leases: Blocks that it reads in place now.
        pins: Its pins.
    """

    process: int
    requests: int
    reads_in_place: int
    leases: int
    pins: int


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Totals of a store since it was made.

    Attributes:
        blocks: Keys present.
        misses: Gets of unknown keys.
        dropped: Blocks evicted from the last tier.
        corrupt: Copies read that differed from their checksum.
        failed: Blocks that could not be copied or made durable.
        bytes_in: Bytes of completed puts.
        bytes_out: Bytes of completed gets.
        tiers: Totals of each tier.
        clients: Of a shared store: totals of each client.
    """

    blocks: int
    misses: int
    dropped: int
    corrupt: int
    failed: int
    bytes_in: int
    bytes_out: int
    tiers: tuple[TierStatistics, ...]
    clients: tuple[ClientStatistics, ...] = ()


class StoreTransfer(OfOneProcess):
    """A submitted batch; `await` it, poll it, or wait for it.

    `await` raises what `check` raises; `await transfer.ended()` raises nothing.

    The store keeps the buffers alive until the batch has ended, even if this handle is dropped.

    Threading: shared.
    """

    __slots__ = ("_native", "_store")

    def __init__(self, native: _core.StoreTransfer, store: "Store") -> None:
        self._native = native
        self._store = store

    def __repr__(self) -> str:
        if not self.poll():
            return "<headrace.StoreTransfer: running>"
        return f"<headrace.StoreTransfer: {', '.join(sorted(set(self.outcomes)))}>"

    def poll(self) -> bool:
        """Whether every block has ended; never blocks."""
        return self._native.poll()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every block has ended; other Python threads run meanwhile.

        Args:
            timeout: Seconds; None waits without limit.

        Returns:
            Whether the batch has ended.
        """
        if timeout is None:
            return self._native.wait(None)
        return self._native.wait(int(seconds(timeout, "wait for a transfer") * 1e9))

    @property
    def outcomes(self) -> list[str]:
        """Outcome of each block: "done", "unknown_key", ...; waits for the end."""
        self.wait()
        return self._native.outcomes()

    @property
    def byte_counts(self) -> list[int]:
        """Length of each block that is done, else 0; waits for the end."""
        self.wait()
        return self._native.byte_counts()

    def check(self) -> None:
        """Wait, and raise the error of the first block that is not done.

        Raises:
            NotFoundError: No block has the key.
            InvalidArgumentError: The key, the length or the tier is wrong.
            CapacityExceededError: All blocks of the tier are pinned.
            CorruptDataError: The checksum of the block differs.
            IoFailedError: The block could not be copied or made durable.
            ClosedError: The engine was closed.
        """
        self.wait()
        if self._native.all_done():
            return
        for number, outcome in enumerate(self._native.outcomes()):
            if outcome != "done":
                raise _error(outcome, f"transfer block {number} of {len(self._native.outcomes())}")

    async def ended(self) -> "StoreTransfer":
        """Wait until every block has ended, whatever its outcome; other tasks run meanwhile."""
        if not self.poll():
            await self._store.ended(self)
        return self

    def __await__(self) -> Generator[object, None, "StoreTransfer"]:
        yield from self.ended().__await__()
        self.check()
        return self


def _error(outcome: str, tried: str) -> Error:
    cause, _, remedy = _core.explain_outcome(outcome).partition(": ")
    return _ERRORS[outcome](tried, f"{outcome}: {cause}", remedy.rstrip("."))


class Store(Closing, OfOneProcess):
    """Keeps blocks by key in tiers of memory and files, copied by the engine.

    A put takes effect when it ends, a get when it is submitted. A full tier moves unpinned, unused
    blocks to the next one; the last tier drops them. Methods that wait for a block raise what
    `StoreTransfer.check` raises.

    Threading: shared.

    Example:
        >>> import headrace
        >>> with headrace.Store(["16MiB"], block_bytes="64KiB") as store:
        ...     store.put("greeting", b"hello")
        ...     store.get("greeting")
        b'hello'
    """

    def __init__(  # noqa: PLR0913 - Keyword options.
        self,
        tiers: Iterable[Tier | int | str],
        *,
        block_bytes: int | str = "1MiB",
        checksums: bool = True,
        promote_after: int = 2,
        inline_max: int | str = "256KiB",
        flush_on_close: bool = False,
        share: str | os.PathLike[str] | None = None,
        clients_max: int = 16,
        group: int | None = None,
        replace_within_s: float = 0.0,
        engine: Engine | None = None,
    ) -> None:
        """Make a store; existing files are opened with their blocks.

        Args:
            tiers: At most four, fastest first; a number or text is memory of that capacity.
            block_bytes: Longest block; shorter ones take as much room.
            checksums: Store a CRC-32C with each block. Reads verify it if a block has one.
            promote_after: Reads from another tier after which a block is copied to the first tier;
                0: never.
            inline_max: Largest transfer between memory, in bytes in all, that the calling thread
                copies itself, which takes less processor time than handing it over; 0: none.
            flush_on_close: Closing writes the blocks that are only in memory to a file below, as
                far as they fit.
            share: Serve the store to other processes until it is closed: path of a Unix socket to
                make, at which they `connect`. The first tier must be memory, without a node.
                Clients cannot write to the memory of blocks; they may put and remove any block.
            clients_max: Clients at a time, up to 64. Together they can keep half of the first tier
                by views, each an equal part, and as many blocks by pins.
            group: ID of a group whose members may connect; None: only this user.
            replace_within_s: Not 0: end the process that serves at `share` by SIGTERM; it has these
                seconds for that. Its clients connect to this store by themselves.
            engine: The engine that copies; None makes one, which is closed with the store.

        Raises:
            InvalidArgumentError: The options are invalid, or a file was made with others.
            CapacityExceededError: Another store has the file open or serves at the path, and has
                not ended in time, or the disk is full.
            VersionMismatchError: A file has another version.
            CorruptDataError: A file is not a store, or is truncated.
            NotFoundError: A file does not exist and `capacity` is 0, or its directory does not
                exist.
            OutOfMemoryError: A node has not enough memory.
        """
        options: dict[str, Any] = {
            "block_bytes": byte_count(block_bytes, _TRIED),
            "tiers": [_tier(each) for each in tiers],
            "checksums": bool(checksums),
            "promote_after": whole_number(promote_after, _TRIED, 0, _NUMBER_MAX),
            "inline_max": byte_count(inline_max, _TRIED, 0),
            "share": "" if share is None else path_text(share, _TRIED),
            "clients_max": whole_number(clients_max, _TRIED, 1, _NUMBER_MAX),
            "group": None if group is None else whole_number(group, _TRIED, 0, _NUMBER_MAX),
            "replace_within_ms": _milliseconds(replace_within_s),
        }
        self._open(engine, partial(_core.BlockStore.make, **options), flush_on_close=flush_on_close)

    @classmethod
    def connect(
        cls,
        path: str | os.PathLike[str],
        *,
        deadline_s: float = 30.0,
        engine: Engine | None = None,
    ) -> "Store":
        """Connect to a store that another process serves: 'headrace store serve', or `share`.

        A get takes effect between its submission and its end. When the server ends, transfers in
        flight end as "closed" (puts may have taken effect), and so do later ones until another
        server is at the path, to which the store then connects. Until then no block is found.

        Args:
            path: The server's socket. The server is trusted.
            deadline_s: Seconds after which a request ends as "timed_out" that the server has not
                answered; a put may still take effect.
            engine: As for a store.

        Raises:
            NotFoundError: No server is there.
            PermissionDeniedError: This user may not connect.
            CapacityExceededError: The server has as many clients as it takes.
            VersionMismatchError: The server is of another version.
        """
        tried = "connect to a shared store"
        socket = path_text(path, tried)
        deadline_ms = max(1, _milliseconds(deadline_s, tried))
        store = cls.__new__(cls)
        store._open(  # noqa: SLF001
            engine,
            partial(_core.BlockStore.connect, socket=socket, deadline_ms=deadline_ms),
            flush_on_close=False,
        )
        return store

    def _open(
        self,
        engine: Engine | None,
        make: Callable[[_core.Engine], _core.BlockStore],
        *,
        flush_on_close: bool,
    ) -> None:
        self._flush_on_close = flush_on_close
        self._own_engine = engine is None
        self._engine = Engine() if engine is None else instance_of(engine, Engine, _TRIED)
        self._futures: dict[StoreTransfer, asyncio.Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._native = make(self._engine.native())
        except BaseException:
            if self._own_engine:
                self._engine.close()
            raise

    def put(self, key: Key, block: Memory, tier: int = 0) -> None:
        """Put a block and wait until it is stored; in a file, until it is durable."""
        self.put_many([key], [block], tier).check()

    def get(self, key: Key) -> bytes:
        """Return a block."""
        while True:
            length = self._native.length(key)
            target = bytearray(length or 1)
            transfer = self.get_many([key], [target])
            if transfer.outcomes == ["wrong_length"]:  # Another thread put a longer one.
                continue
            transfer.check()
            return bytes(memoryview(target)[: transfer.byte_counts[0]])

    def view(self, key: Key) -> np.ndarray:
        """Return a block as an array of bytes that cannot be changed, and does not change.

        Of a store of another process it is the block itself where that is in memory, and keeps that
        memory; its checksum is not compared. Otherwise it is a copy.
        """
        outcome, block = self._native.view(key)
        if outcome != "done":
            raise _error(outcome, "view a block")
        return block

    def get_into(self, key: Key, target: Memory) -> int:
        """Copy a block into `target`, which must be at least as long; return its length."""
        transfer = self.get_many([key], [target])
        transfer.check()
        return transfer.byte_counts[0]

    def put_many(
        self, keys: Sequence[Key], blocks: Sequence[Memory], tier: int = 0
    ) -> StoreTransfer:
        """Start putting blocks and return; do not change `blocks` before the end.

        Args:
            keys: One per block.
            blocks: Objects with a buffer.
            tier: Index of the tier.

        Raises:
            InvalidArgumentError: The numbers of keys and blocks differ, or a block has no buffer.
        """
        number = whole_number(tier, "put into a tier", 0, _NUMBER_MAX)
        return StoreTransfer(self._native.put(list(keys), list(blocks), number, _flat), self)

    def get_many(self, keys: Sequence[Key], targets: Sequence[Memory]) -> StoreTransfer:
        """Start copying blocks into `targets` and return.

        Args:
            keys: One per target.
            targets: Writable buffers, each at least as long as its block.

        Raises:
            InvalidArgumentError: The numbers of keys and targets differ, or a target is not
                writable.
        """
        return StoreTransfer(self._native.get(list(keys), list(targets), _flat_target), self)

    def length(self, key: Key) -> int | None:
        """Length of a block; None if there is none."""
        return self._native.length(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | bytes) and self._native.length(key) is not None

    def __len__(self) -> int:
        return self.statistics.blocks

    def keys(self) -> list[bytes]:
        """All keys, in no particular order."""
        return self._native.keys()

    def pin(self, key: Key) -> bool:
        """Keep a block in its tiers until `unpin`; pins are counted. False if there is none."""
        return self._native.pin(key)

    def unpin(self, key: Key) -> bool:
        """Undo one `pin`. False if the block is not pinned."""
        return self._native.unpin(key)

    def remove(self, key: Key) -> bool:
        """Remove a block, pinned or not. False if there is none.

        Raises:
            IoFailedError: Its disk keeps the block, and so does the store.
            ClosedError: The server has ended.
        """
        outcome = self._native.remove(key)
        if outcome not in {"done", "unknown_key", "bad_key"}:
            raise _error(outcome, "remove a block")
        return outcome == "done"

    def clear(self) -> int:
        """Remove every block, or none if a disk keeps one; return their number."""
        return self._native.clear()

    @property
    def statistics(self) -> StoreStatistics:
        """Totals since the store was made."""
        known = self._native.statistics()
        tiers = tuple(TierStatistics(**each) for each in known.pop("tiers"))
        clients = tuple(ClientStatistics(**each) for each in known.pop("clients"))
        return StoreStatistics(**known, tiers=tiers, clients=clients)

    def fileno(self) -> int:
        """An eventfd, readable when transfers have ended; read 8 bytes to reset it."""
        return self._native.descriptor()

    def flush(self) -> int:
        """Write the blocks that are only in memory to the file below, and wait.

        Returns:
            How many are still only in memory: the file has no room, or its disk fails.
        """
        transfer = StoreTransfer(self._native.flush(), self)
        return sum(each != "done" for each in transfer.outcomes)

    def close(self) -> None:
        """Wait for all transfers and close the store. Idempotent."""
        if self._flush_on_close:
            with suppress(ClosedError):
                self.flush()
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._native.descriptor())
        self._native.close()
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake_ended)  # The descriptor no longer does.
        if self._own_engine:
            self._engine.close()

    async def ended(self, transfer: StoreTransfer) -> None:
        """Wait for a transfer; other tasks run meanwhile."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
            self._futures.clear()  # Of a loop that was closed.
            loop.add_reader(self._native.descriptor(), self._look)
        if self._loop is not loop:
            # The descriptor wakes one loop only.
            await asyncio.to_thread(transfer.wait)
            return
        if transfer.poll():
            return
        future = self._futures.setdefault(transfer, loop.create_future())
        self._look()  # It may have ended, and the eventfd been read, before it was registered.
        await asyncio.shield(future)

    def _look(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._native.descriptor(), 8)
        self._wake_ended()

    def _wake_ended(self) -> None:
        for transfer in [each for each in self._futures if each.poll()]:
            future = self._futures.pop(transfer)
            if not future.done():
                future.set_result(None)


def _flat(value: object, role: str = "block", *, writable: bool = False) -> Memory:
    """As `flat_bytes`, but refuse Fortran order: a store keeps no shape to restore it from."""
    if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
        cause, remedy = "it has gaps, or is in Fortran order", "pass an array in C order"
        raise InvalidArgumentError(f"use the {role}", cause, remedy)
    return flat_bytes(value, role, writable=writable)


_flat_target = partial(_flat, role="target", writable=True)


def _milliseconds(time_s: float, tried: str = _TRIED) -> int:
    return math.ceil(seconds(time_s, tried) * 1000)


def _tier(tier: Tier | int | str) -> tuple[int, int | None, str, str, int, int | None]:
    known = tier if isinstance(tier, Tier) else Tier(tier)
    if known.durability not in {"power", "process"}:
        cause = f"its durability is {known.durability!r}"
        raise InvalidArgumentError("make a tier of a store", cause, "use 'power' or 'process'")
    node = None if known.node is None else whole_number(known.node, _TRIED, 0, NODE_MAX)
    path = "" if known.path is None else path_text(known.path, _TRIED)
    capacity = 0 if known.capacity == 0 else byte_count(known.capacity, _TRIED)
    deadline_ms = max(1, _milliseconds(known.deadline_s))
    unwritten = (
        None if known.unwritten is None else whole_number(known.unwritten, _TRIED, 0, _NUMBER_MAX)
    )
    return capacity, node, path, known.durability, deadline_ms, unwritten
