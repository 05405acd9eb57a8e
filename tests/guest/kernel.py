# SPDX-License-Identifier: Apache-2.0
"""The kernel of the guests: the distribution's, fetched once, unpacked, never installed."""

import lzma
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

META_PACKAGE = "linux-image-amd64"


class GuestError(Exception):
    """A guest could not be prepared or run; says what to do about it."""


class KernelAbsentError(GuestError):
    """There is no kernel for guests, and no way to get one from here."""


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel package.

    Attributes:
        version: As in the names of its files.
        elf: The uncompressed kernel: it boots seconds faster where a processor is emulated.
        modules: The folder with `modules.dep`.
    """

    version: str
    elf: Path
    modules: Path

    def module_files(self, names: list[str]) -> list[Path]:
        """The files of modules and of all that they need, in the order in which they load."""
        needs: dict[str, list[str]] = {}
        for line in (self.modules / "modules.dep").read_text().splitlines():
            file, _, others = line.partition(":")
            needs[Path(file).name.split(".")[0].replace("-", "_")] = [file, *others.split()]
        files: list[str] = []
        for name in names:
            if (found := needs.get(name.replace("-", "_"))) is None:
                raise GuestError(f"kernel {self.version} has no module {name}: name another one")
            files += [file for file in reversed(found) if file not in files]
        return [self.modules / file for file in files]


def fetch_kernel(folder: Path) -> Kernel:
    """Give the kernel in `folder`, after fetching it there if it has none."""
    unpacked = folder / "root"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        package = _package_name()
        print(f"guest: fetching {package} into {folder}, without installing it", flush=True)
        try:
            _run(["apt-get", "download", "-qq", package], folder)
        except GuestError as error:
            raise KernelAbsentError(str(error)) from error
        archive = next(folder.glob("*.deb"))
        _run(["dpkg", "-x", archive.name, "root"], folder)
        archive.unlink()
        version = _version(unpacked)
        _run(["depmod", "-b", "root", version], folder)
        image = unpacked / "boot" / f"vmlinuz-{version}"
        (folder / "vmlinux").write_bytes(uncompressed(image.read_bytes()))
        (folder / "complete").touch()
    version = _version(unpacked)
    return Kernel(version, folder / "vmlinux", unpacked / "lib" / "modules" / version)


def uncompressed(image: bytes) -> bytes:
    """The ELF file in a bzImage."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(payload)
    for magic, tool in ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x02!L\x18", "lz4")):
        if payload.startswith(magic):
            # The last four bytes are the length; the tool would take them for more input.
            done = subprocess.run([tool, "-dc"], input=payload[:-4], stdout=-1, check=False)
            return done.stdout
    raise GuestError(f"the kernel is compressed in an unknown way: {payload[:6].hex()}")


def _package_name() -> str:
    done = subprocess.run(
        ["apt-cache", "depends", META_PACKAGE], capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        kind, _, name = line.strip().partition(": ")
        if kind == "Depends":
            return name
    raise KernelAbsentError(f"apt knows no {META_PACKAGE}: run apt-get update")


def _version(unpacked: Path) -> str:
    return next((unpacked / "lib" / "modules").iterdir()).name


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GuestError(f"{' '.join(command)} failed: {done.stderr.strip()}")
