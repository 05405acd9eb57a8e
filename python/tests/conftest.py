# SPDX-License-Identifier: Apache-2.0
"""What the tests share: a small lineitem, an engine, and the command as a process."""

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import headrace
from headrace import _cli, _core
from headrace_lab.tpch import table as tpch

Command = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Outcome:
    """How a command line ended."""

    code: int
    stdout: str
    stderr: str


Here = Callable[..., Outcome]

SCALE_FACTOR = 0.01
# Of what takes seconds on an idle machine: only what hangs takes longer on a busy one.
TIME_LIMIT_S = 600

# Tests that press Ctrl-C start processes that must not inherit an ignored SIGINT, as `nohup` or a
# shell's `&` leave it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup an ignored SIGHUP is inherited, too; nothing here sets it back.
ENDING = [
    number
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if signal.getsignal(number) != signal.SIG_IGN
]


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once it is true; fail if that takes longer than anything here does."""
    end = time.monotonic() + TIME_LIMIT_S
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.002)


def has_come_to_us(process_id: int) -> bool:
    """Whether the command answers signals: Python itself catches neither SIGTERM nor SIGHUP."""
    status = Path(f"/proc/{process_id}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return all(caught >> (number - 1) & 1 for number in ENDING)


@pytest.fixture(scope="session")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the small lineitem is kept."""
    directory = tmp_path_factory.mktemp("tpch")
    tpch.ensure_lineitem(SCALE_FACTOR, directory)
    return directory


@pytest.fixture(scope="session")
def lineitem(data_directory: Path) -> Path:
    """The file of the small lineitem."""
    return tpch.table_path("lineitem", SCALE_FACTOR, data_directory)


@pytest.fixture
def engine() -> Iterator[headrace.Engine]:
    with headrace.Engine() as made:
        yield made


@pytest.fixture(scope="session")
def emulator() -> Path:
    """The launcher of emulated devices.

    Skips where it is not built, or where the machine lacks what it needs, which it says. What ends
    otherwise in a test is a failure of the test.
    """
    path = Path(_core.__file__ or "").parent / "_emulator" / "headrace-emulator"
    if not path.exists():
        pytest.skip("the emulator is not built")
    tried = subprocess.run(
        [path, "--", "true"], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
    )
    if tried.returncode != 0:
        pytest.skip(tried.stderr.strip())
    return path


@pytest.fixture(scope="session")
def command_path() -> Path:
    """The installed command."""
    return Path(sysconfig.get_path("scripts")) / "headrace"


@pytest.fixture
def command(command_path: Path, data_directory: Path) -> Command:
    """Runs the command with its output in pipes."""

    def run(*arguments: str, data: Path = data_directory) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command_path, *arguments],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
            env=os.environ | {"HEADRACE_DATA": str(data)},
        )

    return run


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs a command line in this process, which takes a hundredth of the time."""

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
        code = _cli.run_command_line()
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
