# SPDX-License-Identifier: Apache-2.0
"""The model of this machine, from what its memory gives to its cores here and now.

Measured are bandwidth (reads, and copies) from each node with processors to each node, by one
thread and by all of the node, and the latency of loads that depend on each other. Each figure is
the best of several rounds, because whatever else runs only takes away. What is not measured is
marked "assumed".
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from headrace import _simulator
from headrace.errors import UnsupportedError, from_code
from headrace.machine import Machine

BYTES = 256 << 20
"""Of each thread: more than any cache of today keeps."""
ROUNDS = 12
_LATENCY_ROUNDS = 200
_LINE = 64
_QUEUEING_SHARE = 0.39
_KINDS = {"hbm": "hbm", "cxl": "cxl", "persistent": "optane"}
_L3_WAYS = 16
_DDIO_WAYS = 2


@dataclass(frozen=True, slots=True)
class Pair:
    """What processors of one node get of the memory of another.

    Attributes:
        initiator: Node of the processors.
        target: Node of the memory.
        threads: How many processors, a thread on each.
        read_gb_per_s: Of all of them.
        copy_gb_per_s: Of all of them; each byte is read and written.
        latency_ns: Of one load.
    """

    initiator: int
    target: int
    threads: int
    read_gb_per_s: float
    copy_gb_per_s: float
    latency_ns: float


def measure(
    machine: Machine,
    share: Callable[[float], None] = lambda _: None,
    *,
    byte_count: int = BYTES,
    rounds: int = ROUNDS,
) -> list[Pair]:
    """Measure all pairs of nodes.

    Raises:
        Error: There is no room, or a processor may not be used.
    """
    latencies: dict[tuple[int, int], float] = {}
    tasks = [
        (initiator, target, threads)
        for initiator in machine.nodes
        if initiator.cpus
        for target in machine.nodes
        for threads in sorted({1, len(initiator.cpus)})
    ]
    pairs = []
    for index, (initiator, target, threads) in enumerate(tasks):
        cpus = list(initiator.cpus[:threads])

        def ask(access: str, count: int, cpus: list[int] = cpus, node: int = target.id) -> float:
            return _ask(access, cpus, node, byte_count, count)

        key = (initiator.id, target.id)
        if key not in latencies:
            latencies[key] = ask("latency", _LATENCY_ROUNDS)
        pairs.append(
            Pair(
                initiator.id,
                target.id,
                threads,
                ask("read", rounds),
                ask("copy", rounds),
                latencies[key],
            )
        )
        share((index + 1) / len(tasks))
    return pairs


def _ask(access: str, cpus: list[int], node: int, byte_count: int, rounds: int) -> float:
    request = {
        "access": access,
        "cpus": cpus,
        "node": node,
        "bytes": byte_count,
        "rounds": rounds,
    }
    answer = json.loads(_simulator.measure(json.dumps(request)))
    if "error" in answer:
        raise from_code(**answer["error"])
    return float(answer["figure"])


def model_of(machine: Machine, pairs: list[Pair], name: str = "this machine") -> dict[str, Any]:
    """Make the field `model` of the machine's record.

    Raises:
        UnsupportedError: The machine has no node whose memory its own processors use.
    """
    of = {(each.initiator, each.target, each.threads): each for each in pairs}
    sockets = {node.id: node.package or 0 for node in machine.nodes}
    hosts = [node for node in machine.nodes if node.cpus]
    if not hosts:
        raise UnsupportedError("describe this machine", "no node has processors", "use another")
    nodes = [_node(machine, node.id, sockets, of) for node in machine.nodes]
    first = of[hosts[0].id, hosts[0].id, 1]
    lines = first.read_gb_per_s * first.latency_ns / _LINE
    model: dict[str, Any] = {
        "name": name,
        "nodes": nodes,
        "sockets": [
            _socket(machine, socket, nodes, sockets) for socket in sorted(set(sockets.values()))
        ],
        "links": _links(sockets, pairs),
        "core": {
            "copy": _measured(first.copy_gb_per_s, "GB/s"),
            "call": _assumed("5 ns"),
            "overlapped": _assumed("512 B"),
            "exposed": _assumed("90 ns"),
            "outstanding_lines": _measured(max(1.0, lines), ""),
            "queueing_share": _assumed(str(_QUEUEING_SHARE)),
        },
        "measured": [asdict(each) for each in pairs],
    }
    return model


def _measured(value: float, unit: str) -> dict[str, str]:
    return {"value": f"{value:.4g} {unit}".strip(), "source": "measured by headrace topo"}


def _assumed(value: str) -> dict[str, str]:
    return {"value": value, "source": "assumed"}


def _node(
    machine: Machine,
    node: int,
    sockets: dict[int, int],
    of: dict[tuple[int, int, int], Pair],
) -> dict[str, Any]:
    found = next(each for each in machine.nodes if each.id == node)
    all_of = [each for each in of.values() if each.target == node]
    own = [each for each in all_of if sockets[each.initiator] == sockets[node]] or all_of
    read = max(each.read_gb_per_s for each in own)
    # A copied byte is read and written. The model wants it between half of and twice the reads.
    mixed = min(2 * read, max(read / 2, *(2 * each.copy_gb_per_s for each in own)))
    far = [each.latency_ns for each in all_of if sockets[each.initiator] != sockets[node]]
    described = {
        "node": node,
        "socket": sockets[node],
        "kind": _KINDS.get(found.tier, "ddr"),
        "peak": _measured(max(read, mixed) * 1.001, "GB/s"),
        "read": _measured(read, "GB/s"),
        "mixed": _measured(mixed, "GB/s"),
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
