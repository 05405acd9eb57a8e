# SPDX-License-Identifier: Apache-2.0
"""Numbers of things, as one writes them."""

import re


def counted(number: int, noun: str) -> str:
    """Write a number of things: "1 worker", "2 workers", "1,000 entries", "0 crashes"."""
    if number == 1:
        return f"1 {noun}"
    plural = re.sub("(?<=[^aeiou])y$", "ie", re.sub("(?<=ch|sh)$", "e", noun)) + "s"
    return f"{number:,} {plural}"
