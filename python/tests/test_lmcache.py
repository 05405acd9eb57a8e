# SPDX-License-Identifier: Apache-2.0
"""The L2 adapter, behind a stand-in for what LMCache 0.5.6 documents of its interface."""

import contextlib
import ctypes
import errno
import importlib
import os
import resource
import select
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from conftest import TIME_LIMIT_S

import headrace

OBJECT_BYTES = 8192


@dataclass(frozen=True)
class ObjectKey:
    chunk_hash: bytes
    model_name: str = "a/model"
    kv_rank: int = 0
    object_group_id: int = 0
    cache_salt: str = ""


class Bitmap:
    def __init__(self, size: int) -> None:
        self.bits = [False] * size

    def set(self, index: int) -> None:
        self.bits[index] = True


class L2StoreResult(int):
    def __new__(cls, success: bool, bytes_transferred: int) -> Self:
        return super().__new__(cls, bytes_transferred if success else -1)


class L2AdapterInterface:
    """The base keeps listeners; here it keeps what they would be told."""

    def __init__(self, max_capacity_bytes: int = 0) -> None:
        self.capacity = max_capacity_bytes
        self.sizes: dict[ObjectKey, int] = {}
        self.accessed: list[ObjectKey] = []

    def _notify_keys_stored(self, keys: list[ObjectKey], sizes: list[int]) -> None:
        self.sizes |= dict(zip(keys, sizes, strict=True))

    def _notify_keys_accessed(self, keys: list[ObjectKey]) -> None:
        self.accessed += keys

    def _notify_keys_deleted(self, keys: list[ObjectKey], sizes: list[int]) -> None:
        assert [self.sizes.pop(key) for key in keys] == sizes


@dataclass
class MemoryLayoutDesc:
    shapes: list[tuple[int, ...]]
    dtypes: list[str]


class MemoryObj:
    """`byte_array` is what LMCache gives: a view of unsigned bytes at an address."""

    def __init__(
        self, value: int, length: int = OBJECT_BYTES, layout: MemoryLayoutDesc | None = None
    ) -> None:
        self.memory = (ctypes.c_ubyte * length)(*[value] * length)
        self.byte_array = memoryview(self.memory)
        self.metadata = layout or MemoryLayoutDesc([(length,)], ["uint8"])


def key_of(number: int) -> ObjectKey:
    return ObjectKey(number.to_bytes(32, "big"))


class Controller:
    """Calls the adapter as the controllers of LMCache do: submit, wait for the event, ask."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    def _event(self, descriptor: int) -> None:
        event = select.poll()
        event.register(descriptor, select.POLLIN)
        assert event.poll(TIME_LIMIT_S * 1000)
        os.read(descriptor, 8)

    def store(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        task = self.adapter.submit_store_task(keys, objects)
        self._event(self.adapter.get_store_event_fd())
        ended: dict[int, int] = self.adapter.pop_completed_store_tasks()
        assert list(ended) == [task]
        return int(ended[task])

    def lock(self, keys: list[ObjectKey], layout: MemoryLayoutDesc | None = None) -> list[bool]:
        layouts = {0: layout} if layout else {}
        task = self.adapter.submit_lookup_and_lock_task(keys, layouts)
        self._event(self.adapter.get_lookup_and_lock_event_fd())
        return self._bits(self.adapter.query_lookup_and_lock_result, task)

    def load(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> list[bool]:
        task = self.adapter.submit_load_task(keys, objects)
        self._event(self.adapter.get_load_event_fd())
        return self._bits(self.adapter.query_load_result, task)

    def _bits(self, query: Any, task: int) -> list[bool]:
        bits: list[bool] = query(task).bits
        assert query(task) is None
        return bits


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the adapter, imported beside the stand-in."""
    names: dict[str, dict[str, Any]] = {
        "lmcache.lmcache_native": {"Bitmap": Bitmap},
        "lmcache.v1.distributed.internal_api": {"L2StoreResult": L2StoreResult},
        "lmcache.v1.distributed.l2_adapters.base": {"L2AdapterInterface": L2AdapterInterface},
    }
    for name, content in names.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = types.ModuleType(".".join(parts[:end]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(content)
    ours = "headrace.integrations.lmcache"
    yield importlib.import_module(ours)
    del sys.modules[ours]


@pytest.fixture
def controller(plugin: Any) -> Iterator[Controller]:
    options = {"tiers": [16 * OBJECT_BYTES], "block_bytes": OBJECT_BYTES}
    adapter = plugin.HeadraceL2Adapter(options, l1_memory_desc=object())
    yield Controller(adapter)
    adapter.close()
    adapter.close()


def test_objects_come_back_as_they_were_stored(controller: Controller) -> None:
    keys = [key_of(number) for number in range(8)]
    assert controller.store(keys, [MemoryObj(number) for number in range(8)]) == 8 * OBJECT_BYTES
    assert controller.adapter.sizes == dict.fromkeys(keys, OBJECT_BYTES)
    assert controller.lock([*keys, key_of(9)]) == [True] * 8 + [False]
    objects = [MemoryObj(255) for _ in range(9)]
    assert controller.load([*keys, key_of(9)], objects) == [True] * 8 + [False]
    assert [bytes(each.memory) for each in objects] == [
        bytes([number] * OBJECT_BYTES) for number in [*range(8), 255]
    ]
    assert controller.adapter.report_status()["stored_object_count"] == 8


def test_an_object_that_is_there_is_not_copied_again(controller: Controller) -> None:
    assert controller.store([key_of(1)], [MemoryObj(1)]) == OBJECT_BYTES
    assert controller.store([key_of(1), key_of(2)], [MemoryObj(1), MemoryObj(2)]) == OBJECT_BYTES
    assert controller.store([key_of(1)], [MemoryObj(1)]) == 0


def test_descriptors_of_events_are_three(controller: Controller) -> None:
    ours = controller.adapter
    descriptors = (
        ours.get_store_event_fd(),
        ours.get_lookup_and_lock_event_fd(),
        ours.get_load_event_fd(),
    )
    assert len(set(descriptors)) == 3


def test_an_object_that_is_locked_stays_and_others_leave(controller: Controller) -> None:
    controller.store([key_of(0)], [MemoryObj(7)])
    assert controller.lock([key_of(0)]) == [True]
    for number in range(1, 100):
        assert controller.store([key_of(number)], [MemoryObj(number)]) == OBJECT_BYTES
    target = MemoryObj(255)
    assert controller.load([key_of(0)], [target]) == [True]
    assert bytes(target.memory) == bytes([7] * OBJECT_BYTES)
    # LMCache's list is corrected once it has an eighth more objects than fit.
    assert len(controller.adapter.sizes) <= 16 + 16 // 8 + 1
    controller.adapter.submit_unlock([key_of(0)])
    for number in range(100, 200):
        controller.store([key_of(number)], [MemoryObj(1)])
    assert controller.lock([key_of(0)]) == [False]


def test_what_does_not_fit_fails_and_no_load_leaves_half_a_target(controller: Controller) -> None:
    longer = MemoryObj(1, OBJECT_BYTES + 1)
    assert controller.store([key_of(1)], [longer]) == -1
    controller.store([key_of(2)], [MemoryObj(2, 100)])
    assert controller.load([key_of(2)], [MemoryObj(0)]) == [False]
    assert controller.load([key_of(2)], [MemoryObj(0, 99)]) == [False]
    assert controller.load([key_of(2)], [MemoryObj(0, 100)]) == [True]


def test_a_deleted_object_is_gone(controller: Controller) -> None:
    controller.store([key_of(1), key_of(2)], [MemoryObj(1), MemoryObj(2)])
    controller.adapter.delete([key_of(1), key_of(3)])
    assert controller.lock([key_of(1), key_of(2)]) == [False, True]
    assert controller.adapter.sizes == {key_of(2): OBJECT_BYTES}


def test_keys_that_differ_in_one_field_are_different(controller: Controller) -> None:
    long = "m" * 500
    keys = [
        ObjectKey(b"1"),
        ObjectKey(b"1", model_name="b"),
        ObjectKey(b"1", model_name=long),
        ObjectKey(b"1", model_name=long, kv_rank=1),
        ObjectKey(b"1", kv_rank=1),
        ObjectKey(b"1", object_group_id=1),
        ObjectKey(b"1", cache_salt="s"),
    ]
    objects = [MemoryObj(number) for number in range(len(keys))]
    controller.store(keys, objects)
    targets = [MemoryObj(255) for _ in keys]
    assert all(controller.load(keys, targets))
    assert [each.memory[0] for each in targets] == list(range(len(keys)))


def test_objects_in_a_file_are_there_after_a_restart(plugin: Any, tmp_path: Path) -> None:
    tier = {"capacity": "1MiB", "path": str(tmp_path / "blocks"), "durability": "process"}
    options = {"tiers": [tier], "block_bytes": OBJECT_BYTES, "checksums": True}
    for _ in range(2):
        adapter = plugin.HeadraceL2Adapter(options)
        controller = Controller(adapter)
        controller.store([key_of(1)], [MemoryObj(3)])
        target = MemoryObj(255)
        assert controller.load([key_of(1)], [target]) == [True]
        assert bytes(target.memory) == bytes([3] * OBJECT_BYTES)
        assert adapter.sizes.keys() <= {key_of(1)}
        adapter.close()


def test_objects_of_another_dtype_or_shape_are_a_miss(plugin: Any, tmp_path: Path) -> None:
    tier = {"capacity": "1MiB", "path": str(tmp_path / "blocks"), "durability": "process"}
    options = {"tiers": [tier], "block_bytes": OBJECT_BYTES}
    count = OBJECT_BYTES // 2
    ours = MemoryLayoutDesc([(2, count // 2)], ["bfloat16"])
    adapter = plugin.HeadraceL2Adapter(options)
    Controller(adapter).store([key_of(1)], [MemoryObj(3, layout=ours)])
    adapter.close()
    foreign = [
        MemoryLayoutDesc([(2, count // 2)], ["float16"]),
        MemoryLayoutDesc([(count // 2, 2)], ["bfloat16"]),
        MemoryLayoutDesc([(1, count // 2), (1, count // 2)], ["bfloat16", "bfloat16"]),
    ]
    for layout in foreign:
        adapter = plugin.HeadraceL2Adapter(options)
        controller = Controller(adapter)
        target = MemoryObj(255, layout=layout)
        assert controller.lock([key_of(1)], layout) == [False]
        assert controller.load([key_of(1)], [target]) == [False]
        assert bytes(target.memory) == bytes([255] * OBJECT_BYTES)
        adapter.close()
    adapter = plugin.HeadraceL2Adapter(options)
    controller = Controller(adapter)
    target = MemoryObj(255, layout=ours)
    assert controller.lock([key_of(1)], ours) == [True]
    assert controller.load([key_of(1)], [target]) == [True]
    assert bytes(target.memory) == bytes([3] * OBJECT_BYTES)
    adapter.close()


def test_a_lock_is_undone_although_the_layout_became_known_between(plugin: Any) -> None:
    adapter = plugin.HeadraceL2Adapter({"tiers": [OBJECT_BYTES], "block_bytes": OBJECT_BYTES})
    controller = Controller(adapter)
    key = key_of(1)
    old, new = (MemoryLayoutDesc([(OBJECT_BYTES,)], [dtype]) for dtype in ("uint8", "int8"))
    controller.store([key], [MemoryObj(1, layout=old)])
    assert controller.lock([key]) == [True]
    assert controller.load([key], [MemoryObj(0, layout=new)]) == [False]
    adapter.submit_unlock([key])
    # The only block of the store can be replaced again.
    assert controller.store([key], [MemoryObj(2, layout=new)]) == OBJECT_BYTES
    adapter.close()


def test_engines_load_what_another_one_has_stored(plugin: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    served = headrace.Store(["1MiB"], block_bytes=OBJECT_BYTES, share=path)
    adapters = [
        plugin.HeadraceL2Adapter({"connect": path, "block_bytes": OBJECT_BYTES}) for _ in range(2)
    ]
    with pytest.raises(headrace.InvalidArgumentError, match=f"--block {OBJECT_BYTES + 1}'"):
        plugin.HeadraceL2Adapter({"connect": path, "block_bytes": OBJECT_BYTES + 1})
    one, two = (Controller(each) for each in adapters)
    # The layout of a model's objects is known after the first.
    assert two.store([key_of(9)], [MemoryObj(9)]) == OBJECT_BYTES
    assert one.store([key_of(1)], [MemoryObj(3)]) == OBJECT_BYTES
    assert two.lock([key_of(1), key_of(2)]) == [True, False]
    target = MemoryObj(255)
    assert two.load([key_of(1)], [target]) == [True]
    assert bytes(target.memory) == bytes([3] * OBJECT_BYTES)
    two.adapter.submit_unlock([key_of(1)])
    served.close()
    assert two.lock([key_of(1)]) == [False]
    assert one.store([key_of(4)], [MemoryObj(3)]) == -1
    for each in adapters:
        each.close()


def test_options_that_make_no_sense_are_refused_by_name(plugin: Any) -> None:
    with pytest.raises(
        headrace.InvalidArgumentError, match="give block_bytes, and tiers or connect"
    ):
        plugin.HeadraceL2Adapter({"tiers": ["1MiB"]})
    with pytest.raises(headrace.InvalidArgumentError, match="'block_size'"):
        plugin.HeadraceL2Adapter({"tiers": ["1MiB"], "block_bytes": 1, "block_size": 1})
    with pytest.raises(headrace.InvalidArgumentError, match="'room'"):
        plugin.HeadraceL2Adapter({"tiers": [{"room": 1}], "block_bytes": 4096})


def test_a_task_after_the_end_is_refused_and_writes_to_no_other_file(
    plugin: Any, tmp_path: Path
) -> None:
    options = {"tiers": [16 * OBJECT_BYTES], "block_bytes": OBJECT_BYTES}
    adapter = plugin.HeadraceL2Adapter(options)
    adapter.close()
    paths = [tmp_path / str(number) for number in range(8)]
    with contextlib.ExitStack() as opened:
        for path in paths:  # They get the descriptors of the adapter.
            opened.enter_context(path.open("wb", buffering=0))
        for submit in (adapter.submit_store_task, adapter.submit_load_task):
            with pytest.raises(headrace.ClosedError):
                submit([key_of(1)], [MemoryObj(1)])
    assert [path.stat().st_size for path in paths] == [0] * 8


def test_tasks_end_in_a_process_with_thousands_of_open_files(plugin: Any) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2048:
        pytest.skip("the limit of open files is below 2,048")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        for _ in range(1100):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        adapter = plugin.HeadraceL2Adapter({"tiers": ["1MiB"], "block_bytes": OBJECT_BYTES})
        held.callback(adapter.close)
        controller = Controller(adapter)
        assert controller.store([key_of(1)], [MemoryObj(1)]) == OBJECT_BYTES
        assert controller.load([key_of(1)], [MemoryObj(0)]) == [True]
        assert adapter.report_status()["is_healthy"]


def test_tasks_fail_by_name_once_the_thread_that_reports_them_has_failed(
    plugin: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def read(self, _descriptor: int, _length: int) -> bytes:
            raise OSError(errno.EIO, "broken")

    adapter = plugin.HeadraceL2Adapter({"tiers": ["1MiB"], "block_bytes": OBJECT_BYTES})
    controller = Controller(adapter)
    assert adapter.report_status()["is_healthy"]
    monkeypatch.setattr(plugin, "os", Broken())
    assert controller.store([key_of(1)], [MemoryObj(1)]) == -1
    assert not adapter.report_status()["is_healthy"]
    assert controller.load([key_of(2)], [MemoryObj(0)]) == [False]
    assert controller.store([key_of(2)], [MemoryObj(2)]) == -1
    assert "cannot start a task: the thread that reports" in caplog.text
    adapter.close()


def test_a_listener_that_fails_ends_no_other_task(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_keys: list[ObjectKey], _sizes: list[int]) -> None:
        raise RuntimeError

    controller.adapter._notify_keys_stored = fail  # noqa: SLF001 - The base's hook.
    assert controller.store([key_of(1)], [MemoryObj(1)]) == OBJECT_BYTES
    assert controller.store([key_of(2)], [MemoryObj(2)]) == OBJECT_BYTES
    assert controller.load([key_of(1)], [MemoryObj(0)]) == [True]
    assert "a listener failed" in caplog.text
