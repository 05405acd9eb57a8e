# SPDX-License-Identifier: Apache-2.0
"""Output of ``headrace topo``: text for people, made from the machine's JSON document."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace import _core
from headrace._cli._report import Column, Report, figures
from headrace._words import counted

_Document = Mapping[str, Any]

_MOVER_REASONS = {
    "done": "none: the kernel lists no DSA device",
    "not_tried": "unknown: the record does not say",
    "library_absent": "unknown: libaccel-config was not installed",
    "library_failed": "unknown: libaccel-config did not work",
}


def print_machine(report: Report, machine: _Document) -> None:
    """Print nodes, accesses between them, caches, movers and notes."""
    _print_heading(report, machine)
    report.say()
    _print_nodes(report, machine)
    _print_matrices(report, machine)
    report.say()
    for subject, predicate in _sentences(machine):
        report.say(predicate, head=f"{subject:<14} ")
    if machine["notes"]:
        report.say()
        report.say("Notes", "bold")
        for note in machine["notes"]:
            report.say(note, head="- ")


def cpu_list(cpus: Iterable[int]) -> str:
    """Format processors as the kernel does: "0-11,24"."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _print_heading(report: Report, machine: _Document) -> None:
    nodes = machine["nodes"]
    cpu_count = sum(len(node["cpus"]) for node in nodes)
    report.say(machine["cpu_model"] or "Processor of unknown model", "bold")
    report.say(
        f"{counted(len(nodes), 'node')}, {counted(cpu_count, 'processor')}, "
        f"pages of {_core.bytes_text(machine['page_bytes'])}"
    )
    report.say(machine["origin"])


def _print_nodes(report: Report, machine: _Document) -> None:
    nodes = machine["nodes"]
    best = {node["node"]: _best_access(machine, node["node"]) for node in nodes}
    columns = [
        Column("node", right=True),
        Column("tier"),
        Column("evidence", optional=2),
        Column("capacity", right=True),
        Column("cpus", folds=True),
        Column("package", optional=1),
    ]
    measured = any(best.values())
    if measured:
        columns += [*figures("GB/s", "ns"), Column("seen from")]
    cached = any(node["memory_side_cache_bytes"] for node in nodes)
    if cached:
        columns.append(Column("side cache", right=True, optional=3))
    columns.append(Column("huge pages", folds=True, optional=4))
    rows = []
    for node in nodes:
        access = best[node["node"]]
        seen = (_bandwidth(access), _latency(access), _seen_from(access, node["node"]))
        rows.append(
            [
                str(node["node"]),
                node["tier"],
                node["tier_evidence"],
                _core.bytes_text(node["capacity_bytes"]),
                cpu_list(node["cpus"]) or "none",
                "?" if node["package"] is None else str(node["package"]),
                *(seen if measured else ()),
                *([_core.bytes_text(node["memory_side_cache_bytes"])] if cached else []),
                _huge_pages(node["huge_pages"]),
            ]
        )
    report.table(columns, rows)


def _best_access(machine: _Document, target: int) -> _Document | None:
    """The access to a node from its own processors, or else the best one."""

    def rank(access: _Document) -> tuple[bool, float, int]:
        return (
            access["initiator"] != target,
            -(access["bandwidth_bytes_per_s"] or 0),
            access["distance"],
        )

    known = [
        access
        for access in machine["accesses"]
        if access["target"] == target and (access["bandwidth_bytes_per_s"] or access["latency_ns"])
    ]
    return min(known, key=rank, default=None)


def _bandwidth(access: _Document | None) -> str:
    if access is None or access["bandwidth_bytes_per_s"] is None:
        return "?"
    return f"{access['bandwidth_bytes_per_s'] / 1e9:.1f}"


def _latency(access: _Document | None) -> str:
    return "?" if access is None or access["latency_ns"] is None else str(access["latency_ns"])


def _distance(access: _Document | None) -> str:
    return "?" if access is None or not access["distance"] else str(access["distance"])


def _seen_from(access: _Document | None, node: int) -> str:
    if access is None:
        return ""
    return "itself" if access["initiator"] == node else f"node {access['initiator']}"


def _huge_pages(pools: Iterable[_Document]) -> str:
    texts = [
        f"{pool['free_count']}/{pool['total_count']} x {_core.bytes_text(pool['page_bytes'])} free"
        for pool in pools
        if pool["total_count"]
    ]
    return "; ".join(texts) or "none"


def _print_matrices(report: Report, machine: _Document) -> None:
    """Print tables of bandwidth, latency and distance that have more than the diagonal."""
    targets = [node["node"] for node in machine["nodes"]]
    by_pair = {(access["initiator"], access["target"]): access for access in machine["accesses"]}
    initiators = sorted({initiator for initiator, _ in by_pair})
    for title, cell in (
        ("Bandwidth in GB/s, from the processors of a node (row) to a node (column)", _bandwidth),
        ("Latency in ns", _latency),
        ("Distance (10 is local)", _distance),
    ):
        if all(cell(access) == "?" for (a, b), access in by_pair.items() if a != b):
            continue
        report.say()
        report.say(title, "bold")
        report.table(
            figures("from", *map(str, targets)),
            [[str(i), *(cell(by_pair.get((i, t))) for t in targets)] for i in initiators],
        )


def _sentences(machine: _Document) -> Iterator[tuple[str, str]]:
    """Faster memory, sources of figures, caches and movers, one line each."""
    faster = machine["faster_nodes"]
    if not faster:
        yield ("Faster memory", "none: no node is faster than the memory beside the processors")
    for row in faster:
        nodes = ", ".join(str(node) for node in row["nodes"])
        yield ("Faster memory", f"for processors of node {row['initiator']}: {nodes}")
    evidences = {access["evidence"] for access in machine["accesses"]} - {"unknown"}
    if evidences:
        yield ("Figures", ", ".join(sorted(evidences)))
    for cache in machine["cpu_caches"]:
        yield (
            f"L{cache['level']} cache",
            (
                f"{cache['instance_count']} x {_core.bytes_text(cache['capacity_bytes'])}, "
                f"lines of {cache['line_bytes']} B"
            ),
        )
    if not machine["dsa_devices"]:
        yield ("DSA", _MOVER_REASONS[machine["mover_discovery"]])
    for device in machine["dsa_devices"]:
        place = "no node" if device["node"] is None else f"node {device['node']}"
        yield (
            f"DSA {device['device']}",
            f"{place}, {device['state']}, {counted(device['engine_count'], 'engine')}"
            + "".join(f"; {_queue(queue)}" for queue in device["queues"] if _is_used(queue))
            + _unused(device["queues"]),
        )


def _is_used(queue: _Document) -> bool:
    """Whether a queue has entries or is enabled, as in `headrace dsa list`."""
    return bool(queue["entry_count"]) or queue["state"] == "enabled"


def _unused(queues: Iterable[_Document]) -> str:
    number = sum(not _is_used(queue) for queue in queues)
    return f"; {counted(number, 'more WQ')} without entries" if number else ""


def _queue(queue: _Document) -> str:
    return (
        f"{queue['device_name']}: {queue['mode']}, {queue['state']}, {queue['type']}, "
        f"{queue['entry_count']} entries, up to {_core.bytes_text(queue['transfer_bytes_max'])}"
    )
