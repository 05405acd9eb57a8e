# SPDX-License-Identifier: Apache-2.0
"""Jobs: waits with a limit, batches and fences, functions that they call, coroutines that await.

test_engine_emulated.py runs this file on emulated devices, too.
"""

import asyncio
import gc
import math
import mmap
import os
import re
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from conftest import TIME_LIMIT_S, wait_until

import headrace
from headrace import Operation as Op

LARGE_BYTES = 1 << 28


def test_a_wait_with_a_limit_says_whether_the_job_has_ended(engine: headrace.Engine) -> None:
    source, target = np.zeros(LARGE_BYTES, np.uint8), np.empty(LARGE_BYTES, np.uint8)

    def has_outlasted_a_wait() -> bool:
        job = engine.submit(source=source, target=target)
        ended = job.wait(timeout=0)
        if not ended:
            with pytest.raises(TimeoutError, match="has not ended after 0 s"):
                job.result(timeout=0)
        assert job.wait(timeout=TIME_LIMIT_S)
        assert job.done
        assert (job.state, job.result(timeout=0).bytes_done) == ("done", LARGE_BYTES)
        return not ended

    wait_until(has_outlasted_a_wait)


NO_SECONDS = [-1, math.nan, "1", True, -(10**400), np.float32(-1), np.bool_(1), np.zeros(2), 1j]
SECONDS = [
    *(math.inf, 10**400, np.int64(60), np.uint8(60), np.float32(60), np.float16(60)),
    *(np.array(60), Decimal(60), Fraction(121, 2)),
]


@pytest.mark.parametrize("timeout", NO_SECONDS)
def test_what_is_no_number_of_seconds_is_no_limit(engine: headrace.Engine, timeout: float) -> None:
    job = engine.submit(source=b"x", target=bytearray(1))
    with pytest.raises((headrace.InvalidArgumentError, headrace.TypeMismatchError), match="second"):
        job.wait(timeout)


@pytest.mark.parametrize("timeout", SECONDS)
def test_any_number_of_seconds_is_a_limit(engine: headrace.Engine, timeout: float) -> None:
    job = engine.submit(source=b"x", target=bytearray(1))
    assert job.wait(timeout)
    assert job.result(timeout).bytes_done == 1


def test_ctrl_c_ends_a_wait() -> None:
    script = (
        "import headrace, numpy, signal, os, threading\n"
        "engine = headrace.Engine(threads_per_node=1, queues=())\n"
        "source = numpy.zeros(1 << 20, numpy.uint8)\n"
        "target = numpy.empty_like(source)\n"
        "done = threading.Event()\n"
        "def block(end): done.wait(60)\n"
        # The only worker calls what blocks it, so the next job cannot begin.
        "engine.submit(source=source, target=target, then=block)\n"
        "job = engine.submit(source=source, target=target)\n"
        "try:\n"
        "    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    job.wait()\n"
        "except KeyboardInterrupt: print('well')\n"
        "done.set()\n"
    )
    assert run(script) == "well\n"


@pytest.mark.parametrize(
    "blocks",
    [
        "engine.copy(source=source, target=target)",
        "cache.access(source).wait()",
    ],
)
def test_ctrl_c_ends_a_copy_and_the_wait_for_an_entry(blocks: str) -> None:
    script = (
        "import headrace, numpy, signal, os, threading\n"
        "engine = headrace.Engine(threads_per_node=1, queues=())\n"
        "cache = headrace.Cache(engine, '64MiB', 'local')\n"
        "source = numpy.zeros(1 << 20, numpy.uint8)\n"
        "target = numpy.empty_like(source)\n"
        "begun, done = threading.Event(), threading.Event()\n"
        "def block(end): begun.set(); done.wait(60)\n"
        "engine.submit(source=source, target=target, then=block)\n"
        "begun.wait(60)\n"
        "try:\n"
        "    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        f"    {blocks}\n"
        "except KeyboardInterrupt: print(done.is_set())\n"
        "done.set()\n"
        "cache.close(), engine.close()\n"
    )
    assert run(script) == "False\n"


def run(script: str, **variables: str) -> str:
    """What it prints; it ends, and well."""
    forks = "ignore:This process:DeprecationWarning"  # Python 3.12 warns of forks beside threads.
    done = subprocess.run(
        [sys.executable, "-W", forks, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("path", ["dsa", "cpu"])
def test_a_batch_keeps_its_fences_and_tells_of_each(engine: headrace.Engine, path: str) -> None:
    source, first, second = np.arange(1000), np.zeros(1000, int), np.zeros(1000, int)
    batch = [
        Op.copy(source=source, target=first),
        Op.crc(source),
        Op.copy(source=first, target=second).fenced(),
    ]
    job = engine.submit_batch(batch, path=path)  # type: ignore[arg-type]
    assert job.result().bytes_done == 3 * source.nbytes
    assert [end.state for end in job.completions] == ["done"] * 3
    assert job.completions[1].crc == engine.run(Op.crc(source)).crc
    np.testing.assert_array_equal(source, second)

    target = np.zeros(8, np.uint64)
    bad_record = np.frombuffer(b"\xff\xff" + bytes(8), np.uint8)
    job = engine.submit_batch(
        [Op.fill(target[:1], 1), Op.apply_delta(target, bad_record), Op.fill(target, 2).fenced()],
        path=path,  # type: ignore[arg-type]
    )
    words = (
        "batch_failed after 8 bytes: operation 1 failed by bad_record, and 1 other failed; "
        "the delta record does not belong to such a target"
    )
    with pytest.raises(headrace.JobFailedError, match=words):
        job.result()
    assert job.completion is not None
    assert job.completion.cause == "batch_failed"
    causes = [end.cause for end in job.completions]
    assert causes == ["none", "bad_record", "fence_broken"]
    assert target.tolist() == [1] + [0] * 7
    assert engine.statistics.operations["batch"].jobs_done == 1


def test_a_batch_may_not_be_empty(engine: headrace.Engine) -> None:
    with pytest.raises(
        headrace.InvalidArgumentError, match="or the batch has no operations; there is"
    ):
        engine.submit_batch([])
    job = engine.submit(source=b"x", target=bytearray(1))
    job.wait()
    assert job.completions == []


def test_a_batch_keeps_its_buffers_alive(engine: headrace.Engine) -> None:
    sources = [np.ones(1 << 20, np.uint8) for _ in range(8)]
    target = np.zeros(8 << 20, np.uint8)
    alive = [weakref.ref(source) for source in sources]
    parts = target.reshape(8, -1)
    job = engine.submit_batch(
        [Op.copy(source=source, target=part) for source, part in zip(sources, parts, strict=True)]
    )
    del sources
    gc.collect()
    assert all(one() is not None for one in alive)
    assert job.result().bytes_done == target.size
    assert target.all()
    del job
    gc.collect()
    assert all(one() is None for one in alive)


def test_a_job_begins_when_those_it_comes_after_have_ended(engine: headrace.Engine) -> None:
    source = np.random.default_rng(1).integers(0, 256, 1 << 24, np.uint8)

    def has_waited() -> bool:
        held_before = engine.statistics.jobs_held_back
        middle, last, copied = (np.zeros_like(source) for _ in range(3))
        first = engine.submit(source=source, target=middle)
        second = engine.submit(source=middle, target=last, after=[first])
        # The named jobs have no other owner, and a generator is accepted.
        batch = [Op.copy(source=last, target=copied), Op.no_op()]
        job = engine.submit_batch(batch, after=(one for one in (first, second)))
        del first, second
        assert job.result(TIME_LIMIT_S).bytes_done == source.size
        assert np.array_equal(copied, source)
        return engine.statistics.jobs_held_back == held_before + 2

    wait_until(has_waited)


@contextmanager
def held_up() -> Iterator[tuple[headrace.Engine, threading.Event]]:
    """An engine of one worker that begins nothing until the event is set, or the block ends."""
    node = next(node.id for node in headrace.topo().nodes if node.cpus)
    with headrace.Engine(threads_per_node=1, nodes=[node], queues=()) as engine:
        begun, free = threading.Event(), threading.Event()

        def block(_: headrace.Completion) -> None:
            begun.set()
            free.wait(TIME_LIMIT_S)

        engine.submit(source=b"x" * (1 << 20), target=bytearray(1 << 20), then=block)
        assert begun.wait(TIME_LIMIT_S)
        try:
            yield engine, free
        finally:
            free.set()


def test_what_a_failed_job_leaves_undone_says_why() -> None:
    source, target = bytes(1 << 20), bytearray(b"x" * (1 << 20))
    with held_up() as (engine, free):
        first = engine.submit(source=source, target=bytearray(1 << 20))
        second = engine.submit(source=source, target=target, after=[first])
        third = engine.submit(source=source, target=target, after=[second])
        first.stop()
        free.set()
        for job in (second, third):
            with pytest.raises(headrace.JobFailedError, match="predecessor_failed"):
                job.result(TIME_LIMIT_S)
            assert job.completion is not None
            assert (job.completion.cause, job.completion.bytes_done) == ("predecessor_failed", 0)
    assert target == b"x" * (1 << 20)


def test_what_is_run_after_jobs_begins_when_they_have_ended(engine: headrace.Engine) -> None:
    source = np.random.default_rng(2).integers(0, 256, 1 << 24, np.uint8)
    middle, last = np.zeros_like(source), np.zeros_like(source)
    first = engine.submit(source=source, target=middle)
    second = engine.submit(Op.crc(source))
    end = engine.run(Op.copy(source=middle, target=last), after=(one for one in (first, second)))
    assert (end.state, first.state, second.state) == ("done",) * 3
    assert np.array_equal(last, source)
    with pytest.raises(headrace.JobFailedError, match="predecessor_failed"):
        engine.run(Op.fill(last, 1), after=[engine.submit(Op.dif_check(bytes(519) + b"x"))])
    assert np.array_equal(last, source)


def test_who_runs_after_jobs_lets_others_run_and_is_ended_by_ctrl_c() -> None:
    script = (
        "import headrace, os, signal, threading\n"
        "engine = headrace.Engine(threads_per_node=1, nodes=[0], queues=())\n"
        "begun, free = threading.Event(), threading.Event()\n"
        "def block(end): begun.set(); free.wait(60)\n"
        "source, target = bytes(1 << 20), bytearray(b'x' * 8)\n"
        "engine.submit(source=source, target=bytearray(1 << 20), then=block)\n"
        "begun.wait(60)\n"
        "first = engine.submit(source=source, target=bytearray(1 << 20))\n"
        "try:\n"
        "    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    engine.run(headrace.Operation.fill(target, 1), after=[first])\n"
        "except KeyboardInterrupt: print(first.state, target == b'x' * 8)\n"
        "free.set()\n"
    )
    assert run(script) == "running True\n"


def test_a_job_that_has_to_wait_holds_its_buffers() -> None:
    target = bytearray(1 << 20)
    with held_up() as (engine, free):
        first = engine.submit(source=b"x" * (1 << 20), target=bytearray(1 << 20))
        second = engine.submit(source=b"y" * (1 << 20), target=target, after=[first])
        del first, second
        gc.collect()
        assert engine.statistics.jobs_held_back == 1
        with pytest.raises(BufferError):
            target.clear()
        free.set()
        wait_until(lambda: target == b"y" * (1 << 20))
    target.clear()


def test_what_a_job_cannot_come_after_is_refused(engine: headrace.Engine) -> None:
    job = engine.submit(source=b"x", target=bytearray(1))
    with (
        headrace.Engine(threads_per_node=1, queues=()) as other,
        held_up() as (held, _),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match="belongs to another engine"):
            other.submit(source=b"x", target=bytearray(1), after=[job])
        running = held.submit(source=b"x" * 100, target=bytearray(100))
        with pytest.raises(headrace.InvalidArgumentError, match="belongs to another engine"):
            other.run(Op.no_op(), after=[running])
    fill = Op.fill(bytearray(1), 1)
    for start in (
        engine.submit,
        engine.run,
        lambda one, after: engine.submit_batch([one], after=after),
    ):
        with pytest.raises(
            headrace.InvalidArgumentError, match="at most eight predecessors; combine"
        ):
            start(fill, after=[job] * 9)
        for wrong in (job, None, [None], [b"x"]):
            with pytest.raises(headrace.TypeMismatchError, match="predecessors of a job"):
                start(fill, after=wrong)  # type: ignore[arg-type]


def test_what_a_job_calls_is_called_once_with_its_end(engine: headrace.Engine) -> None:
    ends: list[headrace.Completion] = []
    target = np.zeros(1 << 20, np.uint8)
    jobs = [
        engine.submit(source=np.ones(1 << 20, np.uint8), target=target, then=ends.append),
        engine.submit(Op.crc(b"123456789"), then=ends.append),
        engine.submit_batch([Op.fill(bytearray(8), 1)], then=ends.append),
    ]
    for job in jobs:
        job.wait()
    wait_until(lambda: len(ends) == 3)
    assert sorted(end.bytes_done for end in ends) == [8, 9, 1 << 20]
    assert {end.state for end in ends} == {"done"}
    assert 0xE3069283 in [end.crc for end in ends]
    # The job need not be kept; then a caller of the engine polls.
    engine.submit(source=b"x", target=bytearray(1), then=ends.append)

    def called() -> bool:
        engine.poll()
        return len(ends) == 4

    wait_until(called)


@pytest.mark.parametrize("how", ["wait", "poll"])
def test_a_function_may_drop_its_job_and_submit_the_next(engine: headrace.Engine, how: str) -> None:
    running: list[headrace.Job] = []
    left = list(range(50))

    def follow(_end: headrace.Completion | None) -> None:
        running.clear()
        if left:
            left.pop()
            running.append(engine.submit(source=b"x" * 8192, target=bytearray(8192), then=follow))

    follow(None)
    wait_until(lambda: not [getattr(job, how)() for job in list(running)] and not left)


def test_a_function_lives_until_it_was_called(engine: headrace.Engine) -> None:
    class Listener:
        def __call__(self, end: headrace.Completion) -> None:
            ends.append(end)

    ends: list[headrace.Completion] = []
    listener = Listener()
    alive = weakref.ref(listener)
    job = engine.submit(source=b"x", target=bytearray(1), then=listener)
    del listener
    job.wait()
    wait_until(lambda: bool(ends) and alive() is None)


def test_what_a_function_raises_is_unraisable(
    engine: headrace.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[type, str]] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda told: seen.append((told.exc_type, str(told.exc_value)))
    )

    def fail(end: headrace.Completion) -> None:
        raise ValueError(end.state)

    assert engine.submit(source=b"x", target=bytearray(1), then=fail).result().state == "done"
    wait_until(lambda: bool(seen))
    assert seen == [(ValueError, "done")]
    assert engine.copy(source=b"x", target=bytearray(1)).state == "done"


def test_a_function_may_submit_but_not_wait_nor_close(engine: headrace.Engine) -> None:
    told: list[str] = []
    ended = threading.Event()

    def first(_: headrace.Completion) -> None:
        for call in (
            lambda: engine.submit(source=ones, target=big).wait(),
            lambda: asyncio.run(_ended(engine.submit(source=ones, target=big))),
            lambda: engine.run(Op.no_op(), after=[engine.submit(source=ones, target=big)]),
            engine.close,
        ):
            try:
                call()
                told.append("no refusal")
            except headrace.InvalidArgumentError as error:
                told.append(error.cause)
        told.append(engine.copy(source=b"x", target=bytearray(1)).state)
        engine.submit(source=b"x", target=bytearray(1), then=lambda _: ended.set())

    ones, big = np.ones(LARGE_BYTES, np.uint8), np.zeros(LARGE_BYTES, np.uint8)
    engine.submit(source=b"x", target=bytearray(1), then=first)

    def has_ended() -> bool:
        engine.poll()
        return ended.is_set()

    wait_until(has_ended)
    assert told == [
        *["a callback of a job may not wait for another job"] * 3,
        "a callback of one of its jobs may be making this call",
        "done",
    ]


def test_nothing_is_called_for_a_job_that_was_refused(engine: headrace.Engine) -> None:
    with pytest.raises(headrace.TypeMismatchError, match="pass a function"):
        engine.submit(source=b"x", target=bytearray(1), then=7)  # type: ignore[call-overload]
    ends: list[headrace.Completion] = []
    memory = bytearray(10)
    with pytest.raises(headrace.InvalidArgumentError):
        engine.submit(Op.copy_crc(source=memory, target=memory), then=ends.append)
    engine.close()
    with pytest.raises(headrace.ClosedError):
        engine.submit(source=b"x", target=memory[:1], then=ends.append)
    assert not ends


def test_a_closed_engine_has_called_what_it_had_to() -> None:
    for _ in range(20):
        ends: list[headrace.Completion] = []
        with headrace.Engine(threads_per_node=1) as engine:
            target = np.empty(1 << 20, np.uint8)
            for _ in range(10):
                engine.submit(source=np.zeros(1 << 20, np.uint8), target=target, then=ends.append)
        assert len(ends) == 10
        assert {end.state for end in ends} <= {"done", "stopped"}


def test_an_engine_may_go_inside_a_call_of_its_own() -> None:
    script = (
        "import headrace, os, threading, time\n"
        "headrace.Engine().close()  # What is loaded at first use may have threads, too.\n"
        "def thread_count(): return len(os.listdir('/proc/self/task'))\n"
        "before = thread_count()\n"
        "deleted, ended = threading.Event(), threading.Event()\n"
        "class Owner: pass\n"
        "owner = Owner()\n"
        "owner.engine = headrace.Engine()\n"
        "assert thread_count() > before\n"
        "def then(end, owner=owner):\n"
        # A device has no thread to call it: then the main thread does, which would wait for itself.
        "    if threading.current_thread() is not threading.main_thread(): deleted.wait(60)\n"
        "    ended.set()\n"
        "owner.engine.submit(source=b'x', target=bytearray(1), then=then)\n"
        "del owner, then\n"
        "deleted.set()\n"
        "ended.wait(60)\n"
        # A worker has let go of the engine; the main thread ends it, and that one.
        "while thread_count() > before: time.sleep(0.001)\n"
        "print('well')\n"
    )
    assert run(script) == "well\n"


def test_a_program_may_end_with_calls_outstanding() -> None:
    script = (
        "import atexit\n"
        "count = 0\n"
        "def then(end):\n"
        "    global count\n"
        "    count += 1\n"
        "def at_the_very_end():\n"
        "    print(count)\n"
        "    try: headrace.Engine().submit(source=source, target=target, then=then)\n"
        "    except headrace.ClosedError: print('well')\n"
        "atexit.register(at_the_very_end)\n"
        "import headrace, numpy\n"
        "engine = headrace.Engine()\n"
        "source = numpy.zeros(1 << 22, numpy.uint8)\n"
        "target = numpy.empty_like(source)\n"
        "for _ in range(20): engine.submit(source=source, target=target, then=then)\n"
    )
    assert run(script) == "20\nwell\n"


def test_advice_is_that_of_the_cause() -> None:
    # One mover has sixteen copies of 64 MiB before it: the last one has not begun when the process
    # forks, nor when it is stopped.
    script = (
        "import os, headrace, numpy\n"
        "engine = headrace.Engine(threads_per_node=1, queues=())\n"
        "source = numpy.zeros(1 << 26, numpy.uint8)\n"
        "target = numpy.empty_like(source)\n"
        "jobs = [engine.submit(source=source, target=target) for _ in range(16)]\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        jobs[-1].result()\n"
        "    except headrace.JobFailedError as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "for job in jobs:\n"
        "    job.stop()\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "try:\n"
        "    jobs[-1].result()\n"
        "except headrace.JobFailedError as error:\n"
        "    print(error)\n"
    )
    in_child, stopped = run(script).splitlines()
    assert "forked after 0 bytes; the job belongs to the parent" in in_child
    assert "make an engine in the child" in in_child
    assert re.search("it was stopped after [0-9,]+ bytes; submit it again", stopped)


def test_a_child_calls_nothing() -> None:
    script = (
        "import os, headrace, numpy\n"
        "engine = headrace.Engine(threads_per_node=1)\n"
        "source = numpy.zeros(1 << 26, numpy.uint8)\n"
        "ends = []\n"
        "job = engine.submit(source=source, target=numpy.empty_like(source), then=ends.append)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    ended = job.wait(10)\n"
        "    engine.poll()\n"
        "    os._exit(0 if ended else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "job.wait()\n"
        "engine.close()\n"
        "assert len(ends) == 1, ends\n"
        "print('well')\n"
    )
    assert run(script) == "well\n"


def test_a_coroutine_awaits_jobs_while_others_run(engine: headrace.Engine) -> None:
    async def work() -> int:
        ticks = 0
        ended = False

        async def tick() -> None:
            nonlocal ticks
            while not ended:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        source, target = np.ones(1 << 24, np.uint8), np.zeros(1 << 24, np.uint8)
        completion = await engine.submit(source=source, target=target)
        assert (completion.state, completion.bytes_done) == ("done", source.size)
        assert target.all()
        many = [engine.submit(Op.crc(bytes([i]) * 5000)) for i in range(50)]
        sums = [end.crc for end in await asyncio.gather(*many)]
        assert sums == [engine.run(Op.crc(bytes([i]) * 5000)).crc for i in range(50)]
        ended = True
        await ticking
        return ticks

    assert asyncio.run(work()) > 0
    assert asyncio.run(work()) > 0  # Another event loop.


def test_a_coroutine_is_told_of_failures_and_stops(engine: headrace.Engine) -> None:
    async def work() -> None:
        with pytest.raises(headrace.JobFailedError, match="integrity_error"):
            await engine.submit(Op.dif_check(bytes(range(256)) * 2 + bytes(8)))
        big = np.empty(LARGE_BYTES, np.uint8)
        job = engine.submit(source=np.zeros(LARGE_BYTES, np.uint8), target=big)
        # Who stops waiting does not stop the job.
        task = asyncio.create_task(_ended(job))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert (await job).bytes_done == LARGE_BYTES

    asyncio.run(work())


async def _ended(job: headrace.Job) -> headrace.Completion:
    return await job


def test_thresholds_are_published_ones_unless_told_otherwise() -> None:
    script = (
        "import headrace\n"
        "made = headrace.Engine(queues=()).thresholds\n"
        "print(made == headrace.Thresholds(source='published'), made)\n"
    )
    assert run(script, HEADRACE_PROFILE="none").startswith("True")


def test_an_engine_takes_its_options(engine: headrace.Engine) -> None:
    wanted = headrace.Thresholds(1 << 20, 1 << 19, 1 << 10)
    with headrace.Engine(
        policy="least_loaded",
        page_faults="finish_on_cpu",
        device_timeout=1,
        thresholds=wanted,
        piece="64KiB",
        queue_depth_max=2,
    ) as made:
        assert made.thresholds == wanted
        assert made.thresholds.source == "caller"
        for policy in headrace.POLICIES:
            job = made.submit(
                source=b"abc", target=bytearray(3), policy=policy, source_node=0, target_node=0
            )
            assert job.result().bytes_done == 3
            end = made.run(Op.crc(b"abc"), policy=policy, path="cpu")
            assert end.path == "cpu"
    assert headrace.POLICIES[0] == "near_target"
    assert engine.thresholds.source in ("published", "profile")


@pytest.mark.parametrize(
    "options, words",
    [
        ({"policy": "best"}, "there is no policy 'best'"),
        ({"page_faults": "ignore"}, "there is no fault policy 'ignore'"),
        ({"device_timeout": 0}, "device_timeout of an engine"),
        ({"late_writes": "ignore"}, "there is no way to treat late writes 'ignore'"),
        ({"piece": 0}, "piece of an engine"),
        ({"queue_depth_max": 0}, "queue depth"),
        ({"thresholds": headrace.Thresholds(-1)}, "thresholds of an engine"),
        ({"waiting": "patiently"}, "there is no way to wait 'patiently'"),
        ({"threads_per_node": 1025}, "1025 threads per node are more than 1024"),
        ({"threads_per_node": -1}, "threads per node"),
        ({"device_timeout": 1e9}, "at most a year"),
        ({"device_timeout": math.nan}, "pass seconds"),
        ({"device_timeout": -1}, "device_timeout of an engine"),
        ({"piece": "5GiB"}, "larger than 4 GiB"),
        ({"piece": -1}, "piece of an engine"),
        ({"piece": 2**63}, "piece of an engine"),
        ({"queue_depth_max": 2**62}, "more than 1048576"),
        ({"queue_depth_max": -1}, "queue depth"),
        ({"thresholds": headrace.Thresholds(batched_bytes=2**64)}, "thresholds of an engine"),
        ({"thresholds": 7}, r"pass a headrace\.Thresholds"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((headrace.InvalidArgumentError, headrace.TypeMismatchError), match=words):
        headrace.Engine(**options)


def test_memory_that_is_not_there_can_fail_by_name() -> None:
    with tempfile.TemporaryFile() as file, headrace.Engine(check_memory=True, queues=()) as engine:
        file.truncate(3 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), 0) as mapped:
            file.truncate(mmap.PAGESIZE)
            for target in (memoryview(mapped), memoryview(mapped)[mmap.PAGESIZE :]):
                with pytest.raises(headrace.JobFailedError, match="page_fault at 0x"):
                    engine.run(Op.fill(target, 1), path="cpu")
                target.release()
            gc.collect()


@pytest.mark.parametrize("waiting", ["adaptive", "spin", "umwait", "sleep"])
def test_an_engine_waits_as_it_is_told_or_says_how(waiting: str) -> None:
    source, target = bytes(range(256)) * 4096, bytearray(1 << 20)
    with headrace.Engine(waiting=waiting) as engine:  # type: ignore[arg-type]
        assert engine.submit(source=source, target=target).result(TIME_LIMIT_S).bytes_done == len(
            source
        )
        assert target == source
        told = [note for note in engine.notes if "UMWAIT" in note]
        if waiting == "umwait" and told:
            assert engine.waiting == "spin"
        else:
            assert (engine.waiting, told) == (waiting, [])


def test_options_of_a_submission_that_cannot_be_are_refused(engine: headrace.Engine) -> None:
    unknown: Any = "best"
    with pytest.raises(headrace.InvalidArgumentError, match="there is no policy 'best'"):
        engine.submit(source=b"x", target=bytearray(1), policy=unknown)
    with pytest.raises(headrace.InvalidArgumentError, match="node of an operation"):
        engine.submit(source=b"x", target=bytearray(1), target_node=-1)
