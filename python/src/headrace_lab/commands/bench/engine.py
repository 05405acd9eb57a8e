# SPDX-License-Identifier: Apache-2.0
"""``headrace bench engine``: counts what operations cost, and compares the counts with goals."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace_lab.commands.bench._measure import Outcome, benchmark, find_program, run_program

_TRIED = "count the instructions of the engine"
_COUNT = 640
"""Operations of a run, each of which traps some hundred times."""


class _Mode(NamedTuple):
    """A mode of the program, the mode that counts its device's part, and the goal."""

    label: str
    name: str
    device: str = ""
    goal: float | None = None


_MODES = {
    "channel_copy": _Mode("a copy by a channel", "submit_copy", "device", 150.0),
    "channel_batch32": _Mode("... in a batch of 32", "per_op_batch32", "device_batch32", 40.0),
    "job_copy": _Mode("a copy by a job", "submit_copy_job", "device"),
    "job_batch32": _Mode("... in a batch of 32", "per_op_batch32_job", "device_batch32"),
    "run_copy": _Mode("64 B by run(), cpu", "run_copy"),
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
        counts, document = count(share)
    counted = {mode: list(_counted(counts, mode)) for mode in _MODES}
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
                f"instructions_{of.name}": counts["instructions"][key] for key, of in _MODES.items()
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


Counts = dict[str, dict[str, float]]
"""Cost of one engine operation, by kind and by the mode of the program."""


def count(share: Callable[[float], None]) -> tuple[Counts, dict[str, object]]:
    """Run the program in every mode, without a clock; also return all results."""
    program = find_program("headrace-bench-engine", _TRIED)
    modes = [*_MODES, *dict.fromkeys(of.device for of in _MODES.values() if of.device)]
    runs: dict[str, dict[str, int]] = {}
    for index, mode in enumerate(modes):
        runs[mode] = run_program([program, mode, str(_COUNT)], _TRIED)
        share((index + 1) / len(modes))
    each = {mode: run["instructions"] / _COUNT for mode, run in runs.items()}
    counts = {
        "instructions": {mode: each[mode] - each.get(of.device, 0) for mode, of in _MODES.items()},
        "allocations": {mode: runs[mode]["allocations"] / _COUNT for mode in _MODES},
        "locked": {mode: runs[mode]["locked_instructions"] / _COUNT for mode in _MODES},
        "mutexes": {mode: runs[mode]["mutexes_locked"] / _COUNT for mode in _MODES},
    }
    return counts, {"instructions_per_operation": each, "runs": runs}


def _counted(counts: Counts, mode: str) -> Iterable[Counted]:
    _, name, _, goal = _MODES[mode]
    none = None if goal is None else 0.0
    for kind, most in zip(_KINDS, (goal, 0.0, none, none), strict=True):
        yield Counted(f"{kind}_{name}", counts[kind][mode], most)


def _print_report(
    report: Report, counted: dict[str, list[Counted]], goals: int, missed: int
) -> None:
    report.table(
        [Column("counted, for 4 KiB"), *figures(*_KINDS, "goals")],
        [
            [
                _MODES[mode].label,
                *(f"{each.value:.4g}{' <' * each.is_missed}" for each in row),
                ", ".join("-" if each.goal is None else f"{each.goal:.0f}" for each in row),
            ]
            for mode, row in counted.items()
        ],
    )
    report.say(f"{goals - missed} of {goals} goals are met ('<': is not). Locked: instructions.")
