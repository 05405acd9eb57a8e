# SPDX-License-Identifier: Apache-2.0
"""``headrace bench injection``: the gain of a computation whose message is in a cache."""

from typing import Any

from headrace import _core
from headrace._apps.figures import Figure, figure_of
from headrace._apps.picture import drawing
from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace._files import Output
from headrace._scenarios import run as simulate
from headrace_lab.commands.bench import _measure

_PROGRAM = "headrace-bench-injection"
_STEP_KIB = 4096
MESSAGE_BYTES = tuple(1 << shift for shift in range(6, 23, 2))
WORKING_SET_BYTES = (0, 32 << 10, 512 << 10, 8 << 20)
_LEON_GAIN = 0.30
# Where the simulated network interface puts messages: with cache injection, and by stores.
PLACES = ("receiver-l2", "sender-l2")
_NOTE = (
    "The sender's stores put lines into its own cache, or the shared one, and never into the "
    "receiver's private cache, as a network interface with cache injection would. The emulated "
    "DSA cannot place lines at all."
)
_DIFFERENCES = (
    "The simulated curves are of another machine, with caches read line by line, a network "
    "interface that writes into the named cache, and the time to receive included; the measured "
    "ones are of this machine's computation alone, whose lines the processor also prefetches. "
    "León's value is the most that the simulator found, for one size."
)


@_measure.benchmark("injection", 15, plots=True)
def command(rounds: int) -> _measure.Outcome:
    """Measure what a message in a cache saves the computation that needs it.

    A process on one processor plays the network interface and writes a message, by ordinary stores
    or past the caches; a process on another reads it and a working set. Message sizes from 64 bytes
    to 4 MiB, four working sets; the two ways take turns in every round. The gain is the share of
    the computation's time that the ordinary stores save; the picture has what 'headrace sim run
    injection' predicts beside it.

    Example: headrace bench injection --json --plot injection.svg
    """
    with progress("measuring cache injection"):
        measured = measure_injection(rounds)
    gains = gains_of(measured, "computation_ns")
    simulated = simulated_gains()
    expected = simulated[PLACES[0]]
    best = max(gains, key=lambda key: gains[key].median)
    worst = min(gains.values(), key=lambda figure: figure.median)
    series = [gains[best[0], size].median for size in MESSAGE_BYTES]
    place = series.index(max(series))
    summary = {
        "gain_best": gains[best].median,
        "gain_best_low": gains[best].bounds[0],
        "gain_best_high": gains[best].bounds[1],
        "gain_best_bytes": best[1],
        "gain_best_working_set_bytes": best[0],
        "gain_worst": worst.median,
        "gain_worst_low": worst.bounds[0],
        "gain_worst_high": worst.bounds[1],
        "peak_inside": int(0 < place < len(series) - 1),
        "gain_best_simulated": max(expected.values()),
        "gain_best_simulated_bytes": max(expected, key=lambda size: expected[size]),
        "gain_best_leon": _LEON_GAIN,
    }
    caption = (
        f"{_measure.places(measured)}; medians of {rounds} rounds, whiskers: 95 % confidence "
        "intervals"
    )
    return _measure.Outcome(
        "injection",
        rounds,
        results={
            **measured,
            "note": _NOTE,
            "differences": _DIFFERENCES,
            "simulated": [
                {"where": where, "message_bytes": size, "gain": gain}
                for where, curve in simulated.items()
                for size, gain in curve.items()
            ],
            "gains": _documents(gains),
            "gains_with_communication": _documents(gains_of(measured, "total_ns")),
        },
        summary=summary,
        show=lambda report: _print_report(report, gains, expected, measured, rounds),
        draw=lambda plot, machine: _draw(plot, gains, simulated, f"{machine.cpu_model}; {caption}"),
    )


def measure_injection(rounds: int) -> dict[str, Any]:
    tried = "measure cache injection"
    command = [_measure.find_program(_PROGRAM, tried), str(rounds), str(_STEP_KIB)]
    command += [",".join(map(str, sizes)) for sizes in (MESSAGE_BYTES, WORKING_SET_BYTES)]
    return _measure.run_program(command, tried)


Gains = dict[tuple[int, int], Figure]


def shares_of(measured: dict[str, Any], what: str) -> dict[tuple[int, int], list[float]]:
    """By working set and message size: 1 - time with `cache` / time with `memory`, per round."""
    times = {
        (cell["working_set_bytes"], cell["message_bytes"], cell["placement"]): cell[what]
        for cell in measured["cells"]
    }
    return {
        (working_set, size): [
            1 - near / far
            for near, far in zip(
                times[working_set, size, "cache"], times[working_set, size, "memory"], strict=True
            )
        ]
        for working_set in WORKING_SET_BYTES
        for size in MESSAGE_BYTES
    }


def gains_of(measured: dict[str, Any], what: str) -> Gains:
    return {key: figure_of(values) for key, values in shares_of(measured, what).items()}


def simulated_gains() -> dict[str, dict[int, float]]:
    """By place and message size: share of the time that the simulated node saves."""
    return {
        where: {
            size: result.figures["saved_share"]
            for size, result in zip(
                MESSAGE_BYTES,
                simulate("injection", [{"bytes": size, "where": where} for size in MESSAGE_BYTES]),
                strict=True,
            )
        }
        for where in PLACES
    }


def _draw(
    output: Output, gains: Gains, simulated: dict[str, dict[int, float]], caption: str
) -> None:
    with drawing(output, "Cache injection", caption, (9, 5.5)) as picture:
        axes = picture.subplots()
        at = range(len(MESSAGE_BYTES))
        for number, working_set in enumerate(WORKING_SET_BYTES):
            figures = [gains[working_set, size] for size in MESSAGE_BYTES]
            below = [max(0.0, each.median - each.bounds[0]) for each in figures]
            above = [max(0.0, each.bounds[1] - each.median) for each in figures]
            axes.errorbar(
                # Side by side, so that whiskers do not cover each other.
                [each + 0.06 * (number - 1.5) for each in at],
                [each.median for each in figures],
                yerr=(below, above),
                marker="o",
                capsize=3,
                label=f"measured, working set {_core.bytes_text(working_set)}",
            )
        for (where, curve), style in zip(simulated.items(), ("--", ":"), strict=True):
            label = f"simulated, injected into {where}"
            axes.plot(at, list(curve.values()), style, color="#555555", marker="x", label=label)
        leon = f"León's value, {_LEON_GAIN:.0%} (simulated)"
        axes.axhline(_LEON_GAIN, color="#aa3377", linewidth=1, label=leon)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(at, [_core.bytes_text(size) for size in MESSAGE_BYTES], fontsize="small")
        axes.set_xlabel("message")
        axes.set_ylabel("share of the time saved")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize="small")


def _documents(gains: Gains) -> list[dict[str, Any]]:
    return [
        {"working_set_bytes": working_set, "message_bytes": size, **figure.document()}
        for (working_set, size), figure in gains.items()
    ]


def _print_report(
    report: Report,
    gains: Gains,
    expected: dict[int, float],
    measured: dict[str, Any],
    round_count: int,
) -> None:
    report.table(
        [
            Column("message"),
            *figures(*(f"working set {_core.bytes_text(each)}" for each in WORKING_SET_BYTES)),
            *figures("simulated"),
        ],
        [
            [
                _core.bytes_text(size),
                *(
                    "{:+.1%} ({:+.1%} to {:+.1%})".format(
                        gains[working_set, size].median, *gains[working_set, size].bounds
                    )
                    for working_set in WORKING_SET_BYTES
                ),
                f"{expected[size]:+.1%}",
            ]
            for size in MESSAGE_BYTES
        ],
    )
    report.say(
        f"Share of the computation's time that ordinary stores of the sender save, by stores past "
        f"the caches, with the 95 % confidence interval of the median of {round_count} rounds; "
        f"{_measure.places(measured)}. {_NOTE} Counters: {measured['counters']}. Simulated: a "
        f"network interface that writes into the receiver's L2. {_DIFFERENCES} It is "
        f"{_LEON_GAIN:.0%}."
    )
