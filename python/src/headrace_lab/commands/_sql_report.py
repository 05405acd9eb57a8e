# SPDX-License-Identifier: Apache-2.0
"""Output of ``headrace sql``: the report for people, and parts of its JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headrace import _core
from headrace._apps.figures import Figure
from headrace._arguments import PREFETCH_MODES
from headrace._cli._report import Column, Report, figures
from headrace._words import counted
from headrace.sql import Explained, Prefetched
from headrace_lab.sql.prediction import LIMIT, Simulated, total_of
from headrace_lab.sql.study import DUCKDB, MODES, STORAGE, QueryStudy, Study, share

_ROWS_PRINTED = 10
_PLANNED = ("table", "filter_columns", "other_columns", "movable_bytes")
_SETTINGS = ("prefetch", "path", "thread_count", "round_count")
_TOTALS = (
    *("share_from_copies", "share_first_run", "bytes_moved", "bytes_by_device", "copies_by_node"),
    *("peak_bytes", "peak_limit_bytes"),
)


def summary_of(study: Study) -> dict[str, Any]:
    return {
        "queries": len(study.queries),
        "queries_equal": study.equal_count,
        "prefetch": study.settings.prefetch,
        "path": study.settings.path,
        **_beside_duckdb(study, "off"),
        **_beside_duckdb(study, "auto"),
        "on_vs_off": study.ratio("on", "off"),
        "on_cpu_vs_duckdb": study.ratio("on", DUCKDB, cpu=True),
        "storage_vs_duckdb": study.ratio(STORAGE, DUCKDB),
        **{name: getattr(study, name) for name in _TOTALS},
    }


def _beside_duckdb(study: Study, mode: str) -> dict[str, Any]:
    name, worst = study.worst(mode)
    return {
        f"{mode}_vs_duckdb": study.ratio(mode, DUCKDB),
        f"{mode}_vs_duckdb_high": study.spread(mode, DUCKDB).bounds[1],
        f"{mode}_vs_duckdb_worst": worst.median,
        f"{mode}_worst_query": name,
    }


def results_of(study: Study) -> dict[str, Any]:
    return {
        "settings": {
            **{key: getattr(study.settings, key) for key in _SETTINGS},
            "capacity_bytes": study.capacity_bytes,
        },
        "tables": {
            name: {"row_count": table.num_rows, "movable_bytes": table.movable_bytes()}
            for name, table in study.tables.items()
        },
        "column_nodes": [
            {"node": node, "bytes": byte_count} for node, byte_count in study.column_nodes.items()
        ],
        "spreads": {
            f"{mode}_vs_duckdb": study.spread(mode, DUCKDB).document()
            for mode in MODES
            if mode != DUCKDB
        },
        "queries": {name: _query(each) for name, each in study.queries.items()},
        "notes": study.notes,
    }


def _query(query: QueryStudy) -> dict[str, Any]:
    return {
        "sql": query.text,
        "equal": query.is_equal,
        "row_count": query.row_count,
        "plan": [{key: getattr(scan, key) for key in _PLANNED} for scan in query.plan],
        "modes": {
            mode: {"time_ns_median": query.median_ns(mode), "times_ns": query.times_ns[mode]}
            for mode in MODES
        },
        "spreads": {f"{mode}_vs_duckdb": query.spread(mode).document() for mode in PREFETCH_MODES},
        "share_from_copies": share(query.repeated),
        "first_run": _run(query.first),
        "last_run": _run(query.repeated[-1] if query.repeated else None),
    }


def _run(run: Prefetched | None) -> dict[str, Any] | None:
    return None if run is None else asdict(run) | {"share_from_copies": share([run])}


def simulated_of(machine: Simulated, predicted: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The simulator's predictions, kept separate from measurements."""
    return {
        "machine": machine.name,
        "thread_count": machine.thread_count,
        "tables_on": dict(zip(("node", "kind"), machine.home, strict=True)),
        "kind": "simulated",
        "queries": predicted,
        "total": total_of(predicted),
        "limit": LIMIT,
    }


def print_prediction(machine: Simulated, predicted: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the simulator's predictions, separate from measurements."""
    report = Report()
    report.say()
    if not predicted:
        report.say(f"Nothing to predict for {machine.name}: no column is long enough to be moved.")
        return
    report.say(
        f"Predicted for {machine.name}, {counted(machine.thread_count, 'thread')}, tables on node "
        f"{machine.home[0]} ({machine.home[1]}); simulated, not measured:"
    )
    total = total_of(predicted)
    rows = [
        [
            name,
            *_times(each),
            each["tier"],
            f"{each['devices']} DSA" if each["devices"] else each["mover"],
            each["bound"],
        ]
        for name, each in predicted.items()
    ]
    if len(rows) > 1:
        rows.append(["all", *_times(total), "", "", ""])
    report.table(
        (
            Column("query"),
            *figures("off ms", "first run", "gain", "repeated", "gain"),
            Column("read from"),
            Column("mover"),
            Column("bound", folds=True),
        ),
        rows,
    )
    report.say(f"{LIMIT}.")


def _times(predicted: Mapping[str, Any]) -> list[str]:
    return [
        f"{predicted['off_ms']:.2f}",
        f"{predicted['on_ms']:.2f}",
        f"{predicted['gain']:+.1%}",
        f"{predicted['repeated_ms']:.2f}",
        f"{predicted['repeated_gain']:+.1%}",
    ]


def print_plans(plans: Mapping[str, Explained]) -> None:
    report = Report()
    rows = []
    for name, plan in plans.items():
        for index, each in enumerate(plan.columns):
            column = f"{each.name} (filter)" if each.is_filter else each.name
            size = _core.bytes_text(each.movable_bytes)
            rows.append(["" if index else name, each.table, column, each.reason, size])
        if not plan.columns:
            rows.append([name, "", "nothing", "", ""])
    heads = (Column("query"), Column("table"), Column("column"), Column("", folds=True))
    report.table((*heads, *figures("bytes")), rows)
    for name, plan in plans.items():
        gain = plan.expected_gain
        most = "" if gain is None else f" Copies gain at most {gain:.0%}, as reading alone would."
        report.say(f"Query {name}: prefetched? {plan.answer}.{most}")


def print_report(study: Study) -> None:
    report = Report()
    if len(study.queries) == 1:
        _print_rows(report, next(iter(study.queries.values())))
    chosen = study.settings.prefetch
    names = {DUCKDB: "DuckDB", STORAGE: "its storage", **{each: each for each in ("off", "auto")}}
    heads = [names.get(mode, mode) + (" *" if mode == chosen else "") for mode in MODES]
    columns = (Column("ms"), *figures(*heads, "copies", "first run"), Column("same"))
    rows = [
        [
            name,
            *(f"{each.median_ns(mode) / 1e6:.1f}" for mode in MODES),
            _percent(share(each.repeated)),
            _percent(share([each.first] if each.first is not None else [])),
            "yes" if each.is_equal else "no",
        ]
        for name, each in study.queries.items()
    ]
    if len(rows) > 1:
        sums = [sum(each.median_ns(mode) for each in study.queries.values()) for mode in MODES]
        shares = (study.share_from_copies, study.share_first_run)
        rows.append(
            [
                "all",
                *(f"{each / 1e6:.1f}" for each in sums),
                *map(_percent, shares),
                f"{study.equal_count}/{len(study.queries)}",
            ]
        )
    report.table(columns, rows)
    report.say(
        f"Medians of {counted(study.settings.round_count, 'round')}, "
        f"{counted(study.settings.thread_count, 'thread')}, every mode once per round in balanced "
        "orders. Copies: share of the bytes that prefetching on read from copies that earlier "
        "runs may have made; first run: with an empty cache."
    )
    report.say()
    if len(study.queries) > 1:
        ratios = [
            [name, *(_ratio(each.spread(mode)) for mode in PREFETCH_MODES)]
            for name, each in study.queries.items()
        ]
        report.table((Column("query"), *figures(*PREFETCH_MODES)), ratios)
        report.say("Times DuckDB's on the same tables: median of the rounds and its 95 % interval.")
        report.say()
    for mode in PREFETCH_MODES:
        low, high = study.spread(mode, DUCKDB).bounds
        name, worst = study.worst(mode)
        report.say(
            f"{mode}: {study.ratio(mode, DUCKDB):.3f} of DuckDB's time on the same tables "
            f"(95 % interval over the rounds {low:.3f} to {high:.3f})"
            + (f"; most for query {name}, {_ratio(worst)}." if len(study.queries) > 1 else ".")
        )
    report.say(
        f"on: {study.ratio('on', DUCKDB, cpu=True):.3f} of DuckDB's processor time, in all threads."
    )
    report.say(
        f"{_core.bytes_text(study.bytes_moved)} were moved in all runs, "
        f"{_core.bytes_text(study.bytes_by_device)} of them by devices."
    )
    if study.peak_bytes is not None:
        report.say(
            f"With prefetching on the process had at most {_core.bytes_text(study.peak_bytes)}; "
            "the tables, the capacity of the cache and 300 MiB are "
            f"{_core.bytes_text(study.peak_limit_bytes)}."
        )
    places = ", ".join(
        f"{_core.bytes_text(byte_count)} on {'an unknown node' if node is None else f'node {node}'}"
        for node, byte_count in study.column_nodes.items()
    )
    report.say(f"The columns lie in memory: {places}.")
    if not study.machine.has_faster_node():
        report.say(
            "No memory of this machine is faster than a processor's own: prefetching cannot win "
            "here, and auto lets DuckDB read the tables directly."
        )
    for note in study.notes:
        report.say(f"Note: {note}.")


def _ratio(figure: Figure) -> str:
    low, high = figure.bounds
    return f"{figure.median:.2f} ({low:.2f} to {high:.2f})"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _print_rows(report: Report, query: QueryStudy) -> None:
    rows = [[str(value) for value in row] for row in query.rows[:_ROWS_PRINTED]]
    report.table([Column(name) for name in query.column_names], rows)
    report.say(
        counted(query.row_count, "row")
        + ("." if query.row_count <= len(rows) else ", the first of which are shown.")
    )
    report.say()
