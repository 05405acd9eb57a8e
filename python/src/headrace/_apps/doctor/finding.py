# SPDX-License-Identifier: Apache-2.0
"""The result of a check: state, finding, cause and remedy."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "failed", "skipped", "unknown", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check. Sentences start in lower case and have no full stop.

    Attributes:
        check: Name of the check; `diagnosis` fills it in.
        state: "ok"; "failed": nothing works, or a configured part does not; "note": works, with a
            remark; "unknown": could not be checked; "skipped": depends on a failed check.
        cause: Why, or what it means; may be empty.
        remedy: What to do; empty if nothing.
    """

    state: State
    finding: str
    cause: str = ""
    remedy: str = ""
    check: str = ""


def ok(finding: str, cause: str = "") -> Finding:
    return Finding("ok", finding, cause)


def note(finding: str, cause: str = "", remedy: str = "") -> Finding:
    """Make a finding that works, with a remark."""
    return Finding("note", finding, cause, remedy)


def failed(finding: str, cause: str, remedy: str) -> Finding:
    return Finding("failed", finding, cause, remedy)


def unknown(finding: str, remedy: str = "") -> Finding:
    """Make a finding that could not be checked."""
    return Finding("unknown", finding, "", remedy)


def listed(names: list[str], most: int = 4) -> str:
    """Join names with commas; of more than `most`, only the first."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return ", ".join(names)


def are(names: list[str]) -> str:
    """Join names with the matching verb: "dsa0 is", "dsa0, dsa2 are"."""
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def have(names: list[str]) -> str:
    """As `are`, with "has" or "have"."""
    return f"{listed(names)} {'has' if len(names) == 1 else 'have'}"
