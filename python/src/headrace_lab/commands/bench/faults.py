# SPDX-License-Identifier: Apache-2.0
"""``headrace bench faults``: submissions to devices that do not work, beside a healthy one."""

from typing import Any

from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace_lab.commands.bench._measure import Outcome, benchmark, find_program, run_program

_TRIED = "measure submissions to devices that fail"
_PER_ROUND = 100
_HEALTHY = "healthy"


@benchmark("faults", 20, " of 100 submissions")
def command(rounds: int) -> Outcome:
    """Measure what submissions cost on devices that fail, beside a healthy one.

    Copies of 256 KiB are submitted to an engine with a worker thread and a device that answers at
    once or late, faults, loses descriptors, never answers, or accepts nothing. Counted within
    `submit` alone: instructions, and the bytes that the calling thread copies.

    Example: headrace bench faults --json
    """
    with progress("measuring submissions"):
        program = find_program("headrace-bench-faults", _TRIED)
        measured = run_program([program, str(rounds * _PER_ROUND)], _TRIED)
    scripts: dict[str, dict[str, Any]] = measured["scripts"]

    def worst(name: str) -> float:
        healthy = float(scripts[_HEALTHY][name])
        return max(float(each[name]) for each in scripts.values()) / healthy

    return Outcome(
        "faults",
        rounds,
        results=measured,
        summary={
            "submit_instructions_worst_vs_healthy": worst("instructions"),
            "submit_ns_worst_vs_healthy": worst("submit_ns"),
            "submit_p999_worst_vs_healthy": worst("submit_ns_p999"),
            "caller_bytes": max(each["caller_bytes"] for each in scripts.values()),
        },
        show=lambda report: _print_report(report, scripts),
    )


def _print_report(report: Report, scripts: dict[str, dict[str, Any]]) -> None:
    names = ("instructions", "submit_ns", "submit_ns_p999", "caller_bytes")
    rows = [[script, *(f"{each[name]:,.0f}" for name in names)] for script, each in scripts.items()]
    report.table([Column("device"), *figures(*names)], rows)
    report.say(
        "submit_ns is processor time of the calling thread; p999 also has what interrupts it. "
        "Devices move no bytes."
    )
