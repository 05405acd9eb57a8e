# SPDX-License-Identifier: Apache-2.0
"""Writes the declared machines of the doctor: a healthy one, and broken variants.

Each broken machine is the healthy one with a few facts changed, for a single cause, so that the
difference is visible here. python/tests/test_doctor.py names the root cause of each. None is
recorded from hardware: they are composed from reports of drivers and users.

The build installs them as samples, and the tests read those.

Usage: make_doctor_machines.py FOLDER
"""

import copy
import json
import sys
from pathlib import Path
from typing import Any

COLUMNS_MAX = 100

FILE = {
    "exists": True,
    "owner": "root",
    "group": "dsa",
    "mode": "0660",
    "writable": True,
    "opened": "",
    "mapped": "",
}
QUEUE = {
    "state": "enabled",
    "type": "user",
    "driver_name": "user",
    "size": 64,
    "priority": 10,
    "group_id": 0,
    "block_on_fault": 0,
    "max_batch_size": 1024,
    "max_transfer_size": 2147483648,
    "clients": 0,
    "occupancy": 0,
}
HEALTHY: dict[str, Any] = {
    "platform": {
        "architecture": "x86_64",
        "cpu_model": "Intel(R) Xeon(R) Platinum 8480+",
        "cpu_flags": ["enqcmd", "movdir64b", "waitpkg", "la57"],
        "hypervisor": False,
        "machine_vendor": "Intel Corporation",
        "container": "",
        "emulated": False,
        "physical_address_bits": 52,
    },
    "kernel": {
        "release": "6.8.0-45-generic",
        "parameters": ["intel_iommu=on,sm_on"],
        "config": {
            "INTEL_IDXD": "m",
            "INTEL_IDXD_SVM": "y",
            "INTEL_IOMMU": "y",
            "INTEL_IOMMU_SVM": "y",
            "INTEL_IOMMU_DEFAULT_ON": "n",
            "INTEL_IOMMU_SCALABLE_MODE_DEFAULT_ON": "n",
        },
        "module_loaded": True,
        "module_available": True,
        "module_blacklisted_by": [],
        "dmar_table": True,
        "iommu_count": 2,
        # Five levels (bit 60) in cap; scalable mode (bit 43) in ecap.
        "iommu_capabilities": [["19ed008c40780c66", "3ef9e86f050df"]] * 2,
    },
    "pci_devices": [
        {"address": "0000:6a:01.0", "device": "0b25", "driver": "idxd", "node": 0},
        {"address": "0000:6a:02.0", "device": "0cfe", "driver": "idxd", "node": 0},
    ],
    "devices": [
        {
            "name": "dsa0",
            "pci_address": "0000:6a:01.0",
            "version": "0x100",
            "state": "enabled",
            "cmd_status": "0x0",
            "errors": "0x00000000 0x00000000 0x00000000 0x00000000",
            "node": 0,
            "pasid_enabled": 1,
            "configurable": 1,
            "clients": 0,
            "read_buffer_limit": 0,
            "max_groups": 4,
            "max_engines": 4,
            "max_work_queues": 8,
            "max_work_queues_size": 128,
            "max_batch_size": 1024,
            "max_transfer_size": 2147483648,
            "max_read_buffers": 96,
            "groups": [
                {
                    "name": f"group0.{index}",
                    "read_buffers_reserved": 0,
                    "read_buffers_allowed": 96,
                    "use_read_buffer_limit": 0,
                }
                for index in range(4)
            ],
            "engines": [{"name": f"engine0.{index}", "group_id": 0} for index in range(4)],
            "queues": [
                {"name": "wq0.0", "mode": "shared", "label": "shared", "threshold": 64}
                | QUEUE
                | {"file": {"path": "/dev/dsa/wq0.0"} | FILE},
                {"name": "wq0.1", "mode": "dedicated", "label": "own", "threshold": 0}
                | QUEUE
                | {"file": {"path": "/dev/dsa/wq0.1"} | FILE},
            ],
        }
    ],
    "accel_config": {"found": True, "version": "4.1.6", "program": "/usr/bin/accel-config"},
    "huge_pages": [{"page_bytes": 2097152, "total_count": 512, "free_count": 512}],
    "memory_nodes": [
        {
            "name": "node0",
            "cpu_count": 56,
            "package": 0,
            "memory_bytes": 256 << 30,
            "side_cache_bytes": 0,
        }
    ],
    "process": {"user": "ada", "nodes": [0], "raw_io": False},
}

Changes = dict[str, Any]


def both_queues(changes: Changes) -> Changes:
    """Apply these changes to both WQs of the healthy machine."""
    return {
        f"devices.0.queues.{queue}.{place}": value
        for queue in (0, 1)
        for place, value in changes.items()
    }


def changed(facts: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the facts with those at the given paths replaced; None removes a fact."""
    result = copy.deepcopy(facts)
    for place, value in changes.items():
        *path, last = place.split(".")
        inner: Any = result
        for step in path:
            inner = inner[int(step)] if isinstance(inner, list) else inner[step]
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = copy.deepcopy(value)
    return result


NO_FILE: Changes = both_queues({f"file.{name}": None for name in FILE} | {"file.exists": False})
QUEUES_OFF: Changes = NO_FILE | both_queues({"state": "disabled"})
DEVICE_OFF: Changes = QUEUES_OFF | {"devices.0.state": "disabled"}
BLANK: Changes = DEVICE_OFF | both_queues(
    {"type": "none", "size": 0, "label": "", "group_id": -1, "threshold": 0, "driver_name": ""}
)
NO_PASID: Changes = DEVICE_OFF | {"devices.0.pasid_enabled": 0}
NO_DRIVER: Changes = {
    "kernel.module_loaded": False,
    "devices": [],
    "pci_devices.0.driver": "",
    "pci_devices.1.driver": "",
}
NO_HARDWARE: Changes = NO_DRIVER | {"pci_devices": []}
VIRTUAL: Changes = {
    "platform.hypervisor": True,
    "platform.machine_vendor": "QEMU Standard PC (Q35 + ICH9, 2009)",
}


def another(number: int, bus: str, changes: Changes) -> dict[str, Any]:
    """Return another device: the first with changes and renamed."""
    text = json.dumps(changed(HEALTHY, changes)["devices"][0])
    for old in ("dsa0", "wq0.", "group0.", "engine0."):
        text = text.replace(old, old.replace("0", str(number)))
    device: dict[str, Any] = json.loads(text.replace("0000:6a", f"0000:{bus}"))
    return device


def second(changes: Changes) -> dict[str, Any]:
    """Return a second device with changes."""
    return another(2, "e7", changes)


SECOND_PCI = {"address": "0000:e7:01.0", "device": "0b25", "driver": "idxd", "node": 1}
SECOND_DISABLED = [HEALTHY["devices"][0], second(DEVICE_OFF)]
SECOND_BLANK = [HEALTHY["devices"][0], second(BLANK)]

# Two sockets of a Xeon Max in SNC4, configured as for the prefetching cache's measurements. The
# driver numbers DSA and IAA devices in one sequence.
BUSES = ("6a", "6f", "74", "79", "e7", "ec", "f1", "f6")
ONE_QUEUE: Changes = {
    "devices.0.queues": [
        changed(HEALTHY, {"devices.0.queues.0.size": 128, "devices.0.queues.0.threshold": 128})[
            "devices"
        ][0]["queues"][0]
    ]
}
XEON_MAX_NODES = [
    {
        "name": f"node{node}",
        "cpu_count": 12,
        "package": node // 4,
        "memory_bytes": 64 << 30,
        "side_cache_bytes": 0,
    }
    for node in range(8)
]
XEON_MAX: Changes = {
    "platform.cpu_model": "Intel(R) Xeon(R) CPU Max 9468",
    "pci_devices": [
        {"address": f"0000:{bus}:01.0", "device": "0b25", "driver": "idxd", "node": node}
        for node, bus in enumerate(BUSES)
    ],
    "devices": [
        another(2 * node, bus, ONE_QUEUE | {"devices.0.node": node})
        for node, bus in enumerate(BUSES)
    ],
    "memory_nodes": XEON_MAX_NODES
    + [
        {
            "name": f"node{node}",
            "cpu_count": 0,
            "memory_bytes": 16 << 30,
            "side_cache_bytes": 0,
        }
        for node in range(8, 16)
    ],
    "process.nodes": list(range(8)),
}

# Name, description, changes to the healthy machine.
MACHINES: tuple[tuple[str, str, Changes], ...] = (
    (
        "healthy",
        "one socket of a 4th generation Xeon, one DSA with a shared and a dedicated WQ",
        {},
    ),
    (
        "older-processor",
        "a 2nd generation Xeon: no DSA was made for it",
        NO_HARDWARE
        | {
            "platform.cpu_model": "Intel(R) Xeon(R) Gold 6230N CPU @ 2.30GHz",
            "platform.cpu_flags": [],
        },
    ),
    (
        "other-architecture",
        "an Arm server",
        NO_HARDWARE
        | {
            "platform.architecture": "aarch64",
            "platform.cpu_model": None,
            "platform.cpu_flags": None,
            "platform.hypervisor": None,
            "kernel.dmar_table": False,
            "kernel.iommu_count": 0,
        },
    ),
    ("guest-without-device", "a virtual machine that was given no device", NO_HARDWARE | VIRTUAL),
    ("disabled-in-bios", "the devices are turned off in the BIOS", NO_HARDWARE),
    (
        "only-iaa",
        "a machine whose accelerators are IAA only",
        {
            "pci_devices": [
                {"address": "0000:6a:02.0", "device": "0cfe", "driver": "idxd", "node": 0}
            ],
            "devices": [],
        },
    ),
    (
        "guest-processor-model",
        "a virtual machine with a device, whose model of a processor leaves ENQCMD out",
        VIRTUAL | {"platform.cpu_flags": ["la57"]},
    ),
    (
        "old-kernel",
        "Debian 11: a driver, and ENQCMD turned off in the kernel",
        NO_PASID | {"kernel.release": "5.10.0-28-amd64", "platform.cpu_flags": ["movdir64b"]},
    ),
    (
        "kernel-before-the-driver",
        "a kernel older than the driver",
        NO_DRIVER | {"kernel.release": "5.4.0-150-generic", "kernel.module_available": False},
    ),
    (
        "kernel-without-driver",
        "a kernel that was built without idxd",
        NO_DRIVER | {"kernel.config.INTEL_IDXD": "n", "kernel.module_available": False},
    ),
    (
        "kernel-without-sva",
        "a kernel that was built without shared virtual addresses for the IOMMU",
        NO_PASID | {"kernel.config.INTEL_IOMMU_SVM": "n", "kernel.config.INTEL_IDXD_SVM": "n"},
    ),
    (
        "vtd-off",
        "VT-d is off in the BIOS",
        NO_PASID
        | {
            "kernel.dmar_table": False,
            "kernel.iommu_count": 0,
            "kernel.iommu_capabilities": [],
        },
    ),
    (
        "guest-without-iommu",
        "a virtual machine with a device and no IOMMU",
        VIRTUAL
        | NO_PASID
        | {
            "kernel.dmar_table": False,
            "kernel.iommu_count": 0,
            "kernel.iommu_capabilities": [],
        },
    ),
    (
        "iommu-off",
        "the kernel's command line turns the IOMMU off",
        NO_PASID
        | {
            "kernel.parameters": ["intel_iommu=off"],
            "kernel.iommu_count": 0,
            "kernel.iommu_capabilities": [],
        },
    ),
    (
        "iommu-not-on",
        "nothing turns the IOMMU on",
        NO_PASID
        | {
            "kernel.parameters": [],
            "kernel.iommu_count": 0,
            "kernel.iommu_capabilities": [],
        },
    ),
    (
        "scalable-mode-off",
        "the IOMMU is on, and sm_on was forgotten",
        NO_PASID
        | {
            "kernel.parameters": ["intel_iommu=on"],
            "devices.0.cmd_status": "0x800c0000",
        },
    ),
    (
        "iommu-without-scalable-mode",
        "an IOMMU that has no scalable mode, as some hypervisors model it",
        VIRTUAL | NO_PASID | {"kernel.iommu_capabilities": [["d2008c222f0686", "f00f5e"]]},
    ),
    ("module-not-loaded", "idxd is installed and not loaded", NO_DRIVER),
    (
        "module-blacklisted",
        "a file of /etc/modprobe.d forbids idxd",
        NO_DRIVER | {"kernel.module_blacklisted_by": ["/etc/modprobe.d/blacklist-dsa.conf"]},
    ),
    (
        "module-not-installed",
        "the package with idxd is not installed",
        NO_DRIVER | {"kernel.module_available": False},
    ),
    (
        "held-by-vfio",
        "the device is given to a virtual machine",
        {"devices": [], "pci_devices.0.driver": "vfio-pci"},
    ),
    (
        "not-bound",
        "idxd tried the device and gave up",
        {"devices": [], "pci_devices.0.driver": ""},
    ),
    (
        "container-without-sysfs",
        "a container that sees the PCI bus, and no device of the driver",
        {"platform.container": "docker", "devices": []},
    ),
    (
        "five-level-paging",
        "the kernel's page tables have five levels and the IOMMU walks four",
        NO_PASID | {"kernel.iommu_capabilities": [["9ed008c40780c66", "3ef9e86f050df"]] * 2},
    ),
    ("pasid-off", "sm_on is given, and PASID is off all the same", NO_PASID),
    (
        "library-missing",
        "libaccel-config is not installed",
        {"accel_config": {"found": False, "program": ""}},
    ),
    (
        "halted",
        "the device had an error from which it cannot recover",
        DEVICE_OFF | {"devices.0.state": "halted"},
    ),
    ("not-configured", "a device as it comes: no WQ has entries", BLANK),
    (
        "only-kernel-queues",
        "the WQs are the kernel's own",
        both_queues({"type": "kernel", "driver_name": "dmaengine", "file": None}),
    ),
    (
        "queue-without-group",
        "a WQ was configured and put in no group",
        QUEUES_OFF | {"devices.0.queues.0.group_id": -1, "devices.0.cmd_status": "0x80030000"},
    ),
    (
        "group-without-engine",
        "the group of a WQ has no engine",
        DEVICE_OFF
        | {f"devices.0.engines.{index}.group_id": -1 for index in range(4)}
        | {"devices.0.cmd_status": "0x15"},
    ),
    (
        "threshold-zero",
        "a shared WQ was configured without a threshold",
        QUEUES_OFF | {"devices.0.queues.0.threshold": 0, "devices.0.cmd_status": "0x80060000"},
    ),
    (
        "queue-without-name",
        "a WQ was configured without a name",
        QUEUES_OFF | {"devices.0.queues.0.label": "", "devices.0.cmd_status": "0x80040000"},
    ),
    (
        "queue-without-driver-name",
        "a configuration of older days on a newer kernel: no driver_name",
        QUEUES_OFF | {"devices.0.queues.0.driver_name": "", "devices.0.cmd_status": "0x80200000"},
    ),
    (
        "queue-without-size",
        "a WQ that is on as far as its device goes, with no entries",
        QUEUES_OFF
        | {
            "devices.0.queues.0.size": 0,
            "devices.0.queues.1.size": 0,
            "devices.0.cmd_status": "0x800e0000",
        },
    ),
    ("device-disabled", "configured, and the device is not enabled", DEVICE_OFF),
    (
        "device-refuses",
        "the device refuses the sum of the WQs' sizes",
        DEVICE_OFF | {"devices.0.queues.0.size": 128, "devices.0.cmd_status": "0x14"},
    ),
    ("queue-disabled", "the device is on, its WQs are not", QUEUES_OFF),
    (
        "queue-locked",
        "the WQ was passed on by the kernel",
        QUEUES_OFF | {"devices.0.queues.0.state": "locked"},
    ),
    (
        "container-without-files",
        "a container that was not given /dev/dsa",
        NO_FILE | {"platform.container": "docker"},
    ),
    ("no-files", "nothing made the files of /dev/dsa", NO_FILE),
    (
        "no-permission",
        "the files of /dev/dsa are root's alone",
        both_queues(
            {
                "file.group": "root",
                "file.mode": "0600",
                "file.writable": False,
                "file.opened": "EACCES",
                "file.mapped": None,
            }
        ),
    ),
    (
        "dedicated-in-use",
        "one dedicated WQ, and another process has it",
        {
            "devices.0.queues.0.size": 0,
            "devices.0.queues.0.state": "disabled",
            "devices.0.queues.0.type": "none",
            "devices.0.queues.0.file": None,
            "devices.0.queues.1.clients": 1,
            "devices.0.queues.1.file.opened": None,
            "devices.0.queues.1.file.mapped": None,
        },
    ),
    (
        "cannot-bind",
        "open() cannot bind the process to the device",
        both_queues({"file.opened": "EINVAL", "file.mapped": None}),
    ),
    (
        "portal-refused",
        "a kernel since CVE-2024-21823 and a user without CAP_SYS_RAWIO",
        both_queues({"file.mapped": "EPERM"}),
    ),
    (
        "portal-refused-in-namespace",
        "the same in a rootless container, where CAP_SYS_RAWIO is there and does not count",
        both_queues({"file.mapped": "EPERM"})
        | {"process.raw_io": True, "platform.container": "podman"},
    ),
    (
        "noted-error",
        "some program has sent a descriptor that was larger than its WQ allows",
        # Valid, of WQ 0, error 0x13.
        {"devices.0.errors": "0x0000000000001309 0x00000000 0x00000000 0x00000000"},
    ),
    (
        "small-transfers",
        "WQs that were configured with the driver's defaults for transfer and batch",
        both_queues({"max_transfer_size": 2 << 20, "max_batch_size": 32}),
    ),
    (
        "only-dedicated",
        "every WQ is dedicated",
        {"devices.0.queues.0.mode": "dedicated", "devices.0.queues.0.threshold": 0},
    ),
    (
        "no-huge-pages",
        "no huge pages are reserved",
        {"huge_pages": [{"page_bytes": 2097152, "total_count": 0, "free_count": 0}]},
    ),
    (
        "library-without-program",
        "libaccel-config without the program accel-config",
        {"accel_config.program": ""},
    ),
    (
        "guest-with-device",
        "a container in a virtual machine that was given a device",
        VIRTUAL | {"platform.container": "docker"},
    ),
    (
        "unused-device",
        "two devices, one of them as it comes",
        {"pci_devices": [*HEALTHY["pci_devices"], SECOND_PCI], "devices": SECOND_BLANK},
    ),
    (
        "far-device",
        "the process runs on the other socket",
        {"process.nodes": [1]},
    ),
    (
        "device-without-node",
        "the firmware does not say where the device is",
        {"devices.0.node": -1, "pci_devices.0.node": -1},
    ),
    ("xeon-max-flat", "two Xeon Max 9468 in SNC4, HBM in flat mode, 8 devices", XEON_MAX),
    (
        "xeon-max-cache",
        "the same with HBM as a cache",
        XEON_MAX
        | {"memory_nodes": [node | {"side_cache_bytes": 16 << 30} for node in XEON_MAX_NODES]},
    ),
    (
        "fewer-devices-than-nodes",
        "the same with one device on each socket",
        XEON_MAX
        | {
            "pci_devices": [XEON_MAX["pci_devices"][node] for node in (0, 4)],
            "devices": [XEON_MAX["devices"][node] for node in (0, 4)],
        },
    ),
    (
        "addresses-of-46-bits",
        "the BIOS limits physical addresses to 46 bits",
        {"platform.physical_address_bits": 46},
    ),
    (
        "second-device-disabled",
        "two devices, one of them configured and not enabled",
        {"pci_devices": [*HEALTHY["pci_devices"], SECOND_PCI], "devices": SECOND_DISABLED},
    ),
    (
        "emulated",
        "what a program sees under 'headrace emulate' in a virtual machine without DSA",
        VIRTUAL
        | {
            "platform.cpu_flags": [],
            "platform.emulated": True,
            "kernel.parameters": [],
            "kernel.config": None,
            "kernel.dmar_table": False,
            "kernel.iommu_count": 0,
            "kernel.iommu_capabilities": [],
            "pci_devices": [],
        },
    ),
)


def written(value: object, indent: int = 0) -> str:
    """Format JSON with each value on one line if it fits."""
    line = json.dumps(value)
    if len(line) + indent <= COLUMNS_MAX or not isinstance(value, dict | list):
        return line
    inside = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {written(each, indent + 2)}" for key, each in value.items()]
        opening, closing = "{", "}"
    else:
        items = [written(each, indent + 2) for each in value]
        opening, closing = "[", "]"
    body = ",\n".join(inside + item for item in items)
    return f"{opening}\n{body}\n{' ' * indent}{closing}"


def main() -> None:
    """Writes the records into the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, what, changes in MACHINES:
        record = {
            "schema": {"name": "headrace-dsa-record", "version": 2},
            "origin": f"Declared, not recorded: {what}",
            "facts": changed(HEALTHY, changes),
        }
        (folder / f"{name}.json").write_text(written(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
