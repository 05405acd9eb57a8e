# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, each with measured, published and simulated lines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace._apps.sim import find_machine, run, scenario
from headrace._apps.sim.provenance import published_figures, published_series
from headrace._core import bytes_text
from headrace_lab.families.measure import Outcome
from headrace_lab.families.picture import Line, Panel, panels_of

_SIZES = (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
_MIB = (1 << 20) / 1e9
_SCALES = {"mib_per_s": _MIB, "cpu_mib_per_s": _MIB}
"""Published units that become GB/s."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A line of simulated values.

    Attributes:
        label: Label in the legend.
        scenario: Scenario of the simulator.
        key: The parameter along the axis.
        values: Values of that parameter.
        metric: The metric shown.
        fixed: Other parameters.
        machine: Machine to simulate; empty: the scenario's default.
        names: Names on the axis for values that have another one there.
    """

    label: str
    scenario: str
    key: str
    values: tuple[object, ...]
    metric: str = "gb_per_s"
    fixed: Mapping[str, object] | None = None
    machine: str | None = None
    names: Mapping[Any, str] | None = None

    def line(self) -> Line:
        """Run the simulator; omits what restates the published line."""
        fixed = dict(self.fixed or {})
        points = [{**fixed, self.key: value} for value in self.values]
        machine = find_machine(self.machine or scenario(self.scenario).machine)
        results = run(self.scenario, points, machine=str(machine))
        model = json.loads(machine.read_text(encoding="utf-8"))["model"]
        published = published_figures(model, self.scenario, results)
        names = self.names or {}
        found = {}
        for value, result, restated in zip(self.values, results, published, strict=True):
            if self.metric in restated:
                continue
            figure = result.figures[self.metric] * _SCALES.get(self.metric, 1)
            found[names.get(value, _tick(self.key, value))] = (figure, figure, figure)
        return Line(f"{self.label} (simulated)", "simulated", found)


@dataclass(frozen=True, slots=True)
class Spec:
    """The definition of a figure.

    Attributes:
        name: Name in links and in comparisons.
        title: Title above it.
        unit: Unit of all its lines.
        family: The family that measures it; empty if none.
        panel: Prefix of the title of the family's panel.
        simulated: Simulated lines.
        published: Names of series in published.toml.
        names: Names on the axis for published values that have another one there.
    """

    name: str
    title: str
    unit: str
    family: str = ""
    panel: str = ""
    simulated: tuple[Simulated, ...] = ()
    published: tuple[str, ...] = ()
    names: Mapping[Any, str] | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A figure of the report.

    Attributes:
        name: Name in links and in comparisons.
        title: Title above it.
        panel: Its lines.
        absent: Why nothing was measured; empty if something was.
        sources: Sources of the published lines.
    """

    name: str
    title: str
    panel: Panel
    absent: str
    sources: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """Convert to JSON fields."""
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.panel.metric,
            "absent": self.absent,
            "lines": [
                {
                    "label": line.label,
                    "kind": line.kind,
                    "points": [
                        {"x": x, "median": middle, "low": low, "high": high}
                        for x, (middle, low, high) in line.points.items()
                    ],
                }
                for line in self.panel.lines
            ],
        }


def _tick(key: str, value: object) -> str:
    return bytes_text(value) if key == "bytes" and isinstance(value, int) else str(value)


def _submission(label: str, metric: str, **fixed: object) -> Simulated:
    return Simulated(label, "submission", "bytes", _SIZES, metric, fixed)


_FAULTS = {"retry": "touch_and_resubmit"}
_OPERATIONS = ("copy", "fill", "compare", "crc", "copy-crc", "dualcast")
_OPERATION_NAMES = {"copy-crc": "copy_crc"}
_TARGETS = {8: "0 to 8 (hbm)", 11: "0 to 11 (hbm)", 12: "0 to 12 (hbm)", 15: "0 to 15 (hbm)"}
_RINGS = {
    "cached": "4 KiB, cached",
    "streamed-4k": "4 KiB, pinned",
    "streamed-2k": "2 KiB, pinned",
    "wrong-node": "4 KiB, not pinned",
    "no-dax": "4 KiB, no DAX",
}

SPECS = (
    Spec(
        "submission",
        "Copies by size and way of submission",
        "GB/s",
        "submission",
        "by size",
        (
            _submission("waited for", "gb_per_s", mode="sync"),
            _submission("32 in flight", "gb_per_s", mode="async"),
            _submission("batches of 32", "gb_per_s", mode="sync", batch=32),
        ),
        ("lightdsa-async", "lightdsa-cpu", "thesis-ceiling", "kuper-ceiling", "dsa2lm-ceiling"),
    ),
    Spec(
        "submission-time",
        "Time of a copy that is waited for",
        "µs",
        "submission",
        "time of a copy",
        (_submission("waited for", "time_us", mode="sync"),),
        ("lightdsa-sync", "lightdsa-sync-aligned", "dto-sync"),
    ),
    Spec(
        "in-flight",
        "Copies of 4 KiB by the number in flight",
        "GB/s",
        "submission",
        "by copies in flight",
        (
            Simulated(
                "shared, 4 KiB",
                "submission",
                "depth",
                (1, 2, 4, 8, 16, 32, 64),
                fixed={"mode": "async", "bytes": 4096},
            ),
        ),
    ),
    Spec(
        "random",
        "Copies at random addresses, batches of 32",
        "GB/s",
        simulated=(
            Simulated(
                "aligned",
                "submission",
                "bytes",
                _SIZES[1:],
                fixed={"mode": "async", "batch": 32, "engines": 4, "order": "random"},
            ),
            Simulated(
                "at 8 bytes",
                "submission",
                "bytes",
                _SIZES[1:],
                fixed={
                    "mode": "async",
                    "batch": 32,
                    "engines": 4,
                    "order": "random",
                    "alignment": 8,
                },
            ),
        ),
        published=("lightdsa-random-tuned", "lightdsa-random-naive"),
    ),
    Spec(
        "break-even",
        "From which size on a device beats one core",
        "bytes",
        simulated=(Simulated("device", "break-even", "mode", ("sync", "async"), "from_bytes"),),
        published=("dsa2lm-break-even",),
    ),
    Spec(
        "alignment",
        "Copies of 4 KiB in batches, by the alignment of the target",
        "µs",
        simulated=(
            Simulated("4 KiB", "alignment", "alignment", (8, 32, 64), "time_us", {"bytes": 4096}),
        ),
        published=("lightdsa-alignment",),
    ),
    Spec(
        "threads",
        "Threads that share one queue",
        "GB/s",
        "threads",
        "by threads",
        (
            Simulated("1 MiB", "threads", "threads", (1, 2, 12), fixed={"bytes": 1 << 20}),
            Simulated("1 GiB", "threads", "threads", (1, 2, 12), fixed={"bytes": 1 << 30}),
        ),
    ),
    Spec(
        "threads-gain",
        "Threads that share one queue, by the rate of one thread",
        "ratio",
        simulated=(
            Simulated(
                "1 GiB", "threads", "threads", (1, 2, 12), "over_one_thread", {"bytes": 1 << 30}
            ),
        ),
        published=("thesis-threads",),
    ),
    Spec(
        "movement",
        "Copies between nodes, by mover",
        "GB/s",
        "movement",
        "by target",
        tuple(
            Simulated(label, "ddr-to-hbm", "target", tuple(_TARGETS), fixed=fixed, names=_TARGETS)
            for label, fixed in (
                ("8 devices", {"policy": "all", "devices": 8}),
                ("smart", {"policy": "smart_copy", "devices": 8}),
                ("push-pull", {"policy": "push_pull", "devices": 2}),
                ("12 processors", {"policy": "cpu-12"}),
                ("smart processors", {"policy": "cpu-smart"}),
            )
        ),
        ("thesis-ddr-to-hbm",),
        _TARGETS,
    ),
    Spec(
        "movement-devices",
        "Copies by smart devices, by node of source and of target",
        "GB/s",
        "movement",
        "by source and target, smart",
    ),
    Spec(
        "movement-processors",
        "Copies by processors, by node of source and of target",
        "GB/s",
        "movement",
        "by source and target, processors",
    ),
    Spec(
        "remote",
        "Memory of the other socket, by the rate of local memory",
        "ratio",
        simulated=(
            Simulated("both remote", "remote", "bytes", _SIZES, "over_local", {"where": "both"}),
        ),
        published=("kuper-remote",),
    ),
    Spec(
        "cxl",
        "Memory behind CXL, by node and mover",
        "GB/s",
        simulated=tuple(
            Simulated(
                f"{mover}, {direction} CXL",
                "cxl",
                "node",
                (1, 2, 3),
                fixed={"mover": mover, "direction": direction},
            )
            for mover in ("dsa", "cpu")
            for direction in ("from", "to")
        ),
    ),
    Spec(
        "memory",
        "Reads by all cores of a socket, by node: DDR (0), HBM (2), the other socket's (1, 3)",
        "GB/s",
        simulated=(
            Simulated("reads", "memory", "node", (0, 1, 2, 3), fixed={"load": "full"}),
            Simulated(
                "reads and writes", "memory", "node", (0, 2), fixed={"load": "full", "writes": 1}
            ),
        ),
        published=("max9462-bandwidth", "max9462-mixed", "max9480-stream", "8475b-ddr-reads"),
    ),
    Spec(
        "memory-latency",
        "A load while cores read so many GB/s",
        "ns",
        simulated=(
            Simulated("DDR", "memory", "load", ("77", "160", "full"), "latency_ns", {"node": 0}),
            Simulated("HBM", "memory", "load", ("77", "160", "full"), "latency_ns", {"node": 2}),
        ),
        published=("max9462-ddr-latency", "max9462-hbm-latency"),
    ),
    Spec(
        "devices",
        "Several devices at once",
        "GB/s",
        "devices",
        "by devices",
        tuple(
            Simulated(bytes_text(size), "leaky-ddio", "devices", (1, 2, 4), fixed={"bytes": size})
            for size in (4 << 10, 64 << 10, 1 << 20)
        ),
    ),
    Spec(
        "leaky-dma",
        "Four devices that write more than the cache keeps for devices",
        "GB/s",
        simulated=(
            Simulated(
                "4 devices",
                "leaky-ddio",
                "bytes",
                (4 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20),
                fixed={"devices": 4},
            ),
        ),
        published=("kuper-leaky",),
    ),
    Spec(
        "device-engines",
        "Engines of a group",
        "GB/s",
        "device-engines",
        "by engines",
        tuple(
            Simulated(
                bytes_text(size),
                "engines-per-group",
                "engines",
                (1, 2, 3, 4),
                fixed={"bytes": size},
            )
            for size in (1 << 10, 64 << 10)
        ),
    ),
    Spec(
        "queue-entries",
        "Entries of a queue in use",
        "GB/s",
        "queues",
        "by copies in flight",
        tuple(
            Simulated(
                bytes_text(size),
                "wq-size",
                "entries",
                (1, 2, 4, 8, 16, 32, 64, 128),
                fixed={"bytes": size},
            )
            for size in (4 << 10, 64 << 10)
        ),
    ),
    Spec(
        "batches",
        "Copies of a batch",
        "GB/s",
        "queues",
        "by copies of a batch",
        tuple(
            Simulated(
                bytes_text(size),
                "batch-size",
                "batch",
                (1, 2, 4, 8, 16, 32, 64, 128),
                fixed={"bytes": size},
            )
            for size in (256, 4 << 10, 64 << 10)
        ),
    ),
    Spec(
        "batches-saved",
        "What a batch of compares of 4 KiB saves of the time of each",
        "ratio",
        simulated=(
            Simulated(
                "compare",
                "batch-size",
                "batch",
                (1, 2, 4, 8, 16, 32),
                "saved_share",
                {"bytes": 4096, "operation": "compare"},
            ),
        ),
        published=("para-ksm-batch",),
    ),
    Spec(
        "priorities",
        "Share of a queue beside one of priority 1, by its priority",
        "share",
        "queues",
        "share of a queue",
        (Simulated("beside priority 1", "priorities", "high", (1, 5, 10, 15), "high_share"),),
    ),
    *(
        Spec(
            f"operations-{size >> 10}k",
            f"Operations of {bytes_text(size)}",
            "GB/s",
            "operations",
            f"operations of {bytes_text(size)}",
            (
                Simulated(
                    "device",
                    "operations",
                    "operation",
                    _OPERATIONS,
                    fixed={"bytes": size},
                    names=_OPERATION_NAMES,
                ),
            ),
        )
        for size in (4 << 10, 64 << 10)
    ),
    Spec("latency-shared", "Parts of a copy by a shared queue", "ns", "latency", "shared"),
    Spec("latency-dedicated", "Parts of a copy by a dedicated queue", "ns", "latency", "dedicated"),
    Spec(
        "faults",
        "Page faults, by how they are handled",
        "GB/s",
        "faults",
        "",
        (
            Simulated(
                "device",
                "page-faults",
                "fault",
                ("none", "iotlb", "touch", "retry", "block", "major"),
                names=_FAULTS,
            ),
        ),
        ("lightdsa-page-faults",),
        _FAULTS,
    ),
    Spec(
        "pages",
        "Pages of 4 KiB and 2 MiB",
        "GB/s",
        "pages",
        "",
        tuple(
            Simulated(
                f"device, {bytes_text(size)}",
                "huge-pages",
                "pages",
                ("4KiB", "2MiB"),
                fixed={"bytes": size},
                names={"4KiB": "4 KiB", "2MiB": "2 MiB"},
            )
            for size in (1 << 10, 64 << 10)
        ),
    ),
    Spec(
        "destination",
        "Copies into memory and into the cache",
        "GB/s",
        "destination",
        "rate",
        tuple(
            Simulated(
                f"device, to {flag}",
                "cache-control",
                "bytes",
                (64 << 10, 1 << 20),
                fixed={"flag": flag},
            )
            for flag in ("memory", "cache")
        ),
    ),
    Spec(
        "destination-reading",
        "Reading a line of the target afterwards",
        "ns per line",
        "destination",
        "reading",
    ),
    Spec("pollution", "A thread that reads its working set beside copies", "GB/s", "pollution"),
    Spec("processor-time", "Processor time of a copy", "ns", "cycles", "processor time"),
    Spec("cycles", "Cycles of a copy", "cycles", "cycles", "cycles"),
    Spec(
        "interleaving",
        "Durable copies to persistent memory",
        "GB/s",
        "interleaving",
        "durable copies",
        (
            Simulated(
                "writes, interleaved",
                "optane",
                "block",
                ("64", "256", "4KiB"),
                fixed={"access": "write"},
                names={"4KiB": "4 KiB", "64": "64 B", "256": "256 B"},
            ),
        ),
    ),
    Spec(
        "hbm-cache-mode",
        "HBM filled by prefetching, by the speed of HBM in cache mode; 8 passes",
        "ratio",
        simulated=tuple(
            Simulated(
                f"read {how}",
                "hbm-cache-mode",
                "bytes",
                tuple(size << 30 for size in (4, 12, 24, 48)),
                "prefetched_over_cache_mode",
                {"passes": 8, "order": order},
            )
            for how, order in (("in order", "sequential"), ("at random", "random"))
        ),
    ),
    Spec(
        "injection",
        "A computation whose message is in the cache; simulated: with a NIC that writes it there",
        "share",
        "injection",
        "share of the time saved",
        tuple(
            Simulated(
                f"injected into the {name}",
                "injection",
                "bytes",
                tuple(1 << shift for shift in range(6, 23, 2)),
                "saved_share",
                {"where": where},
            )
            for name, where in (("receiver's L2", "receiver-l2"), ("sender's L2", "sender-l2"))
        ),
    ),
    Spec(
        "copies",
        "Copies of the profile, by the speed of memmove",
        "ratio",
        "copies",
        "speed relative to memmove",
    ),
    Spec("rings", "Durable entries of rings, by their length", "GB/s", "rings"),
    Spec(
        "ring",
        "Durable copies of 8 GiB; published: through a ring",
        "s",
        "dax",
        "time of 8 GiB",
        published=("optane-ring",),
        names=_RINGS,
    ),
)


def cards_of(outcomes: Mapping[str, Outcome]) -> list[Card]:
    """Assemble the figures of a report."""
    published = {each["name"]: each for each in published_series()}
    return [_card(spec, outcomes.get(spec.family), published) for spec in SPECS]


def _card(spec: Spec, outcome: Outcome | None, published: Mapping[str, dict[str, Any]]) -> Card:
    lines: list[Line] = []
    absent = "" if spec.family else "Headrace does not measure this."
    if outcome is not None:
        for panel in panels_of(outcome.shown):
            if panel.title.startswith(spec.panel) and panel.metric == spec.unit:
                lines += panel.lines
                break
        if not lines:
            absent = f"Not measured: {_why_not(spec, outcome)}."
    elif spec.family:
        absent = "Not measured: the report was stopped before it."
    sources = []
    for name in spec.published:
        line, source = _published(published[name], spec)
        lines.append(line)
        sources.append(f"{name}: {source}")
    lines += [line for each in spec.simulated if (line := each.line()).points]
    return Card(spec.name, spec.title, Panel(spec.title, spec.unit, lines), absent, tuple(sources))


def _why_not(spec: Spec, outcome: Outcome) -> str:
    """Join the reasons for this figure, or else for its family."""
    about = [each for each in outcome.left_out if spec.panel and each.what.startswith(spec.panel)]
    reasons = dict.fromkeys(each.why.rstrip(".") for each in about or outcome.left_out)
    return "; ".join(reasons) or "the report was stopped before it"


def _published(series: Mapping[str, Any], spec: Spec) -> tuple[Line, str]:
    key, metric = str(series["key"]), str(series["metric"])
    scale = _SCALES.get(metric, 1)
    names = spec.names or {}
    points: dict[str, tuple[float, float, float]] = {}
    for value, figure in series["points"]:
        low, high = figure if isinstance(figure, list) else (figure, figure)
        tick = names.get(value, _tick(key, value))
        points[tick] = ((low + high) / 2 * scale, low * scale, high * scale)
    doubt = ", in doubt" if "reason" in series else ""
    return Line(f"{series['name']} (published{doubt})", "published", points), str(series["source"])
