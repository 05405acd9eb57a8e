# SPDX-License-Identifier: Apache-2.0
"""The path of a copy in docs/internals/engine.md names functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "internals" / "engine.md"
HOP = re.compile(r"^\| (\d) \| `([\w:]+)` \| `([\w./]+)` \|", re.MULTILINE)
HOPS_MAX = 8


def defines(source: str, function: str) -> bool:
    """Whether a definition of the function, and not only a call, is in the source."""
    return (
        re.search(rf"^(?:[\w:&*<>\[\]]+ )+{re.escape(function)}\([^;{{]*\{{", source, re.MULTILINE)
        is not None
    )


def test_each_hop_is_defined_where_the_page_says() -> None:
    """In at most eight hops, in order."""
    hops = HOP.findall(PAGE.read_text())
    assert [int(number) for number, _, _ in hops] == list(range(1, len(hops) + 1))
    assert 0 < len(hops) <= HOPS_MAX
    for _, function, path in hops:
        assert defines((ROOT / path).read_text(), function), f"{path} does not define {function}"


def test_a_function_that_does_not_exist_is_noticed() -> None:
    """A call is no definition."""
    assert defines("void A::b(int c) noexcept {\n", "A::b")
    assert not defines("  A::b(1);\n", "A::b")
    assert not defines("void A::bc() {\n", "A::b")


def test_each_file_of_the_page_exists() -> None:
    """Those of the table of files."""
    table = PAGE.read_text().split("## Files")[1]
    for name in re.findall(r"`([\w/]+(?:\.\w+|/))`", table.split("The orders")[0]):
        inside = ROOT / "src" / "engine" / name
        assert inside.exists() or (ROOT / name).exists() or (ROOT / "include" / name).exists(), name
