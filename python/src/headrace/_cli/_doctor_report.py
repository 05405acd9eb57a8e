# SPDX-License-Identifier: Apache-2.0
"""Output of ``headrace doctor``: text for people, and parts of its JSON."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from headrace._apps.doctor.checks_device import user_queues, way_in
from headrace._apps.doctor.diagnosis import Diagnosis
from headrace._apps.doctor.finding import Finding, State
from headrace._cli._report import Report
from headrace._facts import Facts
from headrace._words import counted

_STYLES = {
    "ok": "",
    "failed": "bold red",
    "note": "yellow",
    "unknown": "cyan",
    "skipped": "dim",
}


def print_diagnosis(report: Report, diagnosis: Diagnosis, origin: str | None) -> None:
    """Print the root cause, then every check with its cause and remedy."""
    report.say(diagnosis.headline, "bold green" if diagnosis.exit_code == 0 else "bold red")
    root = diagnosis.root
    if root is not None and root.remedy:
        report.say(f"Remedy: {root.remedy}.", "bold")
    if origin is not None:
        report.say(f"Record: {origin}")
    report.say()
    for finding in diagnosis.findings:
        report.say(
            _said(finding, root),
            _STYLES[finding.state],
            head=f"{finding.check:<15}{finding.state:<9}",
        )
    states = Counter(finding.state for finding in diagnosis.findings)
    names: tuple[State, ...] = ("ok", "failed", "note", "unknown", "skipped")
    totals = ", ".join(f"{states[name]} {name}" for name in names if states[name])
    report.say()
    report.say(f"{counted(len(diagnosis.findings), 'check')}: {totals}.")


def _said(finding: Finding, root: Finding | None) -> str:
    parts = [finding.finding]
    if finding.cause:
        parts.append(finding.cause)
    if finding.remedy and finding is not root:
        parts.append(f"remedy: {finding.remedy}")
    elif finding.remedy:
        parts.append("remedy: see above")
    return "; ".join(parts)


def summary_of(diagnosis: Diagnosis, facts: Facts) -> dict[str, Any]:
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
    return {"findings": [asdict(finding) for finding in diagnosis.findings]}
