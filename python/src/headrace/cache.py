# SPDX-License-Identifier: Apache-2.0
"""Cache: copies of memory regions on the nodes where they will be wanted.

It is not coherent: who changes a source tells the cache by `Cache.invalidate`.
"""

import atexit
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import (
    NODE_MAX,
    byte_count,
    instance_of,
    node_list,
    not_picklable,
    one_of,
    whole_number,
)
from headrace._buffers import flat_bytes
from headrace._closing import Closing
from headrace._words import html_totals
from headrace.engine import POLICIES, Engine, MoverInfo, Policy
from headrace.errors import (
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    TypeMismatchError,
)
from headrace.machine import Machine, topo

HINT_MAX = 2**32 - 1

Placement = str | int | Mapping[int, int | Sequence[int]]
"""Where copies go: see `Cache`."""


@dataclass(frozen=True, slots=True)
class MoveContext:
    """What a mover policy of a cache may look at.

    Attributes:
        movers: The candidates: all devices, or the worker threads of all nodes.
        loads: How many requests each of them has.
        source_node: Where the bytes are; None if that is not known.
        target_node: Where the copy goes.
        caller_node: Node of the thread that accesses the cache.
        byte_count: Length of the copy, or of all copies of a batch (`Cache.access_many`).
        sequence: Counts the submissions of the engine, to take turns.
    """

    movers: tuple[MoverInfo, ...]
    loads: tuple[int, ...]
    source_node: int | None
    target_node: int | None
    caller_node: int | None
    byte_count: int
    sequence: int


Mover = Callable[[MoveContext], int | Iterable[int]]
"""Chooses movers: returns indexes into `MoveContext.movers`, one or several."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Totals since the cache was made; each is exact, together they are not one instant.

    Attributes:
        hits: Accesses that found an entry, ready or on its way.
        misses: Accesses that started a move.
        not_placed: Accesses that the placement left at the source.
        refused: Accesses left at the source because there was no room, memory or mover.
        weak_hits: Weak accesses that found an entry.
        weak_misses: Weak accesses that were left at the source.
        duplicates: Hits that found the entry only when they came to insert their own.
        moves_failed: Moves that did not end as done; their entries are the source.
        late_writes: Moves and write-backs after which a device that was given up may still write.
        bytes_kept: Memory of dropped copies that is never freed because of that.
        bad_sources: Accesses that were refused because not all of the source was mapped.
        policy_errors: Placements that named a node that the machine does not have, and mover
            functions that raised.
        evictions: Entries dropped to make room.
        bytes_moved: Bytes of the copies that were made.
        write_backs: Ranges of bytes that were changed in a copy and written back.
        bytes_written_back: Their bytes.
        waits: Waits that had to block.
        waited_ns: How long they did, all threads together, in nanoseconds.
        bytes_cached: Bytes of the copies that there are now, in whole pages, on all nodes.
    """

    hits: int
    misses: int
    not_placed: int
    refused: int
    weak_hits: int
    weak_misses: int
    duplicates: int
    moves_failed: int
    late_writes: int
    bytes_kept: int
    bad_sources: int
    policy_errors: int
    evictions: int
    bytes_moved: int
    write_backs: int
    bytes_written_back: int
    waits: int
    waited_ns: int
    bytes_cached: int

    def _repr_html_(self) -> str:
        return html_totals(self)

    def table(self) -> str:
        """The totals as lines of name and number, aligned."""
        rows = [(name, f"{getattr(self, name):,}") for name in self.__slots__]
        name_width = max(len(name) for name, _ in rows)
        width = max(len(number) for _, number in rows)
        return "\n".join(f"{name:{name_width}}  {number:>{width}}" for name, number in rows)


@dataclass(frozen=True, slots=True)
class CacheEvent:
    """What happened to a region.

    Attributes:
        kind: "hit", "miss", "not_placed", "refused", "weak_hit", "weak_miss" (an access), "moved",
            "move_failed" (the end of a move), "evicted", "dropped" (the end of an entry), or
            "written_back" (changed bytes are in the source).
        address: Of the region that was asked for, or of the entry.
        byte_count: Its length.
        node: Of the entry; None if there is none.
        cause: Why a move failed: "stopped", "page_fault", "device_error" and others, or
            "late_write_possible": a device was given up that may still write to the copy, which
            therefore is not used. None for other events.
    """

    kind: str
    address: int
    byte_count: int
    node: int | None
    cause: str | None


class Entry:
    """A handle on one cached region; the copy is freed with the last handle.

    It keeps the source alive.

    Threading: shared.
    """

    __slots__ = ("_like", "_native")

    def __init__(self, native: _core.Entry, like: object) -> None:
        self._native = native
        self._like = like

    def __repr__(self) -> str:
        if not self.cached:
            return "<headrace.Entry: the source>"
        return f"<headrace.Entry: a copy on node {self.node}{', changed' * self.changed}>"

    def __reduce__(self) -> NoReturn:
        raise not_picklable("an entry", "it is a handle on memory of this process")

    def wait(self) -> None:
        """Block until the move has ended, whichever thread started it; other Python threads run."""
        self._native.wait()

    def try_wait(self) -> bool:
        """Tell whether the move has ended; never blocks."""
        return self._native.try_wait()

    @property
    def cached(self) -> bool:
        """True if `view` is a copy and not the source."""
        return self._native.cached()

    @property
    def node(self) -> int | None:
        """Node of the copy; None while there is none."""
        return self._native.node()

    @property
    def changed(self) -> bool:
        """True if bytes of the copy were changed and are not in the source yet."""
        return self._native.changed()

    def native(self) -> _core.Entry:
        """The entry as the extension knows it."""
        return self._native

    def view(self) -> npt.NDArray[Any]:
        """Give the region to read: its copy if the move is done, else the source.

        Never waits for the move. Either has every change that ended before the access; for that,
        changed bytes may be written back here.

        A NumPy source gives an array of its type and shape, any other buffer one of bytes. The
        array keeps entry and source alive and cannot be written.
        """
        return _shaped(self._native.view(), self._like)


class Change:
    """The right to write a region, in a `with` block, exclusively.

    Threading: confined.
    """

    __slots__ = ("_native", "_view")

    def __init__(self, native: _core.Change, like: object) -> None:
        self._native = native
        self._view = _shaped(native.view(), like)

    @property
    def cached(self) -> bool:
        """True if the copy is written, False if it is the source."""
        return self._native.cached()

    def view(self) -> npt.NDArray[Any]:
        """Give the bytes to write, as `Entry.view`; after the end they can only be read.

        That holds for this array. A slice or another view of it that was made before the end
        stays writable: do not write to it after the end. Readers may see such bytes, and they are
        not written back.
        """
        return self._view

    def end(self) -> None:
        """Give the right up. Idempotent."""
        self._view.flags.writeable = False
        self._native.end()

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a change", "it writes memory of this process")

    def __enter__(self) -> npt.NDArray[Any]:
        return self._view

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()


class Cache(Closing):
    """Keeps copies of regions on the nodes where they will be wanted, moved there meanwhile.

    A region is known by its address, so the cache must hear when memory gets another owner:
    it does, for the memory of NumPy arrays. Other sources (bytes, Arrow buffers) it keeps alive
    itself, until `clear` or `close`.

    A function that a job calls (`then`) may not wait: there `change`, `write_back`, `flush`,
    `invalidate`, `clear`, `close`, and `Entry.wait` unless the copy is there, raise
    `InvalidArgumentError`.

    Threading: shared.
    """

    def __init__(  # noqa: PLR0913 - what one may choose of a cache.
        self,
        engine: Engine | None = None,
        capacity: int | str = "1GiB",
        placement: Placement = "fastest",
        *,
        machine: Machine | None = None,
        eviction: str = "s3_fifo",
        recycle: bool = False,
        huge_pages: bool = False,
        events: int = 0,
        mover: Policy | Mover | None = None,
        into_cache: bool = False,
    ) -> None:
        """Make a cache.

        Args:
            engine: Who moves the bytes; None makes an engine, which is closed with the cache.
            capacity: Bytes of copies kept per node, as a number or as a text such as "64MiB"; the
                same for every node.
                When full, unused entries are dropped in the order of `eviction`.
            placement: "fastest" (of the nodes that are faster than the caller's own the best that
                has room; nothing is moved where there is none), "local" (the caller's own node),
                "none", a node, or for each node of callers a node or a list of them, best first:
                {0: 8, 1: [9, 8]}.
            machine: The machine; None takes the engine's, or discovers it.
            eviction: Which unused entries go first when a node is full: "lru" or "s3_fifo"; see
                the page on the cache.
            recycle: Keep the memory of copies that were dropped for the next ones of the same
                length, which then need not be mapped and zeroed; at most the capacity, until the
                cache and its entries are gone.
            huge_pages: Ask for huge pages under copies that are at least that long.
            events: How many events are kept for `take_events`; 0: none, which costs nothing.
            mover: Which movers make a copy: the name of a policy (`headrace.POLICIES`), or a
                function of a `MoveContext` that returns the index of a mover or several. It is
                called by the accessing thread for every miss. It may not access or wait for a
                cache. If it raises, `sys.unraisablehook` gets the error, the move fails, the entry
                is the source, and `policy_errors` counts it. None: the policy of the engine, or
                "by_size".
            into_cache: Devices write copies into the last-level cache of the processor instead of
                memory, for copies that are read at once. A hint: worker threads ignore it.

        Raises:
            InvalidArgumentError: The capacity is 0, no size, or more than any node has; or the
                placement, eviction or mover is unknown.
            TypeMismatchError: An argument is of another type.
            NotFoundError: The machine does not have that node.
        """
        if engine is not None:
            instance_of(engine, Engine, "take the engine of a cache")
        if machine is None:
            machine = engine.machine if engine is not None else topo()
        instance_of(machine, Machine, "take the machine of a cache")
        places = _parse_placement(placement)
        self.machine = machine
        self.capacity_bytes: int = _parse_capacity(capacity, places, machine)
        self._owns_engine = engine is None
        self.engine: Engine = Engine(machine) if engine is None else engine
        self._never_moves = placement == "none" or (
            placement == "fastest" and not machine.has_faster_node()
        )
        self._watched: dict[int, weakref.ref[npt.NDArray[Any]]] = {}
        self._held: dict[int, object] = {}
        self._native = _core.Cache.make(
            machine.native(),
            self.engine.native(),
            capacity_bytes=self.capacity_bytes,
            placement=places,
            eviction=eviction,
            recycle=bool(recycle),
            huge_pages=bool(huge_pages),
            event_count_max=whole_number(events, "keep the events of a cache"),
            mover=_parse_mover(mover, self.engine),
            into_cache=bool(into_cache),
        )
        _living.add(self)

    def access(self, source: object, *, hint: str | int | None = None, weak: bool = False) -> Entry:
        """Give the entry of a region, starting its move if there is none; never waits for it.

        The source must not be changed until the entry is ready.

        Args:
            source: A contiguous array or buffer of at least one byte.
            hint: What is known of reads to come, which changes what is evicted: "once" (through
                this entry, and not again soon), "many", or a number n (next when about n more
                regions have come).
            weak: Take only what exists: start nothing, and give the source if there is no entry.

        Raises:
            InvalidArgumentError: `source` is empty, null, has gaps or is no buffer; or there is no
                such hint.
            ClosedError: The cache has been closed.
        """
        flat = flat_bytes(source, "source")
        self.guard(flat)  # First: whatever comes between must not leave an entry without it.
        native = self._native.access(flat, _parse_hint(hint), bool(weak))
        self.guard(flat)  # Again, for who cleared the cache in between.
        return Entry(native, source)

    def access_many(
        self, sources: Sequence[object], *, hint: str | int | None = None
    ) -> list[Entry]:
        """Give the entries of several regions, in their order; as `access` of each.

        Short copies (up to 64 KiB) to one node are submitted together, as one batch: a device takes
        many of them by one submission.

        Args:
            sources: Contiguous arrays or buffers, each of at least one byte.
            hint: As for `access`, for all of them.

        Raises:
            InvalidArgumentError: As for `access`; then nothing has begun.
            ClosedError: The cache has been closed.
        """
        flat = [flat_bytes(source, "source") for source in sources]
        for each in flat:
            self.guard(each)
        natives = self._native.access_many(flat, _parse_hint(hint))
        for each in flat:
            self.guard(each)
        return [Entry(native, source) for native, source in zip(natives, sources, strict=True)]

    def change(self, source: object, *, hint: str | int | None = None) -> Change:
        """Give the right to write a region through its copy; waits for the move.

            with cache.change(array) as view:
                view[...] = 0

        Where there is no copy the source itself is written. Every other entry that overlaps goes.
        The source has the new bytes after `write_back`, `flush`, `clear` or `close`, or when room
        or an overlapping access needs it; `invalidate`, or the end of the source, gives them up.

        Args:
            source: As for `access`, but not read-only.
            hint: As for `access`.

        Raises:
            InvalidArgumentError: As for `access`; or `source` is read-only.
            CapacityExceededError: Another change of some of these bytes is going on.
            ClosedError: The cache has been closed.
        """
        flat = flat_bytes(source, "source", writable=True)
        self.guard(flat)
        native = self._native.change(flat, _parse_hint(hint))
        self.guard(flat)
        return Change(native, source)

    def write_back(self, entry: Entry | None = None) -> int:
        """Copy what was changed in an entry, or in all, to the source; tell how many bytes.

        Raises:
            CapacityExceededError: Some bytes are being changed; all others are in their source.
            ClosedError: The cache has been closed.
        """
        if entry is not None:
            instance_of(entry, Entry, "write an entry back")
        return self._native.write_back(entry.native() if entry is not None else None)

    def pin(self, source: object) -> int:
        """Keep the entries that contain `source` from being evicted or flushed; tell how many.

        Raises:
            ClosedError: The cache has been closed.
        """
        return self._native.pin(flat_bytes(source, "source"), pinned=True)

    def unpin(self, source: object) -> int:
        """Undo `pin`, however often it was called; tell how many entries there are.

        Raises:
            ClosedError: The cache has been closed.
        """
        return self._native.pin(flat_bytes(source, "source"), pinned=False)

    def take_events(self) -> tuple[list[CacheEvent], int]:
        """Give the events since the last call, and how many were lost because there was no room.

        The cache must have been made with `events`. What has happened can be asked for after the
        cache was closed, too.
        """
        events, lost_count = self._native.take_events()
        return [CacheEvent(**event) for event in events], lost_count

    def flush(self, node: int | None = None) -> int:
        """Write changes back, and drop what is neither held nor pinned; tell how many entries.

        Raises:
            NotFoundError: The machine has no such node.
            InvalidArgumentError: It is no number of a node.
            ClosedError: The cache has been closed.
        """
        if node is not None:
            node = whole_number(node, "take a node to flush", 0, NODE_MAX)
            if self.machine.node(node) is None:
                raise _no_such_node(node, self.machine)
        return self._native.flush(node)

    def invalidate(self, source: object) -> int:
        """Drop every entry that overlaps `source`; holders keep theirs. Tell how many.

        Bytes of `source` that were changed and are not written back are lost; changed bytes
        outside of it are written back.

        Raises:
            ClosedError: The cache has been closed.
        """
        return self._native.invalidate(flat_bytes(source, "source"))

    def clear(self) -> int:
        """Write changes back, and drop every entry; holders keep theirs. Tell how many.

        Raises:
            ClosedError: The cache has been closed.
        """
        # What is held until now lives until nothing is moved from it; who comes meanwhile, stays.
        held, self._held = self._held, {}
        count = self._native.clear()
        held.clear()
        return count

    @property
    def statistics(self) -> CacheStatistics:
        """Totals since the cache was made, also after it was closed."""
        return CacheStatistics(**self._native.statistics())

    def __repr__(self) -> str:
        copies = _core.bytes_text(self.statistics.bytes_cached)
        return f"<headrace.Cache: {copies} in copies, by {self.engine!r}>"

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a cache", "its copies are memory of this process")

    def native(self) -> _core.Cache:
        """The cache as the extension knows it."""
        return self._native

    def close(self) -> None:
        """Write changes back, and drop all entries; holders keep theirs. Idempotent."""
        self._native.close()
        self._held.clear()
        if self._owns_engine:
            self.engine.close()

    def guard(self, array: npt.NDArray[Any]) -> None:
        """See to it that nothing is moved from the memory of `array`, or found, once it is freed.

        `access` does this itself; it is for who lets C++ code use this cache on its memory.
        """
        if self._never_moves:
            return
        owner, base = array, _base_of(array)
        while isinstance(base, np.ndarray):
            owner, base = base, _base_of(base)
        if not owner.flags.owndata:
            # Memory of somebody else, whose end we would not see: it must not end.
            keeper = base if base is not None else owner
            identity = keeper.obj if isinstance(keeper, memoryview) else keeper
            self._held.setdefault(id(identity), keeper)
            return
        key = id(owner)
        if key in self._watched:
            return
        # The callback runs before the memory is freed. It must not keep the cache alive.
        address, byte_count = owner.ctypes.data, owner.nbytes
        cache = weakref.ref(self)

        def forget(_owner: weakref.ref[npt.NDArray[Any]]) -> None:
            living = cache()
            if living is not None and living._watched.pop(key, None) is not None:  # noqa: SLF001
                with suppress(ClosedError):
                    living._native.forget(address, byte_count)  # noqa: SLF001

        self._watched[key] = weakref.ref(owner, forget)


_living: weakref.WeakSet[Cache] = weakref.WeakSet()


@atexit.register
def _write_back_at_exit() -> None:
    """Write changes back while their arrays live.

    Python's end frees modules in any order and calls no weak reference of what it frees as a cycle.
    """
    for cache in list(_living):
        with suppress(ClosedError):
            cache._native.clear()  # noqa: SLF001


def _shaped(flat: npt.NDArray[Any], like: object) -> npt.NDArray[Any]:
    """The bytes `flat` as an array of the type and shape of `like`, if that is an array."""
    if not isinstance(like, np.ndarray):
        return flat
    typed: npt.NDArray[Any] = flat.view(like.dtype)
    return typed.reshape(like.shape, order="C" if like.flags.c_contiguous else "F")


def _parse_mover(mover: Policy | Mover | None, engine: Engine) -> object:
    if mover is None or isinstance(mover, str):
        return one_of(mover, POLICIES, "policy")
    if not callable(mover):
        raise TypeMismatchError(
            "take the mover of a cache",
            f"it is a {type(mover).__name__}",
            "pass the name of a policy, a function or None",
        )
    known = {info.name: info for info in engine.mover_infos}
    choose = mover

    def ask(
        names: list[str],
        loads: list[int],
        source_node: int | None,
        target_node: int | None,
        caller_node: int | None,
        byte_count: int,
        sequence: int,
    ) -> list[int]:
        context = MoveContext(
            tuple(known[name] for name in names),
            tuple(loads),
            source_node,
            target_node,
            caller_node,
            byte_count,
            sequence,
        )
        chosen = choose(context)
        indexes = list(chosen) if isinstance(chosen, Iterable) else [chosen]
        tried = "take the choice of a mover policy"
        if not indexes:
            raise InvalidArgumentError(tried, "it is empty", "return at least one index")
        return [whole_number(index, tried, 0, len(names) - 1) for index in indexes]

    return ask


def _parse_hint(hint: str | int | None) -> str | int | None:
    if hint is None or isinstance(hint, str):
        return hint
    wanted = "once, many or the number of regions that come before it"
    return whole_number(hint, "take a hint", 0, HINT_MAX, wanted)


def _base_of(array: npt.NDArray[Any]) -> object:
    """What the memory of `array` belongs to: an array, any other object, or None for itself."""
    return array.base


def _parse_placement(placement: Placement) -> str | int | dict[int, list[int]]:
    if isinstance(placement, str):
        return placement
    tried = "take the placement of a cache"
    if not isinstance(placement, Mapping):
        wanted = "fastest, local, none, the number of a node, or a map of them"
        return whole_number(placement, tried, 0, NODE_MAX, wanted)
    return {
        whole_number(caller, tried, 0, NODE_MAX): node_list(
            nodes if isinstance(nodes, Iterable) else [nodes], tried
        )
        for caller, nodes in placement.items()
    }


def _parse_capacity(
    capacity: int | str, placement: str | int | dict[int, list[int]], machine: Machine
) -> int:
    capacity_bytes = byte_count(capacity, "take the capacity of a cache")
    tried = f"make a cache of {_core.bytes_text(capacity_bytes)}"
    if isinstance(placement, int):
        node = machine.node(placement)
        if node is None:
            raise _no_such_node(placement, machine)
        nodes = [node]
    else:
        nodes = list(machine.nodes)
    largest = max(nodes, key=lambda node: node.capacity_bytes)
    if 0 < largest.capacity_bytes < capacity_bytes:
        cause = f"node {largest.id} has {_core.bytes_text(largest.capacity_bytes)}"
        raise InvalidArgumentError(tried, cause, "use a smaller capacity")
    return capacity_bytes


def _no_such_node(node: int, machine: Machine) -> NotFoundError:
    there = ", ".join(str(known.id) for known in machine.nodes)
    return NotFoundError(
        f"use node {node}", f"this machine has only node {there}", "choose one of these"
    )
