# SPDX-License-Identifier: Apache-2.0
"""An L2 adapter of LMCache (type `plugin`) that keeps objects in a `headrace.Store`."""

import dataclasses
import hashlib
import logging
import os
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface

from headrace.errors import ClosedError, Error, InvalidArgumentError
from headrace.integrations import store_of
from headrace.store import StoreTransfer

_KEY_BYTES_MAX = 192
_KEYS_VERSION = 1
"""Raised when the same object gets another key or other bytes."""
_End = Callable[[StoreTransfer | None], None]
"""Reports the end of a task; without a transfer it has failed."""
_OPTIONS = ({"block_bytes", "tiers"}, {"block_bytes", "connect"})


class HeadraceL2Adapter(L2AdapterInterface):
    """Keeps objects in tiers of memory and files, copied by the engine and not by Python threads.

    The store evicts on its own, but never objects locked by a lookup. Objects in files survive a
    restart; those of another model, rank, dtype or shape are a miss.

    Threading: shared.
    """

    def __init__(self, options: dict[str, Any], l1_memory_desc: object = None) -> None:
        """Make the adapter.

        Args:
            options: `adapter_params` of the configuration: `block_bytes` (longest object), `tiers`
                and `checksums`; instead of `tiers`, `connect`: the path of a store that other
                processes use as well.
            l1_memory_desc: Unused: any memory can be copied.

        Raises:
            InvalidArgumentError: An option is unknown or missing; else as `headrace.Store`.
        """
        del l1_memory_desc
        if options.keys() - {"checksums"} not in _OPTIONS:
            raise InvalidArgumentError(
                "make an L2 adapter of LMCache",
                f"adapter_params has {', '.join(map(repr, options)) or 'no option'}",
                "give block_bytes, and tiers or connect; and checksums if wanted",
            )
        super().__init__()  # No capacity: the store evicts, not LMCache.
        self._store = store_of(**options)
        tiers = self._store.statistics.tiers
        self._capacity_blocks = sum(each.capacity_blocks for each in tiers)
        self._lock = threading.Lock()  # Guards everything below.
        self._next_task = 0
        self._running: list[tuple[StoreTransfer, _End]] = []
        self._sizes: dict[Any, int] = {}  # Objects reported to LMCache as stored.
        self._layouts: dict[Any, str] = {}  # Of the objects of each model, rank and group.
        self._locked: dict[Any, list[bytes]] = {}  # Names of the pinned blocks.
        self._stored: dict[int, L2StoreResult] = {}
        self._looked_up: dict[int, Bitmap] = {}
        self._loaded: dict[int, Bitmap] = {}
        self._closing = False
        self._broken = False  # No thread reports the end of transfers.
        flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self._store_event, self._lookup_event, self._load_event, self._wake = (
            os.eventfd(0, flags) for _ in range(4)
        )
        self._watcher = threading.Thread(target=self._watch, name="headrace-l2", daemon=True)
        self._watcher.start()

    def get_store_event_fd(self) -> int:
        """Readable when stores have ended."""
        return self._store_event

    def get_lookup_and_lock_event_fd(self) -> int:
        """Readable when lookups have ended."""
        return self._lookup_event

    def get_load_event_fd(self) -> int:
        """Readable when loads have ended."""
        return self._load_event

    def submit_store_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        """Start copying objects into the store, except those already present."""
        task = self._new_task()
        named = zip(keys, self._learn_names(keys, objects), objects, strict=True)
        absent = [
            (key, name, each.byte_array) for key, name, each in named if name not in self._store
        ]

        def end(transfer: StoreTransfer | None) -> None:
            counts = [0] * len(absent) if transfer is None else transfer.byte_counts
            stored = {
                key: count for (key, _, _), count in zip(absent, counts, strict=True) if count
            }
            with self._lock:
                new = {key: count for key, count in stored.items() if key not in self._sizes}
                self._sizes |= new
                success = len(stored) == len(absent)
                self._stored[task] = L2StoreResult(success, sum(stored.values()))
            try:
                if new:
                    self._notify_keys_stored(list(new), list(new.values()))
                self._forget_evicted()
            finally:
                os.eventfd_write(self._store_event, 1)

        names = [name for _, name, _ in absent]
        blocks = [block for _, _, block in absent]
        self._start(lambda: self._store.put_many(names, blocks), end)
        return task

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """Return the results of completed stores, once."""
        with self._lock:
            ended, self._stored = self._stored, {}
        return ended

    def submit_lookup_and_lock_task(
        self, keys: Sequence[Any], group_layout_descs: Mapping[int, Any] | None = None
    ) -> int:
        """Look up objects and lock those present until `submit_unlock`."""
        task = self._new_task()
        found = Bitmap(len(keys))
        described = group_layout_descs or {}
        with self._lock:
            for number, key in enumerate(keys):
                name = self._name(key, described.get(key.object_group_id))
                if self._store.pin(name):
                    found.set(number)
                    self._locked.setdefault(key, []).append(name)
            self._looked_up[task] = found
        os.eventfd_write(self._lookup_event, 1)
        return task

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """Return the result of a lookup, once."""
        with self._lock:
            return self._looked_up.pop(task_id, None)

    def submit_unlock(self, keys: Sequence[Any]) -> None:
        """Unlock objects, so that they can be evicted."""
        with self._lock:
            for key in keys:
                names = self._locked.pop(key, [])
                if names:
                    self._store.unpin(names.pop())
                if names:
                    self._locked[key] = names

    def submit_load_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        """Start copying objects out of the store."""
        task = self._new_task()
        wanted = list(keys)

        def end(transfer: StoreTransfer | None) -> None:
            loaded = Bitmap(len(wanted))
            counts = [0] * len(wanted) if transfer is None else transfer.byte_counts
            # A shorter object would leave the rest of the target unwritten.
            hits = [
                number
                for number, (count, room) in enumerate(zip(counts, targets, strict=True))
                if count == len(room)
            ]
            for number in hits:
                loaded.set(number)
            with self._lock:
                self._loaded[task] = loaded
            try:
                if hits:
                    self._notify_keys_accessed([wanted[number] for number in hits])
            finally:
                os.eventfd_write(self._load_event, 1)

        names = self._learn_names(wanted, objects)
        targets = [each.byte_array for each in objects]
        self._start(lambda: self._store.get_many(names, targets), end)
        return task

    def query_load_result(self, task_id: int) -> Bitmap | None:
        """Return the result of a load, once."""
        with self._lock:
            return self._loaded.pop(task_id, None)

    def delete(self, keys: Sequence[Any]) -> None:
        """Remove objects, locked or not."""
        for key in keys:
            self._store.remove(self._name(key))
        self._forget(keys)

    def report_status(self) -> dict[str, Any]:
        """Return the state and statistics of the store."""
        known = self._store.statistics
        return {
            "is_healthy": not self._closing
            and not self._broken
            and all(each.is_healthy for each in known.tiers),
            "type": type(self).__name__,
            "stored_object_count": known.blocks,
            "capacity_objects": self._capacity_blocks,
            "evicted": known.dropped,
            "corrupt": known.corrupt,
            "failed": known.failed,
            "tiers": [dataclasses.asdict(each) for each in known.tiers],
        }

    def close(self) -> None:
        """Wait for transfers in flight and close the store. Idempotent."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        os.eventfd_write(self._wake, 1)
        self._watcher.join()
        self._store.close()
        for each in (self._store_event, self._lookup_event, self._load_event, self._wake):
            os.close(each)

    def _new_task(self) -> int:
        with self._lock:
            if self._closing:  # The descriptors of events may be other files' now.
                raise ClosedError("start a task", "the adapter was closed", "make another")
            self._next_task += 1
            return self._next_task

    def _start(self, submit: Callable[[], StoreTransfer], end: _End) -> None:
        try:
            with self._lock:
                if self._broken:
                    raise ClosedError(
                        "start a task",
                        "the thread that reports the end of transfers has failed",
                        "see the log, and make a new adapter",
                    )
                self._running.append((submit(), end))
            os.eventfd_write(self._wake, 1)  # It may have ended before it was registered.
        except Error:
            logging.getLogger(__name__).exception("a task failed")
            self._end(end, None)

    def _end(self, end: _End, transfer: StoreTransfer | None) -> None:
        try:
            end(transfer)
        except Exception:  # Of an LMCache listener; other tasks must still end.
            logging.getLogger(__name__).exception("a listener failed")

    def _watch(self) -> None:
        """Report completed transfers to LMCache; copies nothing."""
        try:
            self._report_until_closed()
        except Exception:
            logging.getLogger(__name__).exception(
                "the thread that reports the end of transfers failed, with its tasks"
            )
            with self._lock:
                self._broken = True
                running, self._running = self._running, []
            for transfer, end in running:
                transfer.wait()  # Until then the store uses the memory of the task.
                self._end(end, None)

    def _report_until_closed(self) -> None:
        descriptors = (self._store.fileno(), self._wake)
        events = select.poll()  # Not select.select, which knows only descriptors below 1,024.
        for each in descriptors:
            events.register(each, select.POLLIN)
        while True:
            events.poll()
            for each in descriptors:
                with suppress(BlockingIOError):
                    os.read(each, 8)
            with self._lock:
                ended = [each for each in self._running if each[0].poll()]
                self._running = [each for each in self._running if each not in ended]
                last = self._closing and not self._running
            for transfer, end in ended:
                self._end(end, transfer)
            if last:
                return

    def _forget_evicted(self) -> None:
        # Only when more keys are recorded than blocks fit, because this looks up every key.
        with self._lock:
            if len(self._sizes) <= self._capacity_blocks + self._capacity_blocks // 8:
                return
            evicted = [key for key in self._sizes if self._name(key) not in self._store]
        self._forget(evicted)

    def _forget(self, keys: Sequence[Any]) -> None:
        with self._lock:
            gone = {key: self._sizes.pop(key) for key in keys if key in self._sizes}
        if gone:
            self._notify_keys_deleted(list(gone), list(gone.values()))

    def _learn_names(self, keys: Sequence[Any], objects: Sequence[Any]) -> list[bytes]:
        """Return the keys of the store for objects, and remember the layout of their group."""
        layouts = [_layout_of(getattr(each, "metadata", None)) for each in objects]
        with self._lock:
            self._layouts.update(zip(map(_group_of, keys), layouts, strict=True))
        return [_name(key, layout) for key, layout in zip(keys, layouts, strict=True)]

    def _name(self, key: Any, described: object = None) -> bytes:  # noqa: ANN401 - ObjectKey.
        """Return the key of the store for an object that is not at hand.

        The layout of objects seen before counts more than `described`, which LMCache calls a hint:
        its benchmark describes nothing.
        """
        return _name(key, self._layouts.get(_group_of(key)) or _layout_of(described))


def _group_of(key: Any) -> tuple[Any, ...]:  # noqa: ANN401 - LMCache's ObjectKey.
    return key.model_name, key.kv_rank, key.object_group_id


def _layout_of(described: Any) -> str:  # noqa: ANN401 - MemoryObjMetadata or MemoryLayoutDesc.
    """Convert the shapes and dtypes of an object to text; the keys of LMCache have neither."""
    shapes = getattr(described, "shapes", None) or [getattr(described, "shape", ())]
    dtypes = getattr(described, "dtypes", None) or [getattr(described, "dtype", "")]
    return "+".join([*map(str, map(list, shapes)), *map(str, dtypes)])


def _name(key: Any, layout: str) -> bytes:  # noqa: ANN401 - LMCache's ObjectKey.
    """Convert an LMCache key to a key of the store: readable unless too long."""
    parts = (*_group_of(key), key.chunk_hash.hex(), key.cache_salt, layout, _KEYS_VERSION)
    name = "@".join(map(str, parts)).encode()
    return name if len(name) <= _KEY_BYTES_MAX else hashlib.blake2b(name).digest()
