# SPDX-License-Identifier: Apache-2.0
"""Parses a DuckDB plan for the columns that a query will read, in order."""

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headrace.table import Range, Table

_SCAN = "PYTHON_ARROW_SCAN"
_BUILD_FIRST = re.compile("JOIN|CROSS_PRODUCT")
"""Operators that read all of their second input before the first."""
_LITERAL = r"(-?[0-9]+(?:\.[0-9]+)?|'[0-9-]+'::DATE)"
_COMPARISON = re.compile(rf"\((\w+) (<=|>=|<|>|=) {_LITERAL}\)")
_BETWEEN = re.compile(rf"\((\w+) BETWEEN {_LITERAL} AND {_LITERAL}\)")
_NO_CONJUNCTION = re.compile(r"\b(OR|NOT|CASE)\b")


@dataclass(frozen=True, slots=True)
class PlannedScan:
    """One scan of a registered table by a query.

    Attributes:
        filter_columns: Columns that the filter tests; moved first.
        other_columns: The other columns that the query reads.
        movable_bytes: From a plan that runs, without the strings of views.
        ranges: Ranges that a row must lie in to pass the filter, from its simple conditions. Chunks
            outside of them are not moved.
    """

    table: str
    filter_columns: tuple[str, ...]
    other_columns: tuple[str, ...]
    movable_bytes: int
    ranges: tuple[Range, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in the order in which they are moved."""
        return (*self.filter_columns, *self.other_columns)


class UnreadablePlanError(ValueError):
    """The plan has an unknown format."""


def read_plan(text: str, tables: Mapping[str, Table], query: str) -> list[PlannedScan]:
    """Read EXPLAIN (FORMAT JSON); raise UnreadablePlanError if the format is unknown."""
    scans: list[PlannedScan] = []
    try:
        for node in json.loads(text):
            _walk(node, "", tables, query, scans)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise UnreadablePlanError(str(problem)) from problem
    return scans


def _walk(
    node: dict[str, Any],
    filters: str,
    tables: Mapping[str, Table],
    query: str,
    scans: list[PlannedScan],
) -> None:
    name, details = node["name"], node["extra_info"]
    if name == _SCAN:
        scan = _scan(details, filters, tables, query, [each.table for each in scans])
        if scan is not None:
            scans.append(scan)
        return
    below = str(details.get("Expression", "")) if name == "FILTER" else ""
    children = node["children"]
    for child in reversed(children) if _BUILD_FIRST.search(name) else children:
        _walk(child, below, tables, query, scans)


def _scan(
    details: dict[str, Any],
    filters: str,
    tables: Mapping[str, Table],
    query: str,
    earlier: list[str],
) -> PlannedScan | None:
    listed = details.get("Projections", [])
    columns = [listed] if isinstance(listed, str) else list(listed)
    if not columns:
        return None
    # The plan does not name the table. Columns and row count identify it, unless two tables agree
    # in both, which then take turns; a wrong guess costs useless moves, not a wrong result.
    rows = int(details.get("Estimated Cardinality", "-1"))
    candidates = [
        name
        for name, table in tables.items()
        if table.num_rows in {rows, 0} and set(columns) <= set(table.column_names)
    ]
    if not candidates:
        return None
    named = [
        name for name in candidates if re.search(rf"\b{re.escape(name)}\b", query, re.IGNORECASE)
    ]
    name = min(named or candidates, key=earlier.count)
    tested = tuple(each for each in columns if re.search(rf"\b{re.escape(each)}\b", filters))
    return PlannedScan(
        table=name,
        filter_columns=tested,
        other_columns=tuple(each for each in columns if each not in tested),
        movable_bytes=tables[name].movable_bytes(columns, with_views=False),
        ranges=_ranges(filters),
    )


def _ranges(filters: str) -> tuple[Range, ...]:
    if _NO_CONJUNCTION.search(filters):
        return ()
    found = [
        Range(column, _value(low), _value(high)) for column, low, high in _BETWEEN.findall(filters)
    ]
    for column, comparison, literal in _COMPARISON.findall(filters):
        value = _value(literal)
        low = None if comparison.startswith("<") else value
        high = None if comparison.startswith(">") else value
        found.append(Range(column, low, high))
    return tuple(found)


def _value(literal: str) -> dt.date | Decimal | None:
    """The value of a bound; None, which is no bound, for a date that Python does not have."""
    if not literal.startswith("'"):
        return Decimal(literal)
    try:
        return dt.date.fromisoformat(literal[1 : literal.index("'", 1)])
    except ValueError:
        return None
