# SPDX-License-Identifier: Apache-2.0
"""Reads the facts: all accesses of the doctor to the system are in this file.

Nothing here judges, needs root, or fails: what cannot be read is unknown. The only side effect: a
WQ's file is opened and its portal mapped briefly, because no attribute shows whether that works.
Nothing is submitted. A dedicated WQ in use is not opened.
"""

import ctypes
import errno
import gzip
import importlib
import mmap
import os
import platform
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from headrace import _facts

_T = TypeVar("_T")

CPU_FLAGS = ("enqcmd", "movdir64b", "waitpkg", "la57", "hypervisor")
KERNEL_OPTIONS = (
    "INTEL_IDXD",
    "INTEL_IDXD_SVM",
    "INTEL_IOMMU",
    "INTEL_IOMMU_SVM",
    "INTEL_IOMMU_DEFAULT_ON",
    "INTEL_IOMMU_SCALABLE_MODE_DEFAULT_ON",
    "IRQ_REMAP",
    "MODULES",
    "PCI_PASID",
)
_PARAMETERS = r"(intel_iommu|iommu|module_blacklist|modprobe\.blacklist|no5lvl)(=|$)|idxd\."

# https://github.com/torvalds/linux, drivers/dma/idxd/registers.h and include/linux/pci_ids.h.
DSA_PCI_DEVICES = ("0b25", "11fb", "1212")
IAA_PCI_DEVICES = ("0cfe", "1216", "b02d")

_FILE_BYTES_MAX = 1 << 20
_PAGE_BYTES = 4096
_CAP_SYS_RAWIO = 17
_EMULATOR_REGISTERS = "dev/dsa-emulator/registers"


def gather(root: str = "/") -> _facts.Facts:
    """Read the facts of this machine.

    `root` contains sys, proc and the like. With another one than "/", for tests, facts that only
    the running kernel has are not read.
    """
    here = Path(root)
    cpu = _cpu_information(here)
    return _facts.Facts(
        platform=_platform(here, cpu),
        kernel=_kernel(here),
        pci_devices=_pci_devices(here),
        devices=_devices(here),
        accel_config=_accel_config(here),
        huge_pages=_huge_pages(here),
        memory_nodes=tuple(_memory_node(here, node) for node in _nodes(here)) or None,
        process=_process(here),
    )


def text_of(path: Path) -> str | None:
    """The stripped text of a file, None if it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX)
    except (OSError, ValueError):
        return None
    return data.decode(errors="replace").strip()


def _word(path: Path) -> str | None:
    """The text of an attribute as one printable line."""
    text = text_of(path)
    return None if text is None else _printable(text)


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def _integer(path: Path) -> int | None:
    text = text_of(path)
    with suppress(ValueError):
        value = int(text or "", 0)
        if value.bit_length() < 64:  # noqa: PLR2004 - What the kernel's attributes hold.
            return value
    return None


def _names(folder: Path) -> list[str] | None:
    """The names in a directory, in numeric order; None if it cannot be listed."""

    def by_number(name: str) -> list[tuple[int, str]]:
        return [(int(n or 0), text) for text, n in re.findall(r"(\D*)(\d{0,18})", name)]

    try:
        return sorted((path.name for path in folder.iterdir()), key=by_number)
    except OSError:
        return None


def _exists(path: Path) -> bool | None:
    """Whether a path exists; None if unknown, also if its directory does not exist."""
    return _is_there(path) if _is_there(path.parent) else None


def _is_there(path: Path) -> bool | None:
    """Whether a path exists; None if unknown."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return None
    return True


def _cpu_information(root: Path) -> dict[str, str] | None:
    """The first processor's lines of /proc/cpuinfo."""
    text = text_of(root / "proc/cpuinfo")
    if not text:
        return None
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _platform(root: Path, cpu: dict[str, str] | None) -> _facts.Platform:
    flags = None
    if cpu is not None and "flags" in cpu:
        there = set(cpu["flags"].split())
        flags = tuple(flag for flag in CPU_FLAGS if flag in there)
    identity = root / "sys/class/dmi/id"
    words = [_word(identity / name) for name in ("sys_vendor", "product_name")]
    bits = re.match(r"(\d{1,3}) bits physical", (cpu or {}).get("address sizes", ""))
    return _facts.Platform(
        architecture=platform.machine() or None,
        cpu_model=None if cpu is None else _printable(cpu.get("model name", "")) or None,
        cpu_flags=flags,
        hypervisor=None if flags is None else "hypervisor" in flags,
        machine_vendor=" ".join(word for word in words if word) or None,
        container=_container(root),
        emulated=_is_there(root / _EMULATOR_REGISTERS),
        physical_address_bits=int(bits[1]) if bits else None,
    )


def _container(root: Path) -> str:
    manager = _word(root / "run/systemd/container")
    if manager:
        return manager
    for kind, mark in (("docker", ".dockerenv"), ("podman", "run/.containerenv")):
        if _is_there(root / mark):
            return kind
    # Only readable by root. A container without any of these marks is not detected.
    environment = text_of(root / "proc/1/environ") or ""
    found = re.search(r"(?:^|\0)container=([^\0]+)", environment)
    return _printable(found[1]) if found else ""


def _kernel(root: Path) -> _facts.Kernel:
    release = _word(root / "proc/sys/kernel/osrelease")
    units = _names(root / "sys/class/iommu")
    intel = None if units is None else [unit for unit in units if unit.startswith("dmar")]
    tables = _names(root / "sys/firmware/acpi/tables")
    return _facts.Kernel(
        release=release,
        parameters=_parameters(root),
        config=_config(root, release),
        module_loaded=_exists(root / "sys/module/idxd"),
        module_available=_module_available(root, release),
        module_blacklisted_by=_blacklisted_by(root),
        dmar_table=None if tables is None else "DMAR" in tables,
        iommu_count=None if intel is None else len(intel),
        iommu_capabilities=None if intel is None else _iommu_capabilities(root, intel),
    )


def _parameters(root: Path) -> tuple[str, ...] | None:
    text = text_of(root / "proc/cmdline")
    if text is None:
        return None
    return tuple(_printable(word) for word in text.split() if re.match(_PARAMETERS, word))


def _config(root: Path, release: str | None) -> dict[str, str] | None:
    for text in _config_texts(root, release):
        found = dict(re.findall(r"^CONFIG_(\w+)=([ymn])$", text, re.MULTILINE))
        if found:
            return {name: found.get(name, "n") for name in KERNEL_OPTIONS}
    return None


def _config_texts(root: Path, release: str | None) -> Iterator[str]:
    with suppress(OSError, EOFError, ValueError, zlib.error):
        yield gzip.decompress((root / "proc/config.gz").read_bytes()).decode(errors="replace")
    for path in (f"boot/config-{release}", f"lib/modules/{release}/config"):
        if release and "/" not in release:
            yield text_of(root / path) or ""


def _module_available(root: Path, release: str | None) -> bool | None:
    """Whether modprobe would find idxd; None if the kernel's modules are not readable."""
    if not release or "/" in release:
        return None
    folder = root / "lib/modules" / release
    lists = [text_of(folder / name) for name in ("modules.dep", "modules.builtin")]
    if lists[0] is None:
        return None
    return any(re.search(r"/idxd\.ko", text or "") for text in lists)


def _blacklisted_by(root: Path) -> tuple[str, ...] | None:
    found = []
    readable = False
    for folder in ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"):
        for name in _names(root / folder) or ():
            text = text_of(root / folder / name) if name.endswith(".conf") else None
            readable = readable or text is not None
            forbidden = r"^\s*(?:blacklist\s+idxd|install\s+idxd\s+/bin/(?:false|true))\s*$"
            if text is not None and re.search(forbidden, text, re.MULTILINE):
                found.append(_printable(f"/{folder}/{name}"))
    for word in _parameters(root) or ():
        name, _, value = word.partition("=")
        if name.endswith("blacklist") and "idxd" in value.split(","):
            found.append("the kernel's command line")
    return tuple(found) if found or readable else None


def _iommu_capabilities(root: Path, units: Iterable[str]) -> tuple[tuple[str, ...], ...] | None:
    pairs = []
    for unit in units:
        registers = root / "sys/class/iommu" / unit / "intel-iommu"
        pair = tuple(_word(registers / name) for name in ("cap", "ecap"))
        if None in pair:
            return None
        pairs.append(tuple(text or "" for text in pair))
    return tuple(pairs)


def _pci_devices(root: Path) -> tuple[_facts.PciDevice, ...] | None:
    folder = root / "sys/bus/pci/devices"
    addresses = _names(folder)
    if addresses is None:
        return None
    found = []
    for address in addresses:
        vendor, device = (_word(folder / address / name) for name in ("vendor", "device"))
        number = (device or "").removeprefix("0x")
        if vendor == "0x8086" and number in DSA_PCI_DEVICES + IAA_PCI_DEVICES:
            node = _integer(folder / address / "numa_node")
            driver = _link_name(folder / address / "driver")
            found.append(_facts.PciDevice(address, number, driver, node))
    return tuple(found)


def _link_name(path: Path) -> str | None:
    """The last component of a link's target, "" if there is no link."""
    try:
        return _printable(path.readlink().name)
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _devices(root: Path) -> tuple[_facts.Device, ...] | None:
    folder = root / "sys/bus/dsa/devices"
    names = _names(folder)
    if names is None:
        # Without the bus the driver is not loaded.
        return () if _exists(folder.parent) is False else None
    return tuple(
        _device(root, folder / name) for name in names if re.fullmatch(r"dsa\d{1,9}", name)
    )


def _device(root: Path, folder: Path) -> _facts.Device:
    # The device's directory: the bus mixes WQs and engines of all devices.
    inside = _names(folder) or []
    index = folder.name.removeprefix("dsa")

    def parts(kind: str) -> list[Path]:
        return [folder / name for name in inside if re.fullmatch(rf"{kind}{index}\.\d+", name)]

    real = Path(os.path.realpath(folder))
    address = re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", real.parent.name)
    return _read(
        _facts.Device,
        folder,
        pci_address=address[0] if address else None,
        node=_integer(folder / "numa_node"),
        groups=tuple(_read(_facts.Group, each) for each in parts("group")),
        engines=tuple(_read(_facts.Engine, each) for each in parts("engine")),
        queues=tuple(_queue(root, each) for each in parts("wq")),
    )


def _queue(root: Path, folder: Path) -> _facts.Queue:
    file = None
    found = _read(_facts.Queue, folder, label=_word(folder / "name"), file=None)
    if found.type == "user":
        # Opening a dedicated WQ claims it: only if it is known to be free.
        free = found.mode == "shared" or found.clients == 0
        file = _character_device(root, folder.name, tried=found.state == "enabled" and free)
    return replace(found, file=file)


def _read(kind: type[_T], folder: Path, **known: object) -> _T:
    """Make facts whose fields are named as the attributes in a directory, but for the known."""
    known["name"] = folder.name
    for each in fields(cast("Any", kind)):  # They are dataclasses.
        if each.name not in known:
            read = _integer if each.type == int | None else _word
            known[each.name] = read(folder / each.name)
    return kind(**known)


def _character_device(root: Path, name: str, *, tried: bool) -> _facts.CharacterDevice:
    path = root / "dev/dsa" / name
    exists = _is_there(path)
    if not exists:
        return _facts.CharacterDevice(str(path), exists)
    owner = group = mode = None
    with suppress(OSError):
        status = path.stat()
        mode = f"{status.st_mode & 0o7777:04o}"
        owner = _name_of(status.st_uid, "pwd", "getpwuid")
        group = _name_of(status.st_gid, "grp", "getgrgid")
    writable = os.access(path, os.R_OK | os.W_OK)
    opened, mapped = _try_portal(path) if tried else (None, None)
    return _facts.CharacterDevice(str(path), exists, owner, group, mode, writable, opened, mapped)


def _try_portal(path: Path) -> tuple[str | None, str | None]:
    """Open a WQ's file, map its portal: each errno's name, "" if it worked, None if untried."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as problem:
        return errno.errorcode.get(problem.errno or 0, str(problem.errno)), None
    try:
        with mmap.mmap(descriptor, _PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_WRITE):
            return "", ""
    except OSError as problem:
        return "", errno.errorcode.get(problem.errno or 0, str(problem.errno))
    except ValueError:  # A regular file that is too short, not a device.
        return "", "ENODEV"
    finally:
        os.close(descriptor)


def _name_of(number: int, module: str, function: str) -> str:
    """Ask the system's name service, which may not be there."""
    with suppress(ImportError, KeyError, OSError):
        return str(getattr(importlib.import_module(module), function)(number)[0])
    return str(number)


def _accel_config(root: Path) -> _facts.AccelConfig:
    program = shutil.which("accel-config")
    if root != Path("/"):
        return _facts.AccelConfig()
    try:
        ctypes.CDLL("libaccel-config.so.1")
        found = True
    except OSError:
        found = False
    version = _library_version(root) if found else None
    return _facts.AccelConfig(found, version, program or "")


def _library_version(root: Path) -> str | None:
    """The version in the pkg-config file or the package manager's database."""
    for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib"):
        text = text_of(root / folder / "pkgconfig/libaccel-config.pc")
        found = re.search(r"^Version:\s*(\S+)", text or "", re.MULTILINE)
        if found:
            return found[1]
    with suppress(OSError), (root / "var/lib/dpkg/status").open(errors="replace") as file:
        ours = False
        for line in file:
            if line.startswith("Package:"):
                ours = line.split()[1:] == ["libaccel-config1"]
            elif ours and line.startswith("Version:"):
                return line.partition(":")[2].strip().partition("-")[0]
    return None


def _memory_node(root: Path, folder: Path) -> _facts.MemoryNode:
    cpus = [name for name in _names(folder) or () if re.fullmatch(r"cpu\d{1,9}", name)]
    package = "topology/physical_package_id"
    total = re.search(r"MemTotal:\s*(\d{1,15}) kB", text_of(folder / "meminfo") or "")
    caches = _names(folder / "memory_side_cache") or ()
    sizes = [_integer(folder / "memory_side_cache" / name / "size") for name in caches]
    return _facts.MemoryNode(
        folder.name,
        len(cpus),
        _integer(root / "sys/devices/system/cpu" / cpus[0] / package) if cpus else None,
        int(total[1]) << 10 if total else None,
        sum(size or 0 for size in sizes),
    )


def _huge_pages(root: Path) -> tuple[_facts.HugePages, ...] | None:
    folder = root / "sys/kernel/mm/hugepages"
    names = _names(folder)
    if names is None:
        return None
    return tuple(
        _facts.HugePages(
            int(found[1]) << 10,
            _integer(folder / name / "nr_hugepages"),
            _integer(folder / name / "free_hugepages"),
        )
        for name in names
        if (found := re.fullmatch(r"hugepages-(\d{1,12})kB", name))
    )


def _process(root: Path) -> _facts.Process:
    status = text_of(root / "proc/self/status") or ""
    found = re.search(r"^CapEff:\s*([0-9a-fA-F]{1,16})$", status, re.MULTILINE)
    return _facts.Process(
        user=_name_of(os.geteuid(), "pwd", "getpwuid"),
        nodes=_own_nodes(root),
        raw_io=bool(int(found[1], 16) >> _CAP_SYS_RAWIO & 1) if found else None,
    )


def _own_nodes(root: Path) -> tuple[int, ...] | None:
    """NUMA nodes of the processors that this process may use."""
    allowed = os.sched_getaffinity(0)
    nodes = [each for each in _nodes(root) if allowed & cpus_of(text_of(each / "cpulist") or "")]
    return tuple(int(each.name.removeprefix("node")) for each in nodes) or None


def _nodes(root: Path) -> list[Path]:
    folder = root / "sys/devices/system/node"
    return [folder / name for name in _names(folder) or () if re.fullmatch(r"node\d{1,9}", name)]


def cpus_of(text: str) -> set[int]:
    """The numbers of a list of the kernel: "0-3,8"."""
    cpus: set[int] = set()
    for first, last in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text):
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus
