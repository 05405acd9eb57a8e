# SPDX-License-Identifier: Apache-2.0
"""Checks below the driver: hardware, processor, firmware, kernel, IOMMU.

Pure functions of the facts. Emulated devices need none of this.
"""

import re

from headrace._apps.doctor.finding import Finding, are, failed, listed, note, ok, unknown
from headrace._facts import Facts
from headrace._gather import DSA_PCI_DEVICES

NOT_NEEDED = ok("not needed: the device is emulated")

# Older kernels disable ENQCMD, and so shared WQs, for user space.
_KERNEL_FOR_SHARED = (5, 18)
_KERNEL_FOR_IDXD = (5, 6)

_PAIR = 2
_ECAP_SCALABLE = 1 << 43
_CAP_FIVE_LEVELS = 1 << 60

_SCALABLE_REMEDY = (
    "add intel_iommu=on,sm_on to the kernel's command line (GRUB_CMDLINE_LINUX in "
    "/etc/default/grub, then update-grub) and boot again"
)


def pasid_works(facts: Facts) -> bool:
    """Whether some device has PASID on: proof that processor, IOMMU and kernel support it."""
    return any(device.pasid_enabled for device in facts.devices or ())


def check_device(facts: Facts) -> Finding:
    """Is there a DSA in this machine?"""
    found = [pci for pci in facts.pci_devices or () if pci.device in DSA_PCI_DEVICES]
    nodes = sorted({pci.node for pci in found if pci.node is not None and pci.node >= 0})
    if found:
        where = f" on node {listed([str(node) for node in nodes])}" if nodes else ""
        return ok(f"{len(found)} on the PCI bus{where}")
    if facts.devices:
        return ok(f"{len(facts.devices)}, as the driver says")
    if facts.pci_devices is None:
        return unknown("the PCI bus cannot be seen", "look with 'lspci -d 8086:0b25' as root")
    others = len(facts.pci_devices)
    finding = "the PCI bus has no function 8086:0b25, 8086:11fb or 8086:1212"
    if others:
        finding += f", but {others} IAA, which compresses and does not copy"
    cause, remedy = _why_absent(facts)
    return failed(finding, cause, remedy)


def _why_absent(facts: Facts) -> tuple[str, str]:
    platform = facts.platform
    model = platform.cpu_model or "the processor"
    if platform.architecture is not None and platform.architecture != "x86_64":
        cause = f"the processor is of the {platform.architecture} architecture and DSA is Intel's"
        return cause, "use the software path, which needs no accelerator"
    if platform.hypervisor:
        remedy = (
            "give the machine a DSA function of its host by VFIO, move to a bare-metal machine, "
            "or develop with 'headrace emulate -- PROGRAM'"
        )
        return "this is a virtual machine and its host gives it none", remedy
    if platform.cpu_flags is not None and "enqcmd" in platform.cpu_flags:
        cause = f"{model} can submit to one, so it is turned off in the firmware or not in this SKU"
        return (
            cause,
            "enable the DSA devices of each socket in the BIOS (IIO or IOAT configuration)",
        )
    cause = f"{model} has none; 4th generation Xeon Scalable processors and later do"
    return cause, "use the software path, or develop with 'headrace emulate -- PROGRAM'"


def check_cpu(facts: Facts) -> Finding:
    """Can the processor submit?"""
    flags = facts.platform.cpu_flags
    if flags is None:
        return unknown("/proc/cpuinfo does not list the processor's flags")
    missing = [flag for flag in ("movdir64b", "enqcmd") if flag not in flags]
    release = _version(facts)
    if "enqcmd" in missing and release is not None and release < _KERNEL_FOR_SHARED:
        return note(
            "flag enqcmd is not set",
            f"kernel {facts.kernel.release} hides it; see the check 'kernel'",
        )
    if missing and facts.platform.hypervisor:
        return failed(
            f"{_flags(missing)} not set",
            "the virtual machine's model of a processor leaves it out",
            "run the machine with the host's own model (QEMU: -cpu host)",
        )
    if missing:
        return failed(
            f"{_flags(missing)} not set",
            "the processor, its microcode or an option of the kernel turns the instruction off",
            "update the microcode and remove clearcpuid= from the kernel's command line",
        )
    if "waitpkg" not in flags:
        return note(
            "flag waitpkg is not set",
            "waiting cannot use UMWAIT and spins with PAUSE instead",
        )
    return ok("enqcmd, movdir64b and waitpkg")


def _flags(names: list[str]) -> str:
    return f"flag {names[0]} is" if len(names) == 1 else f"flags {', '.join(names)} are"


def _version(facts: Facts) -> tuple[int, int] | None:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", facts.kernel.release or "")
    return (int(found[1]), int(found[2])) if found else None


def check_kernel(facts: Facts) -> Finding:
    """Is the kernel new enough?"""
    release, version = facts.kernel.release, _version(facts)
    if version is None:
        return unknown("its version cannot be seen")
    # RHEL backports the driver to older kernels.
    backported = re.search(r"\.el(?:8|9)", release or "") is not None
    if version >= _KERNEL_FOR_SHARED or backported:
        return ok(f"{release}")
    if pasid_works(facts):
        return ok(f"{release}, with shared virtual addresses backported")
    if version < _KERNEL_FOR_IDXD:
        cause = "the driver idxd came with Linux 5.6, shared WQs for users with 5.18"
    else:
        cause = "it has ENQCMD turned off: shared WQs for users came back with Linux 5.18"
    return failed(f"{release} is too old", cause, "use a kernel of version 5.18 or later")


def check_kernel_config(facts: Facts) -> Finding:
    """Was the kernel built with all needed options?"""
    config = facts.kernel.config
    if pasid_works(facts):
        return ok("driver and shared virtual addresses are at work")
    if config is None:
        return unknown("neither /proc/config.gz nor /boot/config-* can be read")
    needed = ("INTEL_IDXD", "INTEL_IOMMU", "INTEL_IOMMU_SVM", "INTEL_IDXD_SVM")
    missing = [f"CONFIG_{name}" for name in needed if config.get(name) == "n"]
    if missing:
        what = {
            "CONFIG_INTEL_IDXD": "the kernel has no driver for the devices",
            "CONFIG_INTEL_IOMMU": "the kernel cannot use the IOMMU",
        }.get(missing[0], "users' addresses cannot be shared with a device")
        remedy = f"use a kernel that is built with {' and '.join(missing)}"
        return failed(f"{are(missing)} not set", what, remedy)
    if any(name not in config for name in needed):
        return unknown("its options are only partly known")
    return ok(", ".join(f"{name}={config[name]}" for name in needed))


def check_firmware(facts: Facts) -> Finding:
    """Does the firmware give the kernel an IOMMU (VT-d)?"""
    kernel = facts.kernel
    if kernel.dmar_table or kernel.iommu_count or pasid_works(facts):
        return ok("it describes the IOMMU (ACPI table DMAR)")
    if kernel.dmar_table is None:
        return unknown("the ACPI tables cannot be seen", "look for DMAR in the kernel's log")
    if facts.platform.hypervisor:
        return failed(
            "no ACPI table DMAR",
            "the virtual machine has no IOMMU, so no addresses can be shared with the device",
            "give it one with scalable mode (QEMU: -device intel-iommu,x-scalable-mode=on)",
        )
    return failed(
        "no ACPI table DMAR",
        "VT-d is turned off in the BIOS",
        "enable 'Intel VT for Directed I/O (VT-d)' in the BIOS",
    )


def check_iommu(facts: Facts) -> Finding:
    """Is the IOMMU on, in scalable mode?"""
    kernel = facts.kernel
    if pasid_works(facts):
        return ok("on, in scalable mode")
    registers = registers_of(facts)
    if registers and not any(ecap & _ECAP_SCALABLE for _, ecap in registers):
        return failed(
            "the IOMMU has no scalable mode",
            "the hardware, or the hypervisor's model of it, cannot tell processes apart (PASID)",
            "enable scalable mode in the BIOS or the hypervisor (x-scalable-mode=on)",
        )
    if kernel.parameters is None:
        return unknown("the kernel's command line cannot be read")
    words = [word for word in kernel.parameters if word.startswith(("intel_iommu=", "iommu="))]
    said = " ".join(words) or "no intel_iommu= on the kernel's command line"
    values = {value for word in words for value in word.partition("=")[2].split(",")}
    wrong = _switched_on(facts, values, said) or _scalable(facts, values, said)
    if wrong is not None:
        return wrong
    if not registers:
        return unknown(f"asked for ({said}); whether the hardware has scalable mode is not seen")
    return ok(f"on, in scalable mode ({said})")


def _switched_on(facts: Facts, values: set[str], said: str) -> Finding | None:
    """The finding if the IOMMU is off, else None; `values` are from the kernel's command line."""
    if "off" in values:
        return failed(
            "the IOMMU is turned off", f"the kernel's command line has {said}", _SCALABLE_REMEDY
        )
    if "on" in values or facts.kernel.iommu_count:
        return None
    default = (facts.kernel.config or {}).get("INTEL_IOMMU_DEFAULT_ON")
    if default == "n":
        cause = f"{said}, and this kernel leaves it off (CONFIG_INTEL_IOMMU_DEFAULT_ON=n)"
        return failed("the IOMMU is not turned on", cause, _SCALABLE_REMEDY)
    if default is None:
        return unknown(f"{said}, and whether it is on by default is not known", _SCALABLE_REMEDY)
    return None


def _scalable(facts: Facts, values: set[str], said: str) -> Finding | None:
    """The finding if scalable mode is off, else None."""
    if "sm_off" in values:
        cause = f"the kernel's command line has {said}"
        return failed("scalable mode of the IOMMU is turned off", cause, _SCALABLE_REMEDY)
    if "sm_on" in values:
        return None
    default = (facts.kernel.config or {}).get("INTEL_IOMMU_SCALABLE_MODE_DEFAULT_ON")
    if default == "n":
        cause = f"{said}, and this kernel leaves it off unless sm_on is given"
        return failed("scalable mode of the IOMMU is not on", cause, _SCALABLE_REMEDY)
    if default is None:
        finding = f"{said}, and whether scalable mode is on by default is not known"
        return unknown(finding, _SCALABLE_REMEDY)
    return None


def registers_of(facts: Facts) -> list[tuple[int, int]]:
    """(cap, ecap) of each IOMMU unit whose registers are readable."""
    pairs = [pair for pair in facts.kernel.iommu_capabilities or () if len(pair) == _PAIR]
    numbers = [
        [int(text, 16) for text in pair if re.fullmatch(r"[0-9a-fA-F]{1,16}", text)]
        for pair in pairs
    ]
    return [(pair[0], pair[1]) for pair in numbers if len(pair) == _PAIR]


def five_levels_refused(facts: Facts) -> bool:
    """Whether the kernel's page tables have five levels and the IOMMU walks four."""
    registers = registers_of(facts)
    used = facts.platform.cpu_flags is not None and "la57" in facts.platform.cpu_flags
    return used and any(not cap & _CAP_FIVE_LEVELS for cap, _ in registers)


def check_module(facts: Facts) -> Finding:
    """Is the driver idxd loaded?"""
    kernel = facts.kernel
    if kernel.module_loaded or facts.devices:
        return ok("idxd is loaded")
    if kernel.module_loaded is None:
        return unknown("/sys/module cannot be seen")
    if kernel.module_blacklisted_by:
        return failed(
            "idxd is not loaded",
            f"loading it is forbidden by {listed(list(kernel.module_blacklisted_by))}",
            "remove that line, then 'modprobe idxd' as root",
        )
    if kernel.module_available is False:
        return failed(
            "idxd is not loaded",
            f"the module is not installed for kernel {kernel.release or '(unknown)'}",
            "install the package with the kernel's further modules (Ubuntu: "
            "linux-modules-extra-$(uname -r), RHEL: kernel-modules-extra)",
        )
    return failed(
        "idxd is not loaded",
        "nothing loaded it, or it found no device that it could use",
        "load it by 'modprobe idxd' as root and look at 'dmesg | grep idxd'",
    )


def check_driver(facts: Facts) -> Finding:
    """Is the driver idxd bound to the devices?"""
    devices = facts.devices
    if devices is None:
        return unknown("/sys/bus/dsa cannot be seen")
    if facts.platform.emulated:
        return NOT_NEEDED if devices else _no_devices(facts)
    there = [pci for pci in facts.pci_devices or () if pci.device in DSA_PCI_DEVICES]
    bound_elsewhere = [
        f"{pci.address} ({pci.driver})" for pci in there if pci.driver not in {"idxd", "", None}
    ]
    orphans = [pci.address for pci in there if pci.driver == ""]
    if devices and not orphans:
        if bound_elsewhere:
            return note(
                f"idxd holds {len(devices)}, another driver {listed(bound_elsewhere)}",
                "those are given to a virtual machine or to a driver in user space",
            )
        return ok(f"idxd holds {listed([device.name for device in devices])}")
    if bound_elsewhere and not devices:
        return failed(
            f"another driver holds {listed(bound_elsewhere)}",
            "the device is given to a virtual machine or to a driver in user space (SPDK, DPDK)",
            "rebind it: write its address to that driver's unbind and to "
            "/sys/bus/pci/drivers/idxd/bind",
        )
    if orphans:
        return failed(
            f"no driver holds {listed(orphans)}",
            "idxd tried and gave up, or the device was unbound",
            "look at 'dmesg | grep idxd'; write the address to /sys/bus/pci/drivers/idxd/bind",
        )
    return _no_devices(facts)


def _no_devices(facts: Facts) -> Finding:
    if facts.platform.container:
        return failed(
            "/sys/bus/dsa has no device",
            "this container does not see the host's devices",
            "run it with the host's /sys and /dev/dsa (docker: -v /sys:/sys --device /dev/dsa)",
        )
    return failed(
        "/sys/bus/dsa has no device",
        "idxd is loaded and has bound none",
        "look at 'dmesg | grep idxd'",
    )
