# SPDX-License-Identifier: Apache-2.0
"""What a check says: its state, what was found, why that is so, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "failed", "skipped", "unknown", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check; sentences begin small and have no full stop.

    Attributes:
        check: Name of the check; `diagnosis` fills it in.
        state: "ok"; "failed": nothing works, or part of what is set up does not; "note": it works
            and there is something to know; "unknown": it could not be seen; "skipped": an earlier
            check failed and this one could only repeat it.
        finding: What was seen.
        cause: Why that is, or what it means; empty where the finding says it all.
        remedy: What to do; empty where nothing is to be done.
    """

    state: State
    finding: str
    cause: str = ""
    remedy: str = ""
    check: str = ""


def ok(finding: str, cause: str = "") -> Finding:
    """Nothing to do."""
    return Finding("ok", finding, cause)


def note(finding: str, cause: str = "", remedy: str = "") -> Finding:
    """It works, but."""
    return Finding("note", finding, cause, remedy)


def failed(finding: str, cause: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding("failed", finding, cause, remedy)


def unknown(finding: str, remedy: str = "") -> Finding:
    """It could not be seen."""
    return Finding("unknown", finding, "", remedy)


def listed(names: list[str], most: int = 4) -> str:
    """Write names in a row, the first few of many."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return ", ".join(names)


def are(names: list[str]) -> str:
    """Write names with the verb that fits their number: "dsa0 is", "dsa0, dsa2 are"."""
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def have(names: list[str]) -> str:
    """As `are`, with "has" or "have"."""
    return f"{listed(names)} {'has' if len(names) == 1 else 'have'}"
