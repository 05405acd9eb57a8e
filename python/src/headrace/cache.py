# SPDX-License-Identifier: Apache-2.0
"""Cache: copies of memory regions on the nodes that will read them.

The cache is not coherent: after changing a source, call `Cache.invalidate`.
"""

import atexit
import ctypes
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import (
    NODE_MAX,
    Eviction,
    byte_count,
    instance_of,
    whole_number,
)
from headrace._buffers import as_array_if_tensor, flat_bytes
from headrace._cache_policies import Mover, Placement, Places, parse_mover, parse_placement
from headrace._closing import Closing, OfOneProcess
from headrace.engine import Engine, Policy
from headrace.errors import ClosedError, InvalidArgumentError, NotFoundError
from headrace.machine import Machine, topo

HINT_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Totals since the cache was made; each is exact, together they are not one snapshot.

    Attributes:
        hits: Accesses that found an entry, ready or moving.
        misses: Accesses that started a move.
        not_placed: Accesses that the placement left at the source.
        refused: Accesses left at the source because there was no room, memory or mover.
        weak_hits: Weak accesses that found an entry.
        weak_misses: Weak accesses left at the source.
        duplicates: Hits on an entry that another thread inserted first.
        moves_failed: Moves that failed or were stopped; their entries are the source.
        late_writes: Moves and write-backs whose target an abandoned device may still write to.
        bytes_kept: Memory of dropped copies that is never freed for that reason.
        bad_sources: Accesses refused because part of the source was not mapped.
        policy_errors: Placements on a node that the machine does not have, and mover functions that
            raised.
        evictions: Entries dropped to make room.
        bytes_moved: Bytes of completed moves.
        write_backs: Changed ranges written back.
        bytes_written_back: Bytes written back.
        waits: Waits that blocked.
        waited_ns: Their total duration over all threads, in nanoseconds.
        bytes_cached: Bytes of the present copies, in whole pages, on all nodes.
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


class Entry(OfOneProcess, _core.Exporter):
    """A handle on one cached region. It keeps the source alive.

    The copy is freed after the entry has left the cache and its last handle is gone.

    An entry is a buffer: `numpy.asarray`, `memoryview`, `numpy.from_dlpack` and other libraries'
    `from_dlpack` share the memory that `view` returns, without a copy and without waiting for the
    move. The memory is read-only. A consumer of DLPack before 1.0 (JAX) does not see that and must
    not write to it.

    Threading: shared.
    """

    __slots__ = ("_like", "_native")

    if TYPE_CHECKING:  # Exporter provides it.

        def __buffer__(self, flags: int, /) -> memoryview: ...

    def __init__(self, native: _core.Entry, like: object) -> None:
        self._native = native
        self._like = like

    def __repr__(self) -> str:
        if not self.cached:
            return "<headrace.Entry: the source>"
        return f"<headrace.Entry: a copy on node {self.node}{', changed' * self.changed}>"

    def wait(self) -> None:
        """Block until the move has ended; other Python threads run meanwhile."""
        self._native.wait()

    def try_wait(self) -> bool:
        """Whether the move has ended; never blocks."""
        return self._native.try_wait()

    @property
    def cached(self) -> bool:
        """True if `view` returns a copy, not the source."""
        return self._native.cached()

    @property
    def node(self) -> int | None:
        """Node of the copy; None without a copy."""
        return self._native.node()

    @property
    def changed(self) -> bool:
        """True if the copy has changed bytes that are not yet in the source."""
        return self._native.changed()

    def native(self) -> _core.Entry:
        """The entry of the extension module."""
        return self._native

    def view(self) -> npt.NDArray[Any]:
        """Return the region for reading: its copy if the move is done, else the source.

        Never waits for the move. Both contain every change that ended before the access; this may
        write changed bytes back to ensure it.

        A NumPy source gives an array of its type and shape, any other buffer one of bytes. The
        array is read-only and keeps entry and source alive.
        """
        return _shaped(self._native.view(), self._like)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """As `view`. NumPy calls it for types without a buffer format, such as datetime64."""
        return np.array(self.view(), dtype=dtype, copy=copy)

    def __dlpack__(
        self,
        *,
        max_version: tuple[int, int] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401 - A capsule.
        """Export what `view` returns."""
        view = self.view()
        if max_version is None or max_version < (1, 0):
            # Unmarked, as pyarrow exports its immutable arrays: NumPy would refuse.
            raw = (ctypes.c_ubyte * view.nbytes).from_address(view.ctypes.data)
            raw.owner = view  # type: ignore[attr-defined]
            view = _shaped(np.ctypeslib.as_array(raw), self._like)
        return view.__dlpack__(max_version=max_version, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The processor's memory."""
        return self.view().__dlpack_device__()


class Change(OfOneProcess):
    """Exclusive write access to a region; use it in a `with` block.

    Threading: confined.
    """

    __slots__ = ("_native", "_view")

    def __init__(self, native: _core.Change, like: object) -> None:
        self._native = native
        self._view = _shaped(native.view(), like)

    @property
    def cached(self) -> bool:
        """True if `view` is the copy, False if it is the source."""
        return self._native.cached()

    def view(self) -> npt.NDArray[Any]:
        """Return the bytes as a writable array of the source's shape; read-only after `end`.

        Slices and other views made before the end stay writable: do not write to them afterwards.
        Readers may see such writes, and they are not written back.
        """
        return self._view

    def end(self) -> None:
        """End the write access. Idempotent."""
        self._view.flags.writeable = False
        self._native.end()

    def __enter__(self) -> npt.NDArray[Any]:
        return self._view

    def __exit__(self, *_details: object) -> None:
        self.end()


class Cache(Closing, OfOneProcess):
    """Keeps copies of regions on the nodes that will read them, moved asynchronously.

    A region is identified by its address. When NumPy frees an array, the cache drops its entries;
    other sources (bytes, Arrow buffers) it keeps alive until `clear` or `close`.

    A completion callback (`then`) must not wait: there `change`, `write_back`, `flush`,
    `invalidate`, `clear`, `close`, and `Entry.wait` while the move runs, raise
    `InvalidArgumentError`. After `close` all methods but `statistics` raise `ClosedError`.

    Threading: shared.
    """

    def __init__(  # noqa: PLR0913 - Options.
        self,
        engine: Engine | None = None,
        capacity: int | str = "1GiB",
        placement: Placement = "fastest",
        *,
        machine: Machine | None = None,
        eviction: Eviction = "s3_fifo",
        recycle: bool = False,
        huge_pages: bool = False,
        mover: Policy | Mover | None = None,
        into_cache: bool = False,
    ) -> None:
        """Make a cache.

        Args:
            engine: The engine that moves the bytes; None makes one, which is closed with the cache.
            capacity: Bytes of copies per node, as a number or a text such as "64MiB"; the same for
                every node. When full, unused entries are evicted.
            placement: Where copies go: "fastest" (the best node with room that is faster than the
                caller's own; without one, nothing is moved), "local" (the caller's node), "none", a
                node, or a map from nodes of callers to a node or a list of nodes, best first:
                {0: 8, 1: [9, 8]}. Or a function of a `PlacementContext`, which the accessing
                thread calls for every access, hits included; for errors, see `mover`.
            machine: The machine; None takes the engine's, or discovers it.
            eviction: Which unused entries are evicted first: "lru" or "s3_fifo"; see the page on
                the cache.
            recycle: Keep all memory of dropped copies for new ones, until the cache and its entries
                are gone; otherwise at most 64 MiB of each node, or none with `huge_pages`.
            huge_pages: Request huge pages for copies at least that long.
            mover: Which movers make a copy: the name of a policy (`headrace.POLICIES`), or a
                function of a `MoveContext` that returns one or several indexes of movers. The
                accessing thread calls it for every miss. It must not access or wait for a cache. If
                it raises, `sys.unraisablehook` gets the error, the move fails, the entry is the
                source, and `policy_errors` counts it. None: the policy of the engine, or "by_size".
            into_cache: Devices write copies into the last-level cache instead of memory, for copies
                that are read at once. A hint: worker threads ignore it.

        Raises:
            InvalidArgumentError: The capacity is 0, not a size, or more than any node has; or the
                placement, eviction or mover is unknown.
            TypeMismatchError: An argument has the wrong type.
            NotFoundError: The machine does not have that node.
        """
        if engine is not None:
            instance_of(engine, Engine, "take the engine of a cache")
        if machine is None:
            machine = engine.machine if engine is not None else topo()
        instance_of(machine, Machine, "take the machine of a cache")
        places = parse_placement(placement)
        self.machine = machine
        self.capacity_bytes: int = _parse_capacity(capacity, places, machine)
        self._owns_engine = engine is None
        self.engine: Engine = Engine(machine) if engine is None else engine
        self._never_moves = placement == "none" or (
            placement == "fastest" and not machine.has_faster_node()
        )
        self._watched: dict[int, weakref.ref[npt.NDArray[Any]]] = {}
        self._held: dict[int | tuple[int, int], object] = {}
        self._native = _core.Cache.make(
            machine.native(),
            self.engine.native(),
            capacity_bytes=self.capacity_bytes,
            placement=places,
            eviction=eviction,
            recycle=bool(recycle),
            huge_pages=bool(huge_pages),
            mover=parse_mover(mover, self.engine),
            into_cache=bool(into_cache),
        )
        _living.add(self)

    def access(self, source: object, *, hint: str | int | None = None, weak: bool = False) -> Entry:
        """Return the entry of a region, starting its move if there is none; does not wait for it.

        The source must not be changed until the entry is ready.

        Args:
            source: A contiguous array, tensor with DLPack, or buffer of at least one byte.
            hint: Expected reads, for eviction: "once" (through this entry, not again soon), "many",
                or a number n (next after about n more regions).
            weak: Use only an existing copy: start no move, and return the source without an entry.

        Raises:
            InvalidArgumentError: `source` is empty, null, not contiguous or not a buffer; or the
                hint is unknown.
        """
        source = as_array_if_tensor(source)
        flat = flat_bytes(source, "source")
        self.guard(flat)  # First, so that an exception cannot leave an unguarded entry.
        native = self._native.access(flat, _parse_hint(hint), bool(weak))
        self.guard(flat)  # Again, because another thread may have cleared the cache in between.
        return Entry(native, source)

    def access_many(
        self, sources: Sequence[object], *, hint: str | int | None = None
    ) -> list[Entry]:
        """Return the entries of several regions, in order, as `access` of each.

        Short copies (up to 64 KiB) to one node form one batch, which a device accepts in a single
        submission.

        Args:
            sources: Contiguous arrays or buffers, each of at least one byte.
            hint: As for `access`, for all of them.

        Raises:
            InvalidArgumentError: As for `access`; no move was started.
        """
        sources = [as_array_if_tensor(source) for source in sources]
        flat = [flat_bytes(source, "source") for source in sources]
        for each in flat:
            self.guard(each)
        natives = self._native.access_many(flat, _parse_hint(hint))
        for each in flat:
            self.guard(each)
        return [Entry(native, source) for native, source in zip(natives, sources, strict=True)]

    def change(self, source: object, *, hint: str | int | None = None) -> Change:
        """Give exclusive write access to a region through its copy; waits for the move.

            with cache.change(array) as view:
                view[...] = 0

        Without a copy, the source itself is written. All other overlapping entries are dropped.
        `write_back`, `flush`, `clear` and `close` write the changes to the source; so do eviction
        and overlapping accesses. `invalidate`, and freeing the source, discard them.

        Args:
            source: As for `access`, but writable.
            hint: As for `access`.

        Raises:
            InvalidArgumentError: As for `access`; or `source` is read-only.
            CapacityExceededError: Another change of some of these bytes is in progress.
        """
        source = as_array_if_tensor(source)
        flat = flat_bytes(source, "source", writable=True)
        self.guard(flat)
        native = self._native.change(flat, _parse_hint(hint))
        self.guard(flat)
        return Change(native, source)

    def write_back(self, entry: Entry | None = None) -> int:
        """Write the changes of an entry, or of all, to the source; return the number of bytes.

        Raises:
            CapacityExceededError: Some bytes are being changed; all others were written back.
        """
        if entry is not None:
            instance_of(entry, Entry, "write an entry back")
        return self._native.write_back(entry.native() if entry is not None else None)

    def pin(self, source: object) -> int:
        """Protect the entries that contain `source` from eviction and `flush`; return how many."""
        return self._native.pin(flat_bytes(source, "source"), pinned=True)

    def unpin(self, source: object) -> int:
        """Undo all calls of `pin`; return the number of entries."""
        return self._native.pin(flat_bytes(source, "source"), pinned=False)

    def flush(self, node: int | None = None) -> int:
        """Write changes back and drop unused, unpinned entries; return their number.

        Raises:
            NotFoundError: The machine has no such node.
            InvalidArgumentError: `node` is not the number of a node.
        """
        if node is not None:
            node = whole_number(node, "take a node to flush", 0, NODE_MAX)
            if self.machine.node(node) is None:
                raise _no_such_node(node, self.machine)
        return self._native.flush(node)

    def invalidate(self, source: object) -> int:
        """Drop every entry that overlaps `source`; return their number. Handles stay valid.

        Changed bytes of `source` that were not written back are lost; changed bytes outside of it
        are written back.
        """
        return self._native.invalidate(flat_bytes(source, "source"))

    def clear(self) -> int:
        """Write changes back and drop every entry; return their number. Handles stay valid."""
        # Sources held before the call live until no move reads them; later ones stay in `_held`.
        held, self._held = self._held, {}
        count = self._native.clear()
        held.clear()
        return count

    @property
    def statistics(self) -> CacheStatistics:
        """Totals since the cache was made; also after `close`."""
        return CacheStatistics(**self._native.statistics())

    def __repr__(self) -> str:
        copies = _core.bytes_text(self.statistics.bytes_cached)
        return f"<headrace.Cache: {copies} in copies, by {self.engine!r}>"

    def native(self) -> _core.Cache:
        """The cache of the extension module."""
        return self._native

    def close(self) -> None:
        """Write changes back and drop all entries; handles stay valid. Idempotent."""
        self._native.close()
        self._held.clear()
        if self._owns_engine:
            self.engine.close()

    def guard(self, array: npt.NDArray[Any]) -> None:
        """Make the cache drop the entries of `array` when its memory is freed, or keep it alive.

        `access` does this itself; call it if C++ code uses this cache on the memory of `array`.
        """
        if self._never_moves:
            return
        owner, base = array, _base_of(array)
        while isinstance(base, np.ndarray):
            owner, base = base, _base_of(base)
        if not owner.flags.owndata:
            # We cannot observe when another owner frees its memory, so keep the owner alive.
            holder = base if base is not None else owner
            identity = holder.obj if isinstance(holder, memoryview) else holder
            if id(identity) not in self._held:
                # Arrow and DLPack make another owner of the same memory each time: one is enough.
                region = owner.ctypes.data, owner.nbytes
                if self._held.setdefault(region, holder) is holder:
                    self._held[id(identity)] = holder
            return
        key = id(owner)
        if key in self._watched:
            return
        # The callback runs before the memory is freed. It must not keep the cache alive: weakref.
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
    """Write changes back while the source arrays are alive.

    At exit, Python frees modules in any order and skips weakref callbacks of collected cycles.
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


def _parse_hint(hint: str | int | None) -> str | int | None:
    if hint is None or isinstance(hint, str):
        return hint
    wanted = "once, many or the number of regions that come before it"
    return whole_number(hint, "take a hint", 0, HINT_MAX, wanted)


def _base_of(array: npt.NDArray[Any]) -> object:
    """Owner of the memory of `array`: an array or another object; None if `array` owns it."""
    return array.base


def _parse_capacity(capacity: int | str, placement: Places, machine: Machine) -> int:
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
