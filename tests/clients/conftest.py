# SPDX-License-Identifier: Apache-2.0
"""What the tests of the emulator as a program share: where it is, who runs it, what it leaves."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace._cli.emulate import program_path
from headrace.errors import NotFoundError

# As in python/tests: what is ignored would be inherited, as of a job that a script began with &.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# Of nohup. Not SIG_DFL, which would end these tests with their terminal; exec resets a handler.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
# Of what takes seconds on an idle machine: only what hangs takes longer on a busy one.
TIME_LIMIT_S = 600
NOBODY = (
    shutil.which("setpriv") or "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
)


_started: list[subprocess.Popen[bytes]] = []


def end_started() -> None:
    """End what Emulator.start() has started, and close what was connected to it."""
    while _started:
        with _started.pop() as process:
            process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIME_LIMIT_S
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.005)


def processes_with(marker: str) -> list[int]:
    """Processes whose command line has `marker` in it, zombies not counted."""
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or int(directory.name) == os.getpid():
            continue
        try:
            line = (directory / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in line:
            found.append(int(directory.name))
    return found


def kept_by(path: Path) -> dict[str, int]:
    """The summary of a file that --stats wrote."""
    summary = json.loads(path.read_text())["summary"]
    assert all(isinstance(value, int) for value in summary.values())
    return dict(summary)


@dataclass
class Emulator:
    """The emulator's program, run as some user."""

    program: Path
    prefix: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def words(self, *arguments: str | Path) -> list[str]:
        return [*self.prefix, str(self.program), *map(str, arguments)]

    def run(
        self, *arguments: str | Path, stdin: bytes = b"", **more: object
    ) -> subprocess.CompletedProcess[bytes]:
        options: dict[str, object] = {"cwd": "/tmp", "env": os.environ | self.environment}
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            self.words(*arguments),
            input=stdin,
            capture_output=True,
            timeout=TIME_LIMIT_S,
            check=False,
            **(options | more),
        )

    def start(self, *arguments: str | Path, **more: object) -> subprocess.Popen[bytes]:
        options: dict[str, object] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
            "cwd": "/tmp",
            "env": os.environ | self.environment,
        }
        process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            self.words(*arguments), **(options | more)
        )
        _started.append(process)
        return process

    def shell(self, script: str, *options: str | Path) -> subprocess.CompletedProcess[bytes]:
        """Run a shell script on emulated devices; it has to succeed."""
        result = self.run(*options, "--", "sh", "-euc", script)
        assert result.returncode == 0, (result.stdout + result.stderr).decode()
        return result


@pytest.fixture(scope="session")
def public_directory() -> Iterator[Path]:
    """A directory that every user may read, as the sources need not be.

    No process that was started from it may be left when all tests have ended.
    """
    directory = Path(tempfile.mkdtemp(prefix="headrace-clients-"))
    directory.chmod(0o755)
    yield directory
    wait_until(lambda: not processes_with(str(directory)))
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def program(public_directory: Path) -> Path:
    try:
        installed = program_path()
    except NotFoundError as problem:
        pytest.skip(str(problem))
    for name in (installed.name, "libheadrace-dsa-trap.so"):
        shutil.copy(installed.parent / name, public_directory)
    return public_directory / installed.name


def missing_prerequisite(emulator: Emulator) -> str | None:
    """What this machine or user lacks for the emulator, found without it; None if nothing."""

    def fails(*words: str) -> bool:
        command = [*emulator.prefix, *words]
        result = subprocess.run(command, capture_output=True, check=False, timeout=TIME_LIMIT_S)
        return result.returncode != 0

    for_all: list[tuple[bool, str]] = [
        (fails("test", "-w", "/dev/fuse"), "there is no /dev/fuse that this user may write to"),
    ]
    for_root = [(fails("unshare", "-m", "true"), "this root lacks CAP_SYS_ADMIN")]
    for_users = [
        (fails("unshare", "-U", "-m", "true"), "permission denied: user namespaces"),
    ]
    is_root = not emulator.prefix and os.geteuid() == 0
    conditions = for_all + (for_root if is_root else for_users)
    return next((reason for is_missing, reason in conditions if is_missing), None)


def _usable(emulator: Emulator) -> Emulator:
    """Skip for a known reason; whatever else keeps the emulator from starting is a failure."""
    if reason := missing_prerequisite(emulator):
        pytest.skip(reason)
    result = emulator.run("--", "true")
    assert result.returncode == 0, result.stderr.decode()
    return emulator


@pytest.fixture(scope="session")
def emulator(program: Path) -> Emulator:
    """The emulator as the user that runs the tests."""
    return _usable(Emulator(program))


@pytest.fixture(scope="session", params=["self", "nobody"])
def anybody(request: pytest.FixtureRequest, program: Path) -> Emulator:
    """The emulator as the user that runs the tests, and as an ordinary user."""
    if request.param == "self":
        return _usable(Emulator(program))
    if os.geteuid() != 0:
        pytest.skip("this user cannot become another one, and is an ordinary one already")
    return _usable(Emulator(program, NOBODY, {"HOME": "/tmp", "LANG": "C.UTF-8"}))


@pytest.fixture
def shared_path(public_directory: Path) -> Iterator[Path]:
    """A directory that every user may write to."""
    directory = Path(tempfile.mkdtemp(dir=public_directory))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def hostile(public_directory: Path) -> Path:
    """The program of tests/clients/hostile, which needs nothing of this project."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler in PATH")
    directory = Path(__file__).parent / "hostile"
    sources = [each for each in directory.glob("*.cpp") if each.stem not in {"early", "harness"}]
    path = public_directory / "hostile"
    subprocess.run(
        [compiler, "-std=c++20", "-O0", "-pthread", *map(str, sources), "-ldl", "-o", str(path)],
        check=True,
        timeout=TIME_LIMIT_S,
    )
    return path


@pytest.fixture(scope="session")
def hostile_config(public_directory: Path) -> Path:
    """One device as the program `hostile` expects it: a shared and a dedicated WQ of 16 entries."""
    queue = {"size": 16, "group_id": 0, "priority": 10, "block_on_fault": 1, "type": "user"}
    queues = [
        queue | {"dev": "wq0.0", "mode": "shared", "threshold": 16, "name": "hostile0"},
        queue | {"dev": "wq0.1", "mode": "dedicated", "name": "hostile1"},
    ]
    engines = [{"dev": f"engine0.{number}", "group_id": 0} for number in range(4)]
    group = {
        "dev": "group0.0",
        "grouped_workqueues": [each | {"driver_name": "user"} for each in queues],
        "grouped_engines": engines,
    }
    path = public_directory / "hostile.json"
    path.write_text(json.dumps([{"dev": "dsa0", "groups": [group]}]))
    return path


def left_behind() -> set[str]:
    """Mounts, and what of the emulator is in /tmp."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {*mounts, *map(str, Path("/tmp").glob("headrace-emulator*"))}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No mount, and nothing of the emulator in /tmp, is left by a test."""
    before = left_behind()
    yield
    end_started()
    # What others had at the beginning may be gone; what is new is ours.
    wait_until(lambda: left_behind() <= before)


@pytest.fixture
def marker() -> Iterator[str]:
    """An argument of `sleep` by which a process is known; what is left at the end is killed."""
    number = f"1000.{uuid.uuid4().int % 10**12:012}"
    yield number
    for process_id in processes_with(number):
        # A server has its launcher's command line, and ends by itself.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if Path(f"/proc/{process_id}/comm").read_text() != "headrace-files\n":
                os.kill(process_id, signal.SIGKILL)


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip where a program is not installed."""
    missing = [name for name in programs if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
