# SPDX-License-Identifier: Apache-2.0
"""The launcher on a terminal: what its keys send reaches the command once, a shell's jobs work."""

import contextlib
import fcntl
import os
import pty
import select
import shlex
import signal
import subprocess
import termios

from .conftest import TIME_LIMIT_S, Emulator, needs, processes_with, wait_until


def take_terminal() -> None:
    """In a child: make stdin the terminal that controls it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_on_a_terminal_control_c_reaches_the_command_once(anybody: Emulator) -> None:
    ours, theirs = pty.openpty()
    script = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'got'))\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))\n"
        "os.write(1, b'ready' if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp() else b'no')\n"
        "while True: signal.pause()\n"
    )
    process = anybody.start(
        *("--", "/usr/bin/python3", "-c", script),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed.
        while part := os.read(ours, 1000):
            seen += part
            if seen.endswith(b"ready"):
                os.write(ours, b"\x03")
            elif seen.endswith(b"got") and seen.count(b"got") == 1:
                # Behind the other in the launcher's hands, should it hand that one on, too.
                process.send_signal(signal.SIGUSR1)
    assert process.wait(TIME_LIMIT_S) == 0, seen
    os.close(ours)
    assert seen.startswith(b"ready")
    assert seen.count(b"got") == 1


def test_when_the_terminal_goes_away_nothing_is_left(anybody: Emulator, marker: str) -> None:
    ours, theirs = pty.openpty()
    process = anybody.start(
        *("--", "sh", "-c", f"sleep {marker} & echo ready; exec sleep {marker}"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(ours, 1000)
    os.close(ours)
    assert process.wait(TIME_LIMIT_S) == -signal.SIGHUP
    wait_until(lambda: not processes_with(marker))
    wait_until(lambda: not processes_with(str(anybody.program)))


@needs("bash")
def test_a_shell_stops_it_by_control_z_and_goes_on(anybody: Emulator, marker: str) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | anybody.environment | {"PS1": "prompt> ", "TERM": "dumb"}
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=take_terminal,  # noqa: PLW1509 - There are no threads.
        env=environment,
        cwd="/tmp",
    )
    os.close(theirs)
    seen = b""

    def expect(what: bytes) -> None:
        nonlocal seen
        while what not in seen:
            assert select.select([ours], [], [], TIME_LIMIT_S)[0], seen
            seen += os.read(ours, 1000)
        seen = seen.partition(what)[2]

    try:
        expect(b"prompt> ")
        # What it says is split in two, so that the echo of the line is not taken for it. No shell
        # script: dash runs each program by vfork, and a child that is stopped before its exec holds
        # the shell where no signal reaches it, with the emulator and without.
        script = (
            "import os, signal; "
            "signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'go' + b'es\\n')); "
            "os.write(1, b'u' + b'p\\n')\n"
            f"while '{marker}': signal.pause()"
        )
        command = anybody.words("--", "/usr/bin/python3", "-c", f"exec({script!r})")
        os.write(ours, shlex.join(command).encode() + b"\n")
        expect(b"up\r\n")
        os.write(ours, b"\x1a")
        expect(b"Stopped")
        os.write(ours, b"fg\n")
        expect(b"goes\r\n")
        os.write(ours, b"\x03")
        expect(b"prompt> ")
        os.write(ours, b"echo c''ode $?; exit\n")
        expect(b"code 130")
    finally:
        os.close(ours)
        shell.kill()
        shell.wait()
    wait_until(lambda: not processes_with(marker))
