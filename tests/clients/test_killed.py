# SPDX-License-Identifier: Apache-2.0
"""A launcher that is killed, before each of its system calls and each of its server's: when
both have ended, nothing is left."""

import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from .conftest import TIME_LIMIT_S, Emulator, left_behind, processes_with, wait_until
from .tracer import Traced, start_until_fork

pytestmark = pytest.mark.alone

# More system calls than any of them makes.
POINTS_MAX = 3000
# Those that change nothing outside the process, by their numbers on x86-64: there the launcher is
# as before the next one.
READING = {
    0,
    4,
    5,
    6,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    17,
    21,
    28,
    39,
    72,
    79,
    89,
    102,
    104,
    107,
    108,
    110,
}
READING |= {137, 158, 202, 217, 218, 228, 230, 257, 262, 267, 273, 302, 318, 332, 334, 439}
# Those that change nothing outside the process and its namespace: close, sleep, mkdir, mount and
# their kin, pidfd_open.
READING |= {3, 35, 77, 80, 83, 88, 91, 95, 128, 157, 165, 166, 266, 269, 293, 424, 428, 429, 434}


def reaches(traced: Traced, point: int, *, counts: Callable[[int], bool]) -> bool:
    """Go to the system call number `point` of those that count; False if there are fewer."""
    if point == 0:
        return True
    count = 0
    for call in traced.system_calls():
        count += counts(call)
        if count == point:
            return True
    return False


def sleeps(process_id: int) -> bool:
    """Whether it waits for something, or has ended."""
    state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    return state in "SZX"


@pytest.mark.parametrize("held", ["launcher", "server"])
def test_a_launcher_killed_before_any_system_call_leaves_nothing(
    anybody: Emulator, marker: str, held: str
) -> None:
    # Before its own calls the launcher alone, so that what it has started lives on; before the
    # server's its process group, to which the server belongs at first.
    script = f"setsid sleep {marker} & exit 0"
    before = left_behind()
    for point in range(POINTS_MAX):
        process, launcher, server = start_until_fork(
            anybody.words("--", "sh", "-c", script),
            cwd="/tmp",
            env=os.environ | anybody.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        stepped, other = (launcher, server) if held == "launcher" else (server, launcher)
        other.let_go()
        is_there = reaches(
            stepped, point, counts=lambda call: held == "server" or call not in READING
        )
        if held == "server" and is_there:
            # It goes as far as it can without the server.
            wait_until(partial(sleeps, process.pid))
            os.killpg(process.pid, signal.SIGKILL)
            server.let_go()
        else:
            process.kill()
        process.wait(TIME_LIMIT_S)
        wait_until(lambda: not processes_with(marker))
        wait_until(lambda: not processes_with(str(anybody.program)))
        # Another emulation may come and go at the same time.
        wait_until(lambda: left_behind() <= before)
        if not is_there:
            assert point > 5
            return
    pytest.fail("it makes more system calls than that")
