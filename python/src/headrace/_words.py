# SPDX-License-Identifier: Apache-2.0
"""Formats counts and tables for people."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, cast


def counted(number: int, noun: str) -> str:
    """Format a count: "1 worker", "2 workers", "1,000 entries", "0 crashes"."""
    if number == 1:
        return f"1 {noun}"
    plural = re.sub("(?<=[^aeiou])y$", "ie", re.sub("(?<=ch|sh)$", "e", noun)) + "s"
    return f"{number:,} {plural}"


def byte_count_text(count: int) -> str:
    """Format bytes in the largest unit that divides them: "2 MiB", "100 B"."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift and count % (1 << shift) == 0:
            return f"{count >> shift} {unit}"
    return f"{count} B"


def html_totals(totals: object) -> str:
    """Format the numbers of a dataclass for notebooks."""
    names = [field.name for field in fields(cast("Any", totals))]
    numbers = {name: getattr(totals, name) for name in names}
    rows = [(name, f"{value:,}") for name, value in numbers.items() if isinstance(value, int)]
    return html_table(("statistic", "total"), rows)


def html_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a table for notebooks."""
    import html  # noqa: PLC0415 - Loaded by notebooks alone.

    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
