# SPDX-License-Identifier: Apache-2.0
"""``headrace bench pmem``: the cost of a durable entry, ring by ring."""

import os
import tempfile
from statistics import median
from typing import Any

from headrace import _core
from headrace._apps.figures import Figure
from headrace._cli._options import FilePath, option, refuse_value
from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace._files import file_error
from headrace._temporary import temporary_folder
from headrace._words import counted
from headrace_lab.commands.bench import _measure

_PROGRAM = "headrace-bench-pmem"
_CAPACITY_MIB = 64
_RIVALS = ("libpmem_balcer", "libpmem_staged", "libpmem_same")
# Short entries are batched: all entries of a batch are durable when its call returns.
_QUOTED = {
    "optimised_over_naive_256": (256, "batch8"),
    "optimised_over_naive_256_single": (256, "enqueue"),
    "optimised_over_naive_2k": (2048, "enqueue"),
    "optimised_over_naive_4k": (4096, "enqueue"),
}
# From this length, stores and not the fence bound an enqueue.
_BANDWIDTH_BYTES_MIN = 2048

Rings = dict[str, dict[str, _measure.Times]]


_directory_option = option(
    "--directory",
    type=FilePath("DIR"),
    help="Where the files of the rings lie: on persistent memory (DAX), or, if not given, in "
    "/dev/shm, which is not.",
)


@_measure.benchmark("pmem", 15, "", _directory_option)
def command(rounds: int, directory: str | None) -> _measure.Outcome:
    """Compare the rings: naive, clflushopt, clwb, optimised, and on libpmem2.

    A round enqueues and dequeues 64 MiB rings half full, each ring once for each length of entries,
    in a new random order; after three rounds the rings get other files. An entry counts as
    enqueued when it is durable. On ordinary memory such as /dev/shm, lines are flushed to DRAM: the
    instructions are the same, without durability. The rings on libpmem2 are Balcer's optimised one,
    ours assembled in DRAM and copied at once, and ours on libpmem2's primitives; the best of them
    is the rival. A stream of the same stores, with and without a fence per record, is the bound.

    Example: headrace bench pmem --json
    """
    if directory is not None and not os.path.isdir(directory):  # noqa: PTH112 - Any text.
        refuse_value("--directory", f"'{directory}' is not a directory that this user can reach")
    parent = directory or memory_folder()
    with progress("measuring the rings"):
        measured = measure_rings(rounds, parent)
    lengths: dict[int, Rings] = {
        each["entry_bytes"]: each["series"] for each in measured["lengths"]
    }
    ratios = {length: _ratios(times) for length, times in lengths.items()}
    summary = {
        name: ratios[length][ratio].median
        for name, (length, ratio) in _QUOTED.items()
        if length in ratios
    }
    summary["over_libpmem_worst"] = min(each["over_libpmem"].median for each in ratios.values())
    for name, ratio in (("store_bandwidth_share", "stream"), ("fenced_bandwidth_share", "fenced")):
        summary[name] = min(
            each[f"over_{ratio}"].median
            for length, each in ratios.items()
            if length >= _BANDWIDTH_BYTES_MIN
        )
    flushes = {name: median(times) for name, times in measured["flush_ns"].items()}
    if flushes.keys() >= {"clflush", "clwb"}:
        summary["clflush_over_clwb"] = flushes["clflush"] / flushes["clwb"]
    return _measure.Outcome(
        "pmem",
        rounds,
        results={
            **measured,
            "ratios": {length: _measure.documents_of(each) for length, each in ratios.items()},
        },
        summary=summary,
        show=lambda report: _print_report(report, lengths, ratios, measured, rounds),
    )


def _ratios(times: Rings) -> dict[str, Figure]:
    def enqueue(name: str) -> _measure.Times:
        return times[name]["enqueue_ns"]

    def both(name: str) -> _measure.Times:
        return [a + b for a, b in zip(enqueue(name), times[name]["dequeue_ns"], strict=True)]

    rival = min(_RIVALS, key=lambda name: median(enqueue(name)))
    return {
        "enqueue": _measure.speed_ratio(enqueue("optimised"), enqueue("naive")),
        "enqueue_and_dequeue": _measure.speed_ratio(both("optimised"), both("naive")),
        "over_clflushopt": _measure.speed_ratio(enqueue("optimised"), enqueue("clflushopt")),
        "batch8": _measure.speed_ratio(enqueue("optimised_batch8"), enqueue("naive")),
        "over_libpmem": _measure.speed_ratio(enqueue("optimised"), enqueue(rival)),
        "over_stream": _measure.speed_ratio(enqueue("optimised"), enqueue("store_stream")),
        "over_fenced": _measure.speed_ratio(enqueue("optimised"), enqueue("store_stream_fenced")),
    }


def memory_folder() -> str:
    shared = "/dev/shm"  # noqa: S108 - Files there get random names.
    return shared if os.access(shared, os.W_OK) else tempfile.gettempdir()


def measure_rings(round_count: int, parent: str) -> dict[str, Any]:
    tried = "measure the rings"
    remedy = "reinstall the package, with libpmem2-dev"
    program = _measure.find_program(_PROGRAM, tried, remedy=remedy)
    try:
        with temporary_folder("headrace-bench-", parent) as folder:
            command = [program, str(folder), str(round_count), str(_CAPACITY_MIB)]
            return _measure.run_program(command, tried)
    except OSError as problem:
        raise file_error(problem, f"make files in '{parent}'") from None


def _print_report(
    report: Report,
    lengths: dict[int, Rings],
    ratios: dict[int, dict[str, Figure]],
    measured: dict[str, Any],
    round_count: int,
) -> None:
    if not measured["persistent"]:
        report.say("On DRAM: lines are flushed to it, and their durability is PRETENDED.")
    for what in ("enqueue", "dequeue"):
        rows = [
            [name, *(f"{median(times[name][f'{what}_ns']):,.0f}" for times in lengths.values())]
            for name in next(iter(lengths.values()))
        ]
        report.table([Column(f"ns to {what}"), *figures(*map(_core.bytes_text, lengths))], rows)
        report.say()
    report.say(
        "Speed of optimised relative to another, for enqueue unless stated ('8 a fence': "
        "in batches, relative to single ones of naive):"
    )
    labels = {
        "enqueue": "naive",
        "enqueue_and_dequeue": "naive, both ends",
        "batch8": "naive, 8 a fence",
        "over_clflushopt": "clflushopt",
        "over_libpmem": "best on libpmem2",
        "over_stream": "a stream of stores",
        "over_fenced": "and a fence for each",
    }
    report.table(
        [Column(""), *figures(*map(_core.bytes_text, ratios))],
        [[label, *(each[key].text for each in ratios.values())] for key, label in labels.items()],
    )
    costs = ", ".join(
        f"{name} {median(times):.1f} ns" for name, times in measured["flush_ns"].items()
    )
    report.say(f"A line stored and flushed, 16 to a fence: {costs}.")
    report.say(
        f"Medians of {counted(round_count, 'round')}, in brackets the quartiles; rings take turns."
    )
