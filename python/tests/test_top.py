# SPDX-License-Identifier: Apache-2.0
"""``headrace top``: other processes are seen while they live, in every format."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TIME_LIMIT_S, Command, Here
from jsonschema import Draft202012Validator

import headrace
from headrace import _core
from headrace._apps import top
from headrace._cli._output import schema_of

WORKER = """
import headrace, sys, time
if "ask" in sys.argv:
    headrace.publish_statistics(0.01)
with headrace.Engine(queues=()) as engine, headrace.Cache(placement="local") as cache:
    source, target = bytes(1 << 16), bytearray(1 << 16)
    print("up", flush=True)
    while True:
        engine.copy(source=source, target=target)
        cache.access(source).wait()
        time.sleep(0.001)
"""

CLIENT = """
import headrace, sys
with headrace.Store.connect(sys.argv[1]) as store:
    view = store.view("key")
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process that copies and publishes."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdout=subprocess.PIPE,
        env=os.environ | {"HEADRACE_TELEMETRY": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


def seen(process: int) -> dict[str, Any] | None:
    """What a process publishes now."""
    found = _core.read_telemetry(_core.TELEMETRY_DIRECTORY)["processes"]
    return next((each for each in found if each["process"] == process), None)


def wait_until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + TIME_LIMIT_S
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def row(process: int, kind: str) -> dict[str, int]:
    """Values of the only engine or cache of a process."""
    found = seen(process)
    assert found is not None
    rows = [each for each in found["rows"] if each["kind"] == kind]
    return dict(rows[0]["values"]) if rows else {}


def test_a_process_at_work_is_seen_and_a_killed_one_is_not(
    worker: subprocess.Popen[bytes], command: Command
) -> None:
    wait_until(lambda: row(worker.pid, "cache").get("hits", 0) > 0)
    result = command("top", "--once", "--json", "--interval", "500ms")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["summary"]["processes"] >= 1
    found = {each["process"]: each for each in document["results"]["processes"]}
    rows = {each["name"]: each for each in found[worker.pid]["rows"]}
    assert rows["engine0"]["values"]["bytes_moved"] > 0
    assert rows["engine0"]["rates_per_s"]["jobs_done"] > 0
    assert rows["cache0"]["rates_per_s"]["hits"] > 0
    worker.kill()
    worker.wait()
    again = json.loads(command("top", "--once", "--json", "--interval", "10ms").stdout)
    assert worker.pid not in {each["process"] for each in again["results"]["processes"]}


def test_damaged_text_of_a_process_is_shown_as_such(worker: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: seen(worker.pid) is not None)
    (path,) = Path(_core.TELEMETRY_DIRECTORY).glob(f"*.{worker.pid}.*")
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"python"))
        file.write(b"\xff")
    found = seen(worker.pid)
    assert found is not None
    assert found["program"].startswith("\ufffdython")


def test_a_person_sees_tables(worker: subprocess.Popen[bytes], here: Here) -> None:
    wait_until(lambda: row(worker.pid, "cache").get("hits", 0) > 0)
    shown = here("top", "--once", "--interval", "300ms")
    assert shown.code == 0
    for title in ("Engines", "Caches", "jobs/s", "hit rate"):
        assert title in shown.stdout
    assert str(worker.pid) in shown.stdout


def test_a_served_store_is_seen(tmp_path: Path, here: Here) -> None:
    path = str(tmp_path / "socket")
    words = ["top", "--once", "--interval", "10ms", "--store", path]
    with headrace.Store(["1MiB"], block_bytes="64KiB", share=path, clients_max=2) as store:
        store.put("key", b"data")
        with subprocess.Popen(
            [sys.executable, "-c", CLIENT, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"up\n"
            document = json.loads(here(*words, "--json").stdout)
            shown = here(*words).stdout
            client.communicate()
    Draft202012Validator(schema_of("top")).validate(document)
    tier, one = document["results"]["stores"]
    assert tier["name"] == f"{path} 0"
    assert tier["values"]["blocks"] == tier["values"]["puts"] == 1
    assert tier["rates_per_s"]["hits"] == 0
    assert one["name"] == f"{path} {client.pid}"
    assert one["values"]["reads_in_place"] == one["values"]["leases"] == 1
    for text in ("Tiers of stores", "Processes that use them", f"{path} {client.pid}"):
        assert text in shown
    assert here(*words).code == 1
    line = top.Line(0, "a store", "store tier", f"{path} 0", tier["values"], {})
    text = top.prometheus_text(top.Look(0, [], [line], [], []))
    assert f'headrace_store_tier_blocks{{process="0",program="a store",name="{path} 0"}} 1' in text


def test_nothing_is_published_unless_it_is_asked_for() -> None:
    with headrace.Engine(queues=()) as engine:
        engine.copy(source=bytes(8), target=bytearray(8))
        assert seen(os.getpid()) is None
        headrace.publish_statistics(0.01)
        try:
            wait_until(lambda: row(os.getpid(), "engine").get("jobs_done", 0) > 0)
        finally:
            headrace.stop_publishing()
        assert seen(os.getpid()) is None
    for interval in (0, 1e-9):
        with pytest.raises(headrace.InvalidArgumentError, match="millisecond"):
            headrace.publish_statistics(interval)


def test_a_scraper_gets_the_values(worker: subprocess.Popen[bytes], command_path: Path) -> None:
    wait_until(lambda: row(worker.pid, "engine").get("jobs_done", 0) > 0)
    with subprocess.Popen(
        [command_path, "top", "--prometheus", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            with urllib.request.urlopen(address, timeout=TIME_LIMIT_S) as answer:  # noqa: S310
                text = answer.read().decode()
            assert "# TYPE headrace_engine_jobs_done_total counter\n" in text
            assert f'headrace_cache_bytes_cached{{process="{worker.pid}",' in text
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"{address}/other", timeout=TIME_LIMIT_S)  # noqa: S310
            server.send_signal(signal.SIGINT)
            assert server.wait(TIME_LIMIT_S) == 130
        finally:
            server.kill()


@pytest.mark.parametrize(
    "words, part",
    [
        (["--json"], "add --once"),
        (["--once", "--prometheus", "0"], "leave --once out"),
        (["--interval", "1ms"], "from 0.01s to"),
        (["--prometheus", "65536"], "from 0 to 65535"),
    ],
)
def test_bad_combinations_are_refused(here: Here, words: list[str], part: str) -> None:
    result = here("top", *words)
    assert result.code == 2
    assert part in result.stderr


def test_rates_are_of_the_time_between_two_publications(monkeypatch: pytest.MonkeyPatch) -> None:
    def published(written_s: int, moved: int) -> dict[str, Any]:
        values = {"bytes_moved": moved}
        rows = [{"kind": "engine", "name": "engine0", "values": values}]
        one = {"process": 1, "program": "p", "written_ns": written_s * 10**9, "rows": rows}
        return {"processes": [one], "unreadable": []}

    looks = iter([published(1, 100), published(3, 500), published(3, 500), published(4, 0)])
    monkeypatch.setattr(_core, "read_telemetry", lambda _: next(looks))
    watch = top.Watch("")
    assert watch.look().lines[0].rates == {}
    assert watch.look().lines[0].rates == {"bytes_moved": 200.0}
    assert watch.look().lines[0].rates == {}, "nothing new was published"
    assert watch.look().lines[0].rates == {"bytes_moved": 0.0}, "a new engine of that name"


SHOWN = """
HEADRACE_TELEMETRY=1 {headrace} bench latency --rounds 10000 >/dev/null 2>&1 &
echo $$
cat
"""


def test_emulated_devices_at_work_are_seen_and_gone_with_the_process(
    command: Command, emulator: Path
) -> None:
    """From outside of the emulation, which is a namespace of its own."""
    headrace = Path(sysconfig.get_path("scripts")) / "headrace"
    with subprocess.Popen(
        [emulator, "--", "sh", "-c", SHOWN.format(headrace=headrace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline(), process.stderr.read()
            found = seen_at_work(command)
            devices = [row for row in found["rows"] if row["kind"] == "device"]
            assert all(row["values"]["emulated"] == 1 for row in devices)
            os.kill(found["process"], signal.SIGKILL)
            wait_until(lambda: seen(found["process"]) is None)
            look = json.loads(command("top", "--once", "--json", "--interval", "10ms").stdout)
            emulations = {each["process"]: each for each in look["results"]["emulations"]}
            rows = {row["name"]: row["values"] for row in emulations[process.pid]["rows"]}
            assert rows["dsa0"]["descriptors"] > 0
            assert rows["dsa0/wq0.0"]["accepted"] > 0
        finally:
            process.kill()
    watch = top.Watch(_core.TELEMETRY_DIRECTORY)
    wait_until(lambda: process.pid not in watch.look().emulations)


def seen_at_work(command: Command) -> dict[str, Any]:
    """The process whose device takes descriptors."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        look = json.loads(command("top", "--once", "--json", "--interval", "300ms").stdout)
        found[:] = [
            process
            for process in look["results"]["processes"]
            if any(
                row["kind"] == "device" and row["rates_per_s"].get("descriptors", 0) > 0
                for row in process["rows"]
            )
        ]
        return bool(found)

    wait_until(is_there)
    return found[0]
