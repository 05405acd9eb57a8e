# SPDX-License-Identifier: Apache-2.0
"""``headrace bench cache``: the cache beside the design that it came from."""

from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headrace._cli._output import print_document, progress
from headrace._cli.bench._measure import (
    Figure,
    JsonOption,
    PlotOption,
    RoundsOption,
    Series,
    draw_figures,
    find_program,
    parse_plot,
    parse_rounds,
    run_program,
    speed_ratio,
)
from headrace.machine import topo

SUBCOMMAND = "bench cache"
SCHEMA_NAME = "headrace-bench-cache"
SCHEMA_VERSION = 1

_PROGRAM = "headrace-bench-cache"
_TIME_LIMIT_S = 600
_LABELS = {
    "hit_speedup_1t": "hits, one thread: speed by the first design's",
    "hit_speedup_2t": "hits, two threads: speed by the first design's",
    "hit_scaling_2t": "hits: throughput of two threads by that of one",
    "mixed_speedup_2t": "90 % hits, 9 % misses, 1 % invalidations, two threads: speed",
    "miss_speedup_1t": "misses without the copy: speed by the first design's",
}


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("cache")(cache)


def cache(
    rounds: RoundsOption = "15", plot: PlotOption = None, as_json: JsonOption = False
) -> None:
    """Measure hits and misses of the cache beside the design that it came from.

    The first design is a map per node behind a reader-writer lock, and handles that are allocated
    and counted. Both run the same operations in turns, over 4096 entries of 4 KiB that are
    not read or copied, so that nothing is measured but the caches themselves.

    Example: headrace bench cache --json
    """
    round_count = parse_rounds(SUBCOMMAND, rounds)
    picture = parse_plot(SUBCOMMAND, plot)
    with progress("measuring the cache"):
        measured = _measure(round_count)
    figures = _figures(measured["series"])
    machine = topo()
    if picture is not None:
        draw_figures(
            picture,
            "The cache beside its first design",
            f"{machine.cpu_model}; medians of {round_count} rounds, whiskers: quartiles",
            {"ratio": {name.replace("_", "\n"): figure for name, figure in figures.items()}},
        )
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
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
    _print_report(figures, measured, round_count)


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
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right", no_wrap=True)
    for name, figure in figures.items():
        table.add_row(_LABELS[name], figure.text)
    table.add_row("memory of ours for an entry", f"{measured['bytes_per_entry']:.0f} bytes")
    table.add_row("allocations for a hit", f"{measured['allocations_per_hit']:g}")
    console.print(table)
    console.print(
        f"Medians of {round_count} rounds, in brackets the quartiles; the two take turns."
    )
