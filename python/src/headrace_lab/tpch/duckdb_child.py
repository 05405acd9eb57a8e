# SPDX-License-Identifier: Apache-2.0
"""The process behind `baseline`: reads requests as JSON lines, answers on stdout."""

import json
import os
import re
import sys
import threading
import time
from queue import SimpleQueue

import duckdb

_DIGITS_MAX = 18

QUERY = """
    SELECT sum(l_extendedprice * l_discount) FROM lineitem
    WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
      AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24
"""


def _load(connection: duckdb.DuckDBPyConnection, path: str, thread_count: int) -> dict[str, object]:
    connection.execute(f"SET threads = {thread_count:d}")
    # The product of wide decimals would be too wide for DuckDB. Files with values beyond 64 bits
    # are refused earlier, so 19 digits hold them exactly.
    columns = connection.execute(
        "SELECT column_name, column_type FROM (DESCRIBE SELECT l_shipdate, l_discount, "
        "l_quantity, l_extendedprice FROM read_parquet(?))",
        [path],
    ).fetchall()
    selected = ", ".join(
        f"{name}::DECIMAL(19,2) AS {name}" if _is_wide(kind) else name for name, kind in columns
    )
    create = f"CREATE TABLE lineitem AS SELECT {selected} FROM read_parquet(?)"  # noqa: S608
    connection.execute(create, [path])
    return {"version": duckdb.__version__}


def _is_wide(kind: str) -> bool:
    digits = re.match(r"DECIMAL\((\d+),", kind)
    return digits is not None and int(digits[1]) > _DIGITS_MAX


def _run(connection: duckdb.DuckDBPyConnection) -> dict[str, object]:
    begin_ns = time.perf_counter_ns()
    row = connection.execute(QUERY).fetchone()
    time_ns = time.perf_counter_ns() - begin_ns
    answer = row[0] if row and row[0] is not None else 0
    return {"answer": str(answer), "time_ns": time_ns}


def _read_requests(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    # The parent has exited or closed the pipe; do not wait for a running query.
    os._exit(0)


def main() -> None:
    """Answer requests until the input ends."""
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    with duckdb.connect() as connection:
        while True:
            request = json.loads(requests.get())
            try:
                if "load" in request:
                    answer = _load(connection, request["load"], request["thread_count"])
                else:
                    answer = _run(connection)
            except duckdb.Error as problem:
                answer = {"error": str(problem).splitlines()[0]}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
