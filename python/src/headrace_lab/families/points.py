# SPDX-License-Identifier: Apache-2.0
"""Lists the points of each family on a machine, and those that need missing hardware.

A point is a line of words for the program headrace-bench-movement, and the places that show its
figures. Nothing here measures.
"""

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headrace._core import bytes_text
from headrace_lab.families.facts import Facts, Queue

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_SIZES = (64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB, GIB)
_BATCH = 32
_DEPTH = 32
_DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_POOL_BYTES = 64 * MIB
OPERATIONS = (
    "copy",
    "fill",
    "compare",
    "compare_pattern",
    "create_delta",
    "apply_delta",
    "dualcast",
    "crc",
    "copy_crc",
    "dif_check",
    "dif_insert",
    "dif_strip",
    "dif_update",
    "cache_flush",
    "no_op",
)
_FEW_NODES = 4
_SHARED_COPIES = 120
"""Copies that threads share, as in figure 3.3 of Fürst's thesis."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a figure of a point is shown; the metric's name ends in the unit."""

    panel: str
    line: str
    x: str
    metric: str = "gb_per_s"


@dataclass(frozen=True, slots=True)
class Point:
    """A measurement that runs once in each round, on an emulated device if so marked."""

    words: dict[str, object]
    places: tuple[Place, ...]
    emulated: bool = False

    @property
    def request(self) -> str:
        return json.dumps(self.words)


@dataclass(frozen=True, slots=True)
class LeftOut:
    what: str
    why: str


@dataclass(slots=True)
class Plan:
    facts: Facts
    points: list[Point] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def leave_out(self, what: str, why: str) -> None:
        self.left_out.append(LeftOut(what, why))

    def add(self, words: dict[str, object], *places: Place) -> None:
        """Add a point, or skip it if memory is too small."""
        each = max(int(str(words.get("bytes", 4096))), _POOL_BYTES)
        needed = 2 * each * int(str(words.get("threads", 1)))
        if needed > self.facts.available_bytes // 2:
            place = places[0]
            self.leave_out(
                f"{place.line} at {place.x}",
                f"it needs {bytes_text(needed)} of memory, and no more than half of the "
                f"{bytes_text(self.facts.available_bytes)} that are free is used",
            )
            return
        by_device = words["by"] not in {"cpu", "none"} and words.get("path") != "software"
        self.points.append(Point(words, places, by_device and self.facts.emulated))

    def need(self, what: str, mode: str = "") -> Queue | None:
        """Return a queue; if there is none, skip `what` and return None."""
        found = self.facts.queue(mode)
        if found is None:
            why = self.facts.no_queue
            if self.facts.queues:
                why = f"no work queue is {mode}; 'headrace dsa configure' makes one"
            self.leave_out(what, why)
        return found


def _channel(queue: Queue, byte_count: int, *, depth: int = 1, batch: int = 1) -> dict[str, object]:
    return {
        "by": "channel",
        "queues": [queue.name],
        "bytes": byte_count,
        "depth": min(depth, queue.depth_max),
        "batch": min(batch, queue.batch_max),
    }


def _cpu(byte_count: int, threads: int = 1) -> dict[str, object]:
    return {"by": "cpu", "bytes": byte_count, "threads": threads}


def _ways(queue: Queue | None, byte_count: int) -> list[tuple[str, dict[str, object]]]:
    """A device that is kept busy, if there is one, and a processor."""
    device = [] if queue is None else [("device", _channel(queue, byte_count, depth=_DEPTH))]
    return [*device, ("one processor", _cpu(byte_count))]


def _submission(plan: Plan) -> None:
    for mode in ("shared", "dedicated"):
        queue = plan.need(f"{mode} work queue", mode)
        if queue is None:
            continue
        for size in _SIZES:
            place = bytes_text(size)
            plan.add(
                _channel(queue, size),
                Place("by size", f"{mode}, waited for", place),
                Place("time of a copy, by size", f"{mode}, waited for", place, "time_us"),
            )
            if size > 16 * MIB:
                continue
            plan.add(
                _channel(queue, size, depth=_DEPTH),
                Place("by size", f"{mode}, {_DEPTH} in flight", place),
            )
            if size <= MIB and queue.batch_max > 1:
                plan.add(
                    _channel(queue, size, batch=_BATCH),
                    Place("by size", f"{mode}, batches of {_BATCH}", place),
                )
        _depths(plan, queue, (4 * KIB,), mode)
    for size in _SIZES:
        plan.add(
            _cpu(size),
            Place("by size", "one processor", bytes_text(size)),
            Place("time of a copy, by size", "one processor", bytes_text(size), "time_us"),
        )


def _depths(plan: Plan, queue: Queue, sizes: Iterable[int], label: str) -> None:
    fit = [depth for depth in _DEPTHS if depth <= queue.depth_max]
    for size in sizes:
        for depth in fit:
            plan.add(
                _channel(queue, size, depth=depth),
                Place("by copies in flight", f"{label}, {bytes_text(size)}", str(depth)),
            )
    if len(fit) < len(_DEPTHS):
        least = _DEPTHS[len(fit)]
        plan.leave_out(
            f"{least} and more in flight on {queue.name}",
            f"a channel of it has at most {queue.depth_max} entries",
        )


def _threads(plan: Plan) -> None:
    counts = [count for count in (1, 2, 4, 8, 12) if count <= plan.facts.cpus]
    if counts[-1] != 12:  # noqa: PLR2004 - As in Fürst's thesis.
        plan.leave_out(f"more than {counts[-1]} threads", f"there are {plan.facts.cpus} processors")
    queue = plan.need("threads that share a queue", "shared")
    sizes: tuple[int, ...] = (MIB, GIB)
    if queue is not None and queue.emulated:
        sizes = (MIB,)
        plan.leave_out(f"{_SHARED_COPIES} copies of 1 GiB", "an emulated device takes minutes")
    for count in counts:
        for size in sizes:
            line = bytes_text(size)
            if queue is not None:
                plan.add(
                    {**_channel(queue, size), "threads": count, "count": _SHARED_COPIES},
                    Place("by threads", f"one shared queue, {line}", str(count)),
                )
            if size == MIB:
                plan.add(
                    {**_cpu(size, count), "count": _SHARED_COPIES},
                    Place("by threads", f"processors, {line}", str(count)),
                )


def _movement(plan: Plan) -> None:
    facts = plan.facts
    # All pairs of nodes are measured; with many nodes, with smaller copies.
    sizes = (GIB, 256 * MIB, 64 * MIB)[len(facts.nodes) > _FEW_NODES :]
    size = next((each for each in sizes if 64 * each <= facts.available_bytes), 16 * MIB)
    if len(facts.nodes) == 1:
        plan.leave_out("copies between nodes", "the machine has one node of memory")
    devices = plan.need("copies by devices") is not None
    if devices and len(facts.devices) == 1:
        plan.leave_out("push_pull and brute force by several devices", "the machine has one device")
    sources = sorted(facts.nodes, key=lambda node: node is not facts.home)
    across = len(sources) > 1
    for source, target in itertools.product(sources, facts.nodes):
        ends: dict[str, object] = {"source": source.id, "target": target.id}
        place = f"{source.id} to {target.id} ({target.tier})"
        panel = f"by target, {bytes_text(size)} from node {source.id} ({source.tier})"
        # Place in the panel that compares pairs of nodes.
        pair = (f"from node {source.id} ({source.tier})", f"{target.id} ({target.tier})")
        if devices:
            for policy, label in (
                ("all", "brute force"),
                ("smart_copy", "smart"),
                ("push_pull", "push-pull"),
            ):
                places = [Place(panel, label, place)]
                if policy == "smart_copy" and across:
                    places.append(Place("by source and target, smart", *pair))
                plan.add({"by": "engine", "policy": policy, **ends, "bytes": size}, *places)
        threads = len(source.cpus) or max(1, len(facts.home.cpus))
        places = [Place(panel, f"{threads} processors", place)]
        if across:
            places.append(Place("by source and target, processors", *pair))
        plan.add({**_cpu(4 * MIB, threads), **ends}, *places)
        plan.add(
            {"by": "engine", "path": "software", "policy": "smart_copy", **ends, "bytes": size},
            Place(panel, "processors, smart", place),
        )


def _devices(plan: Plan) -> None:
    if plan.need("devices") is None:
        return
    queues = plan.facts.devices
    for count in (1, 2, 4, 8):
        if count > len(queues):
            plan.leave_out(f"{count} devices", f"the machine has {len(queues)}")
            continue
        names = [queue.name for queue in queues[:count]]
        for size in (4 * KIB, 64 * KIB, 256 * KIB, MIB):
            plan.add(
                {
                    **_channel(queues[0], size, depth=_DEPTH),
                    "depth": min(_DEPTH, *(queue.depth_max for queue in queues[:count]), _DEPTH),
                    "queues": names,
                    "threads": count,
                },
                Place("by devices", bytes_text(size), str(count)),
            )


def _device_engines(plan: Plan) -> None:
    if plan.need("groups of engines") is None:
        return
    by_engines = {queue.engines: queue for queue in reversed(plan.facts.queues)}
    for count in range(1, 5):
        queue = by_engines.get(count)
        if queue is None:
            plan.leave_out(
                f"groups of {count} engines",
                "no group with a work queue has that many; 'headrace dsa configure' makes groups",
            )
            continue
        for size in (KIB, 64 * KIB):
            plan.add(
                _channel(queue, size, depth=_DEPTH),
                Place("by engines of the group", bytes_text(size), str(count)),
            )


def _two_of_each(plan: Plan) -> str:
    """The command that configures queues of two sizes and priorities."""
    configure = "headrace dsa configure --queues 2 --size 16,64 --priority 15,1"
    if plan.facts.emulated:
        return f"'{configure} --output two.json', then 'headrace emulate --config two.json -- ...'"
    return f"'{configure}', and the commands that it prints"


def _queues(plan: Plan) -> None:
    queue = plan.need("queues")
    if queue is None:
        return
    _depths(plan, queue, (4 * KIB, 64 * KIB), queue.mode)
    for size in (256, 4 * KIB, 64 * KIB):
        for batch in (1, 2, 4, 8, 16, 32, 64, 128):
            if batch <= queue.batch_max:
                plan.add(
                    _channel(queue, size, batch=batch),
                    Place("by copies of a batch", bytes_text(size), str(batch)),
                )
    _queue_sizes(plan)
    _priorities(plan)


def _queue_sizes(plan: Plan) -> None:
    """Compare queues of different sizes, each kept full."""
    by_entries = {queue.entries: queue for queue in reversed(plan.facts.queues)}
    if len(by_entries) == 1:
        (entries,) = by_entries
        plan.leave_out(
            "sizes of work queues",
            f"all work queues have {entries} entries; for two sizes: {_two_of_each(plan)}",
        )
        return
    for entries, queue in sorted(by_entries.items()):
        for size in (4 * KIB, 64 * KIB):
            plan.add(
                _channel(queue, size, depth=queue.depth_max),
                Place("by entries of the queue", bytes_text(size), str(entries)),
            )


def _priorities(plan: Plan) -> None:
    """Compare concurrent queues of one group, which the arbiter serves by priority."""
    groups: dict[tuple[str, int], dict[int, Queue]] = {}
    for queue in plan.facts.queues:
        groups.setdefault((queue.device, queue.group), {}).setdefault(queue.priority, queue)
    found = max(groups.values(), key=len)
    if len(found) == 1:
        plan.leave_out(
            "priorities",
            f"no group has work queues of different priorities; for two: {_two_of_each(plan)}",
        )
        return
    low = found.pop(min(found))
    for priority, high in sorted(found.items()):
        plan.add(
            {
                **_channel(high, 64 * KIB, depth=min(8, high.depth_max, low.depth_max)),
                "queues": [high.name, low.name],
                "threads": 2,
            },
            Place(
                "share of a queue beside another, by its priority",
                f"beside priority {low.priority}",
                str(priority),
                "share",
            ),
        )


def _operations(plan: Plan) -> None:
    queue = plan.need("operations by a device")
    for size in (4 * KIB, 64 * KIB):
        for name in OPERATIONS:
            if name == "no_op" and size != 4 * KIB:
                continue
            panel, metric = f"operations of {bytes_text(size)}", "gb_per_s"
            if name == "no_op":
                panel, metric = "operations without data", "time_us"
            for way, words in _ways(queue, size):
                plan.add({**words, "operation": name}, Place(panel, way, name, metric))


def _latency(plan: Plan) -> None:
    sizes = (64, KIB, 4 * KIB, 16 * KIB, 64 * KIB)
    for mode in ("shared", "dedicated"):
        queue = plan.need(f"{mode} work queue", mode)
        if queue is None:
            continue
        for size in sizes:
            plan.add(
                {**_channel(queue, size), "split": True},
                *(
                    Place(f"{mode} queue, by size", part, bytes_text(size), f"{part}_ns")
                    for part in ("prepare", "submit", "wait")
                ),
            )
    for size in sizes:
        place = Place("one processor, by size", "copy", bytes_text(size), "time_us")
        plan.add(_cpu(size), place)


def _faults(plan: Plan) -> None:
    size, panel = 64 * KIB, "copies of 64 KiB, by what is done about faults"
    queue = plan.need("page faults of a device")
    ways = ["none", "touch", "touch_and_resubmit", "finish_on_cpu", "block"]
    if queue is not None:
        if not queue.block_on_fault:
            ways.remove("block")
            plan.leave_out("block", f"{queue.name} has block_on_fault off")
        for way in ways:
            plan.add({**_channel(queue, size), "faults": way}, Place(panel, "device", way))
    for way, label in (("none", "none"), ("block", "by the kernel")):
        words = {**_cpu(size), "faults": way}
        plan.add(words, Place(panel, "one processor", label))


def _pages(plan: Plan) -> None:
    queue = plan.need("pages by a device")
    for pages, huge in (("4 KiB", False), ("2 MiB", True)):
        for size in (KIB, 64 * KIB, MIB):
            for way, words in _ways(queue, size):
                place = Place("by size of pages", f"{way}, {bytes_text(size)}", pages)
                plan.add({**words, "huge": huge}, place)


def _destination(plan: Plan) -> None:
    queue = plan.need("cache control")
    lines: list[tuple[str, dict[str, object]]] = []
    if queue is not None:
        lines = [
            ("device, to memory", {**_channel(queue, 0), "cache": False}),
            ("device, to the cache", {**_channel(queue, 0), "cache": True}),
        ]
    lines.append(("one processor", _cpu(0)))
    panels = {
        "rate, by size": "gb_per_s",
        "reading a line afterwards, by size": "read_ns_per_line",
        "in last-level caches, by size": "cache_bytes",
    }
    if not plan.facts.monitors_cache:
        del panels["in last-level caches, by size"]
        plan.leave_out("occupancy of caches", "resctrl is not mounted or cannot monitor them here")
    for size in (4 * KIB, 64 * KIB, MIB):
        for label, words in lines:
            places = (Place(panel, label, bytes_text(size), panels[panel]) for panel in panels)
            plan.add({**words, "bytes": size, "read": True}, *places)


def _pollution(plan: Plan) -> None:
    if plan.facts.cpus < 2:  # noqa: PLR2004
        plan.leave_out("a thread beside copies", "this process may use one processor")
        return
    queue = plan.need("a device beside a working set")
    last = plan.facts.last_cache_bytes or 32 * MIB
    for working_set in (64 * KIB, MIB, last // 4, last // 2, last):
        ways: list[tuple[str, dict[str, object]]] = [
            ("alone", {"by": "none", "bytes": 1}),
            ("beside copies by a processor", _cpu(MIB)),
        ]
        if queue is not None:
            ways.append(("beside copies by a device", _channel(queue, MIB, depth=_DEPTH)))
        for label, words in ways:
            plan.add(
                {**words, "beside": working_set},
                Place("reading, by working set", label, bytes_text(working_set), "beside_gb_per_s"),
            )


def _cycles(plan: Plan) -> None:
    queue = plan.need("processor time beside a device")
    if not plan.facts.perf_allowed:
        plan.leave_out("cycles", "permission denied; lower kernel.perf_event_paranoid to 2")
    metrics = [("processor time of a copy", "processor_ns")]
    if plan.facts.perf_allowed:
        metrics.append(("cycles of a copy", "cycles"))
    for size in (4 * KIB, 64 * KIB, MIB):
        ways: list[tuple[str, dict[str, object]]] = [("one processor", _cpu(size))]
        if queue is not None:
            ways += [
                (f"device, {way}", {**_channel(queue, size), "waiting": way})
                for way in ("spin", "umwait", "sleep")
            ]
        for label, words in ways:
            plan.add(
                words, *(Place(panel, label, bytes_text(size), metric) for panel, metric in metrics)
            )


_PLANS: dict[str, Callable[[Plan], None]] = {
    "submission": _submission,
    "threads": _threads,
    "movement": _movement,
    "devices": _devices,
    "device-engines": _device_engines,
    "queues": _queues,
    "operations": _operations,
    "latency": _latency,
    "page-faults": _faults,
    "pages": _pages,
    "destination": _destination,
    "pollution": _pollution,
    "cycles": _cycles,
}


def plan_of(family: str, facts: Facts) -> Plan:
    plan = Plan(facts)
    _PLANS[family](plan)
    return plan


__all__ = ["LeftOut", "Place", "Plan", "Point", "plan_of"]
