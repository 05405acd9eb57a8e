# SPDX-License-Identifier: Apache-2.0
"""The baseline: DuckDB answers the same query from the same file, on a table in its memory."""

import re
import time
from decimal import Decimal
from pathlib import Path

import duckdb

from headrace._closing import Closing
from headrace.errors import UnsupportedError

_DIGITS_MAX = 18
_QUERY = """
    SELECT sum(l_extendedprice * l_discount) FROM lineitem
    WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
      AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24
"""


class Baseline(Closing):
    """DuckDB with lineitem in memory. Its threads sleep between runs.

    Threading: confined.
    """

    version = duckdb.__version__

    def __init__(self, path: Path, thread_count: int) -> None:
        self._connection = duckdb.connect(config={"threads": thread_count})
        try:
            self._load(str(path))
        except duckdb.Error as problem:
            self.close()
            raise _failed(problem) from None

    def _load(self, path: str) -> None:
        # The product of wide decimals would be too wide for DuckDB. Files with values beyond 64
        # bits are refused earlier, so 19 digits hold them exactly.
        columns = self._connection.execute(
            "SELECT column_name, column_type FROM (DESCRIBE SELECT l_shipdate, l_discount, "
            "l_quantity, l_extendedprice FROM read_parquet(?))",
            [path],
        ).fetchall()
        selected = ", ".join(
            f"{name}::DECIMAL(19,2) AS {name}" if _is_wide(kind) else name for name, kind in columns
        )
        create = f"CREATE TABLE lineitem AS SELECT {selected} FROM read_parquet(?)"  # noqa: S608
        self._connection.execute(create, [path])

    def run(self) -> tuple[Decimal, int]:
        """Run the query once: its answer, and the time of execution and fetch in ns."""
        try:
            begin_ns = time.perf_counter_ns()
            row = self._connection.execute(_QUERY).fetchone()
            time_ns = time.perf_counter_ns() - begin_ns
        except duckdb.Error as problem:
            raise _failed(problem) from None
        return (row and row[0]) or Decimal(0), time_ns

    def close(self) -> None:
        self._connection.close()


def _is_wide(kind: str) -> bool:
    digits = re.match(r"DECIMAL\((\d+),", kind)
    return digits is not None and int(digits[1]) > _DIGITS_MAX


def _failed(problem: duckdb.Error) -> UnsupportedError:
    cause = str(problem).splitlines()[0]
    return UnsupportedError("compare with DuckDB", cause, "use --no-compare to go without")
