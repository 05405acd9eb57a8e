# SPDX-License-Identifier: Apache-2.0
"""Statistics that running processes publish: totals, rates between two reads, Prometheus text.

Also those of the devices of running emulations, for any process, and of served stores.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._direct import built
from headrace._temporary import run_child
from headrace.store import Store

_GAUGES = frozenset(
    {"bytes_cached", "emulated", "engine", "occupancy_max"}
    | {"blocks", "capacity_blocks", "leases", "pins", "process"}
)
"""Values that are not running totals."""

Key = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """One engine, device or cache of a process at one time, or a tier or client of a store.

    Attributes:
        process: 0: a store.
        kind: "engine", "device", "cache", "emulated device", "emulated wq", "store tier" or
            "store client".
        values: Totals since its creation, by name.
        rates: Increase per second since the previous read; empty at the first.
    """

    process: int
    program: str
    kind: str
    name: str
    values: Mapping[str, int]
    rates: Mapping[str, float]

    @property
    def key(self) -> Key:
        """Identifies the same engine, device or cache across reads."""
        return (self.process, self.kind, self.name)


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that was published at one time.

    Attributes:
        processes: From the extension, without their rows.
        unreadable: Files that could not be read, each with the reason.
    """

    time_ns: int
    processes: list[dict[str, Any]]
    lines: list[Line]
    unreadable: list[dict[str, str]]
    emulations: list[int]


@dataclass
class Watch:
    """Reads repeatedly and computes rates."""

    directory: str
    stores: Mapping[str, Store] = field(default_factory=dict)
    _before: dict[Key, tuple[int, Mapping[str, int]]] = field(default_factory=dict)

    def look(self) -> Look:
        found = _core.read_telemetry(self.directory)
        processes, emulations = found["processes"], _read_emulations()
        lines = []
        for process in (*processes, *emulations):
            lines += [self._line(process, row) for row in process.pop("rows")]
        for socket, store in self.stores.items():
            known = {"process": 0, "program": "a store", "written_ns": time.time_ns()}
            lines += [self._line(known, row) for row in _rows_of_store(socket, store)]
        here = {line.key for line in lines}
        for key in [key for key in self._before if key not in here]:
            del self._before[key]
        numbers = [emulation["process"] for emulation in emulations]
        return Look(time.time_ns(), processes, lines, found["unreadable"], numbers)

    def _line(self, process: Mapping[str, Any], row: Mapping[str, Any]) -> Line:
        key = (process["process"], row["kind"], row["name"])
        values, written_ns = row["values"], process["written_ns"]
        rates: dict[str, float] = {}
        before = self._before.get(key)
        if before is not None and written_ns > before[0]:
            seconds = (written_ns - before[0]) / 1e9
            rates = {
                name: max(0, value - before[1].get(name, 0)) / seconds
                for name, value in values.items()
                if name not in _GAUGES
            }
        self._before[key] = (written_ns, values)
        return Line(process["process"], process["program"], row["kind"], row["name"], values, rates)


_EMULATOR = "headrace-emulator"
_REGISTERS = "dev/dsa-emulator/registers"
_COMM_LENGTH = 15
_EMULATOR_TIME_S = 10


def _read_emulations() -> list[dict[str, Any]]:
    """Read the statistics of running emulations in the format of publishing processes.

    Emulations that end meanwhile, or belong to other users, are skipped.
    """
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text(encoding="utf-8").strip()
            if name != _EMULATOR[:_COMM_LENGTH]:
                continue
            path = folder / "root" / _REGISTERS
            status = path.stat()
        except (OSError, UnicodeDecodeError):
            continue
        process = int(folder.name)
        same = found.get((status.st_dev, status.st_ino))
        # An emulation has several processes; the command's has the lowest PID.
        if same is not None:
            same["process"] = min(same["process"], process)
            continue
        if rows := _rows_of(path):
            found[status.st_dev, status.st_ino] = {
                "process": process,
                "program": _EMULATOR,
                "written_ns": time.time_ns(),
                "rows": rows,
            }
    return list(found.values())


def _rows_of(registers: Path) -> list[dict[str, Any]]:
    program = built(f"_emulator/{_EMULATOR}")
    if program is None:
        return []
    # It must not be a client of the devices.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    words = [str(program), "--statistics-of", str(registers)]
    try:
        done = run_child(words, timeout_s=_EMULATOR_TIME_S, env=environment)
        devices = json.loads(done.stdout)["results"]["devices"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return []
    rows = []
    for device in devices:
        engines = device["engines"]
        totals = {
            name: sum(engine[name] for engine in engines)
            for name in (engines[0] if engines else ())
            if name != "name"
        }
        rows.append({"kind": "emulated device", "name": device["name"], "values": totals})
        rows += [
            {
                "kind": "emulated wq",
                "name": f"{device['name']}/{queue.pop('name')}",
                "values": queue,
            }
            for queue in device["queues"]
        ]
    return rows


def _rows_of_store(socket: str, store: Store) -> list[dict[str, Any]]:
    """A row for each tier and for each client but this process."""
    known = store.statistics
    parts: list[tuple[str, int, Any]] = [
        ("store tier", number, each) for number, each in enumerate(known.tiers)
    ]
    parts += [("store client", c.process, c) for c in known.clients if c.process != os.getpid()]
    return [
        {
            "kind": kind,
            "name": f"{socket} {name}",
            "values": {key: n for key, n in asdict(each).items() if type(n) is int},
        }
        for kind, name, each in parts
    ]


def bytes_of_emulated_devices() -> dict[str, int]:
    """Bytes written by each device of the emulation that this process runs in, if any."""
    path = Path("/", _REGISTERS)
    rows = _rows_of(path) if path.exists() else []
    devices = (row for row in rows if row["kind"] == "emulated device")
    return {row["name"]: row["values"]["bytes_written"] for row in devices}


def hit_rate(line: Line) -> float | None:
    """Hit rate of a cache: in the last interval if it had accesses, else in total."""
    for numbers in (line.rates, line.values):
        hits, misses = numbers.get("hits", 0), numbers.get("misses", 0)
        if hits + misses > 0:
            return hits / (hits + misses)
    return None


def prometheus_text(look: Look) -> str:
    """Format the totals for Prometheus (text format 0.0.4)."""
    metrics: dict[str, list[str]] = {}
    escaped = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    for line in look.lines:
        parts = {"process": str(line.process), "program": line.program, "name": line.name}
        labels = ",".join(f'{name}="{text.translate(escaped)}"' for name, text in parts.items())
        for name, value in line.values.items():
            if name == "engine":
                continue
            suffix = "" if name in _GAUGES else "_total"
            metric = f"headrace_{line.kind.replace(' ', '_')}_{name}{suffix}"
            metrics.setdefault(metric, []).append(f"{metric}{{{labels}}} {value}")
    metrics["headrace_processes"] = [f"headrace_processes {len(look.processes)}"]
    text = []
    for metric, samples in sorted(metrics.items()):
        kind = "counter" if metric.endswith("_total") else "gauge"
        text += [f"# TYPE {metric} {kind}", *samples]
    return "\n".join(text) + "\n"
