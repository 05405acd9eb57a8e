# SPDX-License-Identifier: Apache-2.0
"""Memory images: what a guest has instead of a disk. Busybox, modules, programs, one script."""

import gzip
import re
import stat
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from guest.kernel import GuestError, Kernel

BUSYBOX = Path("/bin/busybox")
DONE = "guest: the script ended with exit code"

INIT = """#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin:/test
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
for file in $(cat /etc/modules); do insmod "$file" || echo "guest: cannot load $file"; done
echo "guest: up after $(cut -d' ' -f1 /proc/uptime) s"
(. /test/script)
echo "{done} $?"
sync
poweroff -f
"""


@dataclass
class Image:
    """Files by their path in the guest."""

    files: dict[str, bytes] = field(default_factory=dict)
    executables: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, content: bytes, *, executable: bool = False) -> None:
        """Put a file there."""
        self.files[place] = content
        if executable:
            self.executables.add(place)

    def add_program(self, program: Path, place: str | None = None, *, strip: bool = False) -> None:
        """Put a program there (by default where it is here), with the libraries that it names."""
        content = program.read_bytes()
        if strip:
            # Into a file: strip removes a link that is its output, as root even /dev/stdout.
            with tempfile.NamedTemporaryFile() as stripped:
                command = ["strip", "-o", stripped.name, str(program)]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    content = Path(stripped.name).read_bytes()
        self.add(place or str(program), content, executable=True)
        done_text = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        for library in re.findall(r"(?:=> |^\s+)(/\S+)", done_text.stdout, re.MULTILINE):
            if library not in self.files:
                self.add(library, Path(library).read_bytes(), executable=True)

    def packed(self) -> bytes:
        """The image as the kernel reads it: a compressed archive in the format `newc`."""
        folders = {str(p) for place in (*self.files, *self.links) for p in Path(place).parents}
        folders |= {"/dev", "/proc", "/sys", "/tmp", "/mnt"}  # noqa: S108 - in the guest.
        parts = [_member(place, stat.S_IFDIR | 0o755, b"") for place in sorted(folders - {"/"})]
        for place, target in sorted(self.links.items()):
            parts.append(_member(place, stat.S_IFLNK | 0o777, target.encode()))
        for place, content in sorted(self.files.items()):
            mode = 0o755 if place in self.executables else 0o644
            parts.append(_member(place, stat.S_IFREG | mode, content))
        parts.append(_member("TRAILER!!!", 0, b""))
        return gzip.compress(b"".join(parts), compresslevel=1)


def make_image(
    kernel: Kernel, script: str, programs: list[Path], modules: list[str], tools: list[str]
) -> Image:
    """Make an image that loads `modules`, runs `script` with `/bin/sh`, and powers off.

    Args:
        kernel: Whose modules they are.
        script: Its exit code is the outcome of the guest.
        modules: By name; what they need comes with them.
        programs: Built here; each is in `/test`, without its symbols.
        tools: Programs of this machine, by absolute path, for the same place.
    """
    if not BUSYBOX.exists():
        raise GuestError("there is no /bin/busybox: install busybox-static")
    image = Image()
    image.add(str(BUSYBOX), BUSYBOX.read_bytes(), executable=True)
    listing = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    for applet in listing.stdout.split():
        if applet != "busybox":
            image.links[f"/bin/{applet}"] = "busybox"
    places = []
    for file in kernel.module_files(modules):
        places.append(f"/lib/modules/{file.name}")
        image.add(places[-1], file.read_bytes())
    image.add("/etc/modules", "\n".join(places).encode())
    for tool in tools:
        image.add_program(Path(tool))
    for program in programs:
        image.add_program(program, f"/test/{program.name}", strip=True)
    image.add("/test/script", script.encode())
    image.add("/init", INIT.replace("{done}", DONE).encode(), executable=True)
    return image


def _member(place: str, mode: int, content: bytes) -> bytes:
    name = place.lstrip("/").encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
