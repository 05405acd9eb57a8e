# SPDX-License-Identifier: Apache-2.0
"""Formats counts for people."""

import re


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
