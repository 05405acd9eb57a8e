# SPDX-License-Identifier: Apache-2.0
"""Counters of real DSA devices, from the kernel's driver idxd by perf_event_open(2).

The encoding is from the driver's sysfs folder; the events are not listed there, but in the
specification of the device. The ones here are those of Intel's PCM. Not tested on a real device:
the tests use a recorded sysfs folder, and a software event through the same calls.
"""

import ctypes
import os
import re
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

FOLDER = Path("/sys/bus/event_source/devices")
EVENTS: Mapping[str, tuple[int, int, int]] = {
    "bytes_read": (1, 0x1, 32),
    "bytes_written": (1, 0x2, 32),
    "shared_submissions": (0, 0x5, 1),
    "dedicated_submissions": (0, 0x10, 1),
}
"""For each event: category, event, and the unit of one count."""
_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = struct.Struct("=IIQ" + "QQQQ" + "IIQQ")  # perf_event_attr up to config2.
_ATTRIBUTES_BYTES = 112
_CLOSED_AT_EXEC = 1 << 3
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


@dataclass(frozen=True, slots=True)
class Unit:
    """The counters of a device, as described in sysfs.

    Attributes:
        cpu: The processor to open counters on; they count for all processors.
        format: For each field: number of the config word, lowest and highest bit.
    """

    name: str
    type: int
    cpu: int
    format: Mapping[str, tuple[int, int, int]]

    def words(self, **fields: int) -> list[int]:
        """Encode fields as config, config1 and config2."""
        words = [0, 0, 0]
        for name, value in fields.items():
            if name not in self.format:
                raise ValueError(f"{self.name} has no field {name}")
            word, low, high = self.format[name]
            if value >> (high - low + 1):
                raise ValueError(f"{value} does not fit the field {name} of {self.name}")
            words[word] |= value << low
        return words


def units(folder: Path = FOLDER) -> list[Unit]:
    """Read the DSA devices in sysfs; skip those that cannot be parsed."""
    found = []
    for path in sorted(folder.glob("dsa*")):
        with suppress(OSError, ValueError):
            formats = {
                each.name: _format(each.read_text(encoding="ascii"))
                for each in (path / "format").iterdir()
            }
            kind = int((path / "type").read_text(encoding="ascii"))
            cpu = int(re.split("[-,]", (path / "cpumask").read_text(encoding="ascii"))[0])
            found.append(Unit(path.name, kind, cpu, formats))
    return found


def _format(text: str) -> tuple[int, int, int]:
    """Parse a field such as "config1:32-39"."""
    matched = re.fullmatch(r"config([12]?):(\d{1,2})(?:-(\d{1,2}))?\s*", text)
    if matched is None:
        raise ValueError(text)
    word, low, high = matched.groups()
    return int(word or 0), int(low), int(high or low)


@dataclass
class Counters:
    """A context manager that opens counters of all devices.

    Attributes:
        state: What is counted, or why nothing is, with the remedy.
    """

    folder: Path = FOLDER
    events: Mapping[str, tuple[int, int, int]] = field(default_factory=lambda: EVENTS)
    state: str = ""
    _open: list[tuple[str, str, int, int]] = field(default_factory=list)

    def __enter__(self) -> Self:
        found = units(self.folder)
        if not found:
            self.state = "none: the kernel's driver idxd has no devices here that count events"
        for unit in found:
            for name, (category, event, scale) in self.events.items():
                try:
                    words = unit.words(event_category=category, event=event)
                    self._open.append((unit.name, name, scale, _open_event(unit, words)))
                except (OSError, ValueError) as problem:
                    self.state = f"not read: {_why(unit, problem)}"
        if self._open:
            names = ", ".join(dict.fromkeys(name for name, *_ in self._open))
            self.state = "; ".join(filter(None, (names, self.state)))
        return self

    def __exit__(self, *_details: object) -> None:
        while self._open:
            os.close(self._open.pop()[3])

    def read(self) -> dict[str, dict[str, int]]:
        """Return the counts since the block began, by device and event."""
        found: dict[str, dict[str, int]] = {}
        for device, name, scale, descriptor in self._open:
            (count,) = struct.unpack("=Q", os.read(descriptor, 8))
            found.setdefault(device, {})[name] = count * scale
        return found


def _open_event(unit: Unit, words: list[int]) -> int:
    """Call perf_event_open for all processes."""
    config, config1, config2 = words
    packed = _ATTRIBUTES.pack(
        unit.type, _ATTRIBUTES_BYTES, config, 0, 0, 0, 0, 0, 0, config1, config2
    )
    attributes = ctypes.create_string_buffer(packed, _ATTRIBUTES_BYTES)
    number = _SYSTEM_CALLS.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"perf_event_open is not known on {os.uname().machine}")
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    every_process, no_group = -1, -1
    rest = (every_process, unit.cpu, no_group, _CLOSED_AT_EXEC)
    descriptor = call(ctypes.c_long(number), attributes, *map(ctypes.c_long, rest))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(descriptor)


def _why(unit: Unit, problem: Exception) -> str:
    if not isinstance(problem, PermissionError):
        return f"{unit.name}: {problem}"
    try:
        level = _PARANOID.read_text(encoding="ascii").strip()
    except OSError:
        level = "unknown"
    return (
        f"perf_event_paranoid is {level}, which denies counting what all processes do; run "
        "it as root, or as root set 'sysctl kernel.perf_event_paranoid=0'"
    )
