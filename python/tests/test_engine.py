# SPDX-License-Identifier: Apache-2.0
"""Engine and jobs on Python memory: results, refusals, lifetimes, the interpreter lock."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import TIME_LIMIT_S, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace

LARGE_BYTES = 1 << 28


@contextmanager
def no_thread_switches() -> Iterator[None]:
    """Another thread runs only when this one lets go of the interpreter lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TIME_LIMIT_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=100_000))
def test_a_copy_has_the_bytes_of_its_source(content: bytes) -> None:
    target = bytearray(len(content))
    completion = _shared_engine().copy(source=content, target=target)
    assert bytes(target) == content
    assert completion.state == "done"
    assert completion.bytes_done == len(content)


_engines: list[headrace.Engine] = []


def _shared_engine() -> headrace.Engine:
    """One engine for all examples; a function-scoped one would be made for each test only."""
    if not _engines:
        _engines.append(headrace.Engine())
    return _engines[0]


@pytest.fixture(scope="module", autouse=True)
def _close_shared_engine() -> Iterator[None]:
    yield
    for made in _engines:
        made.close()
    _engines.clear()


def test_a_job_has_the_bytes_of_its_source_when_it_is_done(engine: headrace.Engine) -> None:
    source = np.arange(1 << 20)
    target = np.zeros_like(source)
    job = engine.submit(source=source, target=target)
    assert job.result().state == "done"
    assert job.poll()
    job.wait()
    np.testing.assert_array_equal(source, target)
    assert engine.statistics.jobs_done == 1
    assert engine.statistics.bytes_moved == source.nbytes


def test_statistics_are_kept_by_kind_of_operation(engine: headrace.Engine) -> None:
    source = np.arange(1 << 15)  # 256 KiB: of less, run() times one in sixteen.
    before = engine.statistics.operations
    assert before["batch"].latencies == {}
    assert before["copy"].latency_ns_max(0.99) is None
    for _ in range(10):
        engine.run(headrace.Operation.copy(source=source, target=np.zeros_like(source)))
    engine.run(headrace.Operation.crc(source))
    totals = engine.statistics.operations
    assert totals["copy"].jobs_done == 10
    assert totals["copy"].bytes == 10 * source.nbytes
    assert totals["crc"].jobs_done == 1
    assert totals["fill"] == before["fill"]
    for kind in ("copy", "crc"):
        latencies = totals[kind].latencies
        assert sum(latencies.values()) == totals[kind].jobs_done
        assert list(latencies) == sorted(latencies)
        assert totals[kind].latency_ns_max(1.0) == max(latencies)
        assert totals[kind].latency_ns_max(0.0) == min(latencies)


def test_any_buffer_can_be_a_source(engine: headrace.Engine) -> None:
    content = bytes(range(200))
    shaped = np.frombuffer(content, np.uint8).reshape(10, 20)
    sources: list[object] = [
        content,
        bytearray(content),
        memoryview(content),
        pa.py_buffer(content),
        shaped,
        np.asfortranarray(shaped).T,
        np.frombuffer(content, np.int64),
    ]
    for source in sources:
        target = bytearray(len(content))
        engine.copy(source=source, target=target)  # type: ignore[arg-type]
        assert bytes(target) == content or isinstance(source, np.ndarray)


def test_any_writable_buffer_can_be_a_target(engine: headrace.Engine) -> None:
    content = bytes(range(64))
    targets: list[Any] = [bytearray(64), memoryview(bytearray(64)), np.zeros(8), np.zeros((4, 2))]
    for target in targets:
        engine.copy(source=content, target=target)
        assert bytes(memoryview(target).cast("B")) == content


@pytest.mark.parametrize(
    "source, target, words",
    [
        (b"", bytearray(1), "the source: it is empty"),
        (b"x", bytearray(), "the target: it is empty"),
        (np.zeros(0), bytearray(8), "the source: it is empty"),
        (None, bytearray(1), "a NoneType has no buffer"),
        (7, bytearray(1), "a int has no buffer"),
        ("text", bytearray(4), "a str has no buffer"),
        (pa.array(["text"]), bytearray(8), "its DLPack export fails"),
        (b"x", b"y", "the target: it is read-only"),
        (b"xy", bytearray(1), "copy: source of 2 bytes, target of 1 byte"),
        (np.arange(10)[::2], bytearray(40), "the source: it is not contiguous"),
        (memoryview(b"abcd")[::2], bytearray(2), "the source: it is not contiguous"),
        (np.zeros((4, 4))[:, :2], bytearray(64), "the source: it is not contiguous"),
        (np.array([object()]), bytearray(8), "references to Python objects"),
        (pa.foreign_buffer(0, 8), bytearray(8), "a Buffer has no buffer that can be used"),
        ((ctypes.c_char * 8).from_address(0), bytearray(8), "its address is null"),
    ],
)
def test_a_buffer_that_cannot_be_used_is_refused_in_one_sentence(
    engine: headrace.Engine, source: object, target: object, words: str
) -> None:
    for call in (engine.copy, engine.submit):
        with pytest.raises(headrace.InvalidArgumentError) as caught:
            call(source=source, target=target)  # type: ignore[arg-type, call-overload]
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert engine.statistics.jobs_submitted == 0


def test_a_read_only_array_is_no_target(engine: headrace.Engine) -> None:
    target = np.zeros(8)
    target.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        engine.copy(source=bytes(64), target=target)


def test_buffers_may_be_equal_but_not_overlap(engine: headrace.Engine) -> None:
    memory = np.arange(100, dtype=np.uint8)
    engine.copy(source=memory, target=memory)
    np.testing.assert_array_equal(memory, np.arange(100))
    with pytest.raises(headrace.InvalidArgumentError, match="overlap"):
        engine.copy(source=memory[:60], target=memory[40:])
    with pytest.raises(headrace.InvalidArgumentError, match="overlap"):
        engine.submit(source=memory[40:], target=memory[:60])
    engine.copy(source=memory[:50], target=memory[50:])
    np.testing.assert_array_equal(memory[50:], np.arange(50))


def test_an_engine_that_is_closed_refuses(engine: headrace.Engine) -> None:
    engine.close()
    engine.close()
    with pytest.raises(headrace.ClosedError, match="has been closed"):
        engine.copy(source=b"x", target=bytearray(1))
    with pytest.raises(headrace.ClosedError, match="has been closed"):
        engine.submit(source=b"x", target=bytearray(1))


def test_nodes_and_threads_that_do_not_exist_are_refused() -> None:
    with pytest.raises(headrace.Error, match="4711"):
        headrace.Engine(nodes=[4711])
    with pytest.raises(headrace.InvalidArgumentError, match=r"threads per node.*: 0 was given"):
        headrace.Engine(threads_per_node=0)


def test_an_engine_names_its_movers(engine: headrace.Engine) -> None:
    assert engine.movers == [mover.name for mover in engine.mover_infos]
    workers = [mover for mover in engine.mover_infos if not mover.hardware]
    assert workers
    assert all(mover.name.startswith("cpu/") and mover.node is not None for mover in workers)
    devices = [mover.name for mover in engine.mover_infos if mover.hardware]
    assert list(engine.device_statistics) == devices
    assert all(note for note in engine.notes)


@pytest.mark.parametrize("how", ["run", "submit"])
def test_every_operation_does_what_it_says(engine: headrace.Engine, how: str) -> None:
    def done(operation: headrace.Operation) -> headrace.Completion:
        return engine.run(operation) if how == "run" else engine.submit(operation).result()

    source = np.random.default_rng(1).integers(0, 256, 100_001, np.uint8)
    target = np.zeros_like(source)
    assert done(headrace.Operation.copy(source=source, target=target)).bytes_done == source.size
    assert not done(headrace.Operation.compare(source, target)).different
    target[77_777] ^= 1
    found = done(headrace.Operation.compare(source, target))
    assert (found.different, found.difference_offset) == (True, 77_777)

    assert done(headrace.Operation.crc(b"123456789")).crc == 0xE3069283
    half = done(headrace.Operation.crc(b"1234")).crc
    assert done(headrace.Operation.crc(b"56789", seed=half)).crc == 0xE3069283
    copied = bytearray(9)
    assert done(headrace.Operation.copy_crc(source=b"123456789", target=copied)).crc == 0xE3069283
    copied[:] = bytes(9)
    assert (
        done(headrace.Operation.copy(source=b"123456789", target=copied).durable()).bytes_done == 9
    )
    assert copied == b"123456789"

    filled = bytearray(11)
    done(headrace.Operation.fill(filled, 0x0807060504030201))
    assert filled == bytes([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3])
    assert not done(headrace.Operation.compare_pattern(filled, 0x0807060504030201)).different
    filled[9] = 9
    again = done(headrace.Operation.compare_pattern(filled, 0x0807060504030201))
    assert (again.different, again.difference_offset) == (True, 9)


def test_operations_that_cannot_be_are_refused(engine: headrace.Engine) -> None:
    memory = np.zeros(100, np.uint8)
    with pytest.raises(headrace.InvalidArgumentError, match="different lengths"):
        engine.run(headrace.Operation.compare(memory, memory[1:]))
    with pytest.raises(headrace.InvalidArgumentError, match="overlap"):
        engine.submit(headrace.Operation.copy_crc(source=memory, target=memory))
    with pytest.raises(headrace.InvalidArgumentError, match="read-only"):
        headrace.Operation.fill(b"bytes", 0)
    with pytest.raises(headrace.InvalidArgumentError, match=r"pattern of a fill.*-1 was given"):
        headrace.Operation.fill(memory, -1)
    with pytest.raises(headrace.InvalidArgumentError, match="seed of a checksum"):
        headrace.Operation.crc(memory, seed=1 << 32)
    with pytest.raises(headrace.InvalidArgumentError, match="has its own buffers"):
        engine.submit(headrace.Operation.crc(memory), target=memory)  # type: ignore[call-overload]
    with pytest.raises(headrace.InvalidArgumentError, match="is not an operation"):
        engine.run(headrace.Operation("juggle", memory))


def test_a_path_is_one_of_three(engine: headrace.Engine) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="there is no path 'fast'"):
        headrace.Engine(path="fast")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="there is no path 'fast'"):
        engine.run(headrace.Operation.crc(b"x"), path="fast")  # type: ignore[arg-type]
    with headrace.Engine(path="cpu") as made:
        completion = made.run(headrace.Operation.crc(b"x"))
        assert not completion.fell_back
        assert completion.bytes_by_device == 0


def test_an_operation_without_a_device_falls_back_and_says_so() -> None:
    with headrace.Engine(path="dsa") as made:
        if any(mover.hardware for mover in made.mover_infos):
            pytest.skip("this machine has a device")
        assert made.run(headrace.Operation.crc(b"x")).fell_back
        assert made.submit(source=b"x", target=bytearray(1)).result().fell_back
        assert made.statistics.jobs_fell_back == 2
        assert made.statistics.bytes_by_device == 0


def test_the_example_copies_without_a_device() -> None:
    command = [sys.executable, "-m", "headrace.examples.copy", "--path", "auto"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert "4194304 bytes: correct" in done.stdout
    if not any(mover.hardware for mover in headrace.Engine().mover_infos):
        assert "no DSA: processors did it" in done.stdout
        assert "fell back" not in done.stdout


def test_the_example_of_jobs_runs() -> None:
    command = [sys.executable, "-m", "headrace.examples.jobs"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    for line in ("same checksum: True", "different: False", "filled: True path: "):
        assert line in done.stdout


@pytest.mark.parametrize("name", ["copy", "jobs"])
def test_an_example_whose_reader_goes_ends_quietly(name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", f"headrace.examples.{name}"]
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            command,
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=TIME_LIMIT_S,
        )
    assert (done.returncode, done.stderr) == (1, "")


def stopped_while_waiting(engine: headrace.Engine) -> bool:
    job = engine.submit(
        source=np.zeros(LARGE_BYTES, np.uint8), target=np.empty(LARGE_BYTES, np.uint8)
    )
    begin = threading.Event()

    def stop() -> None:
        begin.wait(TIME_LIMIT_S)
        job.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    with no_thread_switches():
        begin.set()
        job.wait()
    thread.join(TIME_LIMIT_S)
    try:
        job.result()
    except headrace.JobFailedError as error:
        return "it was stopped after" in str(error)
    return False


def test_waiting_lets_other_threads_run(engine: headrace.Engine) -> None:
    # The other thread can call stop() only while this one waits: if waiting kept the lock, each job
    # would come to its end first. On a busy machine one may do so all the same.
    wait_until(lambda: stopped_while_waiting(engine))
    assert engine.statistics.jobs_stopped == 1


def test_copying_lets_other_threads_run(engine: headrace.Engine) -> None:
    source, target = np.zeros(LARGE_BYTES, np.uint8), np.empty(LARGE_BYTES, np.uint8)
    begin, ran = threading.Event(), threading.Event()

    def run() -> None:
        begin.wait(TIME_LIMIT_S)
        ran.set()

    thread = threading.Thread(target=run)
    thread.start()
    end = time.monotonic() + TIME_LIMIT_S
    with no_thread_switches():
        begin.set()
        # Its turn may come late on a busy machine; if copying kept the lock, it would never.
        while not ran.is_set():
            assert time.monotonic() < end
            engine.copy(source=source, target=target)
    thread.join(TIME_LIMIT_S)


def test_a_job_keeps_its_buffers_alive_and_lets_go_of_them(engine: headrace.Engine) -> None:
    source, target = np.ones(1 << 24, np.uint8), np.zeros(1 << 24, np.uint8)
    references = weakref.ref(source), weakref.ref(target)
    job = engine.submit(source=source, target=target)
    del source, target
    gc.collect()
    assert all(reference() is not None for reference in references)
    job.wait()
    del job
    gc.collect()
    assert all(reference() is None for reference in references)


def test_a_dropped_job_is_done_all_the_same(engine: headrace.Engine) -> None:
    source, target = np.ones(1 << 26, np.uint8), np.zeros(1 << 26, np.uint8)
    reference = weakref.ref(source)
    engine.submit(source=source, target=target)
    del source
    wait_until(lambda: engine.statistics.jobs_done == 1)
    assert target.all()
    engine.copy(source=b"x", target=bytearray(1))
    gc.collect()
    assert reference() is None


def test_a_target_cannot_be_resized_while_the_job_has_it(engine: headrace.Engine) -> None:
    target = bytearray(1 << 20)
    job = engine.submit(source=bytes(1 << 20), target=target)
    with pytest.raises(BufferError):
        target.append(0)
    job.wait()
    del job
    target.append(0)


def test_closing_an_engine_ends_its_jobs() -> None:
    engine = headrace.Engine(threads_per_node=1)
    target = np.empty(LARGE_BYTES, np.uint8)
    jobs = [engine.submit(source=np.zeros(LARGE_BYTES, np.uint8), target=target) for _ in range(2)]
    engine.close()
    assert all(job.poll() for job in jobs)


def test_an_engine_may_go_before_its_jobs() -> None:
    source, target = np.ones(1 << 24, np.uint8), np.zeros(1 << 24, np.uint8)
    job = headrace.Engine().submit(source=source, target=target)
    gc.collect()
    assert job.result().state == "done"
    assert target.all()


def test_many_threads_may_use_one_engine(engine: headrace.Engine) -> None:
    failures: list[str] = []
    barrier = threading.Barrier(4)

    def work(value: int) -> None:
        barrier.wait(TIME_LIMIT_S)
        for length in range(1, 200):
            target = bytearray(length)
            engine.copy(source=bytes([value]) * length, target=target)
            if bytes(target) != bytes([value]) * length:
                failures.append(f"{value} {length}")

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIME_LIMIT_S)
    assert not failures


def test_what_runs_when_a_buffer_goes_may_use_the_engine(engine: headrace.Engine) -> None:
    calls: list[None] = []

    def again() -> None:
        calls.append(None)
        engine.copy(source=b"x" * 10, target=bytearray(10))

    deadline = time.monotonic() + TIME_LIMIT_S
    for _ in range(8):
        source, target = np.ones(1 << 22, np.uint8), np.zeros(1 << 22, np.uint8)
        weakref.finalize(source, again)
        engine.submit(source=source, target=target)
        del source, target
    while len(calls) < 8:
        engine.copy(source=b"x", target=bytearray(1))
        assert time.monotonic() < deadline


def test_a_forked_child_ends_although_it_has_no_workers(engine: headrace.Engine) -> None:
    engine.copy(source=b"x", target=bytearray(1))
    script = (
        "import os, sys, headrace\n"
        "engine = headrace.Engine()\n"
        "cache = headrace.Cache(engine, '1MiB', 'local')\n"
        "pid = os.fork()\n"
        "if pid == 0: sys.exit(7)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=TIME_LIMIT_S)
    assert done.returncode == 7
