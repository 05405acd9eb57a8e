# SPDX-License-Identifier: Apache-2.0
"""``headrace bench injection``: does a computation gain if its message was put into a cache?"""

from typing import Any

from headrace import _core
from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace._cli.bench._measure import (
    Figure,
    Outcome,
    Series,
    bars,
    benchmark,
    find_program,
    publish,
    run_program,
    speed_ratio,
)
from headrace._files import Output

_PROGRAM = "headrace-bench-injection"
_TIME_LIMIT_S = 3600
_STEP_KIB = 4096
MESSAGE_BYTES = tuple(1 << shift for shift in range(6, 23, 2))
WORKING_SET_BYTES = (0, 32 << 10, 512 << 10, 8 << 20)
_SEED_GAIN = 0.30
_NOTE = (
    "The sender's stores put lines into its own cache, or the shared one, and never into the "
    "receiver's private cache, as a network interface with cache injection would. The emulated "
    "DSA cannot place lines at all."
)


@benchmark("injection", 15)
def command(rounds: int, plot: Output | None, *, as_json: bool) -> None:
    """Measure what a message in a cache saves the computation that needs it.

    A process on one processor plays the network interface and writes a message, by ordinary stores
    or past the caches; a process on another reads it and a working set. Message sizes from 64 bytes
    to 4 MiB, four working sets; the two ways take turns in every round. The gain is the share of
    the computation's time that the ordinary stores save.

    Example: headrace bench injection --json --plot injection.svg
    """
    tried = "measure cache injection"
    program = find_program("_bench", _PROGRAM, tried=tried, remedy="install the package again")
    command = [program, str(rounds), str(_STEP_KIB)]
    command += [",".join(map(str, sizes)) for sizes in (MESSAGE_BYTES, WORKING_SET_BYTES)]
    with progress("measuring cache injection"):
        measured = run_program(command, tried=tried, time_limit_s=_TIME_LIMIT_S)
    gains = gains_of(measured, "computation_ns")
    best = max(gains, key=lambda key: gains[key].median)
    series = [gains[best[0], size].median for size in MESSAGE_BYTES]
    place = series.index(max(series))
    summary = {
        "gain_best": gains[best].median,
        "gain_best_low": _interval(gains[best])[0],
        "gain_best_high": _interval(gains[best])[1],
        "gain_best_bytes": best[1],
        "gain_best_working_set_bytes": best[0],
        "gain_worst": min(figure.median for figure in gains.values()),
        "peak_inside": int(0 < place < len(series) - 1),
    }
    panels = {
        f"gain, working set {_core.bytes_text(working_set)}": {
            _short(size): gains[working_set, size] for size in MESSAGE_BYTES
        }
        for working_set in WORKING_SET_BYTES
    }
    note = f"{_where(measured)}; the seed's value, simulated: up to {_SEED_GAIN:.0%}"
    outcome = Outcome(
        "injection",
        rounds,
        results={
            **measured,
            "note": _NOTE,
            "gains": _documents(gains),
            "gains_with_communication": _documents(gains_of(measured, "total_ns")),
        },
        summary=summary,
        show=lambda report: _print_report(report, gains, measured, rounds),
        draw=bars("Cache injection by stores", rounds, panels, note),
    )
    publish(outcome, plot, as_json=as_json)


Gains = dict[tuple[int, int], Figure]


def gains_of(measured: dict[str, Any], what: str) -> Gains:
    """By working set and message size: 1 - time with `cache` / time with `memory`, in pairs."""
    times = {
        (cell["working_set_bytes"], cell["message_bytes"], cell["placement"]): Series(cell[what])
        for cell in measured["cells"]
    }
    gains = {}
    for working_set in WORKING_SET_BYTES:
        for size in MESSAGE_BYTES:
            # The time with `cache` as a share of that with `memory`.
            share = speed_ratio(
                times[working_set, size, "memory"], times[working_set, size, "cache"]
            )
            low, high = _interval(share)
            gains[working_set, size] = Figure(
                1 - share.median, 1 - share.high, 1 - share.low, (1 - high, 1 - low)
            )
    return gains


def _interval(figure: Figure) -> tuple[float, float]:
    return figure.interval or (figure.low, figure.high)


def _documents(gains: Gains) -> list[dict[str, Any]]:
    return [
        {"working_set_bytes": working_set, "message_bytes": size, **figure.document()}
        for (working_set, size), figure in gains.items()
    ]


def _where(measured: dict[str, Any]) -> str:
    cores = "one core" if measured["same_core"] else "different cores"
    return f"CPUs {measured['sender_cpu']} and {measured['receiver_cpu']}, {cores}"


def _short(size: int) -> str:
    return _core.bytes_text(size).replace(" KiB", "K").replace(" MiB", "M").replace(" bytes", "")


def _print_report(report: Report, gains: Gains, measured: dict[str, Any], round_count: int) -> None:
    report.table(
        [
            Column("message"),
            *figures(*(f"working set {_core.bytes_text(each)}" for each in WORKING_SET_BYTES)),
        ],
        [
            [
                _core.bytes_text(size),
                *(
                    "{:+.1%} ({:+.1%} to {:+.1%})".format(
                        gains[working_set, size].median, *_interval(gains[working_set, size])
                    )
                    for working_set in WORKING_SET_BYTES
                ),
            ]
            for size in MESSAGE_BYTES
        ],
    )
    report.say(
        f"Share of the computation's time that ordinary stores of the sender save, by stores past "
        f"the caches, with the 95 % confidence interval of the median of {round_count} rounds; "
        f"{_where(measured)}. {_NOTE} Counters: {measured['counters']}. The seed's simulated value "
        f"is up to {_SEED_GAIN:.0%}."
    )
