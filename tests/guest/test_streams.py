# SPDX-License-Identifier: Apache-2.0
"""A command in a guest behaves as here: streams, signals, exit code, files; nothing is left."""

import contextlib
import os
import pty
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from .conftest import COMMAND, TIME_LIMIT_S, Guest

ONE_NODE = "cloud-guest-2cpu"
SCRIPT = """
cat; echo "to stderr" >&2; echo again >/dev/stderr
[ -t 0 ] || [ -t 1 ] || [ -t 2 ] || echo "no terminal"
echo "$HEADRACE_TEST in $PWD"; id -u
echo kept >kept; echo lost >/var/tmp/headrace-lost; cat /var/tmp/headrace-lost
ls /run/headrace-machine/machine; cat "$0" | wc -l
head --version | head -n 1 | grep -c GNU
sleep 1000 & exit 42
"""


@pytest.mark.more
def test_streams_files_and_the_exit_code_are_those_of_the_command(
    guest: Guest, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text(SCRIPT)
    text = "".join(f"line {number}\n" for number in range(50_000))
    result = guest(
        *(ONE_NODE, "--devices", "none", "--", "sh", script),
        input=text,
        env=os.environ | {"HEADRACE_TEST": 'it\'s "me" $HOME'},
    )
    assert result.returncode == 42, result.stderr
    assert result.stdout.startswith(text)
    assert result.stdout.removeprefix(text).splitlines() == [
        "no terminal",
        f'it\'s "me" $HOME in {tmp_path}',
        "0",
        "lost",
        "/run/headrace-machine/machine",
        str(len(SCRIPT.splitlines())),
        "1",  # This system's programs, not those of the guest's Busybox.
    ]
    assert result.stderr == "to stderr\nagain\n"
    assert (tmp_path / "kept").read_text() == "kept\n"
    assert not Path("/var/tmp/headrace-lost").exists()


def start(words: list[str], folder: Path, **others: object) -> subprocess.Popen[bytes]:
    command = [COMMAND, "machine", "run", ONE_NODE, "--devices", "none", *words]
    return subprocess.Popen(command, cwd=folder, **others)  # type: ignore[call-overload]


def expect_nothing_left(folder: Path) -> None:
    """QEMU has the working folder in its command line."""
    end = time.monotonic() + TIME_LIMIT_S
    marker = f"path={folder},".encode()
    while any(marker in each for each in command_lines()):
        assert time.monotonic() < end, "QEMU is still there"
        time.sleep(0.05)


def command_lines() -> list[bytes]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes())
    return lines


@pytest.mark.more
def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done"
    with start(["--", "sh", "-c", script], tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b"caught\n"
        assert process.wait(TIME_LIMIT_S) == 7
    expect_nothing_left(tmp_path)


@pytest.mark.more
def test_a_command_that_ignores_the_end_is_ended(tmp_path: Path) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 1; done"
    with start(["--", "sh", "-c", script], tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIME_LIMIT_S) == 128 + signal.SIGKILL
    expect_nothing_left(tmp_path)


@pytest.mark.more
@pytest.mark.parametrize("how", ["kill", "interrupt", "close"])
def test_however_the_run_ends_the_machine_ends_with_it(how: str, tmp_path: Path) -> None:
    with start(["--", "yes"], tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if how == "interrupt":
            while not any(
                b"qemu-system" in each and bytes(tmp_path) in each for each in command_lines()
            ):
                time.sleep(0.05)
            # While it boots: no command that could go on, but a run that can end.
            for _ in range(20):
                process.send_signal(signal.SIGCONT)
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            assert process.wait(TIME_LIMIT_S) == 130
        else:
            assert process.stdout.readline() == b"y\n"
        if how == "kill":
            process.kill()
        if how == "close":
            process.stdout.close()
            assert process.wait(TIME_LIMIT_S) == 128 + signal.SIGPIPE
    expect_nothing_left(tmp_path)


@pytest.mark.more
def test_a_time_limit_ends_the_machine(guest: Guest, tmp_path: Path) -> None:
    result = guest(ONE_NODE, "--devices", "none", "--timeout", "3s", "--", "sleep", "1000")
    assert (result.returncode, "the time limit is over" in result.stderr) == (124, True)
    expect_nothing_left(tmp_path)


@pytest.mark.more
def test_a_panic_and_a_full_layer_are_told(guest: Guest) -> None:
    result = guest(ONE_NODE, "--devices", "none", "--", "sh", "-c", "echo c >/proc/sysrq-trigger")
    assert result.returncode == 125
    assert "the guest died while the command ran" in result.stderr
    assert "Kernel panic" in result.stderr
    script = "head -c 2G /dev/zero >/var/tmp/headrace-full; exit 3"
    result = guest(ONE_NODE, "--memory", "512MiB", "--devices", "none", "--", "sh", "-c", script)
    assert result.returncode == 3
    assert "the machine's layer for writes is full" in result.stderr


@pytest.mark.more
def test_a_terminal_is_a_terminal_of_the_same_size(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (33, 77))
    before = termios.tcgetattr(theirs)
    script = 'test -t 0 && test -t 1 && stty size; read line; echo "<$line>"; sleep 1000'
    with start(
        ["--", "sh", "-c", script], tmp_path, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        shown = b""
        while b"33 77" not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, b"typed\n")
        while b"<typed>" not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, b"\x03")
        assert process.wait(TIME_LIMIT_S) == 130
    assert termios.tcgetattr(theirs) == before
    expect_nothing_left(tmp_path)
