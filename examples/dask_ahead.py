# SPDX-License-Identifier: Apache-2.0
"""What ``headrace.dask.Prefetch(ahead="decode")`` gains for dask.dataframe.read_parquet here.

python examples/dask_ahead.py [--rounds N] [--workers N] [--rows N] [--cold] [--latency-ms N]
                              [--share]

The same graph runs in turns on two clusters, without the plug-in and with it; their answers must be
equal. With --cold the kernel drops its copies of the files before each run. With --latency-ms a
function of `from_map` reads the files and waits before, as for an object store. With --share the
workers share what they have read, so that from the second round on no file is read. The last line
gives the time with the plug-in by that without: the median and its 95 % confidence interval.
"""

import argparse
import contextlib
import os
import random
import tempfile
import time
from pathlib import Path

import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import headrace.dask
from headrace._apps.figures import figure_of

PARTITIONS = 16


def write(folder: Path, rows: int) -> None:
    """Write files of one partition each."""
    made = np.random.default_rng(38)
    words = np.array([f"word {each}" for each in range(5000)])
    for number in range(PARTITIONS):
        columns = {
            "kind": made.integers(0, 100, rows),
            "price": made.integers(0, 10_000, rows),
            "word": words[made.integers(0, len(words), rows)],
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def drop_pages(folder: Path) -> None:
    """Let the kernel drop its copies of the files."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load(path: Path, latency_ms: float) -> pd.DataFrame:
    """Read a file as from a store that answers late."""
    time.sleep(latency_ms / 1e3)
    return pd.read_parquet(path)


def run(client: distributed.Client, folder: Path, latency_ms: float) -> tuple[float, object]:
    """Seconds of a run, and its answer."""
    frame = (
        dd.from_map(load, sorted(folder.iterdir()), latency_ms=latency_ms)
        if latency_ms
        else dd.read_parquet(folder)
    )
    frame = frame.assign(length=frame.word.str.len())
    asked = frame.groupby("kind")[["price", "length"]].sum(split_out=1)
    begin = time.perf_counter()
    found = client.compute(asked).result()
    return time.perf_counter() - begin, found.to_dict()


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rounds", 9), ("workers", 2), ("rows", 1_000_000), ("latency-ms", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name in ("cold", "share"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=".")))
        write(folder, options.rows)
        clients = []
        for _ in range(2):
            cluster = distributed.LocalCluster(
                n_workers=options.workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            )
            client = stack.enter_context(stack.enter_context(cluster).get_client())
            clients.append(client)
        share = "1GiB" if options.share else False
        headrace.dask.install(clients[1], headrace.dask.Prefetch(ahead="decode", share=share))
        ratios = []
        for number in range(options.rounds + 1):
            found = {}
            for which in random.sample(range(2), 2):
                if options.cold:
                    drop_pages(folder)
                found[which] = run(clients[which], folder, options.latency_ms)
            if found[0][1] != found[1][1]:
                raise SystemExit("the answers differ")
            if number > 0:  # The first round imports what workers need.
                ratios.append(found[1][0] / found[0][0])
                print(f"{found[0][0]:.2f} s without, {found[1][0]:.2f} s with", flush=True)
        for each in headrace.dask.statistics(clients[1]).values():
            print(
                f"{each.inputs_prefetched} prefetched, {each.inputs_late} late, "
                f"{each.inputs_shared} of other workers"
            )
        figure = figure_of(ratios)
        low, high = figure.interval or (figure.median, figure.median)
        print(f"ratio {figure.median:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
