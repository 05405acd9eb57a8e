# SPDX-License-Identifier: Apache-2.0
"""``headrace bench copy``: tuned copies as a program gets them, and as the library makes them."""

import json
import math
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from headrace import _core
from headrace._apps.figures import Figure
from headrace._apps.memory import available_bytes, pool_bytes_of
from headrace._apps.picture import matplotlib_defaults, save_picture
from headrace._apps.tune import door
from headrace._cli._options import Duration, FilePath, option, profile_option
from headrace._cli._output import progress
from headrace._cli._report import Report, figures
from headrace._cli.run import library_path
from headrace._files import Output
from headrace._trials import interval, typical
from headrace.machine import Machine
from headrace_lab.commands.bench._copy_bound import Bound, bound_of
from headrace_lab.commands.bench._measure import (
    Outcome,
    Series,
    benchmark,
    publish,
)

BITS_MIN, BITS_MAX = 8, 26
GLIBC, TUNED = "libc", "tuned"
PLAIN = "ymm load=t store=t prefetch=none block=1 align=none forward streams=1"
"""A naive loop of unaligned 32-byte moves."""
CONTROL = "libc again"
"""glibc's copy against itself: shows the error of the measurement."""
LABELS = {TUNED: "tuned", PLAIN: "plain", CONTROL: "glibc again"}
PROGRAM_ROUNDS_MIN = 5
LONG_BYTES = 4 << 20
"""From this length, a third of the rounds is measured, because a round takes long."""

_SEED = 2


@dataclass(frozen=True)
class Point:
    """One length under one condition.

    Attributes:
        bytes_max: The length; random lengths are in (bytes_max / 2, bytes_max].
        temperature: "hot" or "cold".
        fixed: One length, both sides page-aligned; else random lengths and addresses.
        bound: Upper bound of the speed; None if not measured.
    """

    bytes_max: int
    temperature: str
    fixed: bool
    series: dict[str, Series]
    bound: Bound | None = None

    def ratio(self, subject: str) -> Figure:
        """Speed relative to glibc: typical ratio of the rounds, and quartiles."""
        logs = self._logs(subject)
        low, _, high = statistics.quantiles(logs, n=4) if len(logs) > 1 else logs * 3
        return Figure(math.exp(typical(logs)), math.exp(low), math.exp(high))

    def interval(self, subject: str) -> tuple[float, float]:
        """The 95 % confidence interval of the ratio."""
        low, high = interval(self._logs(subject))
        return math.exp(low), math.exp(high)

    def verdict(self, subject: str) -> str:
        """Return "faster" or "slower" than glibc, or "equal" if the difference may be chance."""
        low, high = self.interval(subject)
        return "faster" if low > 1 else "slower" if high < 1 else "equal"

    def _logs(self, subject: str) -> list[float]:
        pairs = zip(self.series[GLIBC].times_ns, self.series[subject].times_ns, strict=True)
        return [math.log(theirs / ours) for theirs, ours in pairs]

    def _ratio_document(self, subject: str) -> dict[str, float]:
        figure = self.ratio(subject)
        low, high = self.interval(subject)
        return {
            # The geometric mean without the lowest and highest sixth.
            "mean": figure.median,
            "quartile_low": figure.low,
            "quartile_high": figure.high,
            "interval_low": low,
            "interval_high": high,
        }

    def document(self) -> dict[str, Any]:
        """The part of the JSON document."""
        return {
            "bytes_max": self.bytes_max,
            "temperature": self.temperature,
            "lengths": "fixed" if self.fixed else "random",
            "verdict": self.verdict(TUNED),
            **({"bound": asdict(self.bound)} if self.bound is not None else {}),
            "vs_glibc": {
                LABELS[subject]: self._ratio_document(subject)
                for subject in self.series
                if subject != GLIBC
            },
            "series": {
                LABELS.get(subject, "glibc"): series.document()
                for subject, series in self.series.items()
            },
        }


_bound_option = option(
    "--bound",
    "bound_s",
    type=Duration(1, 86_400),
    help="Spend this time finding the fastest of all copies at each point, which bounds what a "
    "profile can reach.",
)


_beside_option = option(
    "--beside",
    type=FilePath(),
    help="Also preload this library, such as another memcpy, and show it as a further column.",
)


@benchmark(
    "copy", 45, "; of programs a fifth, 5 or more", profile_option, _beside_option, _bound_option
)
def command(
    profile: str | None,
    beside: str | None,
    bound_s: float | None,
    rounds: int,
    plot: Output | None,
    *,
    as_json: bool,
) -> None:
    """Measure tuned copies as a program gets them, and as the library makes them.

    First an ordinary C program calls memcpy, memmove, memset and memcmp through its PLT: lengths
    from 16 B to 64 MiB, hot and at random places in 128 MiB, of one length (fixed) and of random
    lengths at any address (random). It runs without a preload, again without (the error of the
    measurement), and with Headrace's, alternating in random order.

    Then, in this process, the library's function beside glibc's and a plain loop: lengths from
    256 B to 64 MiB. A ratio is the geometric mean of those of the rounds, without the lowest and
    highest sixth; a point is called faster or slower if the 95 % confidence interval of its ratio
    does not contain 1. Times are processor times.

    Example: headrace bench copy --profile copy.json --plot copy.svg

    Example: headrace bench copy --beside ./libaocl-libmem.so --json
    """
    note = _use(profile)
    with progress("measuring copies in a program") as share:
        program = door.measure(
            door.ways_of(library_path(), profile, beside), _program_rounds(rounds), share
        )
    subjects = _subjects()
    with progress("measuring copies") as share:
        points = _measure(subjects, rounds, bound_s, share)
    outcome = Outcome(
        "copy",
        rounds,
        results={
            "profile": note,
            "program": program.document(),
            "points": [point.document() for point in points],
        },
        summary=program.summary() | summary_of(points),
        show=lambda report: _print_report(report, program, points, note, rounds),
        draw=lambda picture, machine: _draw(picture, points, machine, note),
    )
    publish(outcome, plot, as_json=as_json)


def _use(profile: str | None) -> str:
    """Make copies use the profile; return a sentence about which one."""
    if profile is None:
        _, _, note = _core.use_default_copy_profile()
        return str(note)
    if profile == "none":
        _core.use_no_copy_profile()
        return "copies use no profile"
    _core.use_copy_profile_file(os.fspath(profile))
    return f"copies are tuned by the profile '{profile}'"


def _program_rounds(rounds: int) -> int:
    """Processes of each way: each of them takes a second or two."""
    return max(min(rounds, PROGRAM_ROUNDS_MIN), rounds // 5)


def _subjects() -> list[str]:
    """The subjects that this processor supports."""
    subjects = [GLIBC, TUNED]
    return [*subjects, PLAIN] if PLAIN in _core.copy_variants(1 << BITS_MAX) else subjects


def _measure(
    subjects: list[str],
    round_count: int,
    bound_s: float | None,
    share: Callable[[float], None],
) -> list[Point]:
    profile = json.loads(_core.empty_copy_profile())
    l3_bytes = profile["machine"]["l3_bytes"] or 32 << 20
    pool_bytes = pool_bytes_of(1 << BITS_MAX, l3_bytes, available_bytes())
    meter = _core.CopyMeter.make(pool_bytes, 1 << 20, _SEED)
    cases = [
        (1 << bits, temperature, fixed)
        for bits in range(BITS_MIN, BITS_MAX + 1)
        for temperature in ("hot", "cold")
        for fixed in (True, False)
    ]
    points = []
    for index, (bytes_max, temperature, fixed) in enumerate(cases):
        count = round_count if bytes_max < LONG_BYTES else -(-round_count // 3)
        measure = partial(
            meter.measure_round,
            bytes_min=bytes_max if fixed else bytes_max // 2 + 1,
            bytes_max=bytes_max,
            temperature=temperature,
            aligned=fixed,
            thread_count=1,
        )
        # The first round warms up.
        rows = [measure([*subjects, GLIBC]) for _ in range(count + 1)][1:]
        series = {
            subject: Series([row[place] for row in rows])
            for place, subject in enumerate([*subjects, CONTROL])
        }
        bound = None
        if bound_s is not None:
            # From the grid of the class, as for a profile.
            bound = bound_of(measure, bytes_max // 2 + 1, bound_s / len(cases), _SEED)
        points.append(Point(bytes_max, temperature, fixed, series, bound))
        share((index + 1) / len(cases))
    return points


def summary_of(points: list[Point]) -> dict[str, object]:
    """The key figures."""
    ratios = [point.ratio(TUNED).median for point in points]
    worst = min(points, key=lambda point: point.ratio(TUNED).median)
    return {
        "geomean_vs_glibc_fixed": _geomean([p.ratio(TUNED).median for p in points if p.fixed]),
        "geomean_vs_glibc_random": _geomean([p.ratio(TUNED).median for p in points if not p.fixed]),
        "best_vs_glibc": max(ratios),
        "worst_vs_glibc": min(ratios),
        "worst_vs_glibc_interval": worst.interval(TUNED),
        # The worst of the points that are significantly slower.
        "worst_slower_vs_glibc": min(
            (p.ratio(TUNED).median for p in points if p.verdict(TUNED) == "slower"), default=None
        ),
        "glibc_worst_vs_itself": min(point.ratio(CONTROL).median for point in points),
        **{
            f"points_{verdict}": sum(point.verdict(TUNED) == verdict for point in points)
            for verdict in ("faster", "equal", "slower")
        },
        **{
            f"{LABELS[subject]}_geomean_vs_glibc": _geomean(
                [point.ratio(subject).median for point in points]
            )
            for subject in points[0].series
            if subject not in {GLIBC, TUNED, CONTROL}
        },
        **_bounds_of(points),
    }


def _bounds_of(points: list[Point]) -> dict[str, object]:
    """The upper bounds, and the share that the tuned copy reaches."""
    figures: dict[str, object] = {}
    for name, fixed in (("fixed", True), ("random", False)):
        known = [p for p in points if p.fixed == fixed and p.bound is not None]
        if known:
            bound = _geomean([p.bound.ratio for p in known if p.bound is not None])
            figures[f"bound_geomean_{name}"] = bound
            share = _geomean([p.ratio(TUNED).median for p in known]) / bound
            figures[f"share_of_bound_{name}"] = share
    ratios = [p.bound.ratio for p in points if p.bound is not None]
    return {**figures, **({"bound_best": max(ratios)} if ratios else {})}


def _geomean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _print_report(
    report: Report, program: door.Door, points: list[Point], note: str, round_count: int
) -> None:
    _print_program(report, program)
    columns = [(t, fixed) for t in ("hot", "cold") for fixed in (True, False)]
    rows = []
    for bytes_max in sorted({point.bytes_max for point in points}):
        by_column = {(p.temperature, p.fixed): p for p in points if p.bytes_max == bytes_max}
        rows.append(
            [
                _core.bytes_text(bytes_max),
                *(by_column[column].ratio(TUNED).text for column in columns),
            ]
        )
    titles = (f"{temperature} {'fixed' if fixed else 'random'}" for temperature, fixed in columns)
    report.table(figures("length", *titles), rows)
    summary = summary_of(points)
    report.say(f"Speed of the library's function vs glibc's memcpy: {_spelled(summary)}.")
    report.say(
        f"Of {len(points)} points {summary['points_faster']} are faster, "
        f"{summary['points_slower']} slower; for the others it may be chance."
    )
    report.say(
        f"Means of {round_count} rounds without the lowest and highest sixth, in brackets the "
        f"quartiles; {note}."
    )


def _print_program(report: Report, program: door.Door) -> None:
    """The table of the program's memcpy, and the key figures of all functions."""
    ways = program.ways
    rows = []
    for bytes_max in sorted({point.bytes_max for point in program.points}):
        row = [_core.bytes_text(bytes_max)]
        for temperature in ("hot", "memory"):
            group = [
                point
                for point in program.points
                if (point.function, point.bytes_max, point.temperature)
                == ("memcpy", bytes_max, temperature)
            ]
            row += [program.ratio(way, *group).text for way in ways]
        rows.append(row)
    titles = (f"{temperature}, {way}" for temperature in ("hot", "memory") for way in ways)
    report.table(figures("length", *titles), rows)
    report.say(f"Speed in a program vs glibc: {_spelled(program.summary())}.")


def _spelled(summary: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name.replace('_vs_glibc', '').replace('_', ' ')} {value:.2f}"
        for name, value in summary.items()
        if isinstance(value, float)
    )


def _draw(output: Output, points: list[Point], machine: Machine, note: str) -> None:
    with matplotlib_defaults():
        # Imported only for a picture, because it loads slowly.
        from matplotlib.figure import Figure as Picture  # noqa: PLC0415

        picture = Picture(figsize=(11, 7), layout="constrained")
        panels = picture.subplots(2, 2, sharex=True, sharey=True)
        colors = {TUNED: "#4477aa", PLAIN: "#bbbbbb"}
        for row, temperature in zip(panels, ("hot", "cold"), strict=True):
            for axis, fixed in zip(row, (True, False), strict=True):
                chosen = [p for p in points if (p.temperature, p.fixed) == (temperature, fixed)]
                lengths = [point.bytes_max for point in chosen]
                for subject in chosen[0].series:
                    if subject in {GLIBC, CONTROL}:
                        continue
                    figures = [point.ratio(subject) for point in chosen]
                    color = colors[subject]
                    medians = [figure.median for figure in figures]
                    axis.plot(lengths, medians, color=color, label=LABELS[subject])
                    axis.fill_between(
                        lengths,
                        [figure.low for figure in figures],
                        [figure.high for figure in figures],
                        color=color,
                        alpha=0.2,
                        linewidth=0,
                    )
                axis.axhline(1.0, color="#555555", linewidth=1)
                axis.set_xscale("log", base=2)
                lengths_text = "fixed" if fixed else "random"
                axis.set_title(f"{temperature}, {lengths_text} lengths", fontsize=10)
        panels[0][0].legend(frameon=False)
        picture.supylabel("speed vs glibc's memcpy")
        picture.supxlabel(
            f"length of the copy (bytes)\n{machine.cpu_model}; {note}; bands: quartiles",
            fontsize=8,
        )
        picture.suptitle("Copies", fontweight="bold", x=0.01, ha="left")
        save_picture(picture, output)
