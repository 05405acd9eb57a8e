# SPDX-License-Identifier: Apache-2.0
"""Partitioned TPC-H on Dask, prefetched by headrace.dask, compared with DuckDB's answers.

python examples/dask_tpch.py [--workers N] [--scale-factor S] [--format arrow|parquet] [--kill-one]

Queries 1, 4, 6 and 12 run as one DuckDB step per partition and one that reduces the results. With
--kill-one a worker is killed when the first partition is done. The last lines report how many
answers equal DuckDB's on the whole tables, and what the cluster has left behind: processes, shared
memory, temporary files.

With --compare ROUNDS the same graph runs in turns on three clusters: without the plug-in, with it
as "auto", and as "on". Times are relative to that without it.
"""

import argparse
import contextlib
import itertools
import math
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import distributed
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import headrace.dask
from headrace._apps.figures import figure_of
from headrace._apps.memory import peak_bytes
from headrace_lab.sql.tables import tpch_queries
from headrace_lab.tpch.table import default_directory, ensure_tables

BATCH_ROWS = 131_072
NUMBER = re.compile(r"\d+")
COLUMNS = {
    "lineitem": "l_orderkey, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag,"
    " l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipmode",
    "orders": "o_orderkey, o_orderdate, o_orderpriority",
}
KEYS = {"lineitem": "l_orderkey", "orders": "o_orderkey"}

# For each query: what it reads, the step of a partition, and the step that reduces the results.
STEPS: dict[str, tuple[dict[str, str], str, str]] = {
    "1": (
        {
            "lineitem": "l_quantity l_extendedprice l_discount l_tax l_returnflag l_linestatus"
            " l_shipdate"
        },
        """select l_returnflag as flag, l_linestatus as status, sum(l_quantity) as quantity,
          sum(l_extendedprice) as price, sum(l_extendedprice * (1 - l_discount)) as reduced,
          sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as charge,
          sum(l_discount) as discount, count(*) as n
        from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day group by all""",
        """select flag, status, sum(quantity), sum(price), sum(reduced), sum(charge),
          sum(quantity) / sum(n), sum(price) / sum(n), sum(discount) / sum(n), sum(n)
        from parts group by all order by all""",
    ),
    "4": (
        {
            "lineitem": "l_orderkey l_commitdate l_receiptdate",
            "orders": "o_orderkey o_orderdate o_orderpriority",
        },
        """select o_orderpriority as priority, count(*) as n from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-10-01'
          and exists (select * from lineitem
            where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by all""",
        "select priority, sum(n) from parts group by all order by all",
    ),
    "6": (
        {"lineitem": "l_extendedprice l_discount l_shipdate l_quantity"},
        """select sum(l_extendedprice * l_discount) as revenue from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
          and l_discount between 0.05 and 0.07 and l_quantity < 24""",
        "select sum(revenue) from parts",
    ),
    "12": (
        {
            "lineitem": "l_orderkey l_shipdate l_commitdate l_receiptdate l_shipmode",
            "orders": "o_orderkey o_orderpriority",
        },
        """select l_shipmode as mode,
          count(*) filter (where o_orderpriority in ('1-URGENT', '2-HIGH')) as high, count(*) as n
        from orders, lineitem
        where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP')
          and l_commitdate < l_receiptdate and l_shipdate < l_commitdate
          and l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1995-01-01'
        group by all""",
        "select mode, sum(high), sum(n) - sum(high) from parts group by all order by all",
    ),
}


def file_name(table: str, number: int, ending: str) -> str:
    """Return the file name of a partition."""
    return f"{table}-{number}.{ending}"


def new_file(path: Path, schema: pa.Schema) -> Any:  # noqa: ANN401 - pyarrow publishes no types.
    """Create the file of a partition."""
    if path.suffix == ".parquet":
        return pq.ParquetWriter(path, schema)
    return pa.ipc.new_file(path, schema)


def split(paths: dict[str, Path], count: int, folder: Path, ending: str) -> None:
    """Write each table as `count` files; an order and its lines get the same file number."""
    with duckdb.connect() as connection:
        for name, path in paths.items():
            query = f"from '{path}' select {COLUMNS[name]}, hash({KEYS[name]}) % ? as part"
            reader = connection.sql(query, params=[count]).to_arrow_reader(BATCH_ROWS * count)
            schema = reader.schema.remove(len(reader.schema) - 1)
            with contextlib.ExitStack() as stack:
                files = [
                    stack.enter_context(new_file(folder / file_name(name, number, ending), schema))
                    for number in range(count)
                ]
                for batch in reader:
                    for number, file in enumerate(files):
                        found = batch.filter(pc.equal(batch["part"], number))
                        file.write_batch(found.drop_columns(["part"]))


def run_step(text: str, inputs: dict[str, headrace.dask.Partition]) -> pa.Table:
    """Run the step of a partition."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, partition in inputs.items():
            connection.register(name, headrace.dask.read(partition))
        return connection.sql(text).to_arrow_table()


def reduce_parts(text: str, parts: list[pa.Table]) -> list[tuple[Any, ...]]:
    """Run the step that reduces the results of the partitions."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("parts", pa.concat_tables(parts))
        return connection.execute(text).fetchall()


def run_queries(
    client: distributed.Client, count: int, folder: Path, ending: str, *, kill_one: bool = False
) -> dict[str, list[tuple[Any, ...]]]:
    """Return the answers of all queries."""
    parts: dict[str, list[distributed.Future]] = {}
    for query, (tables, text, _) in STEPS.items():
        inputs = [
            {
                name: headrace.dask.Partition(
                    str(folder / file_name(name, number, ending)), tuple(columns.split())
                )
                for name, columns in tables.items()
            }
            for number in range(count)
        ]
        parts[query] = client.map(run_step, [text] * count, inputs, pure=False)
    if kill_one:
        distributed.wait(
            [each for futures in parts.values() for each in futures], return_when="FIRST_COMPLETED"
        )
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        print(f"killed worker process {victim}")
    answers = {
        query: client.submit(reduce_parts, STEPS[query][2], futures, pure=False)
        for query, futures in parts.items()
    }
    return client.gather(answers)


def is_equal(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Return whether answers are equal; averages may differ by rounding."""
    if [len(row) for row in ours] != [len(row) for row in theirs]:
        return False
    pairs = zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True)
    return all(
        math.isclose(mine, other, rel_tol=1e-12) if isinstance(other, float) else mine == other
        for mine, other in pairs
    )


def duckdb_answers(paths: dict[str, Path]) -> dict[str, list[tuple[Any, ...]]]:
    """Run the same queries on the whole tables."""
    queries = tpch_queries()
    with duckdb.connect() as connection:
        for name, path in paths.items():
            connection.execute(f"create view {name} as from '{path}'")
        return {query: connection.execute(queries[query]).fetchall() for query in STEPS}


def leftovers(processes: set[int], scratch: Path) -> list[str]:
    """List what workers left behind: processes, shared memory, temporary files."""
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{each}").exists() for each in processes) and time.monotonic() < deadline:
        time.sleep(0.05)  # Processes may still be terminating.
    left = [f"process {each}" for each in processes if Path(f"/proc/{each}").exists()]
    shared = Path("/dev/shm").iterdir()  # noqa: S108
    left += [str(path) for path in shared if processes & set(map(int, NUMBER.findall(path.name)))]
    locks = {"global.lock", "purge.lock"}  # Dask keeps them.
    left += [str(path) for path in scratch.rglob("*") if path.is_file() and path.name not in locks]
    return left


def compare(options: argparse.Namespace, count: int, folder: Path) -> None:
    """Print the time of the graph with the plug-in relative to that without it."""
    local: dict[str, Any] = cluster_options(options, folder)
    with contextlib.ExitStack() as stack:
        clients = {}
        for mode in ("without", "auto", "on"):
            made = distributed.LocalCluster(n_workers=options.workers, **local)
            clients[mode] = stack.enter_context(stack.enter_context(made).get_client())
            if mode != "without":
                headrace.dask.install(clients[mode], headrace.dask.Prefetch(prefetch=mode))
        times: dict[str, list[float]] = {mode: [] for mode in clients}
        for number, modes in enumerate(
            itertools.islice(itertools.permutations(clients), options.compare + 1)
        ):
            for mode in modes:
                begin = time.perf_counter()
                run_queries(clients[mode], count, folder, options.format)
                if number > 0:  # The first round warms up.
                    times[mode].append(time.perf_counter() - begin)
    without = times.pop("without")
    print(f"without the plug-in: {statistics.median(without):.2f} s")
    for mode, own in times.items():
        figure = figure_of([a / b for a, b in zip(own, without, strict=True)])
        print(f"{mode}: {statistics.median(own):.2f} s, {figure.text} of that")


def cluster_options(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the options of every cluster."""
    return {
        "threads_per_worker": 1,
        "memory_limit": options.memory_limit,
        "local_directory": str(folder / "scratch"),
        "dashboard_address": "127.0.0.1:0",
    }


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--scale-factor", type=float, default=1.0)
    parser.add_argument("--partitions", type=int, help="4 for each worker unless given")
    parser.add_argument("--format", choices=("arrow", "parquet"), default="arrow")
    parser.add_argument("--memory-limit", default="4GiB", help="of each worker, for Dask")
    parser.add_argument("--prefetch", choices=("off", "auto", "on"), default="on")
    parser.add_argument("--kill-one", action="store_true", help="kill a worker in the middle")
    parser.add_argument("--compare", type=int, choices=range(1, 6), metavar="ROUNDS")
    options = parser.parse_args()
    count = options.partitions or 4 * options.workers
    paths = ensure_tables(tuple(KEYS), options.scale_factor, default_directory())
    with tempfile.TemporaryDirectory(prefix="dask-tpch-") as name:
        folder = Path(name)
        split(paths, count, folder, options.format)
        if options.compare:
            compare(options, count, folder)
            return 0
        local = cluster_options(options, folder)
        with (
            distributed.LocalCluster(n_workers=options.workers, **local) as cluster,
            cluster.get_client() as client,
        ):
            headrace.dask.install(client, headrace.dask.Prefetch(prefetch=options.prefetch))
            processes = set(client.run(os.getpid).values())
            begin = time.perf_counter()
            answers = run_queries(client, count, folder, options.format, kill_one=options.kill_one)
            print(f"{len(STEPS)} queries, {count} partitions: {time.perf_counter() - begin:.2f} s")
            client.wait_for_workers(options.workers)
            processes |= set(client.run(os.getpid, on_error="ignore").values())
            peaks = client.run(peak_bytes, on_error="ignore")
            for address, each in headrace.dask.statistics(client).items():
                print(
                    f"{address}: {each.inputs_prefetched} inputs prefetched, "
                    f"{each.inputs_late} late, {each.bytes_from_copies:,} bytes from copies, "
                    f"{each.bytes_from_source:,} from the source, "
                    f"{(peaks.get(address) or 0) / 2**20:,.0f} MiB of memory at most"
                )
        left = leftovers(processes, folder / "scratch")
    expected = duckdb_answers(paths)
    equal = sum(is_equal(answers[query], expected[query]) for query in STEPS)
    print(f"answers equal to DuckDB's: {equal} of {len(STEPS)}")
    print(f"leftovers: {len(left)}", *left, sep="\n  ")
    return 0 if equal == len(STEPS) and not left else 1


if __name__ == "__main__":
    sys.exit(main())
