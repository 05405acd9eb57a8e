# SPDX-License-Identifier: Apache-2.0
"""What ``headrace doctor`` says of a diagnosis: text for people, and parts of its JSON."""

import textwrap
from collections import Counter
from typing import Any

from rich.console import Console
from rich.text import Text

from headrace._apps.doctor.checks_device import user_queues, way_in
from headrace._apps.doctor.diagnosis import Diagnosis
from headrace._apps.doctor.finding import Finding, State
from headrace._apps.dsa.facts import Facts
from headrace._words import counted

_STYLES = {
    "ok": "green",
    "failed": "bold red",
    "note": "yellow",
    "unknown": "cyan",
    "skipped": "dim",
}
_INDENT = 24
_ROOM_MAX = 90  # Longer lines are hard to read.


def print_diagnosis(
    console: Console, diagnosis: Diagnosis, origin: str | None, width: int | None
) -> None:
    """Print the true reason, then every check with its cause and remedy.

    Args:
        console: Where to.
        diagnosis: What to print.
        origin: Where the facts come from, if not from this machine.
        width: Columns to fold the lines at; None does not fold them.
    """
    colour = "bold green" if diagnosis.exit_code == 0 else "bold red"
    _print(console, Text(diagnosis.headline, style=colour))
    root = diagnosis.root
    if root is not None and root.remedy:
        _print(console, Text(f"Remedy: {root.remedy}.", style="bold"))
    if origin is not None:
        _print(console, Text(f"Record: {origin}"))
    _print(console, Text())
    for finding in diagnosis.findings:
        for line in _lines(finding, root, width):
            _print(console, line)
    states = Counter(finding.state for finding in diagnosis.findings)
    names: tuple[State, ...] = ("ok", "failed", "note", "unknown", "skipped")
    totals = ", ".join(f"{states[name]} {name}" for name in names if states[name])
    _print(console, Text())
    _print(console, Text(f"{counted(len(diagnosis.findings), 'check')}: {totals}."))


def _print(console: Console, line: Text) -> None:
    console.print(line, soft_wrap=True)


def _lines(finding: Finding, root: Finding | None, width: int | None) -> list[Text]:
    parts = [finding.finding]
    if finding.cause:
        parts.append(finding.cause)
    if finding.remedy and finding is not root:
        parts.append(f"remedy: {finding.remedy}")
    elif finding.remedy:
        parts.append("remedy: as said above")
    said = "; ".join(parts)
    wrapped = [said]
    if width is not None:
        room = min(max(40, width - _INDENT), _ROOM_MAX)
        wrapped = textwrap.wrap(said, room, break_long_words=False, break_on_hyphens=False)
    head = Text(f"{finding.check:<15}")
    head.append(f"{finding.state:<9}", style=_STYLES[finding.state])
    lines = [head.append(wrapped[0])]
    lines += [Text(" " * _INDENT + more) for more in wrapped[1:]]
    if finding.state == "skipped":
        for line in lines:
            line.stylize("dim")
    return lines


def summary_of(diagnosis: Diagnosis, facts: Facts) -> dict[str, Any]:
    """The figures one would quote."""
    ways = [way for device, queue in user_queues(facts) if (way := way_in(device, queue))]
    root = diagnosis.root
    return {
        "usable": diagnosis.exit_code == 0,
        "exit_code": diagnosis.exit_code,
        "headline": diagnosis.headline,
        "root_check": None if root is None else root.check,
        "failed_count": sum(finding.state == "failed" for finding in diagnosis.findings),
        "device_count": None if facts.devices is None else len(facts.devices),
        "queue_usable_count": len(ways),
        "submission": None if not ways else "portal" if "portal" in ways else "write",
        "emulated": bool(facts.platform.emulated),
    }


def results_of(diagnosis: Diagnosis) -> dict[str, Any]:
    """Every finding, in the order of the checks."""
    return {
        "findings": [
            {
                "check": finding.check,
                "state": finding.state,
                "finding": finding.finding,
                "cause": finding.cause,
                "remedy": finding.remedy,
            }
            for finding in diagnosis.findings
        ]
    }
