# SPDX-License-Identifier: Apache-2.0
"""Rings from Python and by the command: nothing lost, nothing twice, bad input told by name."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from conftest import TIME_LIMIT_S, Command, Here

import headrace
from headrace.errors import ClosedError, CorruptDataError
from headrace.pmem import Ring
from headrace_lab import _lab

LINE: Final = "line"
"""As if any file were on persistent memory: quick, and enough where no power fails."""

EXAMPLE = Path(__file__).parents[2] / "examples" / "ring.py"
SUBJECTS = _lab.check_subjects()


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path / "ring", capacity="64KiB")


def test_entries_come_in_order_and_once(ring: Ring) -> None:
    with ring.producer(granularity=LINE) as producer:
        for number in range(100):
            assert producer.enqueue(b"entry %d" % number)
        assert producer.next_ordinal == 100
    with ring.consumer(granularity=LINE) as consumer:
        assert [entry.data for entry in consumer] == [b"entry %d" % n for n in range(100)]
        consumer.acknowledge()
    with ring.consumer(granularity=LINE) as consumer:
        assert consumer.next() is None


def test_what_was_not_acknowledged_comes_again(ring: Ring) -> None:
    with ring.producer(granularity=LINE) as producer:
        producer.enqueue_all([b"one", b"two"])
    for _ in range(2):
        with ring.consumer(granularity=LINE) as consumer:
            entry = consumer.next()
            assert entry is not None
            assert (entry.ordinal, entry.data) == (0, b"one")


def test_entries_may_be_any_buffer_and_empty(ring: Ring) -> None:
    with ring.producer(granularity=LINE) as producer, ring.consumer(granularity=LINE) as consumer:
        array = np.arange(10, dtype=np.int64)
        for entry in (b"", bytearray(b"x"), memoryview(b"abc"), array):
            assert producer.enqueue(entry)
        got = [entry.data for entry in consumer]
        assert got == [b"", b"x", b"abc", array.tobytes()]


def test_a_full_ring_takes_no_more_until_something_is_acknowledged(ring: Ring) -> None:
    with ring.producer(granularity=LINE) as producer, ring.consumer(granularity=LINE) as consumer:
        while producer.enqueue(bytes(4000)):
            pass
        assert len(list(consumer)) == producer.next_ordinal
        assert not producer.enqueue(bytes(4000))
        consumer.acknowledge()
        assert producer.enqueue(bytes(4000))


def test_an_entry_larger_than_the_ring_takes_is_refused(ring: Ring) -> None:
    with ring.producer(granularity=LINE) as producer:
        assert producer.enqueue(bytes(producer.entry_bytes_max))
        with pytest.raises(headrace.InvalidArgumentError, match="longer than"):
            producer.enqueue(bytes(producer.entry_bytes_max + 1))
        with pytest.raises(headrace.InvalidArgumentError, match="has no buffer"):
            producer.enqueue("text")


def test_an_ordinary_file_says_what_it_is(ring: Ring) -> None:
    with ring.producer() as producer:
        assert not producer.is_persistent_memory
        assert "NOT persistent memory" in producer.note
        assert producer.enqueue(b"durable by msync")


def test_a_role_is_taken_once_and_given_back(ring: Ring) -> None:
    producer = ring.producer(granularity=LINE)
    with pytest.raises(headrace.CapacityExceededError, match="has a producer already"):
        ring.producer(granularity=LINE)
    assert ring.state().has_producer
    producer.close()
    producer.close()
    with pytest.raises(headrace.ClosedError):
        producer.enqueue(b"")
    ring.producer(granularity=LINE).close()


def test_threads_share_an_end(ring: Ring) -> None:
    with ring.producer(granularity=LINE) as producer:
        threads = [
            threading.Thread(target=lambda: [producer.enqueue(b"x") for _ in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.next_ordinal == 200


_CLOSE_WHILE_NEXT = """
import sys, threading
from headrace import ClosedError
from headrace.errors import ClosedError, CorruptDataError
from headrace.pmem import Ring
from headrace_lab import _lab

# No thread gives the interpreter away before it has to. So when one thread has let the ring go, and
# another has closed it, the first still waits for the interpreter that this thread has.
sys.setswitchinterval(100)
ring = Ring(sys.argv[1], capacity="64MiB")
with ring.producer(granularity="line") as producer:
    entry = bytes(producer.entry_bytes_max)
    assert producer.enqueue(entry)
for _ in range(60):
    consumer = ring.consumer(granularity="line")
    taken = []
    def take():
        try:
            taken.append(consumer.next().data)
        except ClosedError:
            taken.append(entry)
    threads = [threading.Thread(target=take), threading.Thread(target=consumer.close)]
    for thread in threads:
        thread.start()
    for _ in range(200_000):
        pass
    for thread in threads:
        thread.join()
    assert taken == [entry]
"""


def test_an_end_is_closed_while_another_thread_takes_an_entry(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _CLOSE_WHILE_NEXT, tmp_path / "ring"],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_bad_files_are_refused_by_name(tmp_path: Path) -> None:
    missing = Ring.open(tmp_path / "missing")
    with pytest.raises(headrace.NotFoundError):
        missing.producer()
    other = tmp_path / "other"
    other.write_bytes(b"x" * 65536)
    for attempt in (Ring.open(other).producer, Ring.open(other).consumer, Ring.open(other).state):
        with pytest.raises(headrace.CorruptDataError, match="not a ring"):
            attempt()
    assert other.read_bytes() == b"x" * 65536
    with pytest.raises(headrace.InvalidArgumentError, match="already exists"):
        Ring(other, capacity="1MiB")


def test_a_forked_child_uses_no_end_of_its_parent(ring: Ring) -> None:
    """Both processes would write to the same place, and one durable entry would be lost."""
    with (
        ring.producer(granularity="line") as producer,
        ring.consumer(granularity="line") as consumer,
    ):
        producer.enqueue(b"before")
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (lambda: producer.enqueue(b"x"), consumer.next, consumer.acknowledge):
                try:
                    use()
                except ClosedError as error:
                    refused += "forked" in str(error)
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert producer.enqueue(b"after")
        assert [entry.data for entry in consumer] == [b"before", b"after"]


def test_damage_is_an_error_and_the_rest_is_salvaged(ring: Ring) -> None:
    """Of the newest entry too: its enqueue had returned."""
    entries = [bytes([letter]) * 100 for letter in b"ABC"]
    with ring.producer(granularity="line") as producer:
        assert producer.enqueue_all(entries)
    path = Path(ring.path)
    sound = path.read_bytes()
    for damaged in (1, 2):
        path.write_bytes(sound.replace(entries[damaged], b"!" + entries[damaged][1:]))
        with pytest.raises(CorruptDataError, match=f"entry {damaged} "):
            ring.consumer(granularity="line")
        found = ring.salvage()
        assert [entry.ordinal for entry in found.entries] == [i for i in range(3) if i != damaged]
        assert found.missing_count == (damaged == 1)
        assert found.acknowledged_count == 0


def test_a_truncated_file_is_an_error_and_no_signal(ring: Ring) -> None:
    with ring.producer(granularity=LINE) as producer:
        os.truncate(ring.path, 0)
        with pytest.raises(headrace.IoFailedError, match="truncated"):
            producer.enqueue(b"x")


@pytest.mark.parametrize("name", [name for name, _, sound in SUBJECTS if not sound])
def test_each_of_the_gallery_is_caught(here: Here, name: str) -> None:
    outcome = here("pmem", "check", "--variant", name)
    assert outcome.code == 1
    assert "1 bad" in outcome.stdout
    assert "power failed before event" in outcome.stdout


def test_the_sound_rings_have_no_bad_state(here: Here) -> None:
    arguments = ("--variant", "sound", "--entries", "2", "--states", "32", "--json")
    outcome = here("pmem", "check", *arguments)
    assert outcome.code == 0
    document = json.loads(outcome.stdout)
    assert document["schema"]["name"] == "headrace-pmem-check"
    assert document["summary"]["states_bad"] == 0
    assert document["summary"]["states_tried"] > 10_000
    assert set(document["results"]["subjects"]) == {"naive", "clflushopt", "clwb", "optimised"}


def test_what_can_be_checked_is_listed(here: Here) -> None:
    outcome = here("pmem", "check", "--list")
    assert outcome.code == 0
    assert outcome.stdout.count("broken") >= 12


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "--variant", "perfect"),
        ("check", "--entries", "0"),
        ("check", "--states", "many"),
        ("ring", "make", "x", "--capacity", "much"),
    ],
)
def test_wrong_use_is_refused_in_a_sentence(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = here("pmem", *arguments)
    assert outcome.code == 2
    assert arguments[-2] in outcome.stderr
    assert not list(tmp_path.iterdir())


def test_the_command_shows_the_state_of_a_ring(command: Command, tmp_path: Path) -> None:
    ring = str(tmp_path / "ring")
    command("pmem", "ring", "make", ring, "--capacity", "64KiB")
    with Ring.open(ring).producer(granularity=LINE) as producer:
        assert producer.enqueue_all([b"one", b"two", b"", b"w\\ord"])
        assert "at work now: producer" in command("pmem", "ring", "info", ring).stdout
    info = json.loads(command("pmem", "ring", "info", ring, "--json").stdout)
    assert info["summary"] == {"entry_count": 4, "first_ordinal": 0, "next_ordinal": 4}


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_a_command_that_is_gone_names_the_other_way(here: Here, name: str) -> None:
    outcome = here("pmem", "ring", name, "ring.pmem", "--count", "4")
    assert outcome.code == 2
    assert f"'ring {name}' is gone: examples/ring.py has" in outcome.stderr


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIME_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("victim", ["produce", "consume"])
def test_nothing_is_lost_or_doubled_when_either_is_killed(tmp_path: Path, victim: str) -> None:
    """By the program of the tutorial."""
    ring, output = tmp_path / "ring", tmp_path / "out"
    total = 20_000
    Ring(ring, capacity="1MiB")
    arguments: dict[str, list[str | Path]] = {
        "produce": ["produce", ring, str(total)],
        "consume": ["consume", ring, str(total), output],
    }

    def start(role: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, EXAMPLE, *arguments[role]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    running = {role: start(role) for role in arguments}
    try:
        for kill in range(3):
            wanted = (kill + 1) * 2000
            _wait_until(
                lambda wanted=wanted: (  # type: ignore[misc]
                    output.exists() and output.stat().st_size > wanted * 8
                )
            )
            running[victim].send_signal(signal.SIGKILL)
            running[victim].wait(60)
            running[victim] = start(victim)
        for process in running.values():
            assert process.wait(120) == 0
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    assert output.read_text() == "".join(f"{n}\tentry {n}\n" for n in range(total))


def test_the_benchmark_has_the_figures_that_one_quotes(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_lab.commands.bench.pmem._CAPACITY_MIB", 1)
    outcome = here("bench", "pmem", "--rounds", "2", "--json")
    assert outcome.code == 0, outcome.stderr
    document = json.loads(outcome.stdout)
    assert set(document["summary"]) == {
        "optimised_over_naive_4k",
        "optimised_over_naive_2k",
        "optimised_over_naive_256",
        "optimised_over_naive_256_single",
        "over_libpmem_worst",
        "store_bandwidth_share",
        "fenced_bandwidth_share",
        "clflush_over_clwb",
    }
    assert document["results"]["persistent"] is False
    report = here("bench", "pmem", "--rounds", "2").stdout
    assert report.count("PRETENDED") == 1
    assert report.count("best on libpmem2") == 1
    assert len(re.findall(r"\([0-9.]+ to [0-9.]+\)", report)) == 7 * 6


@pytest.mark.parametrize(
    "words, said",
    [
        (["make", "{}", "--layout", "positions"], "--layout: every ring has checksums now"),
        (["make", "{}", "--capacity", "5"], "--capacity: '5' is not a size from 4 KiB"),
    ],
)
def test_wrong_options_of_a_ring_are_wrong_use_and_make_nothing(
    here: Here, tmp_path: Path, words: list[str], said: str
) -> None:
    result = here("pmem", "ring", *(word.format(tmp_path / "ring") for word in words))
    assert result.code == 2
    assert said in result.stderr
    assert not list(tmp_path.iterdir())
