# SPDX-License-Identifier: Apache-2.0
"""Advice: where to place data on a machine, which mover to use, and the expected gain."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace._scenarios import Result, find_machine, run
from headrace.errors import UnsupportedError
from headrace.machine import replay
from headrace.simulator import replay as replay_trace

GAIN_MIN = 0.02
"""What is moved for less is left where it is: the model is not better than that."""
_RATE_SHARE = 0.95
_COLUMN_BYTES = 8
_NODES_MAX = 64
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Advice:
    """One option for the data, with its simulated gain in throughput over not moving.

    `tier` is the memory to read from, `bound` the saturated resource; `chunk_bytes` are moved at a
    time, 0 if nothing is.
    """

    tier: str
    node: int
    mover: str
    devices: int
    chunk_bytes: int
    gain: float
    bound: str
    notes: tuple[str, ...] = ()


def advise_data(
    machine: Path, byte_count: int, *, passes: int, threads: int, pattern: str = "scan"
) -> list[Advice]:
    """Compare places for data of node 0 that is read `passes` times by `threads` cores.

    The best comes first; not moving is one of them. Patterns: "scan", "update" (each line is read
    and written) or "chase" (each load depends on the previous one).
    """
    model = _model(machine)
    found = [_leave(model)]
    for node in _other_nodes(model):
        for devices in _device_counts(machine):
            point = {
                "target": node["node"],
                "passes": passes,
                "threads": threads,
                "devices": devices,
                "bytes": byte_count,
                "pattern": pattern,
            }
            (result,) = run("placement", [point], machine=str(machine))
            found.append(_advice(node, devices, result, machine))
    return _ranked(found)


@dataclass(frozen=True, slots=True)
class TraceAdvice:
    """One way to run a traced program.

    Attributes:
        tier: Kind of memory of the copies of caches; "as recorded" if they stay.
        time_s: Simulated time of the program.
        gain: In throughput over processors and the recorded nodes, on the same machine.
        bound: What limits the time.
    """

    machine: str
    tier: str
    node: int
    mover: str
    devices: int
    policy: str
    time_s: float
    gain: float
    bound: str


def advise_trace(trace: str, names: Iterable[str]) -> list[TraceAdvice]:
    """Replay a traced program, its copies on each memory, by each mover; the fastest first."""
    found = []
    for name in names:
        path = find_machine(name)
        model = _model(path)
        first = model["nodes"][0]["node"]
        here = {"machine": str(path), "nodes": {str(i): first for i in range(_NODES_MAX)}}
        ways: list[tuple[str, int, dict[str, object]]] = []
        others = [(each["kind"], each["node"]) for each in _other_nodes(model)]
        for tier, node in [("as recorded", 0), *others]:
            place: dict[str, object] = {} if tier == "as recorded" else {"copies": node}
            ways.append((tier, node, here | place | {"path": "cpu"}))
            ways += [
                (tier, node, here | place | {"path": "dsa", "devices": devices, "policy": policy})
                for devices in _device_counts(path)
                if devices
                for policy in (("round_robin", "near_target") if devices > 1 else ("round_robin",))
            ]
        results = replay_trace(trace, [way for _, _, way in ways])[1]
        for (tier, node, way), result in zip(ways, results, strict=True):
            found.append(
                TraceAdvice(
                    name, tier, node, "cpu" if way["path"] == "cpu" else "dsa",
                    int(str(way.get("devices", 0))), str(way.get("policy", "-")),
                    result.time_s, results[0].time_s / result.time_s - 1, result.bound,
                )
            )  # fmt: skip
    return sorted(found, key=lambda each: each.time_s)


def cache_mode_gain(machine: Path, byte_count: int, *, passes: int) -> float | None:
    """Gain of HBM as a cache of the same machine, over reading in place; None without HBM nodes."""
    model = _model(machine)
    hbm = [each["node"] for each in _other_nodes(model) if each["kind"] == "hbm"]
    if not hbm:
        return None
    room = next(node.capacity_bytes for node in replay(machine).nodes if node.id == hbm[0])
    point = {"bytes": byte_count, "passes": passes, "hbm": room}
    (result,) = run("hbm-cache-mode", [point], machine=str(machine))
    return result.figures["cache_mode_gain"]


@dataclass(frozen=True, slots=True)
class Scan:
    """A query's scan of one table: columns with the average bytes of a value.

    `others` are read for the rows that pass; they may include columns of the filter.
    """

    rows: int
    filters: Mapping[str, float]
    others: Mapping[str, float]


def predict_query(
    machine: Path, *, row_count: int, chunk_bytes: int, threads: int
) -> dict[str, Any]:
    """Predict query 6, its columns on node 0 and the target advised; see `predict_scans`."""
    scan = Scan(
        max(1, row_count),
        {"ship date": 4, "discount": 8, "quantity": 8},
        {"discount": 8, "extended price": 8},
    )
    return _predict(machine, [scan], threads=threads, chunk_bytes=chunk_bytes)[0]


def predict_scans(
    machine: Path, scans: Iterable[Scan], *, threads: int, home: int | None = None
) -> dict[str, Any]:
    """Predict how long a SQL query reads its tables on a machine, with all columns on one node.

    The tables are read sequentially. Joins, sorts and the like are not included. `home` is the node
    of all columns; None is the first node.

    Returns:
        "off_ms" and "on_ms", "gain", "bound" (the slowest table's), and the advice's tier, mover
        and devices; without a target "on_ms" is "off_ms". "kind" is "simulated". "repeated_ms" and
        "repeated_gain" are for a run with all columns already copied to the best memory.
    """
    first, repeated_ms = _predict(machine, list(scans), threads=threads, home=home)
    return first | {"repeated_ms": repeated_ms, "repeated_gain": first["off_ms"] / repeated_ms - 1}


def _predict(
    machine: Path,
    scans: list[Scan],
    *,
    threads: int,
    chunk_bytes: int = _CHUNK_BYTES,
    home: int | None = None,
) -> tuple[dict[str, Any], float]:
    """The prediction of the first run with the best target, and the time of a repeated one."""
    model = _model(machine)
    # A core's speed on the query, if it was measured.
    measured = model["core"].get("compute")
    compute = {} if measured is None else {"compute": float(measured["value"].split()[0])}
    own = _node(model, home)["node"]
    points = [
        _point(each, chunk_bytes) | compute | {"a": own, "b": own, "threads": threads}
        for each in scans
    ]

    def times(target: int, devices: int) -> tuple[list[Result], dict[str, float]]:
        way = {"target": target, "devices": devices}
        results = run("qdp", [each | way for each in points], machine=str(machine))
        names = ("off_ms", "on_ms", "in_target_ms")
        return results, {key: sum(each.figures[key] for each in results) for key in names}

    off_ms = times(own, 0)[1]["off_ms"]
    found, repeated_ms = [_leave(model, home)], off_ms
    for node in _other_nodes(model, home):
        for devices in _device_counts(machine):
            results, total = times(node["node"], devices)
            repeated_ms = min(repeated_ms, total["in_target_ms"])
            longest = max(results, key=lambda each: each.figures["on_ms"])
            mover, gain = "dsa" if devices else "cpu", total["off_ms"] / total["on_ms"] - 1
            found.append(
                Advice(node["kind"], node["node"], mover, devices, chunk_bytes, gain, longest.bound)
            )
    best = _ranked(found)[0]
    return {
        "kind": "simulated",
        "off_ms": off_ms,
        "on_ms": off_ms / (1 + best.gain),
        "gain": best.gain,
        "bound": best.bound,
        "tier": best.tier,
        "mover": best.mover,
        "devices": best.devices,
    }, repeated_ms


def _point(scan: Scan, chunk_bytes: int) -> dict[str, float]:
    """A scan for the model, which counts columns of 8 bytes."""
    filters, others = dict(scan.filters), dict(scan.others)
    if not filters:
        # Without a filter: the first column is modelled as the filter's.
        name = next(iter(others))
        filters[name] = others[name] if len(others) == 1 else others.pop(name)
    shared = sum(width for name, width in others.items() if name in filters)
    return {
        "column": _COLUMN_BYTES * scan.rows,
        "chunk": min(_COLUMN_BYTES * scan.rows, chunk_bytes),
        "scanned": sum(filters.values()) / _COLUMN_BYTES,
        "moved": sum(others.values()) / _COLUMN_BYTES,
        "shared": shared / _COLUMN_BYTES,
    }


def _model(machine: Path) -> dict[str, Any]:
    model: dict[str, Any] | None = json.loads(machine.read_text(encoding="utf-8")).get("model")
    if model is None:
        raise UnsupportedError(
            f"advise about '{machine}'",
            "the record has no field 'model'",
            "add it (docs/reference/machine.md), or use a machine of 'headrace sim list'",
        )
    return model


def node_of(machine: Path, place: str | None) -> tuple[int, str] | None:
    """Number and kind of the first node with this number or kind; for None, of the first node."""
    nodes = [(each["node"], each["kind"]) for each in _model(machine)["nodes"]]
    return next((each for each in nodes if place in (None, *map(str, each))), None)


def places_of(machine: Path) -> list[str]:
    """The places that `node_of` accepts: kinds of memory and numbers of nodes."""
    nodes = _model(machine)["nodes"]
    return [*dict.fromkeys(each["kind"] for each in nodes), *(str(each["node"]) for each in nodes)]


def _node(model: dict[str, Any], number: int | None) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = model["nodes"]
    return next(each for each in nodes if number in (None, each["node"]))


def _other_nodes(model: dict[str, Any], home: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the first node of each other kind of memory on the same socket."""
    own = _node(model, home)
    seen = {own["kind"]}
    for node in model["nodes"]:
        if node["socket"] == own["socket"] and node["kind"] not in seen:
            seen.add(node["kind"])
            yield node


def _device_counts(machine: Path) -> list[int]:
    record = json.loads(machine.read_text(encoding="utf-8"))
    if "dsa" not in record["model"]:
        return [0]
    count = len(record["movers"]["dsa_devices"])
    return [0, *(each for each in (1, 2, 4, 8) if each <= count)]


def _leave(model: dict[str, Any], home: int | None = None) -> Advice:
    own = _node(model, home)
    return Advice(own["kind"], own["node"], "none", 0, 0, 0.0, "nothing is moved")


def _advice(node: dict[str, Any], devices: int, result: Result, machine: Path) -> Advice:
    mover = "dsa" if devices else "cpu"
    chunk = _chunk_bytes(machine) if devices else _CHUNK_BYTES
    gain = result.figures["gain"]
    return Advice(
        node["kind"], node["node"], mover, devices, chunk, gain, result.bound, result.notes
    )


def _chunk_bytes(machine: Path) -> int:
    """The smallest power of two that reaches nearly the full rate with one copy in flight."""
    sizes = [1 << shift for shift in range(12, 23)]
    points = [{"bytes": size, "mode": "sync"} for size in sizes]
    rates = [each.figures["gb_per_s"] for each in run("submission", points, machine=str(machine))]
    fast = (rate >= _RATE_SHARE * rates[-1] for rate in rates)
    return next(itertools.compress(sizes, fast))


def _ranked(found: list[Advice]) -> list[Advice]:
    # Of equal gains prefer not moving, then fewer devices.
    ranked = sorted(found, key=lambda each: (-round(each.gain, 3), each.devices))
    if ranked[0].gain < GAIN_MIN:
        ranked.sort(key=lambda each: each.mover != "none")
    return ranked
