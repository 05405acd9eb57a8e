# SPDX-License-Identifier: Apache-2.0
"""Plain values of a machine that decide whether its DSA can be used, and their part of its record.

None means "unknown": not readable, not in this kernel, or not read. No field is derived from
another and nothing here reads the system: `gather` does. A record can replace the machine in all
checks.
"""

import functools
import json
import re
import types
import typing
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from headrace._files import read_file
from headrace.errors import CorruptDataError, VersionMismatchError

SCHEMA_NAME = "headrace-machine-record"
SCHEMA_VERSION = 1
# Records with these facts alone, of versions 1 (`accel_config` was "library") and 2.
_OLDER_NAME = "headrace-dsa-record"

_RECORD_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI function that is a DSA or IAA.

    Attributes:
        address: Such as "0000:6a:01.0".
        device: Device number of vendor 8086, such as "0b25".
        driver: Name of the driver bound to it, "" if none.
        node: NUMA node, -1 if the firmware does not say.
    """

    address: str
    device: str | None = None
    driver: str | None = None
    node: int | None = None


@dataclass(frozen=True, slots=True)
class CharacterDevice:
    """The file in /dev/dsa through which programs submit to a WQ.

    Attributes:
        mode: Permission bits in octal, such as "0600".
        writable: Whether this process may read and write it, ACLs included.
        opened: Name of the errno of a trial open(), "" if it worked.
        mapped: Name of the errno of a trial mmap() of the portal, "" if it worked.
    """

    path: str
    exists: bool | None = None
    owner: str | None = None
    group: str | None = None
    mode: str | None = None
    writable: bool | None = None
    opened: str | None = None
    mapped: str | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """A WQ as in sysfs; `label` is its attribute "name", other fields are named as there."""

    name: str
    state: str | None = None
    mode: str | None = None
    type: str | None = None
    label: str | None = None
    driver_name: str | None = None
    size: int | None = None
    threshold: int | None = None
    priority: int | None = None
    group_id: int | None = None
    block_on_fault: int | None = None
    max_batch_size: int | None = None
    max_transfer_size: int | None = None
    ats_disable: int | None = None
    clients: int | None = None
    occupancy: int | None = None
    file: CharacterDevice | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine of a device, and its group; -1 for none."""

    name: str
    group_id: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a device: the read buffers of its engines, and their traffic classes."""

    name: str
    read_buffers_reserved: int | None = None
    read_buffers_allowed: int | None = None
    use_read_buffer_limit: int | None = None
    traffic_class_a: int | None = None
    traffic_class_b: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the driver idxd as in sysfs; `node` is its attribute numa_node."""

    name: str
    pci_address: str | None = None
    version: str | None = None
    state: str | None = None
    cmd_status: str | None = None
    errors: str | None = None
    node: int | None = None
    pasid_enabled: int | None = None
    configurable: int | None = None
    clients: int | None = None
    read_buffer_limit: int | None = None
    max_groups: int | None = None
    max_engines: int | None = None
    max_work_queues: int | None = None
    max_work_queues_size: int | None = None
    max_batch_size: int | None = None
    max_transfer_size: int | None = None
    max_read_buffers: int | None = None
    groups: tuple[Group, ...] | None = None
    engines: tuple[Engine, ...] | None = None
    queues: tuple[Queue, ...] | None = None


@dataclass(frozen=True, slots=True)
class Platform:
    """The processor, and whether a VM, container or emulator is in use.

    Attributes:
        cpu_flags: The processor's flags, of those that `gather` looks for.
        machine_vendor: The name in the firmware, such as "QEMU Standard PC".
        container: Kind of container of this process, "" if none.
        emulated: Whether the devices are those of `headrace emulate`.
    """

    architecture: str | None = None
    cpu_model: str | None = None
    cpu_flags: tuple[str, ...] | None = None
    hypervisor: bool | None = None
    machine_vendor: str | None = None
    container: str | None = None
    emulated: bool | None = None
    physical_address_bits: int | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel: its build, its command line, and its driver for the devices.

    Attributes:
        parameters: Command-line parameters that concern the IOMMU or modules.
        config: Build options by name without CONFIG_: "y", "m" or "n".
        module_available: Whether the module is installed for this kernel.
        module_blacklisted_by: What blacklists it, such as a file of /etc/modprobe.d.
        dmar_table: Whether the firmware has an ACPI table DMAR (an Intel IOMMU).
        iommu_count: IOMMU units that the kernel uses.
        iommu_capabilities: Capability registers of each unit, (cap, ecap) in hexadecimal.
    """

    release: str | None = None
    parameters: tuple[str, ...] | None = None
    config: dict[str, str] | None = None
    module_loaded: bool | None = None
    module_available: bool | None = None
    module_blacklisted_by: tuple[str, ...] | None = None
    dmar_table: bool | None = None
    iommu_count: int | None = None
    iommu_capabilities: tuple[tuple[str, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class AccelConfig:
    """libaccel-config and the program of the same package: its path, "" if not installed."""

    found: bool | None = None
    version: str | None = None
    program: str | None = None


@dataclass(frozen=True, slots=True)
class HugePages:
    """A pool of huge pages of one size."""

    page_bytes: int
    total_count: int | None = None
    free_count: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """A NUMA node; `side_cache_bytes` is 0 without a memory-side cache."""

    name: str
    cpu_count: int | None = None
    package: int | None = None
    memory_bytes: int | None = None
    side_cache_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """The process that runs the checks; `nodes` are those of the processors that it may use."""

    user: str | None = None
    nodes: tuple[int, ...] | None = None
    raw_io: bool | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    platform: Platform = Platform()
    kernel: Kernel = Kernel()
    pci_devices: tuple[PciDevice, ...] | None = None
    devices: tuple[Device, ...] | None = None
    accel_config: AccelConfig = AccelConfig()
    huge_pages: tuple[HugePages, ...] | None = None
    memory_nodes: tuple[MemoryNode, ...] | None = None
    process: Process = Process()


def number_in(name: str) -> int | None:
    """The last number of a name: 3 of "group0.3"."""
    found = re.search(r"([0-9]{1,9})$", name)
    return int(found[1]) if found else None


def to_document(facts: Facts, origin: str) -> dict[str, Any]:
    """The facts as a record without other parts; `origin` names the machine."""
    return {
        "schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION},
        "origin": origin,
        "facts": asdict(facts),
    }


def from_document(document: object, tried: str) -> tuple[Facts, str]:
    """Read a record: the facts and their origin."""
    remedy = "make a record by 'headrace doctor --record FILE'"
    if not isinstance(document, dict) or not isinstance(schema := document.get("schema"), dict):
        raise CorruptDataError(tried, "it has no schema", remedy)
    name, version = schema.get("name"), schema.get("version")
    if name not in {SCHEMA_NAME, _OLDER_NAME}:
        raise CorruptDataError(tried, f"its schema is {_shown(name)}, not '{SCHEMA_NAME}'", remedy)
    newest = SCHEMA_VERSION + (name == _OLDER_NAME)
    if version not in range(1, newest + 1) or isinstance(version, bool):
        cause = f"it is of version {_shown(version)} and this build reads up to {newest}"
        raise VersionMismatchError(tried, cause, remedy)
    origin, values = document.get("origin"), document.get("facts")
    if isinstance(values, dict):
        values = {"accel_config" if key == "library" else key: each for key, each in values.items()}
    try:
        if not isinstance(origin, str) or not origin.isprintable():
            raise _WrongFieldError("origin", "a text", origin)  # noqa: TRY301
        facts = _read(Facts, values, "facts")
    except _WrongFieldError as problem:
        raise CorruptDataError(tried, str(problem), remedy) from None
    assert isinstance(facts, Facts)  # noqa: S101 - For the type checker.
    return facts, origin


def load_record(path: str) -> tuple[Facts, str]:
    tried = f"read the record {path}"
    data = read_file(path, tried, _RECORD_BYTES_MAX)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as problem:
        cause = "it is not JSON"
        if isinstance(problem, json.JSONDecodeError):
            cause += f" (line {problem.lineno}: {problem.msg})"
        raise CorruptDataError(tried, cause, "give a file with a record") from None
    return from_document(document, tried)


class _WrongFieldError(Exception):
    def __init__(self, path: str, wanted: str, found: object) -> None:
        super().__init__(f"field {path} is {_shown(found)} and should be {wanted}")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "absent"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:36] + '..."'  # noqa: PLR2004 - One line's share.


_hints = functools.cache(typing.get_type_hints)  # It is slow.

_LEAVES: dict[Any, str] = {str: "a text", int: "a whole number", bool: "true or false"}
_INTEGER_BITS_MAX = 64


def _read(kind: Any, value: object, path: str) -> object:  # noqa: ANN401 - A type, as annotated.
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:  # Always "X | None" here.
        return None if value is None else _read(arguments[0], value, path)
    if kind in _LEAVES:
        return _leaf(kind, value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise _WrongFieldError(path, "a list", value)
        return tuple(_read(arguments[0], each, f"{path}[{i}]") for i, each in enumerate(value))
    if not isinstance(value, dict):
        raise _WrongFieldError(path, "an object", value)
    known = {key: each for key, each in value.items() if each is not None}
    if origin is dict:
        return {key: _read(arguments[1], each, f"{path}.{key}") for key, each in known.items()}
    return _group(kind, known, path)


def _leaf(kind: type, value: object, path: str) -> object:
    # bool is a subclass of int.
    fits = type(value) is kind
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS_MAX:
        fits = False
    # Strings are printed: a foreign record must not send control characters to a terminal.
    if isinstance(value, str) and not value.isprintable():
        fits = False
    if not fits:
        raise _WrongFieldError(path, _LEAVES[kind], value)
    return value


def _group(kind: Any, known: dict[str, object], path: str) -> object:  # noqa: ANN401 - As above.
    """Read a group of facts; unknown fields, of later versions, are ignored."""
    hints = _hints(kind)
    given = {
        field.name: _read(hints[field.name], known[field.name], f"{path}.{field.name}")
        for field in fields(kind)
        if field.name in known
    }
    missing = [f for f in fields(kind) if f.default is MISSING and f.name not in given]
    if missing:
        wanted = _LEAVES[hints[missing[0].name]]
        raise _WrongFieldError(f"{path}.{missing[0].name}", wanted, None)
    return kind(**given)
