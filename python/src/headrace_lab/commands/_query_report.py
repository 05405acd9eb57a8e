# SPDX-License-Identifier: Apache-2.0
"""Output of ``headrace query``: text for people, and parts of its JSON."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._cache_policies import Placement
from headrace._cli._report import Column, Report, Styled, figures
from headrace._files import Output
from headrace._words import counted
from headrace_lab.commands.bench._measure import times_document
from headrace_lab.tpch.study import DUCKDB, Study

_NOTES_MAX = 3
_COUNTS = ("bytes_moved", "bytes_by_device", "fallbacks", "hit_rate", "evictions")
_SETTINGS = ("prefetch", "chunk_bytes", "thread_count", "path")
_PLAIN = ("row_count", "rows_selected", "movers", "engine_notes", "copy_node", "bytes_by_device")


def summary_of(study: Study) -> dict[str, Any]:
    """The key figures; times are those of the chosen mode."""
    chosen = study.chosen
    baseline = study.answer_baseline
    movers = _movers(study, study.settings.prefetch) if chosen.bytes_moved else ["none"]
    return {
        "answer": float(study.answer),
        "answer_duckdb": None if baseline is None else float(baseline),
        "prefetch": study.settings.prefetch,
        "time_vs_duckdb": study.time_ratio(study.settings.prefetch, DUCKDB),
        "off_vs_duckdb": study.time_ratio("off", DUCKDB),
        "auto_vs_off": study.time_ratio("off", "auto"),
        "on_vs_off": study.time_ratio("off", "on"),
        **{name: getattr(chosen, name) for name in _COUNTS},
        "path": study.settings.path,
        "mover": ", ".join(movers),
        "copies_by_node": chosen.copies_by_node,
    }


def results_of(study: Study, path: Path) -> dict[str, Any]:
    settings = study.settings
    baseline = study.answer_baseline
    return {
        "file": str(path),
        **{name: getattr(study, name) for name in _PLAIN},
        "answer": str(study.answer),
        "answer_duckdb": None if baseline is None else str(baseline),
        "duckdb_version": study.baseline_version,
        "settings": {
            **{name: getattr(settings, name) for name in _SETTINGS},
            "round_count": len(study.chosen.runs),
            "capacity_bytes": study.capacity_bytes,
            "placement": study.placement,
        },
        "modes": {
            mode: {
                **times_document(series.times_ns),
                **{
                    name: getattr(series, name)
                    for name in ("prefetched", *_COUNTS)
                    if mode != DUCKDB
                },
            }
            for mode, series in study.series.items()
        },
        "devices": {name: asdict(totals) for name, totals in study.device_statistics.items()},
        "thresholds": asdict(study.thresholds),
        "operations": {
            kind: asdict(totals)
            | {
                "latencies": [
                    {"latency_ns_max": latency_ns, "count": count}
                    for latency_ns, count in totals.latencies.items()
                ]
            }
            for kind, totals in study.operations.items()
        },
        "column_nodes": [
            {"node": node, "bytes": node_bytes} for node, node_bytes in study.column_nodes.items()
        ],
        "memory_bytes_peak": study.memory_bytes_peak,
        "timelines": {
            mode: [asdict(event) for event in run.timeline] for mode, run in study.timelines.items()
        },
    }


def print_report(study: Study, path: Path, plot: Output | None) -> None:
    report = Report()
    settings = study.settings
    report.say(f"TPC-H query 6 on {study.row_count:,} rows of {path}")
    report.say(
        f"{counted(settings.thread_count, 'worker')}, "
        f"chunks of {_core.bytes_text(settings.chunk_bytes)}, "
        f"cache of {_core.bytes_text(study.capacity_bytes)} per node, "
        f"placement {_text(study.placement)}"
    )
    report.say()
    report.say(str(study.answer), "bold", head="answer          ")
    if study.answer_baseline is not None:
        verdict = "the same" if study.agrees else "not the same"
        style = "" if study.agrees else "bold red"
        report.say(f"{study.answer_baseline}  ({verdict})", style, head="DuckDB's        ")
    report.say()
    report.table(_COLUMNS, [_row(study, mode) for mode in study.series])
    report.say(
        f"Medians of {counted(len(study.chosen.runs), 'round')}, "
        "each mode once per round in shuffled order; the cache is empty before each run, but keeps "
        "its memory."
    )
    report.say()
    for line in _findings(study, drawn=plot is not None):
        report.say(line)
    if plot is not None:
        report.say()
        report.say(f"The picture is in {plot.path}.")


_COLUMNS = (
    Column("time in ms"),
    *figures("median", "min", "max", "speed vs off", "time vs DuckDB", "moved", "hit rate"),
)


def _row(study: Study, mode: str) -> list[str]:
    series = study.series[mode]
    ours = mode != DUCKDB
    is_chosen = mode == study.settings.prefetch
    cells = [
        (f"prefetch {mode}" if ours else "DuckDB") + (" *" if is_chosen else ""),
        f"{series.median_ns / 1e6:.2f}",
        f"{min(series.times_ns) / 1e6:.2f}",
        f"{max(series.times_ns) / 1e6:.2f}",
        _times(study.time_ratio("off", mode)),
        _times(study.time_ratio(mode, DUCKDB)),
        _core.bytes_text(series.bytes_moved) if ours else "",
        "" if series.hit_rate is None else f"{series.hit_rate:.0%}",
    ]
    return [Styled(cell, "bold") if is_chosen else cell for cell in cells]


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _findings(study: Study, *, drawn: bool) -> list[str]:
    lines = []
    machine = study.machine
    places = ", ".join(
        f"{_core.bytes_text(node_bytes)} on {_place(study, node)}"
        for node, node_bytes in study.column_nodes.items()
    )
    lines.append(f"The columns lie in memory: {places}.")
    if study.copy_node is None:
        lines.append(f"Prefetching on made no copies{_why_no_copies(study)}.")
    else:
        lines.append(
            f"The copies of prefetching on lay on {_place(study, study.copy_node)}, "
            f"made by {', '.join(_movers(study, 'on'))}."
        )
    lines += _of_devices(study)
    lines.append(
        "The hit rate is the share of the aggregate's chunks of a column that were read from a "
        "copy."
    )
    if study.chosen.evictions:
        verb = "was" if study.chosen.evictions == 1 else "were"
        copies = counted(study.chosen.evictions, "copy")
        lines.append(f"{copies} {verb} dropped to make room in each run.")
    if not machine.has_faster_tier():
        tiers = ", ".join(sorted({node.tier for node in machine.nodes}))
        lines.append(
            f"This machine has one kind of memory ({tiers}): there is no faster tier to prefetch "
            "into, so auto did not move anything."
        )
    if study.memory_bytes_peak is not None:
        when = ", before the picture was drawn" if drawn else ""
        peak = _core.bytes_text(study.memory_bytes_peak)
        lines.append(f"Peak memory of this process{when}: {peak}.")
    return lines


def _why_no_copies(study: Study) -> str:
    if study.placement == "none":
        return ": placement none leaves everything where it is; choose another by --placement"
    chunk_bytes = study.settings.chunk_bytes
    if study.capacity_bytes < chunk_bytes:
        return (
            f": no chunk of {_core.bytes_text(chunk_bytes)} fits the capacity of "
            f"{_core.bytes_text(study.capacity_bytes)}; use a larger --capacity or a smaller "
            "--chunk-bytes"
        )
    return ""


def _place(study: Study, node_id: int | None) -> str:
    node = None if node_id is None else study.machine.node(node_id)
    if node is None:
        return "an unknown node"
    return f"node {node.id} ({node.tier})"


def _of_devices(study: Study) -> list[str]:
    if study.settings.path == "cpu":
        return []
    lines = []
    if study.device_statistics:
        series = study.series["on"]
        by_device = _core.bytes_text(series.bytes_by_device)
        moved = _core.bytes_text(series.bytes_moved)
        back = (
            "no move fell back to processors"
            if series.fallbacks == 0
            else f"{counted(series.fallbacks, 'move')} of all runs fell back to processors"
        )
        lines.append(f"Of {moved} that prefetching on moved, devices moved {by_device}; {back}.")
        lines += [
            f"{name}: {counted(totals.descriptors, 'descriptor')}, "
            f"{counted(totals.retries, 'retry')}, {counted(totals.page_faults, 'page fault')}, "
            f"{counted(totals.errors, 'error')}, {totals.lost} lost."
            for name, totals in study.device_statistics.items()
            if totals.descriptors
        ]
        return lines
    lines += study.engine_notes[:_NOTES_MAX]
    if len(study.engine_notes) > _NOTES_MAX:
        lines.append(f"... and {counted(len(study.engine_notes) - _NOTES_MAX, 'more such note')}.")
    return lines


def _movers(study: Study, mode: str) -> list[str]:
    """The movers that moved bytes in a mode; idle worker threads are left out."""
    series = study.series[mode]
    devices = [name for name, totals in study.device_statistics.items() if totals.descriptors]
    processors = [name for name in study.movers if name not in study.device_statistics]
    by_processors = series.bytes_by_device < series.bytes_moved or series.fallbacks > 0
    return (processors if by_processors else []) + (devices if series.bytes_by_device else [])


def _text(placement: Placement) -> str:
    if not isinstance(placement, dict):
        return str(placement)
    return ",".join(f"{worker}:{'+'.join(map(str, nodes))}" for worker, nodes in placement.items())
