# SPDX-License-Identifier: Apache-2.0
"""A shared store beside one of a process's own, and beside one of a part for each process."""

import multiprocessing
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection

import numpy as np

from headrace._apps.figures import Figure, figure_of
from headrace._temporary import temporary_folder
from headrace.engine import Engine
from headrace.store import Store

_CHUNK_S = 0.05
_WORK_S = 0.5
_BLOCK = 2**16
_SLOTS = 768
_KEYS = 4 * _SLOTS
_READS_IN_TEN = 7
_SIZES = {"4k": 2**12, "1m": 2**20}
_FOREIGN = multiprocessing.get_context("spawn")
_Found = defaultdict[str, list[float]]


def measure_shared(processes: int, rounds: int) -> dict[str, Figure]:
    """Ratios of times and rates, in turns; `null_` are those of two equal stores."""
    found: _Found = defaultdict(list)
    with temporary_folder("headrace-bench-") as folder:
        for size, block_bytes in _SIZES.items():
            _measure_calls(found, str(folder / size), size, block_bytes, rounds)
        for _ in range(rounds):
            for miss_s, name in ((0.0, ""), (0.01, "_10ms")):
                shared, hits = _throughput(str(folder / "all"), processes, miss_s)
                split, split_hits = _throughput("", processes, miss_s)
                null, _ = _throughput("", processes, miss_s)
                found[f"shared_vs_split{name}"].append(shared / split)
                found[f"null_vs_split{name}"].append(null / split)
                found[f"hit_rate_shared{name}"].append(hits)
                found[f"hit_rate_split{name}"].append(split_hits)
    made = {name: figure_of(values) for name, values in found.items()}
    both = [made[f"shared_get_{size}_vs_own"] for size in _SIZES]
    return made | {"shared_get_vs_own": max(both, key=lambda each: each.median)}


def _measure_calls(found: _Found, path: str, size: str, block_bytes: int, rounds: int) -> None:
    capacity, target = 128 * block_bytes, np.ones(block_bytes, np.uint8)
    keys = [str(number) for number in range(64)]
    with (
        _started(_serve, path, capacity, block_bytes),
        Engine(path="cpu") as engine,
        Store([capacity], block_bytes=block_bytes, engine=engine) as own,
        Store([capacity], block_bytes=block_bytes, engine=engine) as null,
        Store.connect(path, engine=engine) as shared,
    ):
        for _ in range(rounds):
            times: _Found = defaultdict(list)
            for store in (own, null, shared):
                store.put("key", target)
                times["get"].append(_time_s(partial(store.get_into, "key", target)))
                begin = time.perf_counter()
                transfer = store.put_many(keys, [target] * len(keys))
                times["submit"].append(time.perf_counter() - begin)
                transfer.check()
                times["put"].append(time.perf_counter() - begin)
            for name, (own_s, null_s, shared_s) in times.items():
                found[f"shared_{name}_{size}_vs_own"].append(shared_s / own_s)
                found[f"null_{name}_{size}_vs_own"].append(null_s / own_s)
            found[f"view_{size}_us"].append(1e6 * _time_s(partial(shared.view, "key")))


def _time_s(call: Callable[[], object]) -> float:
    """Time of a call, of as many as fit into `_CHUNK_S`."""
    count = 0
    begin = time.perf_counter()
    while (now := time.perf_counter()) < begin + _CHUNK_S:
        call()
        count += 1
    return (now - begin) / count


@contextmanager
def _started(target: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """A process that is ready; it ends with the block."""
    ours, theirs = _FOREIGN.Pipe()
    child = _FOREIGN.Process(target=target, args=(theirs, *arguments), daemon=True)
    child.start()
    theirs.close()
    ours.recv()
    yield ours
    ours.send(False)
    child.join()


def _serve(pipe: Connection, path: str, size: int, block_bytes: int) -> None:
    with Store([size], block_bytes=block_bytes, share=path):
        pipe.send(None)
        pipe.recv()


def _work(pipe: Connection, path: str, size: int, seed: int, miss_s: float) -> None:
    """Get and put for the seconds of each request; a miss waits for its block, and puts it."""
    random = np.random.default_rng(seed)
    keys = [str(each) for each in random.zipf(1.2, 100_000) % _KEYS]
    reads = random.integers(10, size=len(keys)) < _READS_IN_TEN
    target, at = np.ones(_BLOCK, np.uint8), 0
    with Store.connect(path) if path else Store([size], block_bytes=_BLOCK) as store:
        pipe.send(None)
        while work_s := pipe.recv():
            count = gets = hits = 0
            begin = time.perf_counter()
            while time.perf_counter() < begin + work_s:
                at = (at + 1) % len(keys)
                found = reads[at] and store.get_many([keys[at]], [target]).outcomes == ["done"]
                if reads[at] and not found:
                    time.sleep(miss_s)
                if not found:
                    store.put(keys[at], target)
                count, gets, hits = count + 1, gets + int(reads[at]), hits + int(found)
            pipe.send((count, gets, hits))


def _throughput(path: str, processes: int, miss_s: float) -> tuple[float, float]:
    """Operations per second of all processes, and the share of gets that find their block."""
    with ExitStack() as ending:
        if path:
            ending.enter_context(_started(_serve, path, _SLOTS * _BLOCK, _BLOCK))
        part = _SLOTS // processes * _BLOCK
        workers = [
            ending.enter_context(_started(_work, path, part, seed, miss_s))
            for seed in range(processes)
        ]
        totals = []
        for _ in range(2):  # The first fills the stores.
            for worker in workers:
                worker.send(_WORK_S)
            totals = [worker.recv() for worker in workers]
    count, gets, hits = (sum(each) for each in zip(*totals, strict=True))
    return count / _WORK_S, hits / gets
