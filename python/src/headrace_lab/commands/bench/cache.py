# SPDX-License-Identifier: Apache-2.0
"""``headrace bench cache``: the cache beside the design that it came from."""

from headrace._apps.figures import Figure
from headrace._cli._output import progress
from headrace._cli._report import Report
from headrace._words import counted
from headrace_lab.commands.bench import _measure

_PROGRAM = "headrace-bench-cache"
_TRIED = "measure the cache"
_COUNT = 640
"""Operations of a run that counts; a miss traps some thousand times."""
_COUNT_LABELS = {
    "hit": "instructions of a hit",
    "miss": "instructions of a miss without the copy",
    "miss_many": "... by access_many() of 32",
    "empty_miss": "instructions of a miss of 64 KiB with room, in memory used before",
    "full_miss": "... into a full node",
}
_FULL_LABELS = {
    "full_miss_vs_miss": "... relative to one with room",
    "barriers_per_full_miss": "process-wide barriers of a miss into a full node",
    "syscalls_per_full_miss": "system calls of it, without the check of its source",
}
_LABELS = {
    "hit_speedup_1t": "hits, one thread: speed vs the first design",
    "hit_speedup_2t": "hits, two threads: speed vs the first design",
    "hit_scaling_2t": "hits: throughput of two threads vs one",
    "mixed_speedup_2t": "90 % hits, 9 % misses, 1 % invalidations, two threads: speed",
    "miss_speedup_1t": "misses without the copy: speed vs the first design",
}


@_measure.benchmark("cache", 15, curves=True)
def command(rounds: int) -> _measure.Outcome:
    """Measure hits and misses of the cache beside the design that it came from.

    The first design is a map per node behind a reader-writer lock, and handles that are allocated
    and counted. Both run the same operations in turns, over 4096 entries of 4 KiB that are
    not read or copied, so that nothing is measured but the caches themselves. The instructions of
    a hit and a miss are counted as well.

    Example: headrace bench cache --json
    """
    with progress("measuring the cache"):
        program = _measure.find_program(_PROGRAM, _TRIED)
        measured = _measure.run_program([program, str(rounds)], _TRIED)
        runs = {
            mode: _measure.run_program([program, "count", mode, str(_COUNT)], _TRIED)
            for mode in _COUNT_LABELS
        }
    instructions = {mode: run["instructions"] / _COUNT for mode, run in runs.items()}
    full = runs["full_miss"]
    of_full = {
        "barriers_per_full_miss": full["barriers"] / _COUNT,
        "syscalls_per_full_miss": full["system_calls"] / _COUNT,
        "full_miss_vs_miss": instructions["full_miss"] / instructions["empty_miss"],
    }
    figures = _figures(measured["series"])

    def show(report: Report) -> None:
        rows = [[_LABELS[name], figure.text] for name, figure in figures.items()]
        rows.append(["bookkeeping memory of an entry", f"{measured['bytes_per_entry']:.0f} bytes"])
        rows += [[_COUNT_LABELS[mode], f"{count:.0f}"] for mode, count in instructions.items()]
        rows += [[_FULL_LABELS[name], f"{value:.3f}"] for name, value in of_full.items()]
        _measure.print_pairs(report, rows)
        report.say(
            f"Medians of {counted(rounds, 'round')}, in brackets the quartiles; the two take turns."
        )

    return _measure.Outcome(
        "cache",
        rounds,
        results={**measured, "full_miss": full, "figures": _measure.documents_of(figures)},
        summary={
            **_measure.medians_of(figures),
            "bytes_per_entry": measured["bytes_per_entry"],
            **{f"instructions_{mode}": count for mode, count in instructions.items()},
            **of_full,
        },
        show=show,
    )


def _figures(series: dict[str, dict[str, list[float]]]) -> dict[str, Figure]:
    def speedup(name: str) -> Figure:
        return _measure.speed_ratio(series[name]["ours_ns"], series[name]["fuerst_ns"])

    return {
        "hit_speedup_1t": speedup("hit_1t"),
        "hit_speedup_2t": speedup("hit_2t"),
        "hit_scaling_2t": _measure.speed_ratio(
            series["hit_2t"]["ours_ns"], series["hit_1t"]["ours_ns"]
        ),
        "mixed_speedup_2t": speedup("mixed_2t"),
        "miss_speedup_1t": speedup("miss_1t"),
    }
