# SPDX-License-Identifier: Apache-2.0
"""The cache on Python memory: results, refusals, and what happens when memory goes away."""

import ctypes
import gc
import mmap
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from conftest import TIME_LIMIT_S

import headrace

ENTRY_BYTES = 1 << 20


@pytest.fixture
def cache(engine: headrace.Engine) -> Iterator[headrace.Cache]:
    with headrace.Cache(engine, "64MiB", "local") as made:
        yield made


def ready(cache: headrace.Cache, source: object) -> headrace.Entry:
    entry = cache.access(source)
    entry.wait()
    return entry


def test_an_entry_is_a_copy_of_its_source(cache: headrace.Cache) -> None:
    source = np.arange(ENTRY_BYTES // 8).reshape(128, -1)
    entry = ready(cache, source)
    assert entry.try_wait()
    assert entry.cached
    assert entry.node is not None
    view = entry.view()
    assert view.dtype == source.dtype
    np.testing.assert_array_equal(view, source)
    assert not np.shares_memory(view, source)


def test_a_view_cannot_be_written(cache: headrace.Cache) -> None:
    view = ready(cache, np.zeros(1000)).view()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_a_view_has_the_order_of_its_source(cache: headrace.Cache) -> None:
    source = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    view = ready(cache, source).view()
    np.testing.assert_array_equal(view, source)
    assert view.strides == source.strides


def test_dates_can_be_cached(cache: headrace.Cache) -> None:
    source = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
    view = ready(cache, source).view()
    np.testing.assert_array_equal(view, source)
    assert not np.shares_memory(view, source)
    assert cache.statistics.bytes_moved == source.nbytes


def test_any_buffer_can_be_cached(cache: headrace.Cache) -> None:
    content = bytes(range(256)) * 64
    for source in (content, bytearray(content), memoryview(content), pa.py_buffer(content)):
        view = ready(cache, source).view()
        assert view.dtype == np.uint8
        assert view.tobytes() == content
        assert not np.shares_memory(view, np.frombuffer(source, np.uint8))
    # The first, the third and the fourth are the same memory.
    assert cache.statistics.bytes_moved == 2 * len(content)


def test_a_second_access_finds_the_entry(cache: headrace.Cache) -> None:
    source = np.ones(ENTRY_BYTES, np.uint8)
    first = ready(cache, source)
    second = ready(cache, source)
    assert cache.statistics.misses == 1
    assert cache.statistics.hits == 1
    assert cache.statistics.bytes_moved == ENTRY_BYTES
    assert np.shares_memory(first.view(), second.view())


def test_an_access_to_the_beginning_of_an_entry_is_as_long_as_asked(
    cache: headrace.Cache,
) -> None:
    source = np.arange(1000)
    ready(cache, source)
    entry = ready(cache, source[:10])
    assert cache.statistics.hits == 1
    np.testing.assert_array_equal(entry.view(), source[:10])


@pytest.mark.parametrize(
    "source, words",
    [
        (b"", "it is empty"),
        (np.zeros(0), "it is empty"),
        (None, "a NoneType has no buffer"),
        (np.arange(10)[::2], "it is not contiguous"),
        (np.array(["x", None]), "references to Python objects"),
        (pa.foreign_buffer(0, 8), "a Buffer has no buffer that can be used"),
        ((ctypes.c_char * 8).from_address(0), "its address is null"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_in_one_sentence(
    cache: headrace.Cache, source: object, words: str
) -> None:
    with pytest.raises(headrace.InvalidArgumentError) as caught:
        cache.access(source)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_faster_memory_the_fastest_is_the_source(engine: headrace.Engine) -> None:
    if engine.machine.has_faster_tier():
        pytest.skip("this machine has faster memory")
    with headrace.Cache(engine) as cache:
        source = np.ones(ENTRY_BYTES, np.uint8)
        entry = ready(cache, source)
        assert not entry.cached
        assert entry.node is None
        assert np.shares_memory(entry.view(), source)
        assert cache.statistics.not_placed == 1


def test_a_node_can_be_named(engine: headrace.Engine) -> None:
    node = engine.machine.nodes[0].id
    with headrace.Cache(engine, placement=node) as cache:
        assert ready(cache, np.ones(ENTRY_BYTES, np.uint8)).node == node


def test_a_map_says_for_each_node_of_callers_where_copies_go(engine: headrace.Engine) -> None:
    nodes = [node.id for node in engine.machine.nodes]
    for place in (nodes[0], [nodes[0], *nodes[:7]]):
        with headrace.Cache(engine, placement=dict.fromkeys(nodes, place)) as cache:
            assert ready(cache, np.ones(ENTRY_BYTES, np.uint8)).node == nodes[0]
    with headrace.Cache(engine, placement={}) as cache:
        assert not ready(cache, np.ones(10)).cached
    with pytest.raises(headrace.NotFoundError, match="no node 4711"):
        headrace.Cache(engine, placement={nodes[0]: 4711})
    with pytest.raises(headrace.InvalidArgumentError, match="9 places"):
        headrace.Cache(engine, placement={nodes[0]: nodes[:1] * 9})
    for wrong in ({"0": 1}, {0: "1"}, {0: None}, {0: 1.5}):
        with pytest.raises(headrace.TypeMismatchError):
            headrace.Cache(engine, placement=wrong)  # type: ignore[arg-type]


def test_the_statistics_are_there_when_the_cache_is_closed(engine: headrace.Engine) -> None:
    with headrace.Cache(engine, placement="local") as cache:
        ready(cache, np.ones(10))
    assert cache.statistics.misses == 1
    assert cache.statistics.bytes_cached == 0


def test_what_cannot_be_a_cache_is_refused_in_one_sentence(engine: headrace.Engine) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="a number of bytes from 1"):
        headrace.Cache(engine, 0)
    with pytest.raises(headrace.InvalidArgumentError, match="parsec"):
        headrace.Cache(engine, "1 parsec")
    with pytest.raises(headrace.InvalidArgumentError, match="use a smaller capacity"):
        headrace.Cache(engine, "1000TiB", "local")
    with pytest.raises(headrace.NotFoundError, match="4711"):
        headrace.Cache(engine, "1MiB", 4711)
    with pytest.raises(headrace.InvalidArgumentError, match="moon"):
        headrace.Cache(engine, "1MiB", "moon")
    with pytest.raises(headrace.InvalidArgumentError, match="use one of lru, s3_fifo"):
        headrace.Cache(engine, "1MiB", "local", eviction="belady")  # type: ignore[arg-type]


@pytest.mark.parametrize("eviction", ["lru", "s3_fifo"])
def test_every_eviction_keeps_within_the_capacity(
    engine: headrace.Engine, eviction: Literal["lru", "s3_fifo"]
) -> None:
    sources = [np.full(4096, number, np.uint8) for number in range(8)]
    with headrace.Cache(engine, "16KiB", "local", eviction=eviction) as cache:
        for source in sources * 2:
            np.testing.assert_array_equal(ready(cache, source).view(), source)
        assert cache.statistics.bytes_cached == 4 * 4096
        assert cache.statistics.evictions > 0


def test_a_part_of_an_entry_is_a_hit(cache: headrace.Cache) -> None:
    source = np.arange(1000)
    ready(cache, source)
    entry = ready(cache, source[100:200])
    assert cache.statistics.hits == 1
    np.testing.assert_array_equal(entry.view(), source[100:200])


def test_flush_drops_what_nobody_holds(cache: headrace.Cache) -> None:
    held_source, dropped_source = np.ones(1000), np.ones(1000)
    held = ready(cache, held_source)
    ready(cache, dropped_source)
    assert cache.flush() == 1
    assert held.cached
    with pytest.raises(headrace.NotFoundError, match="4711"):
        cache.flush(4711)


def test_invalidate_drops_what_overlaps_and_holders_keep_theirs(cache: headrace.Cache) -> None:
    source = np.zeros(1000)
    old = ready(cache, source)
    source[:] = 1
    assert cache.invalidate(source[10:20]) == 1
    assert not old.view().any()
    assert ready(cache, source).view().all()


def test_clear_drops_everything_and_holders_keep_theirs(cache: headrace.Cache) -> None:
    source = np.ones(1000)
    entry = ready(cache, source)
    assert cache.clear() == 1
    assert entry.view().all()
    ready(cache, source)
    assert cache.statistics.misses == 2


def test_capacity_is_kept_by_dropping_what_nobody_holds(engine: headrace.Engine) -> None:
    with headrace.Cache(engine, 4 * ENTRY_BYTES, "local") as cache:
        sources = [np.full(ENTRY_BYTES, i, np.uint8) for i in range(8)]
        for source in sources:
            ready(cache, source)
        assert cache.statistics.bytes_cached <= 4 * ENTRY_BYTES
        assert cache.statistics.evictions == 4


def test_memory_of_a_new_array_is_never_taken_for_that_of_an_old_one(
    cache: headrace.Cache,
) -> None:
    # NumPy gives large freed blocks back, and often gets the same address again.
    for value in range(50):
        source = np.full(ENTRY_BYTES, value, np.uint8)
        assert (ready(cache, source).view() == value).all()
        del source


def test_a_freed_array_takes_its_entries_along(cache: headrace.Cache) -> None:
    source = np.ones(ENTRY_BYTES, np.uint8)
    ready(cache, source[:1000])
    assert cache.statistics.bytes_cached > 0
    del source
    gc.collect()
    assert cache.statistics.bytes_cached == 0


def test_a_freed_view_leaves_the_entries_of_its_array(cache: headrace.Cache) -> None:
    source = np.ones(ENTRY_BYTES, np.uint8)
    for _ in range(2):
        part = source[:1000]
        ready(cache, part)
        del part
        gc.collect()
    assert cache.statistics.hits == 1


def test_an_array_may_go_after_the_cache_was_cleared_or_closed(engine: headrace.Engine) -> None:
    with headrace.Cache(engine, "64MiB", "local") as cache:
        source = np.ones(ENTRY_BYTES, np.uint8)
        ready(cache, source)
        cache.clear()
        ready(cache, source)
        del source
        gc.collect()
        assert cache.statistics.bytes_cached == 0
        source = np.ones(ENTRY_BYTES, np.uint8)
        ready(cache, source)
    del source
    gc.collect()


def test_an_array_may_go_while_it_is_moved(engine: headrace.Engine) -> None:
    deadline = time.monotonic() + TIME_LIMIT_S
    with headrace.Cache(engine, "1GiB", "local") as cache:
        for _ in range(10):
            cache.access(np.ones(1 << 24, np.uint8))
        gc.collect()
        # Each lives until nothing is moved from it, and then takes its entry along.
        while cache.statistics.bytes_cached > 0:
            assert time.monotonic() < deadline


class Session:
    """Cache and array in one cycle, which the collector takes apart in any order."""

    def __init__(self) -> None:
        self.data = np.ones(1 << 26, np.uint8)
        self.engine = headrace.Engine()
        self.cache = headrace.Cache(self.engine, "1GiB", "local")
        self.me = self


def test_the_collector_may_take_cache_and_array_in_any_order() -> None:
    for _ in range(3):
        session = Session()
        session.cache.access(session.data)
        del session
        gc.collect()


def test_an_array_may_go_in_one_thread_while_another_closes_the_cache(
    engine: headrace.Engine,
) -> None:
    for _ in range(5):
        cache = headrace.Cache(engine, "1GiB", "local")
        arrays = [np.ones(1 << 24, np.uint8) for _ in range(4)]
        for array in arrays:
            cache.access(array)
        del array
        closing = threading.Thread(target=cache.close)
        closing.start()
        arrays.clear()
        closing.join()


def test_memory_that_belongs_to_no_array_is_kept_until_the_cache_is_cleared(
    cache: headrace.Cache,
) -> None:
    source = bytearray(ENTRY_BYTES)
    for _ in range(3):
        ready(cache, source)
    with pytest.raises(BufferError):
        source.append(0)
    cache.clear()
    source.append(0)


def test_an_entry_keeps_its_source_alive(cache: headrace.Cache) -> None:
    source = np.ones(ENTRY_BYTES, np.uint8)
    reference = weakref.ref(source)
    entry = ready(cache, source)
    del source
    gc.collect()
    assert reference() is not None
    del entry
    gc.collect()
    assert reference() is None


def test_a_wait_after_the_end_lets_go_of_the_source(cache: headrace.Cache) -> None:
    source = np.ones(8 * ENTRY_BYTES, np.uint8)
    reference = weakref.ref(source)
    entry = cache.access(source)
    limit = time.monotonic() + TIME_LIMIT_S
    while not entry.cached:
        assert time.monotonic() < limit
    entry.wait()
    del source, entry
    gc.collect()
    assert reference() is None


def test_a_view_outlives_entry_cache_and_engine() -> None:
    source = np.arange(ENTRY_BYTES, dtype=np.uint8)
    with headrace.Engine() as engine, headrace.Cache(engine, placement="local") as cache:
        view = ready(cache, source).view()
    del engine, cache
    gc.collect()
    np.testing.assert_array_equal(view, source)


def test_a_cache_makes_an_engine_of_its_own_and_closes_it() -> None:
    with headrace.Cache(capacity=ENTRY_BYTES, placement="local") as cache:
        assert ready(cache, np.ones(1000)).cached
    with pytest.raises(headrace.ClosedError):
        cache.engine.copy(source=b"x", target=bytearray(1))


def test_a_closed_cache_refuses(cache: headrace.Cache) -> None:
    cache.close()
    cache.close()
    for call in (lambda: cache.access(b"x"), cache.clear, cache.flush):
        with pytest.raises(headrace.ClosedError, match="closed"):
            call()


def test_many_threads_share_one_copy(cache: headrace.Cache) -> None:
    source = np.arange(1 << 22, dtype=np.uint8)
    barrier = threading.Barrier(8)
    agreed: list[bool] = []

    def work() -> None:
        barrier.wait(TIME_LIMIT_S)
        agreed.append(bool((ready(cache, source).view() == source).all()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIME_LIMIT_S)
    assert agreed == [True] * 8
    assert cache.statistics.hits + cache.statistics.misses == 8
    assert cache.statistics.bytes_cached == source.nbytes


def test_a_source_that_is_no_array_cannot_be_resized_or_closed_while_it_is_held(
    cache: headrace.Cache,
) -> None:
    growing, mapped = bytearray(4096), mmap.mmap(-1, 4096)
    ready(cache, growing)
    ready(cache, mapped)
    with pytest.raises(BufferError):
        growing.append(0)
    with pytest.raises(BufferError):
        mapped.close()
    cache.clear()
    growing.append(0)
    mapped.close()


def test_one_owner_of_the_same_memory_is_held(cache: headrace.Cache) -> None:
    column, owners = pa.chunked_array([np.arange(1000)]), []
    for _ in range(3):
        owner = column.chunk(0)  # Each time another object.
        ready(cache, owner.to_numpy())
        owners.append(weakref.ref(owner))
        del owner
    gc.collect()
    assert [each() is not None for each in owners] == [True, False, False]
    cache.clear()
    gc.collect()
    assert owners[0]() is None


def test_a_change_is_in_the_source_once_it_is_written_back(cache: headrace.Cache) -> None:
    source = np.zeros((16, 1024))
    with cache.change(source) as view:
        assert view.shape == source.shape
        assert not np.shares_memory(view, source)
        view[...] = 1
    assert not view.flags.writeable
    assert source.sum() == 0
    entry = cache.access(source)
    assert entry.changed
    assert entry.view().sum() == source.size
    assert cache.write_back(entry) == source.nbytes
    assert source.sum() == source.size
    assert not entry.changed
    assert cache.write_back() == 0
    assert cache.statistics.write_backs == 1


def test_flush_clear_and_close_write_changes_back(engine: headrace.Engine) -> None:
    with headrace.Cache(engine, "64MiB", "local") as cache:
        for finish in (cache.flush, cache.clear, cache.close):
            source = bytearray(100_000)
            with cache.change(source) as view:
                view[:] = 7
            assert not any(source)
            finish()
            assert bytes(source) == b"\7" * len(source)


def test_a_freed_array_takes_its_changes_along(cache: headrace.Cache) -> None:
    source = np.zeros(100_000)
    with cache.change(source) as view:
        view[:] = 1
    del source, view
    gc.collect()
    assert cache.write_back() == 0
    assert cache.statistics.bytes_cached == 0


def test_two_changes_of_the_same_bytes_are_refused(cache: headrace.Cache) -> None:
    source = np.zeros(1000)
    with cache.change(source[:600]):
        with pytest.raises(headrace.CapacityExceededError, match="another change"):
            cache.change(source[500:])
        with cache.change(source[600:]) as other:
            other[:] = 2
        with pytest.raises(headrace.CapacityExceededError, match="being changed"):
            cache.write_back()
    assert source[600:].sum() == 800


def test_without_a_copy_the_source_is_changed(engine: headrace.Engine) -> None:
    source = np.zeros(1000)
    with headrace.Cache(engine, "64MiB", "none") as cache:
        change = cache.change(source)
        assert not change.cached
        with change as view:
            view[:] = 1
        assert source.sum() == 1000


def test_what_is_read_only_cannot_be_changed(cache: headrace.Cache) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="read-only"):
        cache.change(b"fixed")


def test_a_view_of_a_change_outlives_it(cache: headrace.Cache) -> None:
    source = np.zeros(100_000)
    with cache.change(source) as view:
        view[:] = 3
    cache.close()
    assert view.sum() == 300_000
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_a_weak_access_starts_nothing(cache: headrace.Cache) -> None:
    source = np.ones(1000)
    assert not cache.access(source, weak=True).cached
    ready(cache, source)
    assert cache.access(source, weak=True).cached
    statistics = cache.statistics
    assert (statistics.weak_hits, statistics.weak_misses, statistics.misses) == (1, 1, 1)


def test_hints_change_what_is_evicted(engine: headrace.Engine) -> None:
    parts = np.zeros((8, 4096), np.uint8)

    def all_are_kept(hint: str | None) -> bool:
        with headrace.Cache(engine, 4 * 4096, "local") as cache:
            for index in range(3):
                ready(cache, parts[index])
            for index in range(3, 8):
                cache.access(parts[index], hint=hint).wait()
            cache.access(parts[0], weak=True, hint="many")
            cache.access(parts[1], weak=True, hint=5)
            return all(cache.access(parts[index], weak=True).cached for index in range(3))

    # The mover may still hold the last copy when another one is needed: one of the three goes then.
    assert any(all_are_kept("once") for _ in range(10))
    assert not any(all_are_kept(None) for _ in range(10))


@pytest.mark.parametrize("hint", ["twice", -1, 2**32])
def test_a_hint_that_is_none_is_refused(cache: headrace.Cache, hint: str | int) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="hint"):
        cache.access(np.ones(10), hint=hint)
    with pytest.raises(headrace.TypeMismatchError):
        cache.access(np.ones(10), hint=1.5)  # type: ignore[arg-type]


def test_what_is_pinned_is_not_flushed(cache: headrace.Cache) -> None:
    source = np.ones(1000)
    assert cache.pin(source) == 0
    ready(cache, source)
    assert cache.pin(source) == 1
    gc.collect()
    assert cache.flush() == 0
    assert cache.unpin(source) == 1
    assert cache.flush() == 1


def test_a_cache_may_ask_for_huge_pages(engine: headrace.Engine) -> None:
    source = np.arange(1 << 20)
    with headrace.Cache(engine, "64MiB", "local", huge_pages=True) as cache:
        view = ready(cache, source).view()
        np.testing.assert_array_equal(view, source)
        assert not np.shares_memory(view, source)
        if Path("/sys/kernel/mm/transparent_hugepage").exists():
            assert view.ctypes.data % (2 << 20) == 0


def test_waits_that_block_are_counted() -> None:
    source = np.ones(8 << 20, np.uint8)
    target = np.zeros_like(source)
    began = threading.Semaphore(0)
    may_end = threading.Event()

    def hold_the_worker(_end: headrace.Completion) -> None:
        began.release()
        may_end.wait(TIME_LIMIT_S)

    with (
        headrace.Engine(threads_per_node=1) as engine,
        headrace.Cache(engine, "64MiB", "local") as made,
    ):
        workers = [each for each in engine.mover_infos if not each.hardware]
        jobs = [
            engine.submit(source=source, target=target, path="cpu", then=hold_the_worker)
            for _ in workers
        ]
        for _ in workers:
            assert began.acquire(timeout=TIME_LIMIT_S)
        entry = made.access(np.ones(1 << 20, np.uint8))
        assert made.statistics.waits == 0
        threading.Timer(0.05, may_end.set).start()
        entry.wait()
        assert entry.cached
        assert made.statistics.waits == 1
        assert made.statistics.waited_ns > 0
        assert all(job.wait() for job in jobs)


@pytest.mark.parametrize(
    "name", ["wait", "change", "write_back", "flush", "invalidate", "clear", "close"]
)
def test_a_function_that_a_job_calls_may_not_wait_for_the_cache(name: str) -> None:
    source = np.ones(8 << 20, np.uint8)
    target = np.zeros_like(source)
    column = np.ones(1 << 20, np.uint8)
    refusals: list[str] = []
    ended = threading.Event()
    with headrace.Engine(threads_per_node=1) as engine:
        made = headrace.Cache(engine, "64MiB", "local")
        calls: dict[str, Callable[[], object]] = {
            "wait": lambda: made.access(column).wait(),
            "change": lambda: made.change(column).end(),
            "write_back": made.write_back,
            "flush": made.flush,
            "invalidate": lambda: made.invalidate(column),
            "clear": made.clear,
            "close": made.close,
        }

        def then(_end: headrace.Completion) -> None:
            try:
                calls[name]()
            except headrace.InvalidArgumentError as error:
                refusals.append(str(error))
            ended.set()

        job = engine.submit(source=source, target=target, path="cpu", then=then)
        assert ended.wait(TIME_LIMIT_S)
        job.wait()
        made.close()
    assert len(refusals) == 1
    assert "a callback of a job or the cache may not wait" in refusals[0]


def test_changes_in_a_cycle_with_their_cache_are_written_back_before_python_ends(
    tmp_path: Path,
) -> None:
    program = """
import sys, numpy as np, headrace
engine = headrace.Engine(threads_per_node=1)
cache = headrace.Cache(engine, capacity="128MiB", placement="local")
column = np.memmap(sys.argv[1], np.uint8, "w+", shape=32 << 20)
with cache.change(column) as view:
    view[:] = 5
assert not column.any(), "changed in the copy"
clear = cache.clear
def keeps_all_in_a_cycle():
    clear()
"""
    # A program of our own.
    path = tmp_path / "column"
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=TIME_LIMIT_S)
    assert (np.fromfile(path, np.uint8) == 5).all()
