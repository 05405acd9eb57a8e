# SPDX-License-Identifier: Apache-2.0
"""Finds the columns and bytes that a SQL query reads, from DuckDB's plan.

Tables are the Parquet files of a folder. DuckDB plans with one-row tables of the same columns, so
only that row and the number of rows are read.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import InvalidArgumentError, IoFailedError, NotFoundError

_WIDTHS = {
    1: ("BOOLEAN", "TINYINT", "UTINYINT"),
    2: ("SMALLINT", "USMALLINT"),
    4: ("INTEGER", "UINTEGER", "FLOAT", "DATE"),
    16: ("HUGEINT", "UHUGEINT", "UUID", "INTERVAL", "VARCHAR", "BLOB"),
}
_WIDTH = 8
_DECIMAL_WIDTHS = ((4, 2), (9, 4), (18, 8), (38, 16))
"""Pairs of the maximum digits of a DECIMAL and its bytes."""
STRING_NOTE = "strings count 16 bytes each: longer ones are not moved"


@dataclass(frozen=True, slots=True)
class Scan:
    """A query's scan of one table.

    Attributes:
        filters: Columns of the filter, with the average bytes of a value.
        others: Columns read for the rows that pass, likewise; may include columns of the filter.
    """

    table: str
    rows: int
    filters: Mapping[str, float]
    others: Mapping[str, float]

    @property
    def byte_count(self) -> int:
        """Bytes of all columns that are read."""
        return round(self.rows * sum({**self.filters, **self.others}.values()))


def scans_of(sql: str, folder: Path) -> list[Scan]:
    """Ask DuckDB for the plan of a query over the Parquet files of a folder."""
    # Loading it takes longer than the rest of the command.
    import duckdb  # noqa: PLC0415

    tried = "plan the query"
    files = {path.stem: str(path) for path in sorted(folder.glob("*.parquet"))}
    if not files:
        raise NotFoundError(
            tried, f"'{folder}' has no Parquet file", "name the folder of the query's tables"
        )
    with duckdb.connect() as connection:
        # This optimizer would drop a scan whose one row contradicts the filter.
        connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        widths = {}
        for name, path in files.items():
            try:
                source = connection.read_parquet(path)
                widths[name] = dict(zip(source.columns, map(_width, source.types), strict=True))
                source.limit(1).create('"' + name.replace('"', '""') + '"')
            except duckdb.Error as error:
                cause = str(error).split("\n")[0]
                remedy = "make it again, or move it out of the folder"
                raise IoFailedError(f"read the table '{path}'", cause, remedy) from error
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise InvalidArgumentError(tried, "it is not one SELECT", "write one query")
            ((_, text),) = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
        except duckdb.Error as error:
            cause = str(error).split("\n")[0]
            raise InvalidArgumentError(
                tried, cause, f"the tables are {', '.join(files)}"
            ) from error
        scans = []
        for table, filters, projections in _scans_in(json.loads(text), ""):
            known = widths[table]
            scan = Scan(
                table,
                connection.read_parquet(files[table]).aggregate("count(*)").fetchall()[0][0],
                {name: known[name] for name in known if _names(filters, name)},
                {name: known[name] for name in projections if name in known},
            )
            if scan.byte_count > 0:
                scans.append(scan)
    if not scans:
        raise InvalidArgumentError(tried, "it reads no column of a table", "write another query")
    return scans


def _scans_in(plan: list[dict[str, Any]], above: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield table, conditions and projected columns of each scan; `above`: an outer filter's."""
    for node in plan:
        facts = node["extra_info"]
        if "Table" in facts:
            projections = facts.get("Projections", [])
            if isinstance(projections, str):
                projections = [projections]
            conditions = facts.get("Filters", "")
            if isinstance(conditions, list):
                conditions = " ".join(conditions)
            yield _last_name(facts["Table"]), f"{conditions} {above}", projections
        is_filter = node["name"] == "FILTER"
        yield from _scans_in(node["children"], str(facts["Expression"]) if is_filter else "")


def _last_name(path: str) -> str:
    """Name of a table in a path such as `memory.main.orders` or `memory.main."my orders"`."""
    if found := re.search(r'"((?:[^"]|"")*)"$', path):
        return found[1].replace('""', '"')
    return path.rpartition(".")[2]


def _names(text: str, column: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text) is not None


def _width(kind: object) -> int:
    text = str(kind)
    if found := re.match(r"DECIMAL\((\d+)", text):
        return next(width for digits, width in _DECIMAL_WIDTHS if int(found[1]) <= digits)
    return next((width for width, names in _WIDTHS.items() if text in names), _WIDTH)
