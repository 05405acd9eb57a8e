# SPDX-License-Identifier: Apache-2.0
"""``headrace bench cache``: the cache beside the design that it came from."""

from typing import Any

import click

from headrace._cli._app import Command
from headrace._cli._options import json_option, plot_option, rounds_option
from headrace._cli._output import print_document, progress
from headrace._cli._report import Column, Report
from headrace._cli.bench._measure import (
    Figure,
    Series,
    draw_figures,
    find_program,
    run_program,
    speed_ratio,
)
from headrace._files import Output
from headrace.machine import topo

_PROGRAM = "headrace-bench-cache"
_TIME_LIMIT_S = 600
_LABELS = {
    "hit_speedup_1t": "hits, one thread: speed by the first design's",
    "hit_speedup_2t": "hits, two threads: speed by the first design's",
    "hit_scaling_2t": "hits: throughput of two threads by that of one",
    "mixed_speedup_2t": "90 % hits, 9 % misses, 1 % invalidations, two threads: speed",
    "miss_speedup_1t": "misses without the copy: speed by the first design's",
}


@click.command("cache", cls=Command)
@rounds_option(15)
@plot_option("the figures")
@json_option
def command(rounds: int, plot: Output | None, *, as_json: bool) -> None:
    """Measure hits and misses of the cache beside the design that it came from.

    The first design is a map per node behind a reader-writer lock, and handles that are allocated
    and counted. Both run the same operations in turns, over 4096 entries of 4 KiB that are
    not read or copied, so that nothing is measured but the caches themselves.

    Example: headrace bench cache --json
    """
    with progress("measuring the cache"):
        measured = _measure(rounds)
    figures = _figures(measured["series"])
    machine = topo()
    if plot is not None:
        draw_figures(
            plot,
            "The cache beside its first design",
            f"{machine.cpu_model}; medians of {rounds} rounds, whiskers: quartiles",
            {"ratio": {name.replace("_", "\n"): figure for name, figure in figures.items()}},
        )
    if as_json:
        print_document(
            "bench-cache",
            machine=machine.document,
            results={
                **measured,
                "figures": {name: figure.document() for name, figure in figures.items()},
            },
            summary={
                **{name: figure.median for name, figure in figures.items()},
                "bytes_per_entry": measured["bytes_per_entry"],
            },
        )
        return
    _print_report(figures, measured, rounds)


def _figures(series: dict[str, dict[str, list[float]]]) -> dict[str, Figure]:
    def ours(name: str) -> Series:
        return Series(series[name]["ours_ns"])

    def speedup(name: str) -> Figure:
        return speed_ratio(ours(name), Series(series[name]["seed_ns"]))

    return {
        "hit_speedup_1t": speedup("hit_1t"),
        "hit_speedup_2t": speedup("hit_2t"),
        "hit_scaling_2t": speed_ratio(ours("hit_2t"), ours("hit_1t")),
        "mixed_speedup_2t": speedup("mixed_2t"),
        "miss_speedup_1t": speedup("miss_1t"),
    }


def _measure(round_count: int) -> dict[str, Any]:
    tried = "measure the cache"
    program = find_program("_bench", _PROGRAM, tried=tried, remedy="reinstall the package")
    return run_program([program, str(round_count)], tried=tried, time_limit_s=_TIME_LIMIT_S)


def _print_report(figures: dict[str, Figure], measured: dict[str, Any], round_count: int) -> None:
    report = Report()
    rows = [[_LABELS[name], figure.text] for name, figure in figures.items()]
    rows.append(["memory of ours for an entry", f"{measured['bytes_per_entry']:.0f} bytes"])
    rows.append(["allocations for a hit", f"{measured['allocations_per_hit']:g}"])
    report.table([Column("", folds=True), Column("", right=True)], rows)
    report.say(f"Medians of {round_count} rounds, in brackets the quartiles; the two take turns.")
