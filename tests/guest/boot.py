# SPDX-License-Identifier: Apache-2.0
"""One guest, from power to its end. What it writes comes line by line, also if it is killed."""

import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from guest.image import DONE, Image
from guest.kernel import GuestError, Kernel

QEMU = "qemu-system-x86_64"
# The processor is emulated, so that guests are the same on every machine. vendor: the kernel asks
# for it before it believes in tiles. pmu, la57: not needed, and they take time.
PROCESSOR = ["-accel", "tcg,thread=multi", "-cpu", "max,vendor=GenuineIntel,la57=off,pmu=off"]
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 nokaslr mitigations=off nowatchdog random.trust_cpu=on "
    "numa_balancing=disable"
)
SECONDS_MAX = 240.0


@dataclass
class Outcome:
    """How a guest ended.

    Attributes:
        exit_code: Of its script; None if it was killed, died or took too long.
        lines: What it wrote.
        killed: True if it was killed because `kill_at` said so.
    """

    exit_code: int | None = None
    lines: list[str] = field(default_factory=list)
    killed: bool = False
    seconds: float = 0.0


def boot(
    kernel: Kernel,
    image: Image,
    machine: list[str],
    *,
    kernel_arguments: str = "",
    seconds_max: float = SECONDS_MAX,
    kill_at: Callable[[str], bool] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Outcome:
    """Boot and wait for the end.

    Args:
        kernel: What boots.
        image: What it finds in its memory.
        machine: Arguments of QEMU, such as those of `Tiles.arguments`, with devices added.
        kernel_arguments: More words for the command line of the kernel.
        seconds_max: The guest is killed when it takes longer.
        kill_at: Asked with each line; kills the guest, as a loss of power would, when it says so.
            What the guest had written by then is in the lines of the outcome.
        on_line: Called for each line as it comes.

    Raises:
        GuestError: QEMU is not there or refuses the machine.
    """
    if shutil.which(QEMU) is None:
        raise GuestError(f"there is no {QEMU}: install qemu-system-x86")
    outcome = Outcome()
    start = time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".cpio.gz") as file:
        file.write(image.packed())
        file.flush()
        # So that no guest outlives this process, whatever becomes of it.
        command = ["setpriv", "--pdeathsig", "KILL", QEMU, *PROCESSOR]
        command += ["-nodefaults", "-no-user-config", "-display", "none"]
        command += ["-no-reboot", "-serial", "stdio", "-kernel", str(kernel.elf)]
        command += ["-initrd", file.name, "-append", f"{KERNEL_ARGUMENTS} {kernel_arguments}"]
        guest = subprocess.Popen(
            [*command, *machine],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        rest = b""
        try:
            rest = _follow(guest, outcome, start + seconds_max, kill_at, on_line)
        finally:
            guest.kill()
            left, errors = guest.communicate()
            outcome.lines += [_text(raw) for raw in (rest + left).split(b"\n")[:-1]]
    outcome.seconds = time.monotonic() - start
    if not outcome.lines:
        raise GuestError(f"QEMU did not start: {errors.decode(errors='replace').strip()}")
    return outcome


def _follow(
    guest: subprocess.Popen[bytes],
    outcome: Outcome,
    deadline: float,
    kill_at: Callable[[str], bool] | None,
    on_line: Callable[[str], None] | None,
) -> bytes:
    """Read until the end, and give what was read and not looked at."""
    assert guest.stdout is not None  # noqa: S101 - made with a pipe.
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(guest.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                break
            chunk = os.read(guest.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            rest += chunk
            while b"\n" in rest:
                raw, _, rest = rest.partition(b"\n")
                line = _text(raw)
                outcome.lines.append(line)
                if on_line is not None:
                    on_line(line)
                if kill_at is not None and kill_at(line):
                    guest.kill()
                    outcome.killed = True
                    return rest
                # Required, because QEMU exits with 0 after a panic of the guest, too.
                if line.startswith(DONE):
                    outcome.exit_code = int(line.removeprefix(DONE))
    return rest


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace").rstrip("\r")


def programs_in(folder: Path, names: list[str]) -> list[Path]:
    """The built programs, which must be there."""
    programs = [folder / name for name in names]
    for program in programs:
        if not program.exists():
            raise GuestError(f"{program} is not built: run scripts/guest, which builds it")
    return programs
