# SPDX-License-Identifier: Apache-2.0
"""The memory image that a guest begins with: Busybox, modules, the guest's script and its files.

Everything else is this system's: the guest mounts its root, see `init.sh`.
"""

import gzip
import stat
from collections.abc import Mapping
from pathlib import Path

from headrace._apps.machine.kernel import Kernel, uncompressed
from headrace.errors import HardwareAbsentError

_BUSYBOX = Path("/bin/busybox")
_MODULES = ["virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay", "fuse"]
_MODULES_OF_DIMMS = ["nfit", "nd_pmem", "dax_pmem", "device_dax", "crc32c_generic", "ext4", "xfs"]


def pack_image(kernel: Kernel, files: Mapping[str, str], *, with_dimms: bool) -> bytes:
    """Pack an image that runs `init.sh`, with modules of `kernel` and files in /etc/machine.

    Raises:
        HardwareAbsentError: Busybox or a module is missing.
    """
    if not _BUSYBOX.exists():
        raise HardwareAbsentError(
            "boot a machine", "there is no /bin/busybox", "run 'apt-get install busybox-static'"
        )
    modules = kernel.module_files(_MODULES + _MODULES_OF_DIMMS * with_dimms)
    contents = {f"/lib/modules/{file.name}": uncompressed(file.read_bytes()) for file in modules}
    contents["/etc/machine/modules"] = "".join(f"{path}\n" for path in contents).encode()
    contents |= {f"/etc/machine/{name}": text.encode() for name, text in files.items()}
    programs = {
        str(_BUSYBOX): _BUSYBOX.read_bytes(),
        "/init": Path(__file__).with_name("init.sh").read_bytes(),
    }
    folders = {str(parent) for path in (*contents, *programs) for parent in Path(path).parents}
    folders |= {"/dev", "/proc", "/sys", "/host", "/layer", "/new"}
    parts = [_member(path, stat.S_IFDIR | 0o755, b"") for path in sorted(folders - {"/"})]
    parts += [_member("/bin/sh", stat.S_IFLNK | 0o777, b"busybox")]
    parts += [_member(path, stat.S_IFREG | 0o755, data) for path, data in programs.items()]
    parts += [_member(path, stat.S_IFREG | 0o644, data) for path, data in contents.items()]
    parts += [_member("TRAILER!!!", 0, b"")]
    return gzip.compress(b"".join(parts), compresslevel=1)


def _member(path: str, mode: int, content: bytes) -> bytes:
    """A member of an archive in the format `newc`."""
    name = path.lstrip("/").encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
