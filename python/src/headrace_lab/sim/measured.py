# SPDX-License-Identifier: Apache-2.0
"""Builds the model of this machine from measurements.

Measured are: from each node with processors to each node, by one thread and by all of the node,
reads, fills and copies of memory and the latency of dependent loads; the bandwidth of one core to
each cache; the transfer of lines between two cores; and the speed of one core on query 6 with
cached columns. Values that are not measured are marked "assumed".
"""

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import _simulator
from headrace._apps.machine import refuse_in_guest
from headrace._temporary import temporary_folder
from headrace.errors import UnsupportedError, from_code
from headrace.machine import Machine, Node

if TYPE_CHECKING:
    from headrace_lab.tpch.lineitem import Columns

ROUNDS = 3
"""Rounds per figure, of which it is the median; all others are measured in between."""
STATE_RATIO = 2.5
"""Of the times in which lines pass, between which the machine is in one state."""
CALL_BYTES = 128 << 10
"""Bytes of one call of memset or memcpy through memory: neither short nor so long that the C
library changes its method."""
_CALLS = (2 << 10, 16 << 10, CALL_BYTES, 1 << 20, 8 << 20)
"""Measured lengths of one thread; others are interpolated."""
_CACHE_CALL_BYTES = 32 << 10
_SHORT_CALL_BYTES = 64
_LINE = 64
_BLOCK_BYTES = 16 << 10
_BETWEEN = {
    "handover": ("handover", _LINE),
    "block": ("handover", _BLOCK_BYTES),
    "wake": ("wake", _LINE),
    "waking": ("waking", _LINE),
    "look": ("look", _LINE),
    "looking": ("looking", _LINE),
    "asking": ("looking", 2 << 20),
}
"""What is measured between two cores: the kind and the bytes. A sleeping worker of an engine
copies a line (wake), one that looks for work (look), and of that the submission (waking, looking;
asking: of so much that an engine asks whether it is mapped)."""
_QUEUEING_SHARE = 0.39
_KINDS = {"hbm": "hbm", "cxl": "cxl", "persistent": "optane"}
_L3_WAYS = 16
_DDIO_WAYS = 2
_SPAN_MIN, _SPAN_MAX = 32 << 20, 256 << 20
_NIC = {
    "line": "10 GB/s",
    "interrupt": "5 us",
    "poll": "100 ns",
    "host": "2 us",
    "nic": "500 ns",
    "l1_latency": "2 ns",
    "l2_latency": "6 ns",
    "l3_latency": "30 ns",
    "work": "328 ns",
    "working_set": "1 MiB",
}
"""The values of the machine injection-node."""
_ACCESSES = ("read", "fill", "copy")
_QUERY_CHUNK_BYTES = 1 << 20
_QUERY_ROWS = _QUERY_CHUNK_BYTES // 8
"""One chunk of a query, and so few that the columns fit a last-level cache."""
_BYTES_PER_ROW = 28


@dataclass(slots=True)
class Figure:
    """One figure over several rounds; `disturbed` ones had a thread preempted and are discarded."""

    values: list[float] = field(default_factory=list)
    rounds: int = 0
    disturbed: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Interquartile range over the median."""
        if len(self.values) < 2:  # noqa: PLR2004
            return 0.0
        low, _, high = statistics.quantiles(self.values, n=4)
        return (high - low) / self.median


@dataclass(frozen=True, slots=True)
class Task:
    """A measurement to run once in each round."""

    key: str
    ask: Callable[["Effort"], "Sample"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a task may take in a round."""

    samples: int = 15
    round_us: int = 500
    time_max_ms: int = 400


@dataclass(frozen=True, slots=True)
class Sample:
    value: float
    rounds: int = 0
    disturbed: int = 0


def measure_tasks(
    tasks: Iterable[Task],
    share: Callable[[float], None] = lambda _: None,
    *,
    rounds: int = ROUNDS,
    effort: Effort = Effort(),
) -> dict[str, Figure]:
    tasks = list(tasks)
    figures = {task.key: Figure() for task in tasks}
    for index in range(rounds):
        for number, task in enumerate(tasks):
            sample = task.ask(effort)
            figure = figures[task.key]
            figure.values.append(sample.value)
            figure.rounds += sample.rounds
            figure.disturbed += sample.disturbed
            share((index * len(tasks) + number + 1) / (rounds * len(tasks)))
    return figures


def in_one_state(figures: dict[str, Figure]) -> dict[str, Figure]:
    """Leave out rounds in which lines passed between processors unlike in most.

    A hypervisor moves virtual processors between core complexes. The model has one state.
    """
    lines = figures["handover"].values if "handover" in figures else []
    middle = sorted(lines)[len(lines) // 2] if lines else 0.0
    chosen = [1 / STATE_RATIO < line / middle < STATE_RATIO for line in lines]
    return {
        key: replace(
            figure, values=list(itertools.compress(figure.values, chosen)) or figure.values
        )
        for key, figure in figures.items()
    }


def load_of(figures: Iterable[Figure]) -> float:
    """The share of short rounds that other processes disturbed."""
    figures = list(figures)
    return sum(each.disturbed for each in figures) / max(1, sum(each.rounds for each in figures))


@dataclass(frozen=True, slots=True)
class Pair:
    """Bandwidth and latency of a node's threads to a node; a copied byte is read and written."""

    initiator: int
    target: int
    threads: int
    read_gb_per_s: float
    fill_gb_per_s: float
    copy_gb_per_s: float
    latency_ns: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """All measurements of a machine.

    Attributes:
        values: The medians of calibration_tasks(), by key.
        disturbed: Share of short rounds that other processes disturbed.
    """

    pairs: list[Pair]
    values: dict[str, float] = field(default_factory=dict)
    disturbed: float = 0.0


def measure(
    machine: Machine,
    share: Callable[[float], None] = lambda _: None,
    *,
    rounds: int = ROUNDS,
    effort: Effort = Effort(),
) -> Measurement:
    tasks = calibration_tasks(machine)
    figures = measure_tasks(tasks, share, rounds=rounds, effort=effort)
    return measurement_of(machine, in_one_state(figures))


@contextmanager
def record_of(text: str, model: dict[str, Any]) -> Iterator[Path]:
    """Write a machine's record with its model to a temporary file for the block."""
    with temporary_folder("headrace-") as folder:
        path = folder / "here.json"
        path.write_text(json.dumps(json.loads(text) | {"model": model}), encoding="utf-8")
        yield path


def stream(access: str, cpu: int, node: int, span: int, call: int = CALL_BYTES) -> dict[str, Any]:
    """Describe a thread that walks through its private memory."""
    return {"access": access, "cpu": cpu, "node": node, "span": span, "bytes": min(call, span)}


def ask(what: str, streams: list[dict[str, Any]], effort: Effort, group: int = 0) -> Sample:
    """Measure once.

    `what` is a measurement of `_simulator.measure`; `group` sums the leading streams, 0 all.
    """
    if what != "streams":
        # Either of two threads that wait for each other can be disturbed.
        effort = replace(effort, time_max_ms=2 * effort.time_max_ms)
    request = {"what": what, "streams": streams, **asdict(effort)}
    answer = json.loads(_simulator.measure(json.dumps(request)))
    if "error" in answer:
        raise from_code(**answer["error"])
    values = answer["values"][: group or None]
    per_round = [sum(each) for each in zip(*values, strict=True)]
    if answer["disturbed"] == answer["rounds"]:
        best = max if what == "streams" else min
        return Sample(best(per_round), answer["rounds"], answer["disturbed"])
    return Sample(statistics.median(per_round), answer["rounds"], answer["disturbed"])


def span_of(machine: Machine, threads: int) -> int:
    """Memory of each thread: just more than the caches hold."""
    last = max((level["used"] for level in _levels(machine)), default=0)
    return min(_SPAN_MAX, max(_SPAN_MIN, 2 * last // threads)) // CALL_BYTES * CALL_BYTES


def hosts(machine: Machine) -> list[Node]:
    """Nodes with processors."""
    found = [node for node in machine.nodes if node.cpus]
    if not found:
        raise UnsupportedError("describe this machine", "no node has processors", "use another")
    return found


def calibration_tasks(machine: Machine) -> list[Task]:
    refuse_in_guest("measure memory")
    home = hosts(machine)[0]
    tasks = [
        *_memory_tasks(machine),
        *_cache_tasks(machine, home),
        *_call_tasks(machine, home),
        _compute_task(),
    ]
    if len(home.cpus) > 1:
        for key, (what, size) in _BETWEEN.items():
            both = [stream("copy", each, home.id, size, size) for each in home.cpus[:2]]
            tasks.append(_task(key, what, both))
    return tasks


def _memory_tasks(machine: Machine) -> Iterator[Task]:
    for initiator, target in itertools.product(hosts(machine), machine.nodes):
        prefix = f"{initiator.id}>{target.id}"
        first = stream("read", initiator.cpus[0], target.id, span_of(machine, 1))
        first["bytes"] = first["span"]
        yield _task(f"{prefix} latency", "latency", [first])
        for threads in sorted({1, len(initiator.cpus)}):
            span = span_of(machine, threads)
            for access in _ACCESSES:
                streams = [stream(access, cpu, target.id, span) for cpu in initiator.cpus[:threads]]
                yield _task(f"{prefix} {access} {threads}", "streams", streams)


def _cache_tasks(machine: Machine, home: Node) -> Iterator[Task]:
    for level in _levels(machine):
        for access in _ACCESSES:
            for threads in sorted({1, min(level["cores"], len(home.cpus))}):
                span = level["used"] // (2 if access == "copy" else 1) // threads
                # Calls as long as an engine's pieces, in caches that hold many of them.
                call = min(CALL_BYTES, max(_CACHE_CALL_BYTES, level["used"] // 512))
                streams = [stream(access, cpu, home.id, span, call) for cpu in home.cpus[:threads]]
                yield _task(f"{level['used']} {access} {threads}", "streams", streams)


def _call_tasks(machine: Machine, home: Node) -> Iterator[Task]:
    cpu = home.cpus[0]
    short = stream("copy", cpu, home.id, _CACHE_CALL_BYTES // 4, _SHORT_CALL_BYTES)
    yield _task("call", "streams", [short])
    yield _task("update", "streams", [short | {"access": "update", "bytes": short["span"]}])
    for call in _CALLS:
        for access in ("fill", "copy"):
            streams = [stream(access, cpu, home.id, span_of(machine, 1), call)]
            yield _task(f"call {call} {access}", "streams", streams)


def _compute_task() -> Task:
    """Measure the speed of one core on query 6 with cached columns."""
    # Loading pyarrow takes longer than 'headrace topo' without --measure.
    from headrace_lab.tpch.q6 import run_q6  # noqa: PLC0415

    columns = make_columns(_QUERY_ROWS)

    def ask(effort: Effort) -> Sample:
        # The rate of the best run in GB/s: disturbance only adds time.
        times = []
        for _ in range(effort.samples):
            found = run_q6(
                columns,
                prefetch="off",
                thread_count=1,
                chunk_bytes=_QUERY_CHUNK_BYTES,
                record_timeline=True,
            )
            times.append(sum(event.end_ns - event.begin_ns for event in found.timeline))
        # Discount is read twice.
        return Sample((_BYTES_PER_ROW + 8) * _QUERY_ROWS / max(1, min(times)))

    return Task("compute", ask)


def make_columns(row_count: int) -> "Columns":
    """Create columns for query 6 with about the selectivity of TPC-H."""
    from headrace_lab.tpch.lineitem import Columns  # noqa: PLC0415 - As above.

    random = np.random.default_rng(1)
    return Columns(
        ship_date=random.integers(8036, 10562, row_count, np.int32),
        discount=random.integers(0, 11, row_count, np.int64),
        quantity=random.integers(1, 51, row_count, np.int64) * 100,
        extended_price=random.integers(90_000, 10_500_000, row_count, np.int64),
    )


def measurement_of(machine: Machine, figures: dict[str, Figure]) -> Measurement:
    """Collect the results of calibration_tasks()."""
    values = {key: each.median for key, each in figures.items()}
    pairs = [
        Pair(
            initiator.id,
            target.id,
            threads,
            *(
                values[f"{initiator.id}>{target.id} {what}"]
                for what in (*(f"{access} {threads}" for access in _ACCESSES), "latency")
            ),
        )
        for initiator in hosts(machine)
        for target in machine.nodes
        for threads in sorted({1, len(initiator.cpus)})
    ]
    return Measurement(pairs, values, load_of(figures.values()))


def _task(key: str, what: str, streams: list[dict[str, Any]]) -> Task:
    return Task(key, lambda effort: ask(what, streams, effort))


def _levels(machine: Machine) -> list[dict[str, int]]:
    """The caches to measure, each half full and full, and the last one with twice what it holds."""
    found = []
    below = 0
    cpus = sum(len(node.cpus) for node in machine.nodes)
    for each in sorted(machine.document["cpu_caches"], key=lambda cache: int(cache["level"])):
        capacity, cores = each["capacity_bytes"], max(1, cpus // max(1, each["instance_count"]))
        # The source of a copy must not fit the level below.
        if each["level"] > 1 and capacity // (8 if cores > 1 else 4) > 2 * below:
            found += [{"used": used, "cores": cores} for used in (capacity // 2, capacity)]
        below = capacity
    return [*found, found[-1] | {"used": 2 * below}] if found else []


def model_of(machine: Machine, measurement: Measurement) -> dict[str, Any]:
    """Make the field `model` of the machine's record."""
    pairs = measurement.pairs
    of = {(each.initiator, each.target, each.threads): each for each in pairs}
    sockets = {node.id: node.package or 0 for node in machine.nodes}
    home = hosts(machine)[0].id
    nodes = [_node(machine, node.id, sockets, of) for node in machine.nodes]
    first = of[home, home, 1]
    lines = first.read_gb_per_s * first.latency_ns / _LINE
    values = measurement.values
    core_count = len(hosts(machine)[0].cpus)
    core = {
        **_rates({"copy": first.copy_gb_per_s, "fill": first.fill_gb_per_s}),
        "call": _measured(_SHORT_CALL_BYTES / values.get("call", 12.8), "ns"),
        "overlapped": _assumed("512 B"),
        "exposed": _assumed("90 ns"),
        "outstanding_lines": _measured(lines, ""),
        "queueing_share": _assumed(str(_QUEUEING_SHARE)),
        "levels": [
            {
                "bytes": {"value": f"{each['used']} B", "source": "chosen"},
                "cores": {"value": str(each["cores"]), "source": "discovered"},
                **_rates(
                    {
                        access + all_: values[f"{each['used']} {access} {threads}"]
                        for all_, threads in (("", 1), ("_all", min(each["cores"], core_count)))
                        for access in _ACCESSES
                    }
                ),
            }
            for each in (_levels(machine) if values else [])
        ],
        "calls": [
            {
                "bytes": {"value": f"{size} B", "source": "chosen"},
                **_rates({access: values[f"call {size} {access}"] for access in ("fill", "copy")}),
            }
            for size in (_CALLS if values else [])
        ],
    }
    if values:
        core |= _rates({key: values[key] for key in ("compute", "update")})
    line_ns = values.get("handover", 0.0)
    if block_ns := values.get("block"):
        more_ns = max(block_ns - line_ns, block_ns / 10)  # Noise must not make it 0 or less.
        core["handover_rate"] = _measured((_BLOCK_BYTES - _LINE) / more_ns, "GB/s")
    times = (key for key in _BETWEEN if key in values and key != "block")
    core |= {key: _measured(values[key], "ns") for key in times}
    injection = _nic(machine, first.latency_ns, line_ns)
    return {
        "nodes": nodes,
        "sockets": [
            _socket(machine, socket, nodes, sockets) for socket in sorted(set(sockets.values()))
        ],
        "links": _links(sockets, pairs),
        "core": core,
        "injection": injection,
        "measured": {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "disturbed": round(measurement.disturbed, 3),
            "pairs": [asdict(each) for each in pairs],
        },
    }


def _measured(value: float, unit: str) -> dict[str, str]:
    return {"value": f"{value:.4g} {unit}".strip(), "source": "measured by headrace topo"}


def _rates(gb_per_s: dict[str, float]) -> dict[str, dict[str, str]]:
    return {name: _measured(value, "GB/s") for name, value in gb_per_s.items()}


def _assumed(value: str) -> dict[str, str]:
    return {"value": value, "source": "assumed"}


def _node(
    machine: Machine, node: int, sockets: dict[int, int], of: dict[tuple[int, int, int], Pair]
) -> dict[str, Any]:
    found = next(each for each in machine.nodes if each.id == node)
    all_of = [each for each in of.values() if each.target == node]
    own = [each for each in all_of if sockets[each.initiator] == sockets[node]] or all_of
    read = max(each.read_gb_per_s for each in own)
    # A copied byte is read and written. The model requires mixed bandwidth between half and twice
    # the read bandwidth, also after rounding both to four digits.
    mixed = min(1.998 * read, max(0.501 * read, *(2 * each.copy_gb_per_s for each in own)))
    write = max(each.fill_gb_per_s for each in own)
    far = [each.latency_ns for each in all_of if sockets[each.initiator] != sockets[node]]
    described = {
        "node": node,
        "socket": sockets[node],
        "kind": _KINDS.get(found.tier, "ddr"),
        "peak": _measured(max(read, mixed, write) * 1.001, "GB/s"),
        "read": _measured(read, "GB/s"),
        "mixed": _measured(mixed, "GB/s"),
        "write": _measured(write, "GB/s"),
        "latency": _measured(min(each.latency_ns for each in own), "ns"),
    }
    if far:
        described["remote_latency"] = _measured(min(far), "ns")
    return described


def _socket(
    machine: Machine, socket: int, nodes: list[dict[str, Any]], sockets: dict[int, int]
) -> dict[str, Any]:
    document = machine.document
    levels = {each["level"]: each for each in document["cpu_caches"]}
    count = len(set(sockets.values()))
    l2 = levels.get(2, {}).get("capacity_bytes", 1 << 20)
    l3 = levels.get(3, {}).get("capacity_bytes", l2)
    cores = sum(len(each.cpus) for each in machine.nodes if sockets[each.id] == socket)
    read = sum(
        float(each["read"]["value"].split()[0]) for each in nodes if each["socket"] == socket
    )
    known = "discovered" if 3 in levels else "assumed"  # noqa: PLR2004
    return {
        "socket": socket,
        "mesh_read": {"value": f"{read:.4g} GB/s", "source": "the sum of its nodes: assumed"},
        "cores": {"value": str(max(1, cores)), "source": f"discovered, {count} in all"},
        "l2": {"value": f"{l2} B", "source": known},
        "l3": {"value": f"{l3} B", "source": known},
        "l3_ways": _assumed(str(_L3_WAYS)),
        "ddio_ways": _assumed(str(_DDIO_WAYS)),
    }


def _nic(machine: Machine, latency_ns: float, handover_ns: float) -> dict[str, dict[str, str]]:
    """Describe a network interface that can write into this machine's caches."""
    sizes = {each["level"]: each["capacity_bytes"] for each in machine.document["cpu_caches"]}
    l2 = sizes.get(2, 1 << 20)
    caches = {"l1": sizes.get(1, 32 << 10), "l2": l2, "l3": sizes.get(3, l2)}
    snoop = _measured(handover_ns / 2, "ns") if handover_ns > 0 else _assumed("45 ns")
    return {
        **{key: _assumed(value) for key, value in _NIC.items()},
        **{key: {"value": f"{size} B", "source": "discovered"} for key, size in caches.items()},
        "snoop_latency": snoop,
        "memory_latency": _measured(latency_ns, "ns"),
    }


def _links(sockets: dict[int, int], pairs: list[Pair]) -> list[dict[str, Any]]:
    best: dict[tuple[int, int], float] = {}
    for each in pairs:
        ends = sorted((sockets[each.initiator], sockets[each.target]))
        if ends[0] != ends[1]:
            key = (ends[0], ends[1])
            best[key] = max(best.get(key, 0), each.read_gb_per_s)
    return [
        {"from": first, "to": second, "rate": _measured(rate, "GB/s")}
        for (first, second), rate in sorted(best.items())
    ]
