# SPDX-License-Identifier: Apache-2.0
"""``headrace bench message``: messages a second and round trips between two processes."""

import statistics
from typing import Any

from headrace import _core
from headrace._apps.figures import Figure
from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace._words import counted
from headrace_lab.commands.bench import _measure

_PROGRAM = "headrace-bench-message"
_MILLISECONDS = 20
_REFERENCE = "cached_index"
_OURS = "headrace"
_QUOTED_BYTES = 64
_BATCH = 16


@_measure.benchmark("message", 15, curves=True)
def command(rounds: int) -> _measure.Outcome:
    """Measure message queues between two processes, beside a reference queue.

    Messages have 8 bytes to 1 MiB, and the ends are pinned to two processors. Beside ours: a ring
    with cached indices as in the literature. Both carry the same payload in the same batches, and
    take turns in every round.

    Example: headrace bench message --json
    """
    tried = "measure message queues"
    program = _measure.find_program(_PROGRAM, tried)
    with progress("measuring message queues"):
        measured = _measure.run_program([program, str(rounds), str(_MILLISECONDS)], tried)
    times = {
        (row["message_bytes"], row["batch"], row["name"]): row["times_ns"]
        for row in measured["throughput"]
    }
    groups = list(dict.fromkeys((size, batch) for size, batch, _ in times))
    ratios = {
        group: _measure.speed_ratio(times[(*group, _OURS)], times[(*group, _REFERENCE)])
        for group in groups
    }
    trips = {(row["message_bytes"], row["name"]): row for row in measured["round_trips"]}
    sizes = list(dict.fromkeys(size for size, _ in groups))
    # Above 1 is slower.
    trip_ratios = {
        size: _measure.speed_ratio(trips[size, _REFERENCE]["p50_ns"], trips[size, _OURS]["p50_ns"])
        for size in sizes
    }
    quoted = (_QUOTED_BYTES, _BATCH)
    last = sizes[-1]
    summary = {
        "messages_per_s_64b": _measure.rate_per_s(times[(*quoted, _OURS)]).median,
        "vs_reference_64b": min(
            figure.median for (size, _), figure in ratios.items() if size == _QUOTED_BYTES
        ),
        "vs_reference_8b": min(
            figure.median for (size, _), figure in ratios.items() if size == sizes[0]
        ),
        "round_trip_ns": statistics.median(trips[_QUOTED_BYTES, _OURS]["p50_ns"]),
        "round_trip_ns_p99": statistics.median(trips[_QUOTED_BYTES, _OURS]["p99_ns"]),
        "round_trip_ns_p999": statistics.median(trips[_QUOTED_BYTES, _OURS]["p999_ns"]),
        "round_trip_vs_reference": trip_ratios[_QUOTED_BYTES].median,
        "bandwidth_vs_memcpy_1m": _measure.speed_ratio(
            times[last, 1, _OURS], times[last, 1, "memcpy_own"]
        ).median,
        "bandwidth_vs_memcpy_across_1m": _measure.speed_ratio(
            times[last, 1, _OURS], times[last, 1, "memcpy_across"]
        ).median,
    }
    return _measure.Outcome(
        "message",
        rounds,
        results={
            **measured,
            "vs_reference": [
                {
                    "message_bytes": group[0],
                    "batch": group[1],
                    "reference": _REFERENCE,
                    **figure.document(),
                }
                for group, figure in ratios.items()
            ],
            "round_trip_vs_reference": [
                {"message_bytes": size, **figure.document()} for size, figure in trip_ratios.items()
            ],
        },
        summary=summary,
        show=lambda report: _print_report(report, times, trips, ratios, measured, rounds),
    )


def _label(group: tuple[int, int]) -> str:
    size, batch = group
    return _core.bytes_text(size) + (f" x {batch}" if batch > 1 else "")


def _print_report(
    report: Report,
    times: dict[tuple[int, int, str], _measure.Times],
    trips: dict[tuple[int, str], dict[str, Any]],
    ratios: dict[tuple[int, int], Figure],
    measured: dict[str, Any],
    round_count: int,
) -> None:
    names = list(dict.fromkeys(name for _, _, name in times))
    rows = []
    for group, figure in ratios.items():
        cells = [
            f"{statistics.median(times[(*group, name)]):,.1f}" if (*group, name) in times else ""
            for name in names
        ]
        rows.append([_label(group), *cells, f"{figure.median:.2f}"])
    report.table([Column("ns a message"), *figures(*names, "relative")], rows)
    report.say()
    trip_names = list(dict.fromkeys(name for _, name in trips))
    rows = []
    for size in dict.fromkeys(size for size, _ in trips):
        cells = [
            " / ".join(
                f"{statistics.median(trips[size, name][key]):,.0f}"
                for key in ("p50_ns", "p99_ns", "p999_ns")
            )
            if (size, name) in trips
            else ""
            for name in trip_names
        ]
        rows.append([_core.bytes_text(size), *cells])
    report.say("Round trip in ns: median / 99th / 99.9th percentile")
    report.table([Column(""), *figures(*trip_names)], rows)
    report.say(
        f"{_measure.places(measured)}. Medians of {counted(round_count, 'round')}; relative: "
        "throughput by that of cached_index. headrace_memory stores past the caches. memcpy_own "
        "copies in the caches of one processor; memcpy_across is the slower of the two copies that "
        "any queue makes, each alone: into memory that the other processor read, and of memory "
        "that it wrote."
    )
