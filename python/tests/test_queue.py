# SPDX-License-Identifier: Apache-2.0
"""headrace.Queue: between threads, processes and tasks, and when the other end goes."""

import asyncio
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TIME_LIMIT_S

import headrace


def _produce(queue: headrace.Queue, count: int) -> None:
    with queue.producer() as producer:
        for number in range(count):
            producer.put(number.to_bytes(8, "little"))
    queue.end()


def _hang(queue: headrace.Queue) -> None:
    with queue.producer() as producer:
        producer.put(b"last")
        time.sleep(60)


def test_messages_come_back_as_they_were() -> None:
    queue = headrace.Queue()
    with queue.producer() as producer, queue.consumer() as consumer:
        for message in (b"", b"x", bytes(range(256)), np.arange(10)):
            producer.put(message)
        assert consumer.get() == b""
        assert consumer.get() == b"x"
        assert consumer.get() == bytes(range(256))
        assert np.frombuffer(consumer.get(), np.int64).tolist() == list(range(10))


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.parametrize("named", [False, True])
def test_a_queue_goes_to_a_process_of_every_start_method(
    method: str, named: bool, tmp_path: Path
) -> None:
    queue = headrace.Queue(tmp_path / "queue" if named else None, capacity="4KiB")
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=_produce, args=(queue, 1000))
    process.start()
    with queue.consumer() as consumer:
        numbers = [int.from_bytes(message, "little") for message in consumer]
    process.join(30)
    assert numbers == list(range(1000))
    assert process.exitcode == 0


def test_a_killed_producer_is_noticed_after_its_last_message() -> None:
    queue = headrace.Queue()
    process = multiprocessing.get_context("spawn").Process(target=_hang, args=(queue,))
    process.start()
    with queue.consumer() as consumer:
        assert consumer.get(timeout=TIME_LIMIT_S) == b"last"
        process.kill()
        process.join()
        with pytest.raises(headrace.PeerLostError, match="was killed"):
            consumer.get(timeout=TIME_LIMIT_S)


def test_time_limits_end_waits() -> None:
    queue = headrace.Queue(framing="fixed", message_bytes=8, capacity=16)
    with queue.producer() as producer, queue.consumer() as consumer:
        for timeout in (0, 0.05):
            with pytest.raises(TimeoutError):
                consumer.get(timeout)
        producer.put(bytes(8))
        producer.put(bytes(8))
        for timeout in (0, 0.05):
            with pytest.raises(TimeoutError):
                producer.put(bytes(8), timeout)
        assert consumer.get(float("inf")) == bytes(8)


def test_a_message_that_is_too_long_is_refused() -> None:
    queue = headrace.Queue(message_bytes=10)
    with queue.producer() as producer, queue.consumer() as consumer:
        with pytest.raises(headrace.OutOfRangeError):
            producer.put(bytes(11))
        producer.put(bytes(10))
        with pytest.raises(headrace.OutOfRangeError):
            consumer.get_into(bytearray(9))
        target = bytearray(20)
        assert consumer.get_into(target) == 10


def test_many_messages_are_sent_as_far_as_they_fit() -> None:
    queue = headrace.Queue(framing="fixed", message_bytes=8, capacity=32)
    with queue.producer() as producer:
        assert producer.put_some([bytes(8)] * 6) == 4
        assert producer.put_some([bytes(8)]) == 0


def test_roles_are_taken_once_and_given_back() -> None:
    queue = headrace.Queue()
    with queue.producer():
        with pytest.raises(headrace.CapacityExceededError, match="producers_max"):
            queue.producer()
        assert queue.state().producer_count == 1
    with queue.producer(), queue.consumer():
        assert queue.state().has_consumer
    assert not queue.state().has_consumer


def test_an_end_that_was_closed_refuses() -> None:
    queue = headrace.Queue()
    producer = queue.producer()
    producer.close()
    producer.close()
    with pytest.raises(headrace.ClosedError):
        producer.put(b"x")
    queue.close()
    with pytest.raises(headrace.ClosedError):
        queue.state()


def test_what_is_no_queue_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with pytest.raises(headrace.NotFoundError):
        headrace.Queue.open(path)
    path.write_bytes(b"hello")
    with pytest.raises(headrace.CorruptDataError):
        headrace.Queue.open(path)
    with pytest.raises(headrace.InvalidArgumentError):
        headrace.Queue(path)
    with pytest.raises(headrace.InvalidArgumentError, match="framing"):
        headrace.Queue(framing="other")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError):
        headrace.Queue(producers_max=65)
    with pytest.raises(headrace.InvalidArgumentError):
        headrace.Queue(message_bytes=-1)
    with pytest.raises(headrace.InvalidArgumentError):
        headrace.Queue.from_descriptor(-1)
    with pytest.raises(headrace.InvalidArgumentError, match="cache, memory, header"):
        headrace.Queue().producer(placement="elsewhere")  # type: ignore[arg-type]


def test_a_named_queue_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    queue = headrace.Queue(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(headrace.PermissionDeniedError):
        headrace.Queue.open(path, owner=os.geteuid() + 1)
    again = pickle.loads(pickle.dumps(queue))  # noqa: S301 - Our own.
    assert again.state() == queue.state()


def test_a_truncated_queue_is_damaged_and_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    queue = headrace.Queue(path)
    with queue.consumer() as consumer, queue.producer() as producer:
        producer.put(b"x")
        os.truncate(path, 0)
        with pytest.raises(headrace.CorruptDataError):
            consumer.get(timeout=TIME_LIMIT_S)


def test_a_forked_child_has_no_end_and_attaches_itself() -> None:
    queue = headrace.Queue()
    producer = queue.producer()
    child = os.fork()
    if child == 0:
        try:
            producer.put(b"x")
        except headrace.ClosedError:
            with queue.consumer() as consumer:
                os._exit(0 if consumer.get(timeout=TIME_LIMIT_S) == b"y" else 2)
        os._exit(1)
    producer.put(b"y")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.close()


def test_tasks_wait_without_stopping_others() -> None:
    queue = headrace.Queue(framing="fixed", message_bytes=8, capacity=16)

    async def produce() -> None:
        with queue.producer() as producer:
            for number in range(50):
                await producer.aput(number.to_bytes(8, "little"))
        queue.end()

    async def consume() -> list[int]:
        with queue.consumer() as consumer:
            return [int.from_bytes(message, "little") async for message in consumer]

    async def both() -> list[int]:
        numbers, _ = await asyncio.gather(consume(), produce())
        return numbers

    assert asyncio.run(both()) == list(range(50))


def test_a_task_that_is_cancelled_loses_no_message() -> None:
    queue = headrace.Queue()

    async def cancelled() -> bytes:
        with queue.consumer() as consumer, queue.producer() as producer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.aget(), 0.05)
            with pytest.raises(TimeoutError):
                await consumer.aget(timeout=0.05)
            producer.put(b"kept")
            return await consumer.aget()

    assert asyncio.run(cancelled()) == b"kept"


def test_a_signal_ends_a_wait() -> None:
    program = (
        "import headrace\n"
        "consumer = headrace.Queue().consumer()\n"
        "print('waits', flush=True)\n"
        "consumer.get()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=TIME_LIMIT_S)
        finally:
            process.kill()
    assert b"KeyboardInterrupt" in errors


def test_threads_may_share_an_end() -> None:
    queue = headrace.Queue(capacity="4KiB")
    with queue.producer() as producer, queue.consumer() as consumer:

        def send() -> None:
            for _ in range(200):
                producer.put(b"x" * 8)

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert all(consumer.get(timeout=TIME_LIMIT_S) == b"x" * 8 for _ in range(600))
        for thread in threads:
            thread.join()


def test_the_example_adds_up_what_another_process_sends() -> None:
    command = [sys.executable, "-m", "headrace.examples.columns"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIME_LIMIT_S)
    assert done.stdout == "20 chunks, sum 1,999,999,000,000\n"
