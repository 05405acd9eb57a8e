# SPDX-License-Identifier: Apache-2.0
"""What ``headrace topo`` shows of a machine: text for people, made from the machine's document."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace import _core
from headrace._words import counted

_Document = Mapping[str, Any]

# Columns of a matrix: the widest figure, "1638.4", and the space before it.
_CELL_WIDTH = 7
_INITIATOR_WIDTH = 8
# A file or pipe has no width; the widest matrix of a two-socket machine fits into this one.
_PLAIN_WIDTH = 160
# From here on there is room for wide gaps between the columns of nodes.
_GAP_WIDTH = 110

_MOVER_REASONS = {
    "done": "none: libaccel-config lists no DSA device",
    "not_tried": "unknown: the record does not say",
    "library_absent": "unknown: libaccel-config is not installed",
    "library_failed": "unknown: libaccel-config does not work here",
}


def report_console() -> Console:
    """The console to show a report on: plain and wide where neither terminal nor $COLUMNS says."""
    console = Console(highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(highlight=False, width=_PLAIN_WIDTH)


def render(machine: _Document, width: int = _PLAIN_WIDTH) -> RenderableType:
    """Draw nodes, how they reach each other, caches, movers and notes.

    Args:
        machine: Document of the schema "headrace-machine".
        width: Columns that matrices may take; wider ones are cut into several.
    """
    parts: list[RenderableType] = [_heading(machine), Text(), _node_table(machine, width)]
    parts += _matrices(machine, width)
    parts += [Text(), *_sentences(machine)]
    if machine["notes"]:
        parts += [Text(), Text("Notes", style="bold")]
        parts += [Text(f"- {note}") for note in machine["notes"]]
    return Group(*parts)


def cpu_list(cpus: Iterable[int]) -> str:
    """Write processors as the kernel does: "0-11,24"."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _heading(machine: _Document) -> Text:
    nodes = machine["nodes"]
    cpu_count = sum(len(node["cpus"]) for node in nodes)
    text = Text(machine["cpu_model"] or "Processor of unknown model", style="bold")
    text.append(
        f"\n{counted(len(nodes), 'node')}, {counted(cpu_count, 'processor')}, "
        f"pages of {_core.bytes_text(machine['page_bytes'])}\n{machine['origin']}",
        style="not bold",
    )
    return text


def _node_table(machine: _Document, width: int) -> Table:
    gap = 2 if width >= _GAP_WIDTH else 1
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for name in ("node", "tier", "evidence", "capacity", "cpus", "package"):
        table.add_column(
            name, justify="right" if name in {"node", "capacity"} else "left", overflow="fold"
        )
    best = {node["node"]: _best_access(machine, node["node"]) for node in machine["nodes"]}
    measured = any(best.values())
    if measured:
        table.add_column("GB/s", justify="right")
        table.add_column("ns", justify="right")
        table.add_column("seen from")
    cached = any(node["memory_side_cache_bytes"] for node in machine["nodes"])
    if cached:
        table.add_column("side cache", justify="right")
    table.add_column("huge pages")
    for node in machine["nodes"]:
        access = best[node["node"]]
        figures = (
            _bandwidth(access),
            _latency(access),
            _seen_from(access, node["node"]),
        )
        table.add_row(
            str(node["node"]),
            node["tier"],
            node["tier_evidence"],
            _core.bytes_text(node["capacity_bytes"]),
            cpu_list(node["cpus"]) or "none",
            "?" if node["package"] is None else str(node["package"]),
            *(figures if measured else ()),
            *([_core.bytes_text(node["memory_side_cache_bytes"])] if cached else []),
            _huge_pages(node["huge_pages"]),
        )
    return table


def _best_access(machine: _Document, target: int) -> _Document | None:
    """How the node is seen from its own processors, or from where it is seen best."""

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
    if access is None or access["latency_ns"] is None:
        return "?"
    return str(access["latency_ns"])


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


def _matrices(machine: _Document, width: int) -> Iterator[RenderableType]:
    """One table each for bandwidth, latency and distance, if there is more than the diagonal."""
    targets = [node["node"] for node in machine["nodes"]]
    by_pair = {(access["initiator"], access["target"]): access for access in machine["accesses"]}
    initiators = sorted({initiator for initiator, _ in by_pair})
    step = max(1, (width - _INITIATOR_WIDTH) // _CELL_WIDTH)
    for title, cell in (
        ("Bandwidth in GB/s, from the processors of a node (row) to a node (column)", _bandwidth),
        ("Latency in ns", _latency),
        ("Distance (10 is local)", _distance),
    ):
        if all(cell(access) == "?" for (a, b), access in by_pair.items() if a != b):
            continue
        yield Text(f"\n{title}", style="bold")
        for begin in range(0, len(targets), step):
            table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
            table.add_column("from", justify="right", min_width=_INITIATOR_WIDTH - 3)
            for target in targets[begin : begin + step]:
                table.add_column(str(target), justify="right", min_width=_CELL_WIDTH - 2)
            for initiator in initiators:
                cells = (by_pair.get((initiator, t)) for t in targets[begin : begin + step])
                table.add_row(str(initiator), *(cell(access) for access in cells))
            yield table


def _sentences(machine: _Document) -> Iterator[Text]:
    """Faster memory, where figures come from, caches and movers, one line each."""
    faster = machine["faster_nodes"]
    if not faster:
        yield _line(
            "Faster memory", "none: no node is faster than the memory beside the processors"
        )
    for row in faster:
        nodes = ", ".join(str(node) for node in row["nodes"])
        yield _line("Faster memory", f"for processors of node {row['initiator']}: {nodes}")
    evidences = {access["evidence"] for access in machine["accesses"]} - {"unknown"}
    if evidences:
        yield _line("Figures", ", ".join(sorted(evidences)))
    for cache in machine["cpu_caches"]:
        yield _line(
            f"L{cache['level']} cache",
            f"{cache['instance_count']} x {_core.bytes_text(cache['capacity_bytes'])}, "
            f"lines of {cache['line_bytes']} B",
        )
    if not machine["dsa_devices"]:
        yield _line("DSA", _MOVER_REASONS[machine["mover_discovery"]])
    for device in machine["dsa_devices"]:
        place = "no node" if device["node"] is None else f"node {device['node']}"
        yield _line(
            f"DSA {device['device']}",
            f"{place}, {device['state']}, {counted(device['engine_count'], 'engine')}"
            + "".join(f"; {_queue(queue)}" for queue in device["queues"]),
        )


def _queue(queue: _Document) -> str:
    return (
        f"{queue['device_name']}: {queue['mode']}, {queue['state']}, {queue['type']}, "
        f"{queue['entry_count']} entries, up to {_core.bytes_text(queue['transfer_bytes_max'])}"
    )


def _line(subject: str, predicate: str) -> Text:
    return Text.assemble((f"{subject:<15}", "bold"), predicate)
