# SPDX-License-Identifier: Apache-2.0
"""The hostile clients, which have a harness of their own for the preload, under the launcher."""

import json
import re
from pathlib import Path

import pytest

from .conftest import Emulator, kept_by

SOURCES = Path(__file__).parent / "hostile"
# Those that need a library of their own, or an option, or are for people.
ELSEWHERE = {
    "becomes_a_program_that_submits_nothing",
    "client_in_a_library_loaded_later",
    "memcpy_is_somebody_elses",
    "refused_mmap",
    "speed",
    "tell",
    "the_access_is_what_faults",
    "crash_with_work_outstanding",
    "killed_when_its_portal_was_closed_before",
}
SCENARIOS = sorted(
    name
    for source in SOURCES.glob("*.cpp")
    for name in re.findall(r"^SCENARIO\((\w+)\)", source.read_text(), re.MULTILINE)
    if name not in ELSEWHERE
)
# What a scenario had in the queues is given back: at once, or when the launcher looks for the dead.
# 77 is "this processor cannot".
RUN = """
one() {
  timeout 250 HOSTILE $1 || { code=$?; test $code = 77 || { echo "$1: exit code $code"; return; }; }
  for look in $(seq 6000); do
    in_use=$(cat /sys/bus/dsa/devices/wq0.0/occupancy /sys/bus/dsa/devices/wq0.1/occupancy)
    test "$(echo $in_use)" = "0 0" && return
    sleep 0.01
  done
  echo "$1: entries in use:" $in_use
}
"""


def script_of(hostile: Path, scenarios: list[str]) -> str:
    lines = [f"one {name}" for name in scenarios]
    return RUN.replace("HOSTILE", str(hostile)) + "\n".join(lines)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_is_borne(
    emulator: Emulator, hostile: Path, hostile_config: Path, scenario: str
) -> None:
    result = emulator.shell(script_of(hostile, [scenario]), "--config", hostile_config)
    assert result.stdout == b"", result.stderr.decode()


def test_all_are_borne_one_after_the_other_on_one_device(
    anybody: Emulator, hostile: Path, hostile_config: Path, shared_path: Path
) -> None:
    stats = shared_path / "stats.json"
    options = ("--config", hostile_config, "--stats", stats)
    result = anybody.shell(script_of(hostile, SCENARIOS), *options)
    assert result.stdout == b"", result.stderr.decode()
    assert kept_by(stats)["operations"] > 10_000


def test_all_are_borne_where_the_access_is_what_is_caught(
    emulator: Emulator, hostile: Path, hostile_config: Path, shared_path: Path
) -> None:
    stats = shared_path / "stats.json"
    options = ("--force-access-trap", "--config", hostile_config, "--stats", stats)
    scenarios = [*SCENARIOS, "the_access_is_what_faults"]
    result = emulator.shell(script_of(hostile, scenarios), *options)
    assert result.stdout == b"", result.stderr.decode()
    assert kept_by(stats)["operations"] > 10_000


def test_handlers_submit_while_a_trace_is_written(
    anybody: Emulator, hostile: Path, hostile_config: Path, shared_path: Path
) -> None:
    names = re.findall(r"^SCENARIO\((\w+)\)", (SOURCES / "signals.cpp").read_text(), re.MULTILINE)
    trace = shared_path / "trace.jsonl"
    result = anybody.shell(
        script_of(hostile, [name for name in names if name in SCENARIOS]),
        *("--config", hostile_config, "--trace", trace),
    )
    assert result.stdout == b"", result.stderr.decode()
    _, *lines = trace.read_text().splitlines()
    events = [json.loads(line) for line in lines]
    finished = [each for each in events if each["event"] == "finished"]
    assert len(finished) > 100
    assert all(isinstance(each["opcode"], str) and each["process"] > 1 for each in finished)


@pytest.mark.parametrize(
    "scenario",
    ["killed_when_its_portal_was_closed_before", "becomes_a_program_that_submits_nothing"],
)
def test_what_a_client_held_comes_back(
    anybody: Emulator, hostile: Path, hostile_config: Path, scenario: str
) -> None:
    # 16 descriptors of 4 KiB at 1 KB/s: none of them ends.
    options = ("--config", hostile_config, "--pace", "0,1KB/s")
    result = anybody.run(*options, "--", hostile, scenario)
    assert result.returncode == 0, result.stderr.decode()
