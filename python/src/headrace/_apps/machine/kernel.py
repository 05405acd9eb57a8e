# SPDX-License-Identifier: Apache-2.0
"""The kernel of guests: an installed one or an unpacked package, never downloaded here."""

import lzma
import os
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

from headrace._files import write_file
from headrace.errors import HardwareAbsentError, UnsupportedError

_TRIED = "boot a machine"
_REMEDY = (
    "install one (Debian: 'apt-get install linux-image-amd64', Ubuntu: linux-image-virtual), or "
    "unpack it ('apt-get download PACKAGE; dpkg -x PACKAGE*.deb FOLDER; depmod -b FOLDER VERSION') "
    "and set HEADRACE_KERNEL=FOLDER"
)
_TOOLS = {b"\x28\xb5\x2f\xfd": "zstd", b"\x02!L\x18": "lz4", b"\xfd7zXZ\0": "xz"}


@dataclass(frozen=True)
class Kernel:
    """A kernel and its modules.

    Attributes:
        version: As in the names of its files.
        elf: The uncompressed kernel: it boots seconds faster where a processor is emulated.
        modules: The folder with `modules.dep`.
    """

    version: str
    elf: Path
    modules: Path

    def module_files(self, names: list[str]) -> list[Path]:
        """The files of modules and of all that they need, in the order in which they load.

        Raises:
            HardwareAbsentError: The kernel neither has it nor is built with it.
        """
        needs: dict[str, list[str]] = {}
        for line in (self.modules / "modules.dep").read_text().splitlines():
            file, _, others = line.partition(":")
            needs[_module_name(file)] = [file, *others.split()]
        present = (self.modules / "modules.builtin").read_text().split()
        builtin = {_module_name(file) for file in present}
        files: list[str] = []
        for name in names:
            if (found := needs.get(name.replace("-", "_"))) is not None:
                files += [file for file in reversed(found) if file not in files]
            elif name.replace("-", "_") not in builtin:
                raise HardwareAbsentError(
                    _TRIED, f"kernel {self.version} has no module {name}", _REMEDY
                )
        return [self.modules / file for file in files]


def find_kernel() -> Kernel:
    """The newest usable kernel below $HEADRACE_KERNEL, else below the root of this system.

    Raises:
        HardwareAbsentError: There is none; says how to get one.
        UnsupportedError: It is compressed in an unknown way.
    """
    root = Path(os.environ.get("HEADRACE_KERNEL") or "/")
    images = sorted(root.glob("boot/vmlinuz-*"), key=lambda path: path.stat().st_mtime)
    for image in reversed(images):
        version = image.name.removeprefix("vmlinuz-")
        for modules in (root / "lib/modules" / version, root / "usr/lib/modules" / version):
            if (modules / "modules.dep").exists() and os.access(image, os.R_OK):
                return Kernel(version, _uncompressed_file(image), modules)
    raise HardwareAbsentError(
        _TRIED, f"no kernel that can be read, with its modules, below '{root}'", _REMEDY
    )


def _uncompressed_file(image: Path) -> Path:
    """The ELF file of an image, kept in the user's cache."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
    state = image.stat()
    path = folder / f"{image.name}-{state.st_size}-{state.st_mtime_ns}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, _uncompressed(image.read_bytes()), f"keep a kernel in '{folder}'")
    return path


def _uncompressed(image: bytes) -> bytes:
    """The ELF file in a bzImage."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)
    # The last four bytes are the length; the tools would take them for more input.
    return uncompressed(payload[:-4])


def uncompressed(content: bytes) -> bytes:
    """A kernel or a module, if it is compressed."""
    if content.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(content)
    if content.startswith(b"\x7fELF"):
        return content
    tool = next((tool for magic, tool in _TOOLS.items() if content.startswith(magic)), None)
    if tool is None or shutil.which(tool) is None:
        cause = f"the kernel needs {tool or 'an unknown tool'} to be read"
        raise UnsupportedError(_TRIED, cause, f"install {tool}" if tool else _REMEDY)
    done = subprocess.run([tool, "-dc"], input=content, stdout=-1, check=True)  # noqa: S603
    return done.stdout


def _module_name(file: str) -> str:
    return Path(file).name.split(".")[0].replace("-", "_")
