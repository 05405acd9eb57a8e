# SPDX-License-Identifier: Apache-2.0
"""Cache: copies of memory regions on the nodes where they will be wanted.

It is not coherent: who changes a source tells the cache by `Cache.invalidate`.
"""

import weakref
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import NODE_MAX, byte_count, instance_of, whole_number
from headrace._buffers import flat_bytes
from headrace.engine import Engine
from headrace.errors import ClosedError, InvalidArgumentError, NotFoundError
from headrace.machine import Machine, topo


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Totals since the cache was made; each is exact, together they are not one instant.

    Attributes:
        hits: Accesses that found an entry, ready or on its way.
        misses: Accesses that started a move.
        not_placed: Accesses that the placement left at the source.
        refused: Accesses left at the source for want of room, memory or a mover.
        duplicates: Hits that found the entry only when they came to insert their own.
        moves_failed: Moves that did not end as done; their entries are the source.
        policy_errors: Placements that named a node that the machine does not have.
        evictions: Entries dropped to make room.
        bytes_moved: Bytes of the copies that were made.
        bytes_cached: Bytes of the copies that there are now, in whole pages, on all nodes.
    """

    hits: int
    misses: int
    not_placed: int
    refused: int
    duplicates: int
    moves_failed: int
    policy_errors: int
    evictions: int
    bytes_moved: int
    bytes_cached: int


class Entry:
    """A handle on one cached region; the copy is freed with the last handle.

    It keeps the source alive.

    Threading: shared.
    """

    __slots__ = ("_like", "_native")

    def __init__(self, native: _core.Entry, like: object) -> None:
        self._native = native
        self._like = like

    def wait(self) -> None:
        """Block until the move has ended, whoever started it; other Python threads run."""
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

    def view(self) -> npt.NDArray[Any]:
        """Give the region to read: its copy if the move is done, else the source.

        A NumPy source gives an array of its type and shape, any other buffer one of bytes. The
        array keeps entry and source alive and cannot be written.
        """
        flat = self._native.view()
        if not isinstance(self._like, np.ndarray):
            return flat
        typed: npt.NDArray[Any] = flat.view(self._like.dtype)
        if self._like.flags.c_contiguous:
            return typed.reshape(self._like.shape)
        return typed.reshape(self._like.shape, order="F")


class Cache:
    """Keeps copies of regions on the nodes where they will be wanted, moved there meanwhile.

    A region is known by its address, so the cache must hear when memory gets another owner:
    it does, for the memory of NumPy arrays. Other sources (bytes, Arrow buffers) it keeps alive
    itself, until `clear` or `close`.

    Threading: shared.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        capacity: int | str = "1GiB",
        placement: str | int = "fastest",
        *,
        machine: Machine | None = None,
        recycle: bool = False,
    ) -> None:
        """Make a cache.

        Args:
            engine: Who moves the bytes; None makes an engine, which is closed with the cache.
            capacity: Bytes of copies kept per node, as a number or as a text such as "64MiB".
                When full, unused entries are dropped, oldest first.
            placement: "fastest" (the best node that is faster than the caller's own; nothing is
                moved where there is none), "local" (the caller's own node), "none", or a node.
            machine: The machine; None takes the engine's, or discovers it.
            recycle: Keep the memory of copies that were dropped for the next ones of the same
                length, which then need not be mapped and zeroed; at most the capacity, until the
                cache and its entries are gone.

        Raises:
            InvalidArgumentError: The capacity is 0, no size, or more than any node has; or the
                placement is unknown.
            TypeMismatchError: An argument is of another type.
            NotFoundError: The machine does not have that node.
        """
        if engine is not None:
            instance_of(engine, Engine, "take the engine of a cache")
        if machine is None:
            machine = engine.machine if engine is not None else topo()
        instance_of(machine, Machine, "take the machine of a cache")
        if not isinstance(placement, str):
            tried = "take the placement of a cache"
            wanted = "fastest, local, none or the number of a node"
            placement = whole_number(placement, tried, 0, NODE_MAX, wanted)
        self.machine = machine
        self.capacity_bytes = _parse_capacity(capacity, placement, machine)
        self._owns_engine = engine is None
        self.engine = Engine(machine) if engine is None else engine
        self._never_moves = placement == "none" or (
            placement == "fastest" and not machine.has_faster_node()
        )
        self._watched: dict[int, weakref.ref[npt.NDArray[Any]]] = {}
        self._held: dict[int, object] = {}
        self._native = _core.Cache.make(
            machine.native(),
            self.engine.native(),
            self.capacity_bytes,
            placement,
            bool(recycle),
        )

    def access(self, source: object) -> Entry:
        """Give the entry of a region, starting its move if there is none; never waits for it.

        The source must not be changed until the entry is ready.

        Args:
            source: A contiguous array or buffer of at least one byte.

        Raises:
            InvalidArgumentError: `source` is empty, null, has gaps or is no buffer.
            ClosedError: The cache has been closed.
        """
        flat = flat_bytes(source, "source")
        self.guard(flat)  # First: whatever comes between must not leave an entry without it.
        native = self._native.access(flat)
        self.guard(flat)  # Again, for who cleared the cache in between.
        return Entry(native, source)

    def flush(self, node: int | None = None) -> int:
        """Drop the entries that nobody holds, of one node or of all; tell how many."""
        if node is not None:
            node = whole_number(node, "take a node to flush", 0, NODE_MAX)
            if self.machine.node(node) is None:
                raise _no_such_node(node, self.machine)
        return self._native.flush(node)

    def invalidate(self, source: object) -> int:
        """Drop every entry that overlaps `source`; holders keep theirs. Tell how many."""
        flat = flat_bytes(source, "source")
        return self._native.invalidate(flat.ctypes.data, flat.nbytes)

    def clear(self) -> int:
        """Drop every entry; holders keep theirs. Tell how many."""
        # What is held until now lives until nothing is moved from it; who comes meanwhile, stays.
        held, self._held = self._held, {}
        count = self._native.clear()
        held.clear()
        return count

    @property
    def statistics(self) -> CacheStatistics:
        """Totals since the cache was made."""
        return CacheStatistics(**self._native.statistics())

    def native(self) -> _core.Cache:
        """The cache as the extension knows it."""
        return self._native

    def close(self) -> None:
        """Drop all entries; holders keep theirs, also those whose move runs. Idempotent."""
        self._native.close()
        self._held.clear()
        if self._owns_engine:
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

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
                    living._native.invalidate(address, byte_count)  # noqa: SLF001

        self._watched[key] = weakref.ref(owner, forget)


def _base_of(array: npt.NDArray[Any]) -> object:
    """What the memory of `array` belongs to: an array, any other object, or None for itself."""
    return array.base


def _parse_capacity(capacity: int | str, placement: str | int, machine: Machine) -> int:
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
