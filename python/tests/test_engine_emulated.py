# SPDX-License-Identifier: Apache-2.0
"""The engine from Python on emulated devices: the device does it, and says so."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import SCALE_FACTOR, TIME_LIMIT_S

from headrace import _core

EMULATOR = Path(_core.__file__ or "").parent / "_emulator" / "headrace-emulator"
PAGE_FAULTS = Path(__file__).parents[2] / "tests" / "data" / "page-faults.toml"

pytestmark = pytest.mark.usefixtures("emulator")


def emulated(*arguments: str, options: tuple[str, ...] = ()) -> str:
    """What Python prints on emulated devices."""
    done = subprocess.run(
        [EMULATOR, *options, "--", sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("queues", ["shared", "dedicated", "both"])
def test_the_example_is_done_by_devices(queues: str) -> None:
    text = emulated("-m", "headrace.examples.copy", options=("--devices", "2", "--wq", queues))
    assert "dsa0/wq0.0: " in text
    assert "dsa1/" in text
    assert " 4194304 bytes: correct, 100% by a device" in text
    totals = re.search(r"(\d+) bytes in \d+ jobs, (\d+) bytes by devices", text)
    assert totals is not None
    assert totals[1] == totals[2]
    assert " 0 jobs fell back" in text
    # Most of the eight queues of a device have no entries and are not reported.
    assert "not used" not in text
    assert re.search(r"^dsa0/wq0\.0: \d+ descriptors, 0 page faults, ", text, re.MULTILINE)


def test_a_function_that_a_job_of_a_device_calls_may_not_wait_for_another() -> None:
    text = emulated(
        "-c",
        """
import headrace, time

with headrace.Engine(path="dsa") as engine:
    one, other = bytes(1 << 20), bytearray(1 << 20)
    told = []

    def then(completion):
        jobs = [engine.submit(source=one, target=other) for _ in range(2)]
        # A device has no thread that would end them, however long ago it has done its work.
        time.sleep(0.05)
        for wait in (jobs[0].wait, jobs[1].result):
            try:
                told.append(str(wait(60)))
            except headrace.InvalidArgumentError as error:
                told.append(error.cause)
        told.append(completion.path)

    job = engine.submit(source=one, target=other, then=then)
    job.wait()
    for _ in range(6000):
        if len(told) == 3:
            break
        engine.poll()
        time.sleep(0.01)
print(told)
""",
    )
    refusal = "a callback of a job may not wait for another job"
    assert text.strip() == str([refusal, refusal, "dsa"])


def test_page_faults_change_no_byte_and_are_all_told(tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    options = ("--faults", str(PAGE_FAULTS), "--stats", str(stats))
    text = emulated("-m", "headrace.examples.copy", options=options)
    assert text.count(": correct, 100% by a device") == 7
    assert " 0 jobs fell back" in text
    told = [int(count) for count in re.findall(r"(\d+) page faults", text)]
    injected = json.loads(stats.read_text())["summary"]["page_faults"]
    assert sum(told) == injected > 0


def test_an_engine_uses_the_queues_that_it_is_told() -> None:
    text = emulated(
        "-c",
        """
import headrace

def devices(**options):
    with headrace.Engine(**options) as engine:
        return [mover.name for mover in engine.mover_infos if mover.hardware], engine.notes

assert devices()[0] == ["dsa0/wq0.0", "dsa0/wq0.1", "dsa1/wq1.0", "dsa1/wq1.1"], devices()
assert devices(queues=["dsa1/wq1.1"])[0] == ["dsa1/wq1.1"]
none, notes = devices(queues=())
assert not none and notes == ["Devices are disabled by the options."], notes
try:
    devices(queues=["dsa1/wq1.1", "dsa7/wq7.0"])
except headrace.HardwareAbsentError as error:
    assert "'dsa7/wq7.0'" in str(error) and "headrace dsa list" in str(error), error
    print("well")
""",
        options=("--devices", "2"),
    )
    assert text == "well\n"


def test_a_closed_engine_leaves_its_queues_to_others() -> None:
    text = emulated(
        "-c",
        """
import headrace

engines = []
for _ in range(5):
    with headrace.Engine(path="dsa") as engine:
        engine.copy(source=bytes(4096), target=bytearray(4096))
        print(engine.movers, engine.notes)
        engines.append(engine)
assert all(engine.statistics.bytes_by_device == 4096 for engine in engines)
""",
        options=("--devices", "2", "--wq", "dedicated"),
    )
    assert len(set(text.splitlines())) == 1


def test_brute_force_has_a_queue_of_every_device() -> None:
    text = emulated(
        "-c",
        """
import headrace

source, target = b"x" * (8 << 20), bytearray(8 << 20)
with headrace.Engine(policy="all", path="dsa") as engine:
    engine.submit(source=source, target=target).result()
    used = [name for name, one in engine.device_statistics.items() if one.descriptors]
    assert len(engine.device_statistics) == 16, engine.device_statistics
    assert used == [f"dsa{i}/wq{i}.0" for i in range(8)], used
    ranks = [mover.queue_rank for mover in engine.mover_infos if mover.hardware]
    assert ranks == [0, 1] * 8, ranks
    assert all(mover.emulated == mover.hardware for mover in engine.mover_infos)
assert source == target
print("well")
""",
        options=("--devices", "8"),
    )
    assert text == "well\n"


def test_faults_are_told_by_kind_of_operation() -> None:
    text = emulated(
        "-c",
        """
import headrace, numpy

with headrace.Engine(path="dsa") as engine:
    source = numpy.arange(1 << 18, dtype=numpy.uint8)
    target = numpy.zeros_like(source)
    for _ in range(20):
        assert engine.run(headrace.Operation.copy(source=source, target=target)).state == "done"
    engine.run(headrace.Operation.crc(source))
    totals = engine.statistics
    copies, sums = totals.operations["copy"], totals.operations["crc"]
    assert copies.jobs_done == 20 and sums.jobs_done == 1, totals
    assert copies.bytes == copies.bytes_by_device == 20 * source.nbytes, copies
    assert copies.page_faults > 0 and copies.fallbacks == 0, copies
    faults = sum(kind.page_faults for kind in totals.operations.values())
    assert faults == sum(one.page_faults for one in engine.device_statistics.values()), totals
    assert sum(copies.latencies.values()) == 20, copies
    assert copies.latency_ns_max(0.5) <= copies.latency_ns_max(1), copies
    print("well")
""",
        options=("--faults", str(PAGE_FAULTS)),
    )
    assert text == "well\n"


def test_every_trouble_is_told_by_kind_of_operation(tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text(
        '[[fault]]\nkind = "queue_full"\nevery = 3\n'
        '[[fault]]\nkind = "page_fault"\nevery = 5\nat_byte = 0\n'
        '[[fault]]\nkind = "status"\nstatus = 0x1a\nevery = 7\n'
    )
    text = emulated(
        "-c",
        """
import dataclasses, headrace, json

O = headrace.Operation
source, target = bytes(range(256)) * 256, bytearray(1 << 16)
copy = O.copy(source=source, target=target)
operations = {"copy": copy, "crc": O.crc(source), "fill": O.fill(target, 1)}
told = ("retries", "page_faults", "fallbacks", "bytes", "bytes_by_device", "jobs_done")
with headrace.Engine(path="dsa") as engine:
    for kind, operation in operations.items():
        ends = []
        for _ in range(20):
            ends.append(engine.run(operation))
        counted = engine.statistics.operations[kind]
        wanted = (
            sum(end.retries for end in ends), sum(end.page_faults for end in ends),
            sum(end.fell_back for end in ends), sum(end.bytes_done for end in ends),
            sum(end.bytes_by_device for end in ends), len(ends),
        )
        assert tuple(getattr(counted, name) for name in told) == wanted, (counted, wanted)
        assert sum(counted.latencies.values()) == len(ends), counted
        assert counted.page_faults > 0 and counted.fallbacks > 0, counted
    totals = engine.statistics
    assert totals.operations["dualcast"].jobs_done == 0, totals
    assert sum(one.retries for one in totals.operations.values()) > 0, totals
    assert totals.jobs_fell_back == sum(one.fallbacks for one in totals.operations.values())
    read = json.loads(json.dumps(dataclasses.asdict(totals)))
    assert read["operations"]["crc"]["bytes"] == 20 * len(source), read
print("well")
""",
        options=("--wq", "shared", "--faults", str(faults)),
    )
    assert text == "well\n"


@pytest.mark.parametrize("late_writes", ["report", "fail"])
def test_late_writes_are_told_or_fail(tmp_path: Path, late_writes: str) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text('[[fault]]\nkind = "lost_completion"\nevery = 1\n')
    text = emulated(
        "-c",
        f"""
import headrace

O = headrace.Operation
source, target = bytes(range(256)) * 256, bytearray(1 << 16)
with headrace.Engine(path="dsa", device_timeout=0.2, late_writes="{late_writes}") as engine:
    for operation in (O.copy(source=source, target=target), O.crc(source)):
        job = engine.submit(operation)
        job.wait()
        end = job.completion
        print(end.state, end.cause, end.fell_back, end.late_write_possible)
""",
        options=("--devices", "1", "--faults", str(faults)),
    )
    copied = "done none True True" if late_writes == "report" else "failed device_dead False True"
    assert text == f"{copied}\ndone none True False\n"


def queried(
    command_path: Path, data: Path, *arguments: str, options: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What the query says as JSON on emulated devices."""
    # Chunks that are large enough for path `auto`; so many of them, and of rounds, that copies come
    # in time however busy the machine is.
    small = ("query", "--scale-factor", str(SCALE_FACTOR), "--rounds", "20", "--json")
    chunks = ("--prefetch", "on", "--placement", "0", "--chunk-bytes", "16KiB")
    done = subprocess.run(
        [EMULATOR, *options, "--", command_path, *small, *chunks, *arguments],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
        env=os.environ | {"HEADRACE_DATA": str(data)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    summary = document["summary"]
    assert summary["answer"] == summary["answer_duckdb"] == 1193053.2253
    for mode in document["results"]["modes"].values():
        assert mode.get("bytes_by_device", 0) <= mode.get("bytes_moved", 0), mode
    return document


@pytest.mark.parametrize("path", ["dsa", "auto"])
def test_a_query_has_its_bytes_moved_by_the_device(
    command_path: Path, data_directory: Path, path: str
) -> None:
    document = queried(command_path, data_directory, "--path", path)
    summary = document["summary"]
    assert summary["path"] == path
    assert summary["bytes_by_device"] > 0
    assert summary["fallbacks"] == 0
    assert set(summary["mover"].split(", ")) <= {"dsa0/wq0.0", "dsa0/wq0.1"}
    devices = document["results"]["devices"]
    assert sum(totals["descriptors"] for totals in devices.values()) > 0
    thresholds = document["results"]["thresholds"]
    assert thresholds["source"] in ("published", "profile")
    assert 0 < thresholds["batched_bytes"] <= thresholds["synchronous_bytes"]
    copies = document["results"]["operations"]["copy"]
    latencies = copies["latencies"]
    assert sum(one["count"] for one in latencies) >= copies["jobs_done"] > 0
    bounds = [one["latency_ns_max"] for one in latencies]
    assert bounds == sorted(set(bounds))
    modes = document["results"]["modes"]
    assert modes["off"]["bytes_moved"] == modes["off"]["bytes_by_device"] == 0


def test_a_query_by_processors_leaves_the_device_alone(
    command_path: Path, data_directory: Path
) -> None:
    document = queried(command_path, data_directory, "--path", "cpu")
    assert document["summary"]["bytes_by_device"] == 0
    assert document["results"]["devices"] == {}
    assert all(name.startswith("cpu/") for name in document["results"]["movers"])


def test_a_query_survives_page_faults_and_tells_of_them(
    command_path: Path, data_directory: Path
) -> None:
    options = ("--faults", str(PAGE_FAULTS))
    document = queried(command_path, data_directory, "--path", "dsa", options=options)
    assert document["summary"]["bytes_by_device"] > 0
    devices = document["results"]["devices"]
    assert sum(totals["page_faults"] for totals in devices.values()) > 0


def test_every_operation_is_done_by_a_device() -> None:
    text = emulated(
        "-c",
        """
import headrace

O = headrace.Operation
source, target = bytes(range(256)) * 64, bytearray(1 << 14)
with headrace.Engine(path="dsa") as engine:
    for operation in (
        O.copy(source=source, target=target), O.compare(source, target), O.crc(source),
        O.copy_crc(source=source, target=target), O.fill(target, 7), O.compare_pattern(target, 7),
    ):
        for end in (engine.run(operation), engine.submit(operation).result()):
            assert end.bytes_by_device == len(source), end
            assert not end.fell_back and not end.different and end.device_status == 0, end
    statistics = engine.statistics
    assert statistics.bytes_by_device == statistics.bytes_moved == 12 * len(source)
    assert sum(one.descriptors for one in engine.device_statistics.values()) >= 12
    # Without a handle, only a call of the engine polls.
    engine.submit(source=source, target=target)
    while engine.statistics.jobs_done < 13:
        pass
    assert target == source
print("well")
""",
    )
    assert text == "well\n"


@pytest.mark.parametrize("file", ["test_operations.py", "test_jobs.py"])
def test_what_is_true_of_processors_is_true_of_devices(file: str) -> None:
    variables = os.environ | {"HEADRACE_TEST_DEVICES": "1"}
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [EMULATOR, "--", *tests, Path(__file__).parent / file],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
        env=variables,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed in", done.stdout)
    assert "skipped" not in done.stdout


MANY = """
import headrace, numpy as np
engine = headrace.Engine()
cache = headrace.Cache(engine, "64MiB", "local")
source = np.arange(256 * 1024, dtype=np.uint32).view(np.uint8)[: 256 * 1024]
regions = [source[i * 1024 : (i + 1) * 1024] for i in range(256)]
entries = cache.access_many(regions)
for entry, region in zip(entries, regions, strict=True):
    entry.wait()
    assert entry.cached and (entry.view() == region).all()
assert cache.statistics.misses == 256
print(engine.statistics.jobs_fell_back)
"""


INTO_CACHE = """
import headrace, numpy as np, sys
engine = headrace.Engine(path="dsa")
cache = headrace.Cache(engine, "64MiB", "local", into_cache=sys.argv[1] == "1")
source = np.arange(100_000, dtype=np.uint32)
entry = cache.access(source)
entry.wait()
assert entry.cached and (entry.view() == source).all()
parts = [np.full(1000, i, dtype=np.uint8) for i in range(32)]
for entry in cache.access_many(parts):
    entry.wait()
    assert entry.cached
"""


@pytest.mark.parametrize("into_cache", [False, True])
def test_a_cache_says_whether_devices_write_into_the_processors_cache(
    tmp_path: Path, into_cache: bool
) -> None:
    report = tmp_path / "report.json"
    words = ("-c", INTO_CACHE, str(int(into_cache)))
    assert not emulated(*words, options=("--stats", str(report)))
    summary = json.loads(report.read_text())["summary"]
    assert summary["operations"] >= 33, summary
    assert (summary["into_cache"] >= 33) if into_cache else (summary["into_cache"] == 0), summary


def test_accesses_of_one_call_are_one_batch_of_a_device(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert emulated("-c", MANY, options=("--stats", str(report))) == "0\n"
    summary = json.loads(report.read_text())["summary"]
    assert summary["submissions"] <= 16, summary
    assert summary["operations"] >= 256, summary
    assert summary["bytes_written"] >= 262_144, summary
