# SPDX-License-Identifier: Apache-2.0
"""``headrace bench engine``: counts what operations cost, and compares the counts with goals."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace_lab.commands.bench import _engine_counts
from headrace_lab.commands.bench._measure import Outcome, benchmark

COUNT_LABELS = {
    "channel_copy": "a copy by a channel",
    "channel_batch32": "... in a batch of 32",
    "job_copy": "a copy by a job",
    "job_batch32": "... in a batch of 32",
    "run_copy": "64 B by run(), cpu",
}
_GOALS = {"channel_copy": 150.0, "channel_batch32": 40.0}
_NAMES = {
    "channel_copy": "submit_copy",
    "channel_batch32": "per_op_batch32",
    "job_copy": "submit_copy_job",
    "job_batch32": "per_op_batch32_job",
    "run_copy": "run_copy",
}
_KINDS = ("instructions", "allocations", "locked", "mutexes")


@dataclass(frozen=True, slots=True)
class Counted:
    """A count of an operation, and its goal: the most that it should be."""

    name: str
    value: float
    goal: float | None

    @property
    def is_missed(self) -> bool:
        return self.goal is not None and self.value > self.goal


@benchmark("engine", 25, " of --threads", curves=True)
def command(rounds: int) -> Outcome:
    """Count what engine operations cost, and compare each figure with its goal.

    Counted, by stepping through the program: instructions, allocations, locked instructions and
    mutexes for an operation on a device that costs nothing. 'headrace bench
    operations' times every operation on this machine's devices and processors.

    Example: headrace bench engine --json
    """
    with progress("counting instructions of the engine") as share:
        counts, document = _engine_counts.count(share)
    counted = {mode: list(_counted(counts, mode)) for mode in COUNT_LABELS}
    goals = [each for row in counted.values() for each in row if each.goal is not None]
    missed = sum(each.is_missed for each in goals)
    of_channels = ("channel_copy", "channel_batch32")
    return Outcome(
        "engine",
        rounds,
        results={
            "figures": [asdict(each) for row in counted.values() for each in row],
            "counts": document,
        },
        summary={
            **{
                f"instructions_{_NAMES[mode]}": counts["instructions"][mode]
                for mode in COUNT_LABELS
            },
            "allocations_per_op": max(counts["allocations"].values()),
            "locked_per_job": counts["locked"]["job_copy"],
            "locked_instructions_per_op_channel": max(
                counts["locked"][mode] for mode in of_channels
            ),
            "mutexes_per_op_channel": max(counts["mutexes"][mode] for mode in of_channels),
            "goals": len(goals),
            "goals_met": len(goals) - missed,
            "goals_missed": missed,
        },
        show=lambda report: _print_report(report, counted, len(goals), missed),
    )


def _counted(counts: _engine_counts.Counts, mode: str) -> Iterable[Counted]:
    goal = _GOALS.get(mode)
    none = None if goal is None else 0.0
    for kind, most in zip(_KINDS, (goal, 0.0, none, none), strict=True):
        yield Counted(f"{kind}_{_NAMES[mode]}", counts[kind][mode], most)


def _print_report(
    report: Report, counted: dict[str, list[Counted]], goals: int, missed: int
) -> None:
    report.table(
        [Column("counted, for 4 KiB"), *figures(*_KINDS, "goals")],
        [
            [
                COUNT_LABELS[mode],
                *(f"{each.value:.4g}{' <' * each.is_missed}" for each in row),
                ", ".join("-" if each.goal is None else f"{each.goal:.0f}" for each in row),
            ]
            for mode, row in counted.items()
        ],
    )
    report.say(f"{goals - missed} of {goals} goals are met ('<': is not). Locked: instructions.")
