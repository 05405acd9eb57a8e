# SPDX-License-Identifier: Apache-2.0
"""``headrace run`` on emulated devices: who copies, and that it is the same."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import TIME_LIMIT_S

from headrace import _core
from headrace._cli.run import library_path
from headrace.errors import NotFoundError

EMULATOR = Path(_core.__file__ or "").parent / "_emulator" / "headrace-emulator"
PYTHON = str(Path(sys.executable).resolve())
COPIES = """
import hashlib
whole = hashlib.sha256()
pattern = bytes(range(251)) * 8000
for length in (100_000, 1_000_003, 2_000_000):
    copy = bytearray(pattern[:length])
    copy[: length // 2] = copy[length - length // 2 :]
    copy[7:] = bytes(copy)[:-7]
    whole.update(copy)
print(whole.hexdigest())
"""

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(scope="module", autouse=True)
def _can_run() -> None:
    """Skip where the machine lacks what is needed, which it says."""
    try:
        library_path()
    except NotFoundError:
        pytest.skip("this build has nothing to preload")


@pytest.fixture(scope="module")
def right() -> str:
    """What the copies print without tuned copies or devices."""
    return subprocess.run(
        [PYTHON, "-c", COPIES], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=True
    ).stdout


def run_counted(
    command_path: Path,
    place: Path,
    *options: str,
    queues: str = "shared",
    faults: str = "",
    program: str = COPIES,
    **variables: str,
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """What the copies print, the statistics of the devices, and those of the copies."""
    devices, copies = place / "devices.json", place / "copies.json"
    words: list[str | Path] = [command_path, "emulate", "--wq", queues, "--stats", devices]
    if faults:
        (place / "faults.toml").write_text(faults)
        words += ["--faults", place / "faults.toml"]
    words.append("--")
    forks = "ignore:This process:DeprecationWarning"  # Python 3.12 warns of forks beside threads.
    words += [command_path, "run", *options, "--stats", copies]
    words += ["--", PYTHON, "-W", forks, "-c", program]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout, *(json.loads(path.read_text()) for path in (devices, copies))


def test_a_program_copies_by_the_device(command_path: Path, tmp_path: Path, right: str) -> None:
    said, devices, copies = run_counted(command_path, tmp_path, "--path", "dsa")
    assert said == right
    assert devices["summary"]["operations"] > 0
    assert copies["summary"]["bytes_by_device"] > 0
    assert copies["summary"]["programs_device"] == 1
    device = copies["results"]["device"]
    assert device["descriptors"] <= devices["summary"]["operations"]
    assert device["errors"] == device["lost"] == 0
    shared = copies["results"]["functions"]["memcpy"]["dsa"]
    assert shared["bytes"] > device["bytes"]
    assert all(lengths["bytes_max"] > 65536 // 2 for lengths in shared["lengths"])
    assert "are shared with 1 DSA work queue" in copies["results"]["profile"]


def test_memory_that_was_never_touched_is_the_devices_after_one_page_fault(
    command_path: Path, tmp_path: Path
) -> None:
    # bytes(n) is zeroed memory of mmap, whose pages are not there yet; so is each copy's target.
    program = "source = bytes(12_000_000)\nfor i in range(4): assert bytearray(source) == source"
    said, _, copies = run_counted(command_path, tmp_path, "--path", "dsa", program=program)
    assert said == ""
    long = copies["results"]["functions"]["memcpy"]["dsa"]["bytes"]
    assert long >= 48_000_000
    assert copies["summary"]["bytes_by_device"] >= 0.9 * long
    # Of one process; the interpreter may start others.
    assert 1 <= copies["results"]["device"]["page_faults"] <= 8


def test_devices_write_into_the_cache_only_if_they_are_told(
    command_path: Path, tmp_path: Path, right: str
) -> None:
    for options in ((), ("--into-cache",)):
        said, devices, copies = run_counted(command_path, tmp_path, "--path", "dsa", *options)
        assert said == right
        assert copies["results"]["device"]["descriptors"] > 0
        assert (devices["summary"]["into_cache"] > 0) == bool(options)


@pytest.mark.alone
def test_an_answer_that_never_comes_is_given_up_when_it_is_told(
    command_path: Path, tmp_path: Path, right: str
) -> None:
    began = time.monotonic()
    said, _, copies = run_counted(
        command_path,
        tmp_path,
        "--path",
        "dsa",
        # Of copies; the drain behind them is answered, or the program would have to end.
        faults='[[fault]]\nkind = "lost_completion"\nopcode = 3\n',
        HEADRACE_ANSWER_SECONDS="1",
    )
    # In processor time, of which others take some; the default would be a minute.
    assert time.monotonic() - began < 50
    assert said == right
    assert copies["results"]["device"]["lost"] >= 1
    assert "HEADRACE_ANSWER_SECONDS" not in copies["results"]["profile"]


@pytest.mark.parametrize("seconds", ["0", "86401", "-1", "1s", "soon"])
def test_a_time_for_answers_that_is_none_is_noted(
    command_path: Path, tmp_path: Path, right: str, seconds: str
) -> None:
    said, _, copies = run_counted(
        command_path, tmp_path, "--path", "dsa", HEADRACE_ANSWER_SECONDS=seconds
    )
    assert said == right
    told = f"silent for 60 s: HEADRACE_ANSWER_SECONDS is '{seconds}', not 1 to 86400"
    assert told in copies["results"]["profile"]


def test_shorter_copies_are_the_processors(command_path: Path, tmp_path: Path, right: str) -> None:
    said, _, copies = run_counted(command_path, tmp_path, "--path", "dsa", "--min-bytes", "1000000")
    assert said == right
    shared = copies["results"]["functions"]["memcpy"]["dsa"]
    assert shared["calls"] > 0
    assert all(lengths["bytes_max"] > 1_000_000 for lengths in shared["lengths"])


@pytest.mark.parametrize("options", [("--path", "cpu"), ("--path", "auto"), ()])
def test_without_a_reason_the_processor_copies(
    command_path: Path, tmp_path: Path, right: str, options: tuple[str, ...]
) -> None:
    said, devices, copies = run_counted(command_path, tmp_path, "--profile", "none", *options)
    assert said == right
    assert devices["summary"]["operations"] == 0
    assert copies["summary"]["bytes_by_device"] == copies["summary"]["programs_device"] == 0


def test_auto_takes_the_device_where_the_profile_says_so(
    command_path: Path, tmp_path: Path, right: str
) -> None:
    profile = tmp_path / "copy.json"
    profile.write_text(
        json.dumps(json.loads(_core.empty_copy_profile()) | {"dsa_bytes_min": 500_000})
    )
    said, devices, copies = run_counted(command_path, tmp_path, "--profile", str(profile))
    assert said == right
    assert devices["summary"]["operations"] > 0
    shared = copies["results"]["functions"]["memcpy"]["dsa"]
    assert all(lengths["bytes_max"] > 500_000 for lengths in shared["lengths"])


FORKS = f"""
import os, sys
{{before}}
if os.fork() == 0:
    exec({COPIES!r}, {{{{}}}})
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    "program, taken",
    [
        pytest.param(COPIES, 0, id="one"),
        pytest.param(FORKS.format(before=""), 0, id="child"),
        pytest.param(FORKS.format(before="bytearray(bytes(2_000_000))"), 1, id="parent"),
    ],
)
def test_a_dedicated_queue_is_of_the_first_process_with_a_long_copy(
    command_path: Path, tmp_path: Path, right: str, program: str, taken: int
) -> None:
    # More than an interpreter copies when it starts.
    options = ("--path", "dsa", "--profile", "none", "--min-bytes", "1000000")
    said, devices, copies = run_counted(
        command_path, tmp_path, *options, queues="dedicated", program=program
    )
    assert said == right
    assert devices["summary"]["operations"] > 0
    assert copies["summary"]["bytes_by_device"] > 0
    assert copies["summary"]["programs_device"] == 1
    assert copies["results"]["device"]["queues_taken"] == taken
    assert copies["results"]["device"]["lost"] == 0
    assert "dedicated DSA work queues that no other process uses" in copies["results"]["profile"]


def test_a_dedicated_queue_is_not_taken_unless_it_is_asked_for(
    command_path: Path, tmp_path: Path, right: str
) -> None:
    profile = tmp_path / "copy.json"
    profile.write_text(json.dumps(json.loads(_core.empty_copy_profile()) | {"dsa_bytes_min": 4096}))
    said, devices, copies = run_counted(
        command_path, tmp_path, "--profile", str(profile), queues="dedicated"
    )
    assert said == right
    assert devices["summary"]["operations"] == 0
    assert "no DSA work queue is shared" in copies["results"]["profile"]
