# SPDX-License-Identifier: Apache-2.0
"""One guest from its boot to the end of its command, whose streams and signals it passes on."""

import os
import queue
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import termios
import threading
import time
import tty
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace._apps.machine import STATE
from headrace._apps.machine.hardware import Hardware
from headrace._apps.machine.image import pack_image
from headrace._apps.machine.kernel import Kernel, find_kernel
from headrace.errors import Error, HardwareAbsentError

_QEMU = "qemu-system-x86_64"
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 nokaslr mitigations=off nowatchdog random.trust_cpu=on "
    "rodata=off cryptomgr.notests numa_balancing=disable"
)
EXIT_TIME_LIMIT = 124
EXIT_MACHINE = 125
BOOT_S_MAX = 300.0
_WAIT_S_MAX = 1e6  # Of a wait; no guest lives that long.
_ENDING_S = 10.0
_LAYER_KIB_MIN = 64
_STREAMS = ("stdin", "stdout", "stderr")
_PASSED_ON = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "TSTP", "CONT")
_ENDING = ("TERM", "HUP")


class GuestError(Error):
    """The guest did not run the command to its end; the exit code says why."""

    def __init__(self, cause: str, remedy: str, exit_code: int = EXIT_MACHINE) -> None:
        super().__init__("run the command in a machine", cause, remedy)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Job:
    """What a guest is to run.

    Attributes:
        folders: Folders whose changes come back; the first is the working folder.
        timeout_s: Of the whole run; None: no limit.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    folders: Sequence[Path]
    timeout_s: float | None = None


def _check_programs(hardware: Hardware) -> None:
    needed = {_QEMU: "qemu-system-x86", "setpriv": "util-linux"}
    if hardware.dimms:
        needed |= {"ndctl": "ndctl", "mkfs.ext4": "e2fsprogs"}
    for program, package in needed.items():
        if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            raise HardwareAbsentError(
                "boot a machine", f"there is no {program}", f"run 'apt-get install {package}'"
            )


def run_guest(hardware: Hardware, files: Mapping[str, str], job: Job) -> int:
    """Boot, run the command, and return its exit code.

    The caller's stdin, stdout and stderr are the command's. `files`: contents of files in `STATE`,
    by name. Threading: the main thread only.

    Raises:
        GuestError: The guest did not start, died, or took too long.
        HardwareAbsentError: Something is not installed.
    """
    _check_programs(hardware)
    kernel = find_kernel()
    with ExitStack() as ending:
        guest = _Guest(ending, job)
        guest.start(kernel, hardware, files)
        return guest.follow()


class _Guest:
    """QEMU, a thread for each stream, and their events for the main thread."""

    def __init__(self, ending: ExitStack, job: Job) -> None:
        self.ending, self.job = ending, job
        self.terminal = [name for fd, name in enumerate(_STREAMS) if _is_terminal(fd)]
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.console: list[bytes] = []
        self.ports: dict[str, socket.socket] = {}
        self.deadline_s = time.monotonic() + BOOT_S_MAX
        self.writers: list[threading.Thread] = []
        self.is_started = False
        self.result: int | None = None

    def start(self, kernel: Kernel, hardware: Hardware, files: Mapping[str, str]) -> None:
        words = [f"{name}={value}" for name, value in self.job.environment.items()]
        command = shlex.join([*words, *self.job.words])
        files = {
            **files,
            "settings": f"TERMINAL='{' '.join(self.terminal)}'\n"
            f"DIMMS='{' '.join(str(node) for node in hardware.dimms)}'\n",
            "folders": "".join(f"{folder}\n" for folder in self.job.folders),
            "command": f"exec <{STATE}/stdin >{STATE}/stdout 2>{STATE}/stderr\n"
            f"cd {shlex.quote(str(self.job.folders[0]))}\n"
            f"exec {STATE}/busybox env -i {command}\n",
        }
        passed: list[int] = []
        words = ["-device", "virtio-serial-pci,max_ports=8"]
        # The terminal is port 0; the others as init.sh has them.
        theirs = []
        for number, name in enumerate(("terminal", "control", *_STREAMS)):
            self.ports[name], other = socket.socketpair()
            theirs.append(other)
            passed.append(other.fileno())
            kind = "virtserialport" if number else "virtconsole"
            words += ["-chardev", f"socket,id={name},fd={other.fileno()}"]
            words += ["-device", f"{kind},chardev={name},nr={number}"]
        shares = [("root", "/", ",readonly=on")]
        shares += [(f"write{n}", str(path), "") for n, path in enumerate(self.job.folders)]
        for tag, path, mode in shares:
            text = f"local,id={tag},path={path.replace(',', ',,')},security_model=none{mode}"
            words += ["-fsdev", f"{text},multidevs=remap"]
            words += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        memory = os.memfd_create("initrd")
        self.ending.callback(os.close, memory)
        with open(memory, "wb", closefd=False) as file:
            file.write(pack_image(kernel, files, with_dimms=bool(hardware.dimms)))
        passed.append(memory)
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - Closed with the guest.
        self.ending.callback(self.errors.close)
        # setpriv: no guest outlives this process, however it ends.
        words = [
            *("setpriv", "--pdeathsig", "KILL", _QEMU, *hardware.arguments, *words),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-serial", "stdio", "-kernel", str(kernel.elf), "-append", _KERNEL_ARGUMENTS),
            *("-initrd", f"/proc/self/fd/{memory}"),
        ]
        self.qemu = subprocess.Popen(  # noqa: S603 - QEMU.
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            pass_fds=passed,
            start_new_session=True,
        )
        self.ending.callback(self.stop)
        for each in theirs:
            each.close()

    def stop(self) -> None:
        self.qemu.kill()
        self.qemu.wait()
        # What the guest had written is here; at the end of QEMU its ports end.
        for thread in self.writers:
            thread.join()

    def follow(self) -> int:
        """Pass bytes and signals on until the command has ended."""
        limit_s = float("inf")
        if self.job.timeout_s is not None:
            limit_s = time.monotonic() + self.job.timeout_s
        for name in _PASSED_ON:
            number = signal.Signals[f"SIG{name}"]
            before = signal.signal(number, lambda *_, name=name: self.events.put(f"signal {name}"))
            self.ending.callback(signal.signal, number, before)
        self.begin(self.read_console)
        self.begin(self.read_control)
        self.writers = [
            self.begin(self.copy_out, name, fd)
            for name, fd in (("terminal", 1), ("stdout", 1), ("stderr", 2))
        ]
        while self.result is None:
            left_s = min(self.deadline_s, limit_s) - time.monotonic()
            try:
                event = self.events.get(timeout=min(max(0, left_s), _WAIT_S_MAX))
            except queue.Empty:
                raise self.too_late(limit_s) from None
            self.take(*event.partition(" ")[::2])
        return self.result

    def take(self, what: str, value: str) -> None:
        if what == "started":
            self.is_started = True
            self.deadline_s = float("inf")
            self.begin_input()
        elif what == "exit":
            self.result = self.exit_code(value)
        elif what == "failed":
            raise GuestError(value, "see 'headrace machine run --help'")
        elif what == "broken":
            self.result = 128 + signal.SIGPIPE
        elif what == "ended":
            raise self.died()
        elif not self.is_started:  # A signal, but there is no command yet that could stop or go on.
            self.result = None if value in ("TSTP", "CONT") else 128 + signal.Signals[f"SIG{value}"]
        else:
            self.send(f"signal {value}")
            if value in _ENDING:
                self.deadline_s = time.monotonic() + _ENDING_S

    def begin(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        return thread

    def read_console(self) -> None:
        assert self.qemu.stdout is not None  # noqa: S101 - Made with a pipe.
        for line in self.qemu.stdout:
            self.console = [*self.console[-60:], line]  # A panic's call trace is long.
        self.events.put("ended")

    def read_control(self) -> None:
        with self.ports["control"].makefile("r", errors="replace") as lines:
            for line in lines:
                self.events.put(line.strip())

    def copy_out(self, port: str, fd: int) -> None:
        while part := self.ports[port].recv(1 << 16):
            try:
                while part:
                    part = part[os.write(fd, part) :]
            except OSError:
                self.events.put("broken")
                return

    def copy_in(self) -> None:
        port = self.ports["terminal" if "stdin" in self.terminal else "stdin"]
        with suppress(OSError):
            while part := os.read(0, 1 << 16):
                port.sendall(part)
        with suppress(OSError):
            port.shutdown(socket.SHUT_WR)

    def begin_input(self) -> None:
        if self.terminal:
            self.resize()
            signal.signal(signal.SIGWINCH, self.resize)
        if "stdin" in self.terminal:
            before = termios.tcgetattr(0)
            self.ending.callback(termios.tcsetattr, 0, termios.TCSADRAIN, before)
            tty.setraw(0)
        self.begin(self.copy_in)

    def resize(self, *_: object) -> None:
        size = os.get_terminal_size(_STREAMS.index(self.terminal[0]))
        self.send(f"size {size.lines} {size.columns}")

    def send(self, line: str) -> None:
        with suppress(OSError):
            self.ports["control"].sendall(f"{line}\n".encode())

    def exit_code(self, text: str) -> int:
        code, _, left_kib = text.partition(" ")
        if int(left_kib) < _LAYER_KIB_MIN:
            os.write(
                2,
                b"headrace: the machine's layer for writes is full; give it more --memory, "
                b"or write into a folder of --write\n",
            )
        return int(code)

    def too_late(self, limit_s: float) -> GuestError:
        if time.monotonic() >= limit_s:
            return GuestError("the time limit is over", "give more --timeout", EXIT_TIME_LIMIT)
        if self.is_started:
            return GuestError("the command did not end at the signal", "", 128 + signal.SIGKILL)
        return GuestError(f"it did not boot in {BOOT_S_MAX:.0f} s{self.last_words()}", "")

    def died(self) -> GuestError:
        self.qemu.wait()
        self.errors.seek(0)
        if errors := self.errors.read().decode(errors="replace").strip():
            return GuestError(f"QEMU says: {errors.splitlines()[-1]}", "")
        when = "while the command ran" if self.is_started else "before the command began"
        return GuestError(f"the guest died {when}{self.last_words()}", "give it more --memory")

    def last_words(self) -> str:
        text = b"".join(self.console).decode(errors="replace").strip()
        text = text[max(0, text.rfind("Kernel panic")) :]
        return f"; its console says:\n{text}\n" if text else ""


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False
