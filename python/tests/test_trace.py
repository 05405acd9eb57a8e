# SPDX-License-Identifier: Apache-2.0
"""Traces: what programs record, and what the simulator makes of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import TIME_LIMIT_S
from jsonschema import Draft202012Validator
from replay_programs import Program, compare, programs
from traces import (
    ARRIVAL,
    BLOCK_BYTES,
    HEAD_BYTES,
    JOB,
    RAN,
    RECEIVE,
    RECORD_BYTES_MAX,
    RUN,
    SEND,
    THREAD,
    WAIT,
    Entry,
    entries,
    record,
    write,
)

from headrace import simulator
from headrace._cli import run_command_line
from headrace._cli._output import schema_of
from headrace._samples import machine_path
from headrace.errors import (
    Error,
    InvalidArgumentError,
)
from headrace.simulator import Place, inject, replay

Command = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]


def one(trace: str, **options: object) -> simulator.Replayed:
    (result,) = replay(trace, [{"machine": "spr-4dsa"} | options])[1]
    return result


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `headrace sim ...` in this process: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["headrace", "sim", *arguments])
        code = run_command_line()
        out, err = capsys.readouterr()
        return code, out, err

    return call


def traced(path: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program that records into `path`."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"HEADRACE_TRACE": str(path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )


COPIES = """
import headrace, numpy as np
source, target = np.ones(1 << 16, np.uint8), np.zeros(1 << 16, np.uint8)
with headrace.Engine() as engine:
    for _ in range(100):
        engine.submit(source=source, target=target).wait()
"""


def test_a_program_records_what_it_does(tmp_path: Path) -> None:
    done = traced(tmp_path / "t", COPIES)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "t").stat().st_size == HEAD_BYTES + BLOCK_BYTES
    head, (result,) = replay(str(tmp_path / "t"), [{"machine": "spr-1dsa"}])
    assert head["operations"] == 100
    assert len(head["threads"]) == 1
    assert 0 < result.waited_s <= result.time_s
    assert result.time_s == pytest.approx(
        result.computing_s + result.moving_s + result.waited_s, rel=0.01
    )


def test_short_copies_are_recorded_and_counted_as_without_a_trace(tmp_path: Path) -> None:
    program = """
import headrace, numpy as np
source, target = np.ones(1 << 12, np.uint8), np.zeros(1 << 12, np.uint8)
with headrace.Engine(path="cpu") as engine:
    for _ in range(64):
        engine.run(headrace.Operation.copy(source=source, target=target))
    counted = engine.statistics.operations["copy"]
    print(counted.jobs_done, counted.bytes, sum(counted.latencies.values()), target.all())
"""
    done = traced(tmp_path / "t", program)
    # One in sixteen is timed.
    assert (done.stdout.split(), done.stderr) == (["64", str(64 << 12), "4", "True"], "")
    runs = [each for each in entries((tmp_path / "t").read_bytes()) if each.kind == RUN]
    assert [each.size for each in runs] == [1 << 12] * 64
    assert all(each.source and each.target and each.begin < each.end for each in runs)


def test_what_the_recorder_itself_does_is_no_part_of_an_operation(tmp_path: Path) -> None:
    assert traced(tmp_path / "t", COPIES).returncode == 0
    records = entries((tmp_path / "t").read_bytes())
    taken = next(each for each in records if each.kind == THREAD)
    first = next(each for each in records if each.kind == JOB)
    # The thread took its block after the operation.
    assert first.end <= taken.begin < taken.end


def test_a_thread_that_sleeps_does_not_compute(tmp_path: Path) -> None:
    done = traced(
        tmp_path / "t",
        """
import headrace, numpy as np, time
source, target = np.ones(1 << 12, np.uint8), np.zeros(1 << 12, np.uint8)
with headrace.Engine() as engine:
    engine.submit(source=source, target=target).wait()
    time.sleep(0.25)
    engine.submit(source=source, target=target).wait()
""",
    )
    assert (done.returncode, done.stderr) == (0, "")
    given = {"machine": "spr-1dsa", "compute_scale": 0.001}
    (result,) = replay(str(tmp_path / "t"), [given])[1]
    assert result.time_s >= 0.25


def test_a_cache_and_a_store_record_their_moves_and_waits(tmp_path: Path) -> None:
    done = traced(
        tmp_path / "t",
        """
import headrace, numpy as np
data = np.arange(1 << 20, dtype=np.uint8)
with headrace.Engine() as engine:
    with headrace.Cache(engine, "4MiB", "local") as cache:
        for begin in range(0, 1 << 20, 1 << 18):
            cache.access(data[begin:begin + (1 << 18)]).wait()
    with headrace.Store(["1MiB"], block_bytes="64KiB", engine=engine) as store:
        store.put("key", data[:1 << 16])
""",
    )
    assert done.returncode == 0, done.stderr
    head, (here, there) = replay(
        str(tmp_path / "t"),
        [{"machine": "xeon-max-flat"}, {"machine": "xeon-max-flat", "copies": 8}],
    )
    assert head["operations"] == 5
    names = [{each["name"] for each in result.resources} for result in (here, there)]
    assert not any(name.startswith("node 8") for name in names[0])
    assert any(name.startswith("node 8") for name in names[1])


def test_a_child_records_into_the_same_file_and_messages_connect_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "halo.py"), "--steps", "20"],
        env=os.environ | {"HEADRACE_TRACE": str(tmp_path / "t")},
        check=False,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    head, (none, whole) = replay(
        str(tmp_path / "t"),
        [{"machine": "injection-node", "working_bytes": 1 << 20}] * 2,
        place=lambda _: Place(),
    )[0:2]
    assert len({each["process"] for each in head["threads"]}) == 4
    assert none == whole
    (injected,) = replay(
        str(tmp_path / "t"),
        [{"machine": "injection-node", "working_bytes": 1 << 14}],
        place=lambda _: Place("l2", "l2"),
    )[1]
    assert injected.moving_s < none.moving_s


def test_what_a_killed_program_recorded_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "t"
    program = COPIES.replace("range(100)", "iter(int, 1)")
    with subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {"HEADRACE_TRACE": str(path)}
    ) as running:
        end = time.monotonic() + TIME_LIMIT_S
        while time.monotonic() < end and (not path.exists() or path.stat().st_size < 1 << 18):
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
    for byte_count in (path.stat().st_size, 100_001):
        whole = path.read_bytes()[:byte_count]
        path.write_bytes(whole)
        head, _ = replay(str(path), [{"machine": "spr-1dsa"}])
        jobs = [each for each in entries(whole) if each.kind == JOB]
        assert head["operations"] == len(jobs) > 0
        assert len({each.end for each in jobs}) == len(jobs)  # None is there twice.
    assert head["cut_off_bytes"] < RECORD_BYTES_MAX


def test_a_thread_goes_on_in_the_block_of_one_that_has_ended(tmp_path: Path) -> None:
    done = traced(
        tmp_path / "t",
        """
import headrace, threading, numpy as np
source, target = np.ones(1 << 12, np.uint8), np.zeros(1 << 12, np.uint8)
with headrace.Engine() as engine:
    def copy():
        engine.submit(source=source, target=target).wait()
    for _ in range(200):
        thread = threading.Thread(target=copy)
        thread.start()
        thread.join()
""",
    )
    assert (done.returncode, done.stderr) == (0, "")
    head, _ = replay(str(tmp_path / "t"), [{"machine": "spr-1dsa"}])
    assert (head["operations"], len(head["threads"])) == (200, 200)
    # Python may not wait until a thread has quite ended.
    assert (tmp_path / "t").stat().st_size < HEAD_BYTES + 20 * BLOCK_BYTES


def test_all_that_fills_several_blocks_is_recorded_once(tmp_path: Path) -> None:
    done = traced(tmp_path / "t", COPIES.replace("range(100)", "range(10_000)"))
    assert (done.returncode, done.stderr) == (0, "")
    head, _ = replay(str(tmp_path / "t"), [{"machine": "spr-1dsa"}])
    assert head["operations"] == 10_000
    assert (tmp_path / "t").stat().st_size > HEAD_BYTES + 2 * BLOCK_BYTES


def test_the_api_starts_and_stops_and_refuses_what_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("my thesis")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            """
import headrace, sys
from pathlib import Path
folder = Path(sys.argv[1])
def refused(path):
    try:
        headrace.start_trace(path)
    except headrace.InvalidArgumentError as error:
        print(error.cause.rpartition(": ")[2])
refused(folder / "mine")
headrace.start_trace(folder / "t")
refused(folder / "u")
headrace.stop_trace()
refused(folder / "t")
headrace.start_trace(folder / "u")
""",
            str(tmp_path),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    assert done.stdout.splitlines() == [
        "it exists and is something else",
        "this process records a trace already",
        "this process has recorded into it before",
    ]
    assert (tmp_path / "mine").read_text() == "my thesis"
    refused = traced(tmp_path / "mine", "import headrace._core")
    assert (refused.returncode, "has no effect" in refused.stderr) == (0, True)


def test_a_move_waited_for_late_costs_nothing(tmp_path: Path) -> None:
    late = [record(JOB, 100, 200, size=1 << 20), record(WAIT, 10_000_200, 10_000_300)]
    early = [record(JOB, 100, 200, size=1 << 20), record(WAIT, 200, 300)]
    assert one(write(tmp_path / "t", late)).waited_s == 0
    waits = one(write(tmp_path / "u", early)).waited_s
    assert 20e-6 < waits < 200e-6


def test_sleeping_threads_are_woken(tmp_path: Path) -> None:
    machine = json.loads(Path(machine_path("spr-4dsa")).read_text())
    machine["model"]["core"] |= {
        name: {"value": value, "source": "chosen"}
        for name, value in {"wake": "40 us", "waking": "15 us"}.items()
    }
    path = tmp_path / "machine"
    path.write_text(json.dumps(machine))

    def added(wait_ns: int, size: int, workers: int) -> tuple[float, float]:
        records = [record(JOB, 100, 200, size=size), record(WAIT, wait_ns, wait_ns + 1)]
        trace = write(tmp_path / "t", records)
        given = [
            {"machine": each, "path": "cpu", "workers": workers} for each in (path, "spr-4dsa")
        ]
        after, before = replay(trace, given)[1]
        return (after.moving_s - before.moving_s, after.waited_s - before.waited_s)

    # The submission wakes a worker. This one spins when the copy ends, that one sleeps, too.
    assert added(200, 4096, 1) == pytest.approx((15e-6, 25e-6), rel=0.01)
    assert added(200, 8 << 20, 1) == pytest.approx((15e-6, 65e-6), rel=0.01)
    assert added(1_000_000, 4096, 1) == pytest.approx((15e-6, 0))
    # A worker wakes the next one and then begins its first piece.
    assert 65e-6 < added(200, 8 << 20, 2)[1] < 65e-6 + 55e-6


def test_workers_share_a_cache(tmp_path: Path) -> None:
    machine = json.loads(Path(machine_path("spr-4dsa")).read_text())
    rates = dict.fromkeys(("read", "fill", "copy"), "10 GB/s")
    values = rates | {f"{name}_all": "12 GB/s" for name in rates} | {"bytes": "1 GiB", "cores": "2"}
    level = {name: {"value": value, "source": "chosen"} for name, value in values.items()}
    machine["model"]["core"]["levels"] = [level]
    path = tmp_path / "machine"
    path.write_text(json.dumps(machine))
    # One place again and again.
    records = [
        each
        for at in range(100, 3000, 100)
        for each in (record(JOB, at, at, size=8 << 20), record(WAIT, at, at))
    ]
    trace = write(tmp_path / "t", records)
    given = [{"machine": path, "path": "cpu", "workers": workers} for workers in (1, 2)]
    alone, both = (each.time_s for each in replay(trace, given)[1])
    assert alone / both == pytest.approx(12 / 10, rel=0.02)


def test_a_submission_takes_what_was_measured(tmp_path: Path) -> None:
    machine = json.loads(Path(machine_path("spr-4dsa")).read_text())
    path = tmp_path / "machine"
    jobs = [record(JOB, 100, 100, name=name, size=1 << 18) for name in range(1, 5)]
    trace = write(tmp_path / "t", jobs)

    def moving_s(**core: str) -> float:
        values = {name: {"value": value, "source": "chosen"} for name, value in core.items()}
        changed = machine["model"] | {"core": machine["model"]["core"] | values}
        path.write_text(json.dumps(machine | {"model": changed}))
        return one(trace, machine=path, path="cpu", workers=1).moving_s

    assert moving_s(handover="400 ns") == pytest.approx(4 * 400e-9)
    assert moving_s(handover="400 ns", looking="160 ns") == pytest.approx(4 * 160e-9)


def test_more_threads_than_processors_wait_until_one_sleeps(tmp_path: Path) -> None:
    machine = json.loads(Path(machine_path("spr-4dsa")).read_text())
    for socket in machine["model"]["sockets"]:
        socket["cores"] = {"value": "1", "source": "chosen"}
    few = tmp_path / "machine"
    few.write_text(json.dumps(machine))

    def program(size: int) -> list[Entry]:
        """Compute for a millisecond; meanwhile a worker copies."""
        return [
            record(JOB, 100, 200, size=size),
            record(WAIT, 1_000_200, 1_000_201),
        ]

    def times(*threads: list[Entry]) -> tuple[float, float]:
        trace = write(tmp_path / "t", *threads)
        given = [{"machine": each, "path": "cpu", "workers": 1} for each in (few, "spr-4dsa")]
        on_few, on_many = replay(trace, given)[1]
        return on_few.time_s, on_many.time_s

    sockets = len(machine["model"]["sockets"])
    # The worker gets a processor when a thread that waits for it has spun for 50 us and sleeps.
    assert times(*[program(64)] * sockets) == pytest.approx((1.05e-3, 1e-3), rel=0.01)
    # With twice as many threads it runs after two of them.
    assert times(*[program(64)] * 2 * sockets) == pytest.approx((2.15e-3, 1e-3), rel=0.01)
    on_few, on_many = times(*[program(1 << 20)] * sockets)
    assert 1.1e-3 < on_few < 1.5e-3
    assert on_many == pytest.approx(1e-3, rel=0.02)


def test_a_worker_without_a_processor_gets_that_of_the_thread_that_waits(tmp_path: Path) -> None:
    machine = json.loads(Path(machine_path("spr-4dsa")).read_text())
    for socket in machine["model"]["sockets"]:
        socket["cores"] = {"value": "1", "source": "chosen"}
    few = tmp_path / "machine"
    few.write_text(json.dumps(machine))
    # One worker has the other processor and wakes the next one, which ran last on the first.
    records = [record(JOB, 100, 200, size=4 << 20), record(WAIT, 200, 201)]
    trace = write(tmp_path / "t", records)
    given = [{"machine": few, "path": "cpu", "workers": workers} for workers in (1, 2)]
    alone, both = (each.time_s for each in replay(trace, given)[1])
    assert both < 0.75 * alone


def test_a_thread_without_a_processor_does_not_compute(tmp_path: Path) -> None:
    def time_s(ran_ns: int, sleeps: int, **options: object) -> float:
        records = [
            record(RAN, 100, 100, name=7),
            record(RUN, 100, 200, size=64),
            record(RAN, 1_000_200, 1_000_200, name=7 + sleeps, other=ran_ns),
            record(RUN, 1_000_200, 1_000_300, size=64),
        ]
        return one(write(tmp_path / "t", records), **options).time_s

    # It slept, or another thread took its processor.
    assert time_s(300_000, 1) == pytest.approx(1e-3, rel=0.01)
    assert time_s(300_000, 0) == pytest.approx(300e-6, rel=0.01)
    assert time_s(300_000, 1, compute_scale=2) == pytest.approx(1.3e-3, rel=0.01)
    assert time_s(2_000_000, 1) == pytest.approx(1e-3, rel=0.01)


def test_predictions_are_compared_with_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replay_programs.TRIES", 1)
    given = [Program("batch", 1 << 20, True), Program("wait", 4 << 20, False, threads=2)]
    outcomes = list(compare(lambda: Path(machine_path("spr-4dsa")), given, 1))
    assert [each.program for each in outcomes] == given
    assert all(min(each.predicted_s, each.measured_s, each.again_s) > 0 for each in outcomes)
    assert len({program.name for program in programs()}) == len(programs()) >= 20


def test_recorded_durations_are_no_input(tmp_path: Path) -> None:
    def program(wait_ns: int) -> list[Entry]:
        now, records = 100, []
        for number in range(1, 50):
            records.append(record(JOB, now, now + 100, name=number, size=1 << 18))
            records.append(record(WAIT, now + 1100, now + 1100 + wait_ns, name=number))
            now += 2100 + wait_ns
        return records

    slow, fast = (one(write(tmp_path / str(ns), program(ns))) for ns in (10, 1_000_000))
    assert slow.time_s == fast.time_s
    assert slow.computing_s == pytest.approx(49 * 1e-6 + 48 * 1e-6)


def test_devices_path_scale_and_policy_change_what_they_must(tmp_path: Path) -> None:
    jobs = [record(JOB, 100 * i, 100 * i + 50, name=i, size=1 << 20) for i in range(1, 400)]
    waits = [record(WAIT, 50_000 + i, 50_000 + i, name=i) for i in range(1, 400)]
    trace = write(tmp_path / "t", jobs + waits)
    times = [one(trace, devices=count).time_s for count in (1, 2, 4)]
    assert times[0] > 1.6 * times[1]
    assert times[1] > 1.2 * times[2]
    assert one(trace, path="cpu").devices[0]["submissions"] == 0
    assert one(trace, devices=1).devices[0]["submissions"] == 399
    assert one(trace, devices=1).devices[0]["queued_us"] > 100
    plain, scaled = one(trace), one(trace, compute_scale=10)
    assert scaled.computing_s == pytest.approx(10 * plain.computing_s)
    with pytest.raises(Error, match="has 4 devices, not 5"):
        one(trace, devices=5)


def test_messages_wait_for_their_senders(tmp_path: Path) -> None:
    sender = [record(SEND, 5_000_000, 5_000_100, name=9, other=1, size=4096)]
    receiver = [
        record(ARRIVAL, 100, 5_000_200, name=9),
        record(RECEIVE, 5_000_200, 5_000_300, name=9, other=1, size=4096),
    ]
    outside = [record(RECEIVE, 200, 300, name=8, other=1, size=64)]
    first = record(SEND, 50, 60, name=7, other=1, size=64)
    trace = write(tmp_path / "t", [first, *sender], receiver)
    (result,) = replay(trace, [{"machine": "injection-node"}])[1]
    assert result.waited_s == pytest.approx(5e-3, rel=0.01)
    (alone,) = replay(write(tmp_path / "u", outside), [{"machine": "injection-node"}])[1]
    assert alone.waited_s == 0


def test_events_of_the_emulator_are_replayed(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"format": "headrace-trace", "version": 1, "records": "json"}]
    for i in range(10):
        event = {"device": 0, "queue": 0, "sequence": i, "index": 0, "opcode": "move"}
        event |= {"byte_count": 1 << 20, "process": 7}
        for what, at in (("submitted", 0), ("started", 100), ("finished", 900_000)):
            lines.append({"time_ns": 1_000_000 * i + at, "event": what, **event})
    path = tmp_path / "t"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"time_ns": 99')
    head, (result,) = replay(str(path), [{"machine": "spr-4dsa", "compute_scale": 0}])
    assert (head["operations"], head["cut_off_bytes"]) == (10, 14)
    assert 9 * 30e-6 < result.time_s < 10 * 100e-6


def test_a_fence_in_a_batch_waits_for_the_members_before_it(tmp_path: Path) -> None:
    def trace(*fenced: int) -> str:
        lines: list[dict[str, Any]] = [
            {"format": "headrace-trace", "version": 1, "records": "json"}
        ]
        event: dict[str, Any] = {"device": 0, "queue": 0, "sequence": 0, "process": 7}
        lines.append({"time_ns": 0, "event": "submitted", "index": 0, "opcode": "batch", **event})
        for index in range(1, 9):
            one = event | {"opcode": "move", "byte_count": 4096, "index": index}
            one |= {"fence": 1} if index in fenced else {}
            lines += [
                {"time_ns": 10 * index, "event": what, **one} for what in ("started", "finished")
            ]
        lines.append({"time_ns": 900, "event": "finished", "index": 0, "opcode": "batch", **event})
        after = event | {"sequence": 1, "byte_count": 64, "index": 0, "opcode": "move"}
        lines += [{"time_ns": 950, "event": what, **after} for what in ("submitted", "finished")]
        path = tmp_path / f"t{len(fenced)}"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    none, some, every = (one(trace(*fenced), devices=1) for fenced in ((), (1, 5), range(2, 9)))
    # Each part has the latency of a submission of its own.
    assert 1.1 * none.time_s < some.time_s < every.time_s / 1.5
    assert some.devices[0]["submissions"] == none.devices[0]["submissions"] + 1
    assert every.devices[0]["submissions"] == none.devices[0]["submissions"] + 7


def test_a_signal_ends_a_replay_at_once(tmp_path: Path) -> None:
    records = [record(RUN, 100 * i, 100 * i + 50, name=i, size=1 << 20) for i in range(1, 50_000)]
    program = f"""
import os, signal
from headrace.simulator import replay
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
print("begins", flush=True)
replay({write(tmp_path / "t", records)!r}, [{{"machine": "spr-4dsa"}}] * 10_000)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None
            running.stdout.readline()
            time.sleep(1)
            running.terminate()
            assert running.wait(TIME_LIMIT_S / 2) == 3
        finally:
            running.kill()


def test_the_command_compares_machines_and_draws(tmp_path: Path, command: Command) -> None:
    jobs = [
        each
        for i in range(1, 50)
        for each in (
            record(JOB, 2000 * i, 2000 * i + 50, name=i, size=1 << 20),
            record(WAIT, 2000 * i + 60, 2000 * i + 70, name=i),
        )
    ]
    trace = write(tmp_path / "t", jobs)
    code, out, err = command(
        *("replay", trace, "--machine", "spr-4dsa", "--machine", "xeon-max-flat"),
        *("--map", "0=ddr0,copies=ddr0", "--sweep", "devices=1,2", "--json"),
    )
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert [each["machine"] for each in document["results"]] == ["spr-4dsa"] * 2 + [
        "xeon-max-flat"
    ] * 2
    assert document["summary"]["time_s"] == min(each["time_s"] for each in document["results"])
    picture = tmp_path / "t.svg"
    code, out, err = command("replay", trace, "--machine", "spr-4dsa", "--plot", str(picture))
    assert (code, err) == (0, "")
    assert "waiting" in picture.read_text()
    code, _, err = command("replay", trace, "--machine", "spr-4dsa", "--map", "0=hbm")
    assert code == 2
    assert "places of 'spr-4dsa' are ddr0" in err


def test_advice_about_a_program_ranks_machines_and_movers(tmp_path: Path, command: Command) -> None:
    jobs = [record(JOB, 100 * i, 100 * i + 50, name=i, size=4 << 20) for i in range(1, 200)]
    waits = [record(WAIT, 50_000 + i, 50_000 + i, name=i) for i in range(1, 200)]
    trace = write(tmp_path / "t", jobs + waits)
    code, out, err = command("advise", "--trace", trace, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    Draft202012Validator(schema_of("sim-advise")).validate(document)
    found = document["results"]
    assert {"spr-4dsa", "xeon-max-flat"} <= {each["machine"] for each in found}
    assert found == sorted(found, key=lambda each: each["time_s"])
    best = document["summary"]
    assert best == {"kind": "simulated"} | found[0]
    code, out, _ = command("advise", "--trace", trace, "--machine", "spr-4dsa", "--json")
    ways = json.loads(out)["results"]
    assert {each["machine"] for each in ways} == {"spr-4dsa"}
    times = {each["devices"]: each["time_s"] for each in ways if each["policy"] != "near_target"}
    assert times[1] > 1.6 * times[2] > 2.2 * times[4]
    for each in ways:
        assert each["gain"] == pytest.approx(times[0] / each["time_s"] - 1)
    code, _, err = command("advise", "--trace", trace, "--bytes", "1GiB", "--machine", "spr-1dsa")
    assert (code, "one of --bytes and --trace" in err) == (2, True)


def test_a_nic_function_moves_the_figures_as_it_must() -> None:
    to_memory = inject(lambda _: Place(), bytes=16384)
    to_l2 = inject(lambda _: Place("l2", "l2"), bytes=16384)
    to_the_sender = inject(lambda message: Place("l2", "l2", core=message.sender_core), bytes=16384)
    assert to_l2.time_ns < to_the_sender.time_ns < to_memory.time_ns
    assert to_l2.memory_lines < to_memory.memory_lines
    slow = inject(lambda _: Place("l2", "l2", nic_ns=500, host_ns=250), bytes=16384)
    assert slow.time_ns == pytest.approx(to_l2.time_ns + 750)
    seen: list[simulator.Message] = []

    def place(message: simulator.Message) -> Place:
        seen.append(message)
        return Place()

    inject(place, messages=3, receivers=2, cores=3)
    assert [each.receiver_core for each in seen] == [0, 1] * 4
    assert all(b.index == a.index + 1 for a, b in pairwise(seen))


def test_cores_that_share_an_l2_share_what_is_injected() -> None:
    options: dict[str, Any] = {"bytes": 16384, "cores": 2, "working_bytes": 1 << 14}
    place = lambda _: Place("l2", "l2", core=1)  # noqa: E731
    private, shared, siblings = (
        inject(place, sharing=sharing, **options).time_ns for sharing in ("none", "l2", "siblings")
    )
    assert shared < private
    assert siblings < private


@pytest.mark.parametrize(
    "place, cause",
    [
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: "l2", "not a Place"),
        (lambda _: Place("l9"), "'l9' is not one of memory, l3, l2"),
        (lambda _: Place(core=7), "names core 7"),
        (lambda _: Place(nic_ns=-1), "negative time"),
    ],
)
def test_a_wrong_nic_function_is_named(place: Any, cause: str) -> None:
    with pytest.raises(InvalidArgumentError, match=cause):
        inject(place)


def test_the_tutorials_scenario_runs_as_the_built_in_ones(tmp_path: Path, command: Command) -> None:
    page = ROOT / "docs" / "tutorials" / "scenario.md"
    code = page.read_text().partition("```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    (tmp_path / "nic.py").write_text(code)
    done = command("run", str(tmp_path / "nic.py"), "--sweep", "bytes=4KiB,64KiB,1MiB", "--json")
    assert done[0] == 0, done[2]
    gains = [each["figures"]["gain"] for each in json.loads(done[1])["results"]]
    assert gains[0] > 0
    assert len(set(gains)) == 3
    code_, _, err = command("run", str(tmp_path / "absent.py"))
    assert (code_, "there is no such file" in err) == (2, True)
