# SPDX-License-Identifier: Apache-2.0
"""``headrace bench engine``: cost of the engine, beside references and goals."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace import _core
from headrace._apps.figures import Figure
from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace._files import Output
from headrace._scenarios import run
from headrace.machine import Machine
from headrace_lab.commands.bench import _engine_counts
from headrace_lab.commands.bench._measure import (
    Outcome,
    Series,
    bars,
    benchmark,
    difference_ns,
    find_program,
    run_program,
    speed_ratio,
)

_TRIED = "measure the engine"
_PATHS = "headrace-bench-engine-paths"
_TIME_LIMIT_S = 1800
# Per path, size and round.
_ROUND_US = 500
_PLAIN_FROM = 4096
_RUN_RATIO_MIN = 0.97
_RUN_MORE_MAX_NS = 25.0
_AUTOMATIC_MIN = 1 / 1.05
# Marks of the verdicts.
_VERDICTS = {"met": "", "missed": " <", "undecided": " ?"}

COUNT_LABELS = {
    "channel_copy": "a copy by a channel",
    "channel_batch32": "... in a batch of 32",
    "job_copy": "a copy by a job",
    "job_batch32": "... in a batch of 32",
    "run_copy": "64 B by run(), cpu",
}
_COUNT_GOALS = {"channel_copy": 150.0, "channel_batch32": 40.0}
_COUNT_NAMES = {
    "channel_copy": "submit_copy",
    "channel_batch32": "per_op_batch32",
    "job_copy": "submit_copy_job",
    "job_batch32": "per_op_batch32_job",
    "run_copy": "run_copy",
}
_WAY_LABELS = {"run": "waited for", "submit": "32 in flight", "batch": "batches of 32"}
_COLUMN_LABELS = {
    "auto": _WAY_LABELS,
    "auto_published": _WAY_LABELS,
    "run": {"run": "in the caches", "run_cold": "in no cache"},
}
# More columns do not fit a line.
_COLUMNS_MAX = 3


@dataclass(frozen=True, slots=True)
class Line:
    """A figure and its goal.

    Attributes:
        group: counts, cpu, run or auto.
        figure: The figure with its spread; counts have none.
    """

    group: str
    name: str
    byte_count: int
    figure: Figure
    least: float | None = None
    most: float | None = None

    @property
    def verdict(self) -> str | None:
        """Return "met" or "missed", or "undecided"; None without a goal.

        Undecided means that the goal lies within the confidence interval of the median. Ratios are
        rounded to the hundredth, as shown.
        """
        low, high = self.figure.interval or (self.figure.median, self.figure.median)
        if self.least is not None:
            least = round(self.least, 2)
            worse, better = round(low, 2) >= least, round(high, 2) >= least
        elif self.most is not None:
            worse, better = high <= self.most, low <= self.most
        else:
            return None
        return "met" if worse else "undecided" if better else "missed"

    def document(self) -> dict[str, object]:
        """The part of the JSON document."""
        return {
            "group": self.group,
            "name": self.name,
            "bytes": self.byte_count,
            **self.figure.document(),
            "goal_least": self.least,
            "goal_most": self.most,
            "verdict": self.verdict,
        }


@benchmark("engine", 25, curves=True)
def command(rounds: int) -> Outcome:
    """Measure what engine operations cost, and compare each figure with its goal.

    Counted, by valgrind and by stepping through the program: instructions, allocations, locked
    instructions and mutexes for an operation on a device that costs nothing. Timed, in turns with
    what it is compared with: every operation by a processor beside ISA-L and the C library, run()
    beside memcpy, and path 'auto' beside 'dsa' and 'cpu' on a device that is paced
    to published figures of the 4th generation Xeon.

    Example: headrace bench engine --json
    """
    with progress("measuring the engine") as share:
        counts = _engine_counts.count(lambda part: share(part * 0.6))
        software = _measure("headrace-bench-engine-software", rounds)
        share(0.8)
        device = paced_device()
        published = _measure(_PATHS, rounds, _ROUND_US, device)
        share(0.9)
        thresholds = _thresholds(published)
        measured = _measure(_PATHS, rounds, _ROUND_US, device, *thresholds)
    lines = [
        *_count_lines(counts),
        *_software_lines(software["comparisons"]),
        *_auto_lines("auto", measured["ways"]),
        *_auto_lines("auto_published", published["ways"]),
    ]
    return Outcome(
        "engine",
        rounds,
        results={
            "figures": [line.document() for line in lines],
            "counts": counts.document,
            **software,
            "paths": measured,
            "paths_published": published,
        },
        summary=_summary(counts, lines),
        show=lambda report: _print_report(report, lines, rounds, thresholds),
        draw=_picture(lines, rounds),
    )


def paced_device() -> str:
    """Return simulated times of copies by a DSA, single and in batches of 32."""
    points = [{"bytes": 1 << shift, "engines": 4, "batch": 32} for shift in range(6, 21)]
    alone = run("submission", [{**point, "mode": "sync", "batch": 1} for point in points])
    batched = run("submission", [{**point, "mode": "async"} for point in points])
    return ",".join(
        f"{point['bytes']}:{one.figures['time_us'] * 1e3:.1f}:{many.figures['time_us'] * 1e3:.1f}"
        for point, one, many in zip(points, alone, batched, strict=True)
    )


def _measure(name: str, *numbers: int | str) -> dict[str, Any]:
    program = find_program("_bench", name, tried=_TRIED, remedy=_engine_counts.REMEDY)
    command = [program, *(str(number) for number in numbers)]
    return run_program(command, tried=_TRIED, time_limit_s=_TIME_LIMIT_S)


def _count_lines(counts: _engine_counts.Counts) -> Iterable[Line]:
    def line(kind: str, mode: str, value: float, most: float | None) -> Line:
        return Line(
            "counts", f"{kind}_{_COUNT_NAMES[mode]}", 0, Figure(value, value, value), most=most
        )

    for mode, goal in ((mode, _COUNT_GOALS.get(mode)) for mode in COUNT_LABELS):
        none = None if goal is None else 0.0
        yield line("instructions", mode, counts.instructions[mode], goal)
        yield line("allocations", mode, counts.allocations[mode], 0.0)
        yield line("locked_instructions", mode, counts.locked[mode], none)
        yield line("mutexes", mode, counts.mutexes[mode], none)


def _software_lines(comparisons: list[dict[str, Any]]) -> Iterable[Line]:
    for each in comparisons:
        ours, theirs = Series(each["ours_ns"]), Series(each["theirs_ns"])
        name, byte_count = each["name"], each["bytes"]
        ratio = speed_ratio(ours, theirs)
        if not name.startswith("run"):
            yield Line("cpu", name, byte_count, ratio, least=1.0)
        elif byte_count >= _PLAIN_FROM:
            yield Line("run", name, byte_count, ratio, least=_RUN_RATIO_MIN)
        else:
            more = difference_ns(ours, theirs)
            yield Line("run", name, byte_count, more, most=_RUN_MORE_MAX_NS)


def _thresholds(published: dict[str, Any]) -> tuple[int, int, int]:
    """The thresholds of `headrace tune`: the size from which a device is faster in `run`.

    The other thresholds are capped at it, as in an engine with a profile.
    """
    of_run = published["thresholds"]["run"]
    for size in reversed(published["ways"]["run"]):
        medians = {path: Series(times).median_ns for path, times in size["times_ns"].items()}
        if medians["dsa"] > medians["cpu"]:
            break
        of_run = size["bytes"]
    rest = (min(published["thresholds"][way], of_run) for way in ("submit", "batch"))
    return (of_run, *rest)


def _auto_lines(group: str, ways: dict[str, list[dict[str, Any]]]) -> Iterable[Line]:
    for way, sizes in ways.items():
        for size in sizes:
            times = {path: Series(values) for path, values in size["times_ns"].items()}
            better = min(times["dsa"], times["cpu"], key=lambda one: one.median_ns)
            ratio = speed_ratio(times["auto"], better)
            yield Line(group, way, size["bytes"], ratio, least=_AUTOMATIC_MIN)


def _summary(counts: _engine_counts.Counts, lines: list[Line]) -> dict[str, float]:
    def worst(group: str, from_bytes: int = 0) -> float:
        return min(
            line.figure.median
            for line in lines
            if line.group == group and line.most is None and line.byte_count >= from_bytes
        )

    of_channels = ("channel_copy", "channel_batch32")
    return {
        **{
            f"instructions_{_COUNT_NAMES[mode]}": value
            for mode, value in counts.instructions.items()
        },
        "allocations_per_op": max(counts.allocations.values()),
        "locked_per_job": counts.locked["job_copy"],
        "locked_instructions_per_op_channel": max(counts.locked[mode] for mode in of_channels),
        "mutexes_per_op_channel": max(counts.mutexes[mode] for mode in of_channels),
        "run_more_ns_max": max(
            line.figure.median for line in lines if line.group == "run" and line.most is not None
        ),
        "run_vs_memcpy_worst": worst("run"),
        "cpu_vs_theirs_worst": worst("cpu"),
        "cpu_vs_theirs_worst_from_64k": worst("cpu", from_bytes=64 << 10),
        "auto_vs_better_worst": worst("auto"),
        "auto_vs_better_worst_published": worst("auto_published"),
        "goals": sum(line.verdict is not None for line in lines),
        **{f"goals_{each}": sum(line.verdict == each for line in lines) for each in _VERDICTS},
    }


def _picture(lines: list[Line], rounds: int) -> Callable[[Output, Machine], None]:
    counted = {
        line.name.removeprefix("instructions_").replace("_", "\n"): line.figure
        for line in lines
        if line.name.startswith("instructions_")
    }
    waited = {
        _core.bytes_text(line.byte_count).replace(" ", "\n"): line.figure
        for line in lines
        if line.group == "auto" and line.name == "run"
    }
    panels = {
        "instructions": counted,
        "run: speed of 'auto' vs the better path": waited,
    }
    return bars("What the engine costs", rounds, panels)


def _text(line: Line) -> str:
    figure = line.figure
    spread = f"({figure.low:.2f}-{figure.high:.2f})"
    if line.most is not None:
        return f"{figure.median:+.1f} ns ({figure.low:.1f}-{figure.high:.1f}){_mark(line)}"
    return f"{figure.median:.2f} {spread}{_mark(line)}"


def _mark(line: Line) -> str:
    return _VERDICTS.get(line.verdict or "met", "")


def _print_report(
    report: Report,
    lines: list[Line],
    round_count: int,
    thresholds: tuple[int, ...],
) -> None:
    by_name = {line.name: line for line in lines if line.group == "counts"}
    kinds = ("instructions", "allocations", "locked_instructions", "mutexes")
    rows = []
    for mode, label in COUNT_LABELS.items():
        row = [by_name[f"{kind}_{_COUNT_NAMES[mode]}"] for kind in kinds]
        goal = _COUNT_GOALS.get(mode)
        goals = "-, 0, -, -" if goal is None else f"{goal:.0f}, 0, 0, 0"
        rows.append([label, *(f"{each.figure.median:.4g}{_mark(each)}" for each in row), goals])
    report.table(
        [
            Column("counted, for 4 KiB"),
            *figures("instructions", "allocations", "locked", "mutexes", "goals"),
        ],
        rows,
    )
    for group, title in (
        ("cpu", "Speed vs ISA-L or the C library; goal: 1"),
        ("run", "run() beside memcpy: speed from 4 KiB on (goal: 0.97), ns more below (25)"),
        ("auto", "Speed of 'auto' vs the better path; goal: 0.95"),
        ("auto_published", "... with the published thresholds; goal: 0.95"),
    ):
        report.say()
        report.say(title, "bold")
        _print_group(report, group, [line for line in lines if line.group == group])
    report.say()
    verdicts = [line.verdict for line in lines if line.verdict is not None]
    report.say(
        f"{verdicts.count('met')} of {len(verdicts)} goals are met, {verdicts.count('missed')} are "
        f"not ('<'), {verdicts.count('undecided')} lie within the interval of their figure, which "
        f"more rounds make narrower ('?'). Medians over "
        f"{round_count} rounds of the ratios within a round, in brackets quartiles. Locked: "
        "instructions. The device of 'auto' is a model that carries no bytes: an ENQCMD takes "
        "160 ns, the rest is paced to published figures. Its measured thresholds: "
        f"{', '.join(_core.bytes_text(each) for each in thresholds)}."
    )


def _print_group(report: Report, group: str, lines: list[Line]) -> None:
    """Print sizes as columns, or names if there are few."""
    names = list(dict.fromkeys(line.name for line in lines))
    sizes = sorted({line.byte_count for line in lines})
    cells = {(line.name, line.byte_count): _text(line) for line in lines}
    name_labels = {name: _COLUMN_LABELS.get(group, {}).get(name, name) for name in names}
    size_labels = {size: _core.bytes_text(size) for size in sizes}
    if len(names) <= _COLUMNS_MAX:
        rows = [[size_labels[size], *(cells[name, size] for name in names)] for size in sizes]
        report.table([Column(""), *figures(*name_labels.values())], rows)
        return
    rows = [[name_labels[name], *(cells[name, size] for size in sizes)] for name in names]
    report.table([Column(""), *figures(*size_labels.values())], rows)
