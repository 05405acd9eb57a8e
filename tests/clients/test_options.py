# SPDX-License-Identifier: Apache-2.0
"""What the options of the emulator do to a client, and what the statistics say of it."""

import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace._scenarios import machines

from .conftest import TIME_LIMIT_S, Emulator, kept_by, needs

DSA_TEST = Path("/usr/libexec/accel-config/test/dsa_test")
COPY_BYTES = 64 << 10
COPIES = 4
ENGINES = 4
# Seconds that `hostile tell` waits for an answer. Short where none is to come: other answers must
# still come in time on a slow machine.
PATIENCE_S = 90
SHORT_PATIENCE_S = 4
SUCCESS = 0x01
PAGE_FAULT = 0x03
WRITE_FAULT = 0x83
INVALID_FLAGS = 0x11
ABORTED = 0xFF  # Software's own: the hardware writes no record for what it gives up.


@dataclass(frozen=True)
class Answer:
    """What the device answered to one copy of `hostile tell`."""

    status: int
    completed_bytes: int
    retries: int
    milliseconds: int
    is_copied: bool


def answers(output: bytes) -> list[Answer]:
    lines = [line.split() for line in output.decode().splitlines()]
    return [
        Answer(int(status, 16), int(done), int(retries), int(milliseconds), same == "1")
        for status, done, retries, milliseconds, same in lines
    ]


@dataclass
class Told:
    """A run of `hostile tell`."""

    answers: list[Answer]
    summary: dict[str, int]


@dataclass
class Teller:
    """Runs `hostile tell` with options."""

    emulator: Emulator
    hostile: Path
    config: Path
    directory: Path

    def run(self, *options: str | Path, patience_s: int = PATIENCE_S) -> Told:
        stats = self.directory / "stats.json"
        result = self.emulator.run(
            *("--config", self.config, "--stats", stats, *options, "--", self.hostile, "tell"),
            env=os.environ | self.emulator.environment | {"HOSTILE_PATIENCE_S": str(patience_s)},
        )
        assert result.returncode == 0, result.stderr.decode()
        told = Told(answers(result.stdout), kept_by(stats))
        assert len(told.answers) == COPIES
        # However it ends: what is said to be done is done.
        assert all(answer.is_copied for answer in told.answers)
        return told

    def with_fault(self, fault: str, patience_s: int = PATIENCE_S) -> Told:
        script = self.directory / "faults.toml"
        script.write_text(f"[[fault]]\n{fault}\n")
        told = self.run("--faults", script, patience_s=patience_s)
        assert told.summary["injected_faults"] > 0
        return told


@pytest.fixture
def teller(emulator: Emulator, hostile: Path, hostile_config: Path, shared_path: Path) -> Teller:
    return Teller(emulator, hostile, hostile_config, shared_path)


def test_without_faults_all_goes_well(teller: Teller) -> None:
    told = teller.run()
    assert [answer.status for answer in told.answers] == [SUCCESS] * COPIES
    assert told.summary["injected_faults"] == told.summary["unfinished"] == 0
    assert told.summary["bytes_written"] == COPIES * COPY_BYTES


def test_a_full_queue_says_retry(teller: Teller) -> None:
    told = teller.with_fault('kind = "queue_full"\nnth = 2')
    assert [answer.retries for answer in told.answers] == [0, 1, 0, 0]
    assert [answer.status for answer in told.answers] == [SUCCESS] * COPIES
    assert told.summary["retries"] == 1


@pytest.mark.parametrize("write, status", [("false", PAGE_FAULT), ("true", WRITE_FAULT)])
def test_a_page_fault_stops_at_its_byte(teller: Teller, write: str, status: int) -> None:
    fault = f'kind = "page_fault"\nnth = 2\nat_byte = 5000\nwrite = {write}'
    told = teller.with_fault(fault)
    assert [answer.status for answer in told.answers] == [SUCCESS, status, SUCCESS, SUCCESS]
    assert told.answers[1].completed_bytes == 5000
    assert told.summary["page_faults"] == 1
    assert told.summary["bytes_written"] == (COPIES - 1) * COPY_BYTES + 5000


def test_page_faults_come_at_a_rate(teller: Teller) -> None:
    told = teller.with_fault('kind = "page_fault"\nevery = 2\nat_byte = 4096')
    faulted = [answer for answer in told.answers if answer.status == PAGE_FAULT]
    assert len(faulted) == told.summary["page_faults"] == COPIES // 2


def test_an_error_has_the_status_asked_for(teller: Teller) -> None:
    told = teller.with_fault(f'kind = "status"\nnth = 3\nstatus = {INVALID_FLAGS}')
    assert [answer.status for answer in told.answers] == [SUCCESS, SUCCESS, INVALID_FLAGS, SUCCESS]
    assert told.summary["errors"] == 1


def test_a_slow_engine_takes_longer(teller: Teller) -> None:
    told = teller.with_fault('kind = "slow"\nnth = 2\ndelay_ns = 200_000_000')
    assert told.answers[1].milliseconds >= 200
    assert [answer.status for answer in told.answers] == [SUCCESS] * COPIES


def test_a_halted_device_takes_nothing_more(teller: Teller) -> None:
    told = teller.with_fault('kind = "halt"\nnth = 2', SHORT_PATIENCE_S)
    assert told.answers[0].status == SUCCESS
    assert SUCCESS not in [answer.status for answer in told.answers[1:]]
    assert told.answers[3].retries > 0
    assert told.summary["operations"] == 1
    assert told.summary["unfinished"] == told.summary["submissions"] - 1 == 1


def test_a_reset_aborts_what_is_under_way(teller: Teller) -> None:
    told = teller.with_fault('kind = "reset"\nnth = 2')
    assert [answer.status for answer in told.answers] == [SUCCESS, ABORTED, SUCCESS, SUCCESS]
    assert told.summary["aborted"] == 1


def test_a_lost_completion_never_comes(teller: Teller) -> None:
    told = teller.with_fault('kind = "lost_completion"\nnth = 2', SHORT_PATIENCE_S)
    assert [answer.status for answer in told.answers] == [SUCCESS, 0, SUCCESS, SUCCESS]
    assert told.summary["operations"] == COPIES


@pytest.mark.alone
def test_pace_delays_to_latency_and_bandwidth(teller: Teller) -> None:
    late = teller.run("--pace", "500ms,0").answers
    assert all(answer.milliseconds >= 500 for answer in late)
    narrow = teller.run("--pace", "0ns,1MB/s").answers
    least_ms = COPY_BYTES * 1000 // 1_000_000
    assert all(least_ms <= answer.milliseconds for answer in narrow)
    assert min(answer.milliseconds for answer in teller.run().answers) < 500


@pytest.mark.usefixtures("emulator")
def test_every_machine_with_a_dsa_is_a_pace() -> None:
    command = Emulator(Path(sysconfig.get_path("scripts")) / "headrace")
    paced = set()
    for name in machines():
        for words in (("--pace", name), (f"--pace={name}",)):
            result = command.run("emulate", *words, "--", "true")
            if result.returncode == 0:
                paced.add(name)
                assert result.stderr == b""
            else:
                assert b"its record describes no DSA" in result.stderr
    assert {"spr-1dsa", "spr-4dsa", "xeon-max-flat"} <= paced


def test_a_refused_mmap_leaves_write(
    anybody: Emulator, hostile: Path, hostile_config: Path, shared_path: Path
) -> None:
    stats = shared_path / "stats.json"
    result = anybody.shell(
        "; ".join(f"{hostile} {name}" for name in ("refused_mmap", "copies_by_write")),
        *("--refuse-mmap", "--config", hostile_config, "--stats", stats),
    )
    assert result.stdout == b""
    assert kept_by(stats)["bytes_written"] == 20 * COPY_BYTES
    assert '"written": 20,' in stats.read_text()


def test_the_counts_of_a_client_that_crashed_are_kept(
    anybody: Emulator, hostile: Path, hostile_config: Path, shared_path: Path
) -> None:
    stats = shared_path / "stats.json"
    result = anybody.run(
        *("--config", hostile_config, "--stats", stats),
        *("--", hostile, "crash_with_work_outstanding"),
    )
    assert result.returncode == -11
    kept = kept_by(stats)
    assert kept["submissions"] == 9
    assert kept["operations"] >= 1
    assert kept["clients"] == 1
    assert kept["operations"] + kept["unfinished"] in range(9, 9 + ENGINES + 1)


def test_a_process_that_only_opens_and_maps_is_no_client(
    anybody: Emulator, shared_path: Path
) -> None:
    stats = shared_path / "stats.json"
    script = (
        "import mmap, os; file = os.open('/dev/dsa/wq0.0', os.O_RDWR);"
        "mmap.mmap(file, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)"
    )
    result = anybody.run("--stats", stats, "--", "/usr/bin/python3", "-c", script)
    assert result.returncode == 0, result.stderr.decode()
    assert kept_by(stats)["clients"] == 0


def test_statistics_leave_the_exit_code_alone(teller: Teller) -> None:
    stats = teller.directory / "stats.json"
    script = teller.directory / "faults.toml"
    script.write_text("[[fault]]\nkind = 'halt'\n")
    words = ("--config", teller.config, "--faults", script, "--stats", stats)
    left = ("sh", "-c", f"timeout -s KILL 1 {teller.hostile} tell; exit 7")
    assert teller.emulator.run(*words, "--", *left).returncode == 7
    assert kept_by(stats)["unfinished"] == 1


def traced(emulator: Emulator, path: Path, *arguments: str | Path, seed: int = 7) -> bytes:
    result = emulator.run(
        *("--seed", str(seed), "--trace", path, *arguments),
    )
    assert result.returncode == 0, result.stderr.decode()
    trace = path.read_bytes()
    path.unlink()
    assert trace.count(b"\n") > 3
    return trace


@pytest.mark.skipif(not DSA_TEST.exists(), reason="accel-config-test is not installed")
@pytest.mark.parametrize("mode", ["0", "1"])
def test_the_same_seed_gives_dsa_test_the_same_trace(
    anybody: Emulator, shared_path: Path, mode: str
) -> None:
    words = ("--", DSA_TEST, "-w", mode, "-l", "65536", "-o", "0x1", "-b", "0x3", "-c", "16")
    path = shared_path / "trace"
    assert traced(anybody, path, *words) == traced(anybody, path, *words)


def test_the_same_seed_gives_the_same_trace_and_another_one_another(
    anybody: Emulator, hostile: Path, hostile_config: Path, shared_path: Path
) -> None:
    words = ("--config", hostile_config, "--", hostile, "batches_one_after_the_other")
    path = shared_path / "trace"
    first = traced(anybody, path, *words)
    assert traced(anybody, path, *words) == first
    others = {traced(anybody, path, *words, seed=seed) for seed in (8, 9)}
    assert first not in others
    assert len(others) == 2


@needs("accel-config")
def test_as_many_devices_as_the_configuration_has(emulator: Emulator, shared_path: Path) -> None:
    command = Path(sysconfig.get_path("scripts")) / "headrace"
    if shutil.which(command) is None:
        pytest.skip("the command is not installed")
    config = shared_path / "c.json"
    made = [str(command), "dsa", "configure", "--preset", "8n1d1e1w", "--output", str(config)]
    subprocess.run(made, check=True, capture_output=True, timeout=TIME_LIMIT_S)
    script = 'accel-config list | grep -c \'"dev":"wq\''
    listed = emulator.shell(script, "--devices", "8", "--config", config)
    assert listed.stdout == b"8\n"
    assert emulator.shell(script, "--config", config).stdout == b"8\n"
    refused = emulator.run("--devices", "4", "--config", config, "--", "true")
    assert refused.returncode == 1
    assert refused.stderr.count(b"\n") == 1
    assert "has 8; give --devices 8, or leave it out" in refused.stderr.decode()
