# SPDX-License-Identifier: Apache-2.0
"""Common parts of the benchmarks: series of times, ratios, options, pictures."""

import json
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from headrace import _core
from headrace._apps.figures import Figure, figure_of
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import EXIT_OK, print_document, progress
from headrace._cli._report import Column, Report, figures
from headrace._files import Output
from headrace._temporary import run_to_end
from headrace.errors import NotFoundError
from headrace.machine import Machine, topo

# Of one measurement of a curve.
_CURVE_MS = 100
_TIME_LIMIT_S = 3600


class _ThreadCounts(_options.Value[tuple[int, ...]]):
    """Numbers of threads, each up to the number of processors that this process may use."""

    def __init__(self) -> None:
        self._most = len(os.sched_getaffinity(0))
        wanted = "ascending numbers from 1, such as 1,2,4, up to that of the processors allowed"
        super().__init__("LIST", f"{wanted}, {self._most}")
        self.documented = wanted

    def read(self, text: str) -> tuple[int, ...]:
        counts = tuple(_options.Count(1, self._most).read(each) for each in text.split(","))
        if counts[0] != 1 or list(counts) != sorted(set(counts)):
            raise ValueError
        return counts


def find_program(
    name: str, tried: str, folder: str = "_bench", remedy: str = "reinstall the package"
) -> str:
    # An editable installation has sources and build outputs in two directories.
    path = Path(_core.__file__ or "").parent / folder / name
    if not path.exists():
        raise NotFoundError(tried, f"'{path}' does not exist", remedy)
    return str(path)


def run_program(
    command: Sequence[str], tried: str, late: str = "use fewer --rounds"
) -> dict[str, Any]:
    """Run a measuring program of the package and return the JSON document that it prints.

    `tried` and `late`, the remedy if it takes an hour, are for errors.
    """
    measured: dict[str, Any] = json.loads(run_to_end(command, tried, late, _TIME_LIMIT_S).stdout)
    return measured


def places(measured: dict[str, Any]) -> str:
    """The processors of sender and receiver, as a report's note names them."""
    cores = "one core" if measured["same_core"] else "different cores"
    return f"CPUs {measured['sender_cpu']} and {measured['receiver_cpu']}, {cores}"


Times = Sequence[float]
"""Nanoseconds of one subject in several rounds."""


def times_document(times_ns: Times) -> dict[str, object]:
    return {
        "time_ns_median": statistics.median(times_ns),
        "time_ns_min": min(times_ns),
        "time_ns_max": max(times_ns),
        "times_ns": list(times_ns),
    }


def documents_of(found: Mapping[str, Figure]) -> dict[str, dict[str, float]]:
    return {name: each.document() for name, each in found.items()}


def medians_of(found: Mapping[str, Figure]) -> dict[str, float]:
    return {name: each.median for name, each in found.items()}


def print_pairs(report: Report, rows: Iterable[Sequence[str]], title: str = "") -> None:
    report.table([Column(title, folds=True), Column("", right=True)], rows)


def rate_per_s(times_ns: Times) -> Figure:
    return figure_of([1e9 / time_ns for time_ns in times_ns])


def speed_ratio(subject: Times, baseline: Times) -> Figure:
    """Speed of the subject relative to the baseline: the median of the ratios per round.

    Not the ratio of medians: a disturbance of a round affects both, and cancels.
    """
    return figure_of([theirs / ours for theirs, ours in zip(baseline, subject, strict=True)])


def measure_curves(name: str, threads: Sequence[int], rounds: int) -> dict[str, Any]:
    tried = "measure with several threads"
    program = find_program(f"headrace-bench-{name}", tried)
    counts = ",".join(str(each) for each in threads)
    return run_program([program, "curve", counts, str(rounds), str(_CURVE_MS)], tried)


def print_curves(report: Report, curves: Mapping[str, Any]) -> None:
    threads = [point["threads"] for point in next(iter(curves.values()))["curve"]]
    rows = []
    for name, each in curves.items():
        points = []
        for point in each["curve"]:
            near = "-" if point["speedup_near"] is None else f"{point['speedup_near']:.2f}"
            million = point["operations_per_s"] / 1e6
            points.append(f"{million:.2f} ({point['speedup']:.2f}, {near})")
        kernel = "{:.2f}, {:.2f}".format(*(each["curve"][at]["kernel_share"] for at in (0, -1)))
        counts = [f"{each['instructions']:.0f}", f"{each['locked']:.2f}", kernel]
        rows.append([name, *counts, *points])
    titles = [f"{count} thread{'s' * (count > 1)}" for count in threads]
    most = [ns for each in curves.values() for ns in each["curve"][-1]["line_ns"]]
    lines = [ns for ns in most if ns]
    range_of_lines = f"{min(lines):.0f} to {max(lines):.0f} ns" if lines else "none was measured"
    report.say()
    report.say(
        "Million operations a second. In brackets, throughput relative to one thread: of all "
        "rounds, and of those in which the first two processors were different cores and a cache "
        f"line took at most twice the least time between them ({range_of_lines}; they shared a "
        f"core in {most.count(None)} of {len(most)} measurements). In the system: part of the time "
        "with one thread, and with most threads.",
        "bold",
    )
    report.table([Column(""), *figures("instructions", "locked", "in the system", *titles)], rows)


@dataclass(frozen=True)
class Outcome:
    """Results of a benchmark; `draw` makes its picture, with the machine in the caption."""

    name: str
    rounds: int
    results: Mapping[str, object]
    summary: Mapping[str, object]
    show: Callable[[Report], None]
    draw: Callable[[Output, Machine], None] | None = None
    exit_code: int = EXIT_OK


def _refuse_plot(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        _options.refuse(
            "--plot drew what the table has; 'bench copy', 'injection' and families draw curves"
        )


_no_plot = click.option("--plot", hidden=True, expose_value=False, callback=_refuse_plot)


def benchmark(
    name: str,
    rounds: int,
    note: str = "",
    *options: _options.Decorator,
    curves: bool = False,
    plots: bool = False,
) -> Callable[[Callable[..., Outcome]], click.Command]:
    """Make a benchmark's command with --rounds, further options and --json.

    With `curves` it has --threads, and its program a mode `curve`; with `plots` it has --plot.
    """

    def made(measure: Callable[..., Outcome]) -> click.Command:
        @wraps(measure)
        def run(
            *,
            as_json: bool,
            plot: Output | None = None,
            threads: Sequence[int] | None = None,
            **given: object,
        ) -> int:
            outcome, curves = measure(**given), None
            if threads is not None:
                with progress("measuring with several threads"):
                    curves = measure_curves(name, threads, outcome.rounds)
            return _publish(outcome, curves, plot, as_json=as_json)

        function: Callable[..., object] = run
        if curves:
            text = "Also measure with as many threads at once, each on a processor of its own."
            function = _options.option("--threads", type=_ThreadCounts(), help=text)(function)
        plot_or_not = _options.plot_option("the figures") if plots else _no_plot
        for each in (_options.json_option, plot_or_not, *reversed(options)):
            function = each(function)
        function = _options.rounds_option(rounds, note)(function)
        return click.command(name, cls=Command)(function)

    return made


def _publish(
    outcome: Outcome, curves: Mapping[str, Any] | None, plot: Output | None, *, as_json: bool
) -> int:
    machine = topo()
    if plot is not None and outcome.draw is not None:
        outcome.draw(plot, machine)
    if as_json:
        measured = {} if curves is None else {"threads": curves}
        print_document(
            f"bench-{outcome.name}",
            machine=machine.document,
            results={**outcome.results, **measured, "round_count": outcome.rounds},
            summary=outcome.summary,
        )
        return outcome.exit_code
    report = Report()
    outcome.show(report)
    if curves is not None:
        print_curves(report, curves["curves"])
    if plot is not None:
        report.say(f"The picture is in {plot.path}.")
    return outcome.exit_code
