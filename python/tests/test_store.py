# SPDX-License-Identifier: Apache-2.0
"""headrace.Store: bytes in and out, batches, tasks, files, and what is refused."""

import asyncio
import gc
import mmap
import multiprocessing
import os
import pickle
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TIME_LIMIT_S

import headrace
from headrace.examples.storage_target import receive

BLOCK = 4096


def store_of(
    *tiers: headrace.Tier | str, checksums: bool = False, engine: headrace.Engine | None = None
) -> headrace.Store:
    return headrace.Store(tiers or ["1MiB"], block_bytes=BLOCK, checksums=checksums, engine=engine)


def test_what_was_put_comes_out_as_bytes() -> None:
    with store_of() as store:
        store.put("a", b"hello")
        store.put(b"b", np.arange(100))
        store.put("c", memoryview(bytearray(b"x" * BLOCK)))
        assert store.get("a") == b"hello"
        assert np.frombuffer(store.get("b"), np.int64).tolist() == list(range(100))
        assert sorted(store.keys()) == [b"a", b"b", b"c"]
        assert len(store) == 3
        assert "a" in store
        assert "d" not in store
        assert 5 not in store
        assert store.length("a") == 5
        assert store.length("d") is None
        assert store.remove("a")
        assert not store.remove("a")
        assert store.clear() == 2
        assert store.keys() == []


def test_a_block_goes_into_memory_of_the_caller() -> None:
    with store_of() as store:
        store.put("a", b"hello")
        target = np.zeros(8, np.uint8)
        assert store.get_into("a", target) == 5
        assert target.tobytes() == b"hello\0\0\0"


def test_what_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    with store_of("16KiB") as store:
        with pytest.raises(headrace.NotFoundError, match="unknown_key"):
            store.get("absent")
        with pytest.raises(headrace.InvalidArgumentError, match="bad_key"):
            store.put("", b"x")
        with pytest.raises(headrace.InvalidArgumentError, match="wrong_length"):
            store.put("a", bytes(BLOCK + 1))
        with pytest.raises(headrace.InvalidArgumentError, match="no_such_tier"):
            store.put("a", b"x", tier=3)
        with pytest.raises(headrace.InvalidArgumentError, match="empty"):
            store.put("a", b"")
        with pytest.raises(headrace.InvalidArgumentError, match="no buffer"):
            store.put("a", 5)  # type: ignore[arg-type]
        with pytest.raises(headrace.InvalidArgumentError, match="is not a key"):
            store.put(5, b"x")  # type: ignore[arg-type]
        for method in (store.get, store.length, store.pin, store.unpin, store.remove):
            with pytest.raises(headrace.InvalidArgumentError, match="NoneType is not a key"):
                method(None)  # type: ignore[arg-type]
        with pytest.raises(headrace.InvalidArgumentError, match="not as many keys"):
            store.put_many(["a"], [])
        with pytest.raises(headrace.InvalidArgumentError, match="read-only"):
            store.get_many(["a"], [b"readonly"])
        for i in range(4):
            store.put(str(i), b"x")
            assert store.pin(str(i))
        with pytest.raises(headrace.CapacityExceededError, match="full"):
            store.put("more", b"x")
        assert store.unpin("0")
        assert not store.unpin("0")
        store.put("more", b"x")
        with pytest.raises(headrace.TypeMismatchError, match="pickle"):
            pickle.dumps(store)
    with pytest.raises(headrace.ClosedError):
        store.get("a")
    with pytest.raises(headrace.InvalidArgumentError, match="durability"):
        store_of(headrace.Tier("1MiB", durability="never"))  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="0 tiers"):
        headrace.Store([])
    (tmp_path / "foreign").write_bytes(b"not a store" * 1000)
    with pytest.raises(headrace.CorruptDataError, match="not a store"):
        store_of(headrace.Tier("1MiB", path=tmp_path / "foreign"))


@pytest.mark.parametrize(
    "memory, cause",
    [
        (np.array([object()]), "Python objects"),
        (np.zeros(1, [("a", "O"), ("b", "i8")]), "Python objects"),
        (np.ma.masked_array([1, 2], [True, False]), "masked"),
        (np.arange(10)[::2], "gaps"),
        (np.arange(6).reshape(2, 3).T, "Fortran"),
        (memoryview(bytearray(8))[::2], "not contiguous"),
    ],
)
def test_memory_that_is_not_plain_bytes_is_refused(
    memory: np.ndarray[Any, Any] | memoryview, cause: str
) -> None:
    with store_of() as store:
        store.put("a", b"x")
        with pytest.raises(headrace.InvalidArgumentError, match=cause):
            store.put("b", memory)
        with pytest.raises(headrace.InvalidArgumentError, match=cause):
            store.get_into("a", memory)


def test_memory_is_held_as_it_is_until_the_end() -> None:
    released = memoryview(bytearray(8))
    released.release()
    frozen = np.arange(8, dtype=np.uint8)
    frozen.flags.writeable = False
    rows = np.frombuffer(os.urandom(4 * BLOCK), np.uint8).reshape(4, BLOCK)
    shared = mmap.mmap(-1, BLOCK)
    shared[:] = rows[0].tobytes()
    with store_of() as store:
        for unfit in (released, frozen, frozen.data):
            with pytest.raises(headrace.InvalidArgumentError):
                store.get_many(["a"], [unfit])
        sources = [rows[1], rows[2].data, memoryview(rows[3].tobytes()), memoryview(shared)]
        sources.append(np.frombuffer(shared, np.uint8))
        keys = [str(number) for number in range(len(sources))]
        store.put_many(keys, sources).check()
        assert [store.get(key) for key in keys] == [bytes(each) for each in sources]
        words = np.zeros(BLOCK // 8, np.uint64)
        assert store.get_into("1", words.data) == BLOCK
        assert words.tobytes() == rows[2].tobytes()
        target = bytearray(BLOCK)
        view = memoryview(target)
        transfer = store.get_many(["3"], [view])
        with pytest.raises(BufferError):
            view.release()
        del transfer
    view.release()
    assert target == shared[:]


def test_a_batch_is_copied_while_the_caller_goes_on() -> None:
    blocks = [os.urandom(BLOCK) for _ in range(200)]
    keys = [f"key {i}" for i in range(200)]
    with store_of("2MiB", checksums=True) as store:
        put = store.put_many(keys, blocks)
        assert put.wait(TIME_LIMIT_S)
        assert put.poll()
        assert set(put.outcomes) == {"done"}
        targets = [bytearray(BLOCK) for _ in range(200)]
        get = store.get_many([*keys, "absent"], [*targets, bytearray(1)])
        assert get.outcomes == ["done"] * 200 + ["unknown_key"]
        assert get.byte_counts == [BLOCK] * 200 + [0]
        assert targets == blocks
        assert "unknown_key" in repr(get)
        with pytest.raises(headrace.NotFoundError, match="block 200 of 201"):
            get.check()
        assert store.statistics.bytes_in == 200 * BLOCK
        assert store.statistics.tiers[0].hits == 200


def test_buffers_stay_while_a_dropped_transfer_runs() -> None:
    with store_of("2MiB") as store:
        for i in range(200):
            store.put_many([str(i)], [bytearray(os.urandom(BLOCK))])
        gc.collect()
        for i in range(200):
            while store.length(str(i)) is None:
                time.sleep(0.001)
        assert len(store) == 200


def test_tasks_await_transfers() -> None:
    async def worker(store: headrace.Store, name: str) -> int:
        block = name.encode() * 100
        for i in range(20):
            await store.put_many([f"{name} {i}"], [block])
            target = bytearray(len(block))
            transfer = await store.get_many([f"{name} {i}"], [target])
            assert transfer.outcomes == ["done"]
            assert target == block
        return 20

    async def main() -> int:
        with store_of() as store:
            return sum(await asyncio.gather(*(worker(store, str(i)) for i in range(8))))

    assert asyncio.run(asyncio.wait_for(main(), TIME_LIMIT_S)) == 160


def test_closing_wakes_who_awaits() -> None:
    async def ended(transfer: headrace.StoreTransfer) -> list[str]:
        return (await transfer).outcomes

    async def main() -> None:
        store = headrace.Store(["64MiB"], block_bytes="16MiB")
        transfer = store.put_many(["a", "b", "c"], [bytes(2**24)] * 3)
        tasks = [asyncio.create_task(ended(transfer)) for _ in range(2)]
        await asyncio.sleep(0)
        store.close()
        assert await asyncio.gather(*tasks) == [["done"] * 3] * 2

    asyncio.run(asyncio.wait_for(main(), TIME_LIMIT_S))


def test_a_second_loop_awaits_what_the_first_one_gave_up() -> None:
    with headrace.Store(["64MiB"], block_bytes="16MiB") as store:
        transfer = store.put_many(["a", "b", "c"], [bytes(2**24)] * 3)

        async def ended() -> list[str]:
            return (await transfer).outcomes

        async def gives_up() -> None:
            task = asyncio.create_task(ended())
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(gives_up())
        assert asyncio.run(asyncio.wait_for(ended(), TIME_LIMIT_S)) == ["done"] * 3


def test_a_descriptor_tells_of_the_end() -> None:
    with store_of() as store:
        descriptor = store.fileno()
        transfer = store.put_many(["a"], [b"x"])
        assert select.select([descriptor], [], [], TIME_LIMIT_S)[0]
        assert int.from_bytes(os.read(descriptor, 8), "little") == 1
        assert transfer.poll()


def test_tiers_take_what_does_not_fit() -> None:
    with store_of("64KiB", "1MiB") as store:
        for i in range(100):
            store.put(str(i), i.to_bytes(4, "little"))
        assert [int.from_bytes(store.get(str(i)), "little") for i in range(100)] == list(range(100))
        statistics = store.statistics
        assert statistics.dropped == 0
        assert statistics.tiers[1].demotions >= 84
        assert statistics.tiers[0].capacity_blocks == 16


def test_a_file_keeps_its_blocks(tmp_path: Path) -> None:
    tier = headrace.Tier("1MiB", path=tmp_path / "blocks")
    with store_of(tier) as store:
        store.put("a", b"one")
        with pytest.raises(headrace.CapacityExceededError, match="has it open"):
            store_of(tier)
    with store_of(headrace.Tier(0, path=tmp_path / "blocks")) as store:
        assert store.get("a") == b"one"
        assert store.statistics.tiers[0].recovered == 1
    with pytest.raises(headrace.InvalidArgumentError, match="was made for"):
        store_of(headrace.Tier("2MiB", path=tmp_path / "blocks"))


def _refused_in_child(store: headrace.Store, answers: "SimpleQueue[str]") -> None:
    try:
        store.put("b", b"x")
    except headrace.ClosedError:
        answers.put("closed")


def test_a_child_of_fork_is_refused() -> None:
    with store_of() as store:
        store.put("a", b"x")
        context = multiprocessing.get_context("fork")
        answers: SimpleQueue[str] = context.SimpleQueue()
        child = context.Process(target=_refused_in_child, args=(store, answers))
        child.start()
        assert answers.get() == "closed"
        child.join(TIME_LIMIT_S)
        assert store.get("a") == b"x"


def test_a_closed_engine_closes_transfers() -> None:
    engine = headrace.Engine()
    with store_of(engine=engine) as store:
        store.put("a", b"x")
        engine.close()
        with pytest.raises(headrace.ClosedError, match="closed"):
            store.put("b", b"x")


EXAMPLES = {"key_value": "--batches=40", "storage_target": "--operations=60"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_returns_what_was_written(name: str) -> None:
    command = [sys.executable, "-m", f"headrace.examples.{name}", EXAMPLES[name]]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[-1] == "bad"
    assert [line.split()[-1] for line in lines[1:3]] == ["0", "0"]


def test_processes_of_an_example_share_a_store() -> None:
    command = [sys.executable, "-m", "headrace.examples.key_value", "--processes=4"]
    done = subprocess.run(
        [*command, "--batches=20"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    shared, split = (line.split() for line in done.stdout.splitlines()[1:3])
    assert [shared[-1], split[-1]] == ["0", "0"]
    assert float(shared[-2]) > float(split[-2])  # Its hit rate.


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("name", EXAMPLES)
def test_devices_copy_for_an_example(name: str, command_path: Path) -> None:
    program = [sys.executable, "-m", f"headrace.examples.{name}", EXAMPLES[name]]
    command = [str(command_path), "emulate", "--", *program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[-1] for line in lines[1:3]] == ["0", "0"]
    assert "(emulated)" in lines[3]
    assert lines[3].endswith("; 100 % of the bytes by them")


def test_a_signal_does_not_end_a_block_of_the_storage_target_early() -> None:
    received = bytearray(8)
    signalled = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    ours, theirs = socket.socketpair()

    def send() -> None:
        for each in b"received":
            theirs.send(bytes([each]))
            time.sleep(0.02)
            signal.pthread_kill(signalled, signal.SIGUSR1)

    with ours, theirs:
        sender = threading.Thread(target=send)
        sender.start()
        receive(ours, memoryview(received))
        sender.join()
    signal.signal(signal.SIGUSR1, before)
    assert received == b"received"


def test_random_work_gives_what_a_dict_gives() -> None:
    chosen = random.Random(7)  # noqa: S311 - Not for secrets.
    known: dict[str, bytes] = {}
    with store_of("64KiB", "4MiB", checksums=True) as store:
        for _ in range(1500):
            key = str(chosen.randrange(60))
            if chosen.random() < 0.5:
                known[key] = chosen.randbytes(chosen.randrange(1, BLOCK + 1))
                store.put(key, known[key], tier=chosen.randrange(2))
            elif chosen.random() < 0.1:
                assert store.remove(key) == (known.pop(key, None) is not None)
            elif key in known:
                assert store.get(key) == known[key]
            else:
                assert key not in store
        assert sorted(store.keys()) == sorted(key.encode() for key in known)


def test_overwriting_a_file_reads_nothing(tmp_path: Path) -> None:
    def bytes_read() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(each.split(": ") for each in lines)["read_bytes"])

    with headrace.Store(
        [headrace.Tier("4MiB", path=tmp_path / "blocks")], block_bytes="64KiB"
    ) as store:
        keys = [b"%d" % number for number in range(32)]
        store.put_many(keys, [bytes(65536)] * 32).check()
        before = bytes_read()
        store.put_many(keys, [b"x" * 1000] * 32).check()
        assert bytes_read() == before
