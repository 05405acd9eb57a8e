# SPDX-License-Identifier: Apache-2.0
"""A key-value cache: Zipf keys, values of 4 to 64 KiB, nine gets for each set.

python -m headrace.examples.key_value [--batches N]
python -m headrace.examples.key_value --processes 4
headrace emulate -- python -m headrace.examples.key_value

The engine and the calling thread copy the values, in alternating rounds. The table shows the cost
of an operation for the calling thread and for all threads, operations per second, and the latency
of the slowest batches. With --processes, that many processes use one store, and then one of a part
of its capacity each. With emulated devices, only the shares are meaningful, not the times.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

import headrace
from headrace.examples import device_line, run

KEYS = 2000
BATCH = 32
VALUE_BYTES = (4096, 65536)
GETS_IN_TEN = 9
CAPACITY = 48 << 20
HEADER = (
    "values copied     thread us/op  CPU us/op  saved us/op  operations/s      p99 ms     hit %"
    "   bad"
)
Bytes = npt.NDArray[np.uint8]


@dataclass
class Seen:
    """Cost of one way to copy so far."""

    thread_s: float = 0
    all_s: float = 0
    batch_s: list[float] = field(default_factory=list)
    operations: int = 0
    hits: int = 0
    gets: int = 0
    bad: int = 0

    def row(self, name: str, caller: "Seen") -> str:
        """A row of the table."""
        thread_us = 1e6 * self.thread_s / self.operations
        saved_us = 1e6 * caller.thread_s / caller.operations - thread_us
        return (
            f"{name:<16}{thread_us:>14.1f}{1e6 * self.all_s / self.operations:>11.1f}"
            f"{saved_us:>13.1f}"
            f"{self.operations / sum(self.batch_s):>14,.0f}"
            f"{1e3 * float(np.quantile(self.batch_s, 0.99)):>12.2f}"
            f"{100 * self.hits / self.gets:>10.1f}{self.bad:>6}"
        )


class ByEngine:
    """Values in a store with a fast tier and a larger one."""

    name = "by the engine"

    def __init__(self, store: headrace.Store) -> None:
        self._store = store

    def put(self, keys: list[str], values: list[Bytes]) -> None:
        """Store values."""
        self._store.put_many(keys, values).check()

    def get(self, keys: list[str], targets: list[Bytes]) -> list[int]:
        """Copy values out; lengths, 0 where there is none."""
        return self._store.get_many(keys, targets).byte_counts


class ByCaller:
    """Values in a dictionary, copied by the calling thread."""

    name = "by the caller"

    def __init__(self) -> None:
        self._values: dict[str, Bytes] = {}
        self._bytes = 0

    def put(self, keys: list[str], values: list[Bytes]) -> None:
        """Store values; the oldest go."""
        for key, value in zip(keys, values, strict=True):
            self._bytes += len(value) - len(self._values.pop(key, ()))
            self._values[key] = value.copy()
            while self._bytes > CAPACITY:
                self._bytes -= len(self._values.pop(next(iter(self._values))))

    def get(self, keys: list[str], targets: list[Bytes]) -> list[int]:
        """Copy values out; lengths, 0 where there is none."""
        counts = []
        for key, target in zip(keys, targets, strict=True):
            value = self._values.get(key)
            counts.append(0 if value is None else len(value))
            if value is not None:
                target[: len(value)] = value
        return counts


def value_of(key: int, random: np.random.Generator) -> Bytes:
    """A value whose bytes all identify its key."""
    return np.full(int(random.integers(*VALUE_BYTES)), key % 251, np.uint8)


def serve(way: ByEngine | ByCaller, seen: Seen, random: np.random.Generator) -> None:
    """Run one batch of gets or sets; misses are then set, as in a cache."""
    chosen = np.unique(random.zipf(1.2, BATCH) % KEYS)
    targets = [np.empty(VALUE_BYTES[1], np.uint8) for _ in chosen]
    values = [value_of(int(key), random) for key in chosen]
    names = [str(key) for key in chosen]
    gets = random.integers(10) < GETS_IN_TEN
    begin = time.thread_time(), time.process_time(), time.perf_counter()
    counts = way.get(names, targets) if gets else [0] * len(names)
    missed = [place for place, count in enumerate(counts) if count == 0]
    way.put([names[place] for place in missed], [values[place] for place in missed])
    seen.thread_s += time.thread_time() - begin[0]
    seen.all_s += time.process_time() - begin[1]
    seen.batch_s.append(time.perf_counter() - begin[2])
    seen.operations += len(names)
    if not gets:
        return
    seen.gets += len(counts)
    for key, count, target in zip(chosen, counts, targets, strict=True):
        seen.hits += count > 0
        seen.bad += bool((target[:count] != int(key) % 251).any())


def work(path: str, capacity: int, batches: int, seed: int) -> Seen:
    """Run one of several processes, which connects to a store or has its own."""
    seen = Seen()
    with (
        headrace.Store.connect(path)
        if path
        else headrace.Store([capacity], block_bytes=VALUE_BYTES[1]) as store
    ):
        for number in range(batches):
            serve(ByEngine(store), seen, np.random.default_rng([seed, number]))
    return seen


def merged(each: Sequence[Seen]) -> Seen:
    """The cost of processes that run at the same time."""
    latencies = [latency for seen in each for latency in seen.batch_s]
    return Seen(
        sum(seen.thread_s for seen in each),
        sum(seen.all_s for seen in each),
        [latency / len(each) for latency in latencies],
        sum(seen.operations for seen in each),
        sum(seen.hits for seen in each),
        sum(seen.gets for seen in each),
        sum(seen.bad for seen in each),
    )


def compare_processes(processes: int, batches: int) -> None:
    """Print the table for processes with one store, and with one each."""
    context = multiprocessing.get_context("spawn")
    found = {}
    with tempfile.TemporaryDirectory() as folder, context.Pool(processes) as pool:
        path = f"{folder}/socket"
        for name, socket in (("one store", path), ("a store each", "")):
            lines = [(socket, CAPACITY // processes, batches, seed) for seed in range(processes)]
            if socket:
                with headrace.Store([CAPACITY], block_bytes=VALUE_BYTES[1], share=socket):
                    found[name] = merged(pool.starmap(work, lines))
            else:
                found[name] = merged(pool.starmap(work, lines))
    print(HEADER)
    for name, seen in found.items():
        print(seen.row(name, found["a store each"]))


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    batches: int = options.batches
    if options.processes > 1:
        compare_processes(options.processes, batches)
        return
    with (
        headrace.Engine() as engine,
        headrace.Store(
            [CAPACITY // 4, CAPACITY], block_bytes=VALUE_BYTES[1], engine=engine
        ) as store,
    ):
        ways: list[tuple[ByEngine | ByCaller, Seen]] = [
            (ByEngine(store), Seen()),
            (ByCaller(), Seen()),
        ]
        for seed in range(batches):
            for way, seen in ways:
                serve(way, seen, np.random.default_rng(seed))
        print(HEADER)
        for way, seen in ways:
            print(seen.row(way.name, ways[1][1]))
        print(device_line(engine))


if __name__ == "__main__":
    run(main)
