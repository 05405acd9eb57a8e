# SPDX-License-Identifier: Apache-2.0
"""Words: numbers of things."""

import pytest

from headrace._words import counted


@pytest.mark.parametrize(
    "number, noun, text",
    [
        (0, "job", "0 jobs"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
        (2, "second crash", "2 second crashes"),
        (1234, "page fault", "1,234 page faults"),
    ],
)
def test_a_number_of_things_is_written_as_it_is_spoken(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
