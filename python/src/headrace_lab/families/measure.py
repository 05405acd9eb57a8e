# SPDX-License-Identifier: Apache-2.0
"""Measures the points of a family with the program headrace-bench-movement."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from headrace import _core
from headrace._apps.figures import Figure, figure_of
from headrace._apps.machine import refuse_in_guest
from headrace._temporary import child_process
from headrace.errors import Error
from headrace_lab.families.facts import Facts
from headrace_lab.families.points import LeftOut, Place, Point, plan_of

PROGRAM = "headrace-bench-movement"
PIN_REMEDY = (
    "run it as root, or raise the limit: 'ulimit -l unlimited', or 'memlock unlimited' for the "
    "user in /etc/security/limits.conf"
)
ROUND_MS = 4
TRIED = "measure movers"


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure of a point at one place, one value a round; `emulated`: of an emulated device."""

    place: Place
    emulated: bool
    values: tuple[float, ...]

    @property
    def figure(self) -> Figure:
        return figure_of(self.values)

    @property
    def line(self) -> str:
        """The line's name; marks emulated devices."""
        return f"{self.place.line} (emulated)" if self.emulated else self.place.line

    def document(self) -> dict[str, object]:
        return {
            **asdict(self.place),
            "emulated": self.emulated,
            **self.figure.document(),
            "values": list(self.values),
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measurements of a family.

    Attributes:
        left_out: Points that were skipped, and why.
        partial: Whether it was stopped early: some points have fewer rounds, or none.
        not_pinned: Why memory was not locked; empty if all of it was.
    """

    family: str
    shown: tuple[Shown, ...]
    left_out: tuple[LeftOut, ...]
    partial: bool
    not_pinned: str = ""

    @property
    def emulated(self) -> bool:
        return any(each.emulated for each in self.shown)

    def document(self) -> dict[str, object]:
        return {
            "family": self.family,
            "emulated": self.emulated,
            "partial": self.partial,
            "memory_pinned": not self.not_pinned,
            "not_pinned": self.not_pinned,
            "figures": [each.document() for each in self.shown],
            "left_out": [asdict(each) for each in self.left_out],
        }


def measure_family(
    family: str,
    facts: Facts,
    program: str,
    rounds: int,
    noticed_signal: Callable[[], int],
    share: Callable[[float], None] = lambda _: None,
) -> Outcome:
    """Measure until a signal is noticed; what was measured by then is kept."""
    refuse_in_guest(f"measure {family}")
    plan = plan_of(family, facts)
    records: list[list[dict[str, Any]]] = [[] for _ in plan.points]
    wanted = max(1, rounds * len(plan.points))
    if plan.points and not noticed_signal():
        for number, record in enumerate(_records(plan.points, program, rounds, noticed_signal)):
            records[record["point"]].append(record)
            share((number + 1) / wanted)
    shown: list[Shown] = []
    left_out = list(plan.left_out)
    missing: dict[str, None] = {}
    not_pinned = next(
        (why for found in records for each in found if (why := each.get("not_pinned"))), ""
    )
    for point, found in zip(plan.points, records, strict=True):
        trouble = _trouble(point, found)
        if trouble:
            place = point.places[0]
            left_out.append(LeftOut(f"{place.panel}: {place.line} at {place.x}", trouble))
            continue
        for place in point.places:
            values = [value for each in found if (value := _value(each, place.metric)) is not None]
            if values:
                shown.append(Shown(place, point.emulated, tuple(values)))
            elif found:
                missing[place.panel] = None
    left_out += [
        LeftOut(panel, "this kernel or virtual machine does not count it") for panel in missing
    ]
    return Outcome(family, tuple(shown), tuple(left_out), noticed_signal() != 0, not_pinned)


def _records(
    points: list[Point], program: str, rounds: int, noticed_signal: Callable[[], int]
) -> Iterator[dict[str, Any]]:
    requests = "\n".join(point.request for point in points) + "\n"
    with tempfile.TemporaryFile("w+") as input_file, tempfile.TemporaryFile("w+") as complaints:
        input_file.write(requests)
        input_file.seek(0)
        files = {"stdin": input_file, "stdout": subprocess.PIPE, "stderr": complaints}
        words = [program, str(rounds), str(ROUND_MS)]
        with child_process(words, **files, text=True) as child:
            for line in child.stdout or ():
                # The last line of a killed program may be truncated.
                if line.endswith("}\n"):
                    yield json.loads(line)
                if noticed_signal():
                    child.kill()
            child.wait()
        if child.returncode != 0 and not noticed_signal():
            complaints.seek(0)
            last = complaints.read().strip().rpartition("\n")[2]
            raise Error(TRIED, last.removeprefix("headrace: ") or f"exit code {child.returncode}")


def _trouble(point: Point, records: list[dict[str, Any]]) -> str:
    """Why a point has no valid figures; empty if it has."""
    for record in records:
        if "error" in record:
            return str(record["error"])
        by_processor = record["by_processor"]
        is_device = point.words["by"] != "cpu" and point.words.get("path") != "software"
        if is_device and by_processor and "faults" not in point.words:
            return (
                f"a processor did {by_processor} of {record['operations']} operations, which the "
                "device cannot do or refused"
            )
    return ""


def _value(record: dict[str, Any], metric: str) -> float | None:
    if metric == "gb_per_s":
        return float(record["bytes"] / record["time_ns"])
    if metric == "time_us":
        return float(record["time_ns"] / record["operations"] / 1e3)
    if metric == "share":
        # The first thread's share of the rate of two threads with equal work.
        first, second = record["each_ns"]
        return float(second / (first + second))
    value = record.get(metric)
    return None if value is None else float(value)


def value_text(value: float, metric: str) -> str:
    if metric == "cache_bytes":
        return str(_core.bytes_text(int(value)))
    if abs(value) < 1:
        return f"{value:.3g}"
    return f"{value:,.{max(0, 3 - len(str(int(abs(value)))))}f}"


UNITS = {
    "gb_per_s": "GB/s",
    "time_us": "µs",
    "prepare_ns": "ns",
    "submit_ns": "ns",
    "wait_ns": "ns",
    "processor_ns": "ns",
    "cycles": "cycles",
    "read_ns_per_line": "ns per line",
    "beside_gb_per_s": "GB/s",
    "cache_bytes": "bytes",
    "share": "share",
    "ratio": "ratio",
}
"""Unit of each metric."""
