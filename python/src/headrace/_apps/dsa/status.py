# SPDX-License-Identifier: Apache-2.0
"""Explains a device's attributes cmd_status and errors in words.

cmd_status holds the status of the last command: of the driver (bit 31 set, numbers IDXD_SCMD_* of
<linux/idxd.h>) or of the device itself (its command status register). errors holds the four 64-bit
words of the device's software error register; its codes are those of completion records.
"""

import re

_SOFTWARE = 0x8000_0000

_DRIVER = {
    0x0000_0010: "the device was enabled already",
    0x0000_0020: "the device was not enabled when a WQ was to be",
    0x0000_0021: "the WQ was enabled already",
    0x0002_0000: "the device could not be registered as a DMA engine of the kernel",
    0x0003_0000: "the WQ is in no group",
    0x0004_0000: "the WQ has no name",
    0x0005_0000: "a shared WQ needs shared virtual addresses (PASID), which are off",
    0x0006_0000: "the shared WQ has threshold 0",
    0x0007_0000: "the portal of the WQ could not be mapped",
    0x0008_0000: "the kernel had no memory for the WQ",
    0x0009_0000: "the kernel had no memory for the WQ's counter",
    0x000A_0000: "the WQ could not be registered as a channel of the kernel",
    0x000B_0000: "the file of the WQ under /dev/dsa could not be made",
    0x000C_0000: "a shared WQ is not possible: shared virtual addresses (PASID) are off",
    0x000D_0000: "no WQ of the device is configured",
    0x000E_0000: "the WQ has size 0",
    0x000F_0000: "the WQ of a user may not run with privilege",
    0x0010_0000: "the WQ got no interrupt",
    0x0011_0000: "the WQ of a user needs the IOMMU, which is off",
    0x0012_0000: "the event log of the device could not be set up",
    0x0020_0000: "the WQ has no driver_name, which newer kernels ask for: set it to 'user'",
}

_DEVICE = {
    0x01: "the device does not know the command",
    0x02: "the number of the WQ was wrong",
    0x03: "the device had a hardware error while it worked on a command",
    0x10: "the device was enabled already",
    0x11: "the device found its configuration wrong",
    0x12: "the device may not read and write memory: PCI bus mastering is off",
    0x13: "the number of page requests that the device may have open was refused",
    0x14: "the sizes of the WQs are together more than the device has entries",
    0x15: "a group has WQs but no engine, or engines but no WQ",
    0x16: "a group has a WQ that is not configured, or is in several groups",
    0x17: "a group has an engine that is not there, or is in several groups",
    0x18: "the read buffers of a group are set wrong",
    0x20: "the device was not enabled when a WQ was to be",
    0x21: "the WQ was enabled already",
    0x22: "the WQ has size 0",
    0x23: "the WQ has priority 0",
    0x24: "the mode of the WQ is not one that the device has",
    0x25: "the device does not allow block_on_fault as it is set",
    0x26: "the WQ needs a PASID and has none, or has one that it may not",
    0x27: "max_batch_size is more than the device allows",
    0x28: "max_transfer_size is more than the device allows",
    0x2A: "privileged mode is off in the PASID capability of the device",
    0x2C: "ats_disable of the WQ does not fit the device's",
    0x31: "the device was not enabled when it was to be disabled",
    0x32: "a WQ was not enabled when it was to be disabled, drained or reset",
    0x41: "the index of an interrupt was wrong",
    0x42: "the device had no interrupt left",
}

_ERRORS = {
    0x10: "a descriptor had an operation that the WQ does not do",
    0x11: "a descriptor had flags that its operation does not take",
    0x12: "a reserved field of a descriptor was not zero",
    0x13: "the size of a transfer was 0 or more than the WQ's max_transfer_size",
    0x14: "the number of descriptors in a batch was below 2 or above the WQ's max_batch_size",
    0x16: "source and target overlapped where they must not",
    0x18: "the list of descriptors of a batch was not aligned to 64 bytes",
    0x1A: "the address of a completion record could not be translated: it was not mapped",
    0x1B: "the address of a completion record was not aligned to 32 bytes",
    0x1C: "an address was not aligned as its operation wants it",
    0x1D: "a descriptor asked for privilege that its WQ does not have",
}
_ERRORS_VALID = 1
_ERRORS_WQ_VALID = 1 << 3


def explain_command_status(text: str | None) -> str:
    """Explain cmd_status; "" if the last command succeeded or the status is unknown."""
    number = _number(text)
    if not number:
        return ""
    by_driver = bool(number & _SOFTWARE)
    meaning = _DRIVER.get(number & ~_SOFTWARE) if by_driver else _DEVICE.get(number & 0xFF)
    return meaning or f"the last command ended with status {number:#x}"


def explain_errors(text: str | None) -> str:
    """Explain the first error in `errors`; "" if there is none or it is unknown."""
    number = _number((text or "").split()[0] if text else None)
    if number is None or not number & _ERRORS_VALID:
        return ""
    code = number >> 8 & 0xFF
    where = f" (WQ {number >> 16 & 0xFF})" if number & _ERRORS_WQ_VALID else ""
    meaning = _ERRORS.get(code, f"the device noted error {code:#x} of a descriptor")
    return f"{meaning}{where}"


def _number(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"(?:0[xX])?[0-9a-fA-F]{1,16}", text):
        return None
    return int(text, 16)
