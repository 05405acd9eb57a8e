# SPDX-License-Identifier: Apache-2.0
"""A store in a file beside fio, in turns: random reads, and durable writes in batches of 64."""

import json
import random
import shutil
import time
from collections import deque

import numpy as np

from headrace._apps.figures import Figure, figure_of
from headrace._temporary import run_child, temporary_folder
from headrace.engine import Engine
from headrace.errors import NotFoundError
from headrace.store import Store, StoreTransfer, Tier

_BATCH = 64
_IN_FLIGHT = 4
_SECONDS = 2
_CHOICES = 4096
_SPARE = 16 * _BATCH
_FIO = "--name=x --ioengine=io_uring --direct=1 --time_based --norandommap"
_FIO += " --randrepeat=0 --output-format=json"
_WAYS = (
    ("cold_get{}_vs_fio", "read", _BATCH),
    ("single_get{}_time_vs_fio", "read", 1),
    ("durable_put{}_vs_fio", "write", _BATCH),
)
"""Figure, direction, blocks of a batch."""
FILE_BYTES = {2**20: 8 << 30, 2**16: 8 << 30, 2**12: 1 << 30}
"""By the length of blocks."""


def _fio_rate(command: list[str], block_bytes: int, way: str, batch: int) -> float:
    """Bytes per second of fio with io_uring and O_DIRECT, at depth 32 or, for single blocks, 1."""
    depth = min(batch, 32)
    what = f"--iodepth={depth} --bs={block_bytes} --rw=rand{way} --runtime={_SECONDS}"
    syncs = [f"--fdatasync={batch}"] if way == "write" else []
    done = run_child([*command, *what.split(), *syncs], timeout_s=600)
    return float(json.loads(done.stdout)["jobs"][0][way]["bw_bytes"])


def _our_rate(store: Store, way: str, count: int, block_bytes: int, batch: int) -> float:
    """Bytes per second of gets or puts of random blocks, four batches or one block in flight."""
    in_flight = 1 if batch == 1 else _IN_FLIGHT
    rows = list(np.ones((in_flight * batch, block_bytes), np.uint8))
    many = store.get_many if way == "read" else store.put_many
    # Chosen before: fio chooses its blocks in no time.
    chosen = [
        [b"%d" % each for each in random.sample(range(count), batch)] for _ in range(_CHOICES)
    ]
    flying: deque[StoreTransfer] = deque()
    begin = time.monotonic()
    batches = 0
    while time.monotonic() < begin + _SECONDS:
        if len(flying) == in_flight:
            flying.popleft().check()
        at = batches % in_flight * batch
        flying.append(many(chosen[batches % _CHOICES], rows[at : at + batch]))
        batches += 1
    for each in flying:
        each.check()
    return batches * batch * block_bytes / (time.monotonic() - begin)


def measure_file(folder: str, rounds: int) -> dict[str, Figure]:
    """Rates and times of a store in a file relative to fio's."""
    fio = shutil.which("fio")
    if fio is None:
        raise NotFoundError("measure files beside fio", "fio is not installed", "apt install fio")
    figures = {}
    with temporary_folder("headrace-bench-", folder) as place:
        for block_bytes, file_bytes in FILE_BYTES.items():
            count = file_bytes // block_bytes
            tier = Tier(file_bytes + _SPARE * block_bytes, path=place / f"{block_bytes}")
            with (
                Engine(threads_per_node=1, path="cpu") as engine,
                Store([tier], block_bytes=block_bytes, engine=engine) as store,
            ):
                blocks = list(np.ones((_BATCH, block_bytes), np.uint8))
                for at in range(0, count, _BATCH):
                    keys = [b"%d" % each for each in range(at, at + _BATCH)]
                    store.put_many(keys, blocks).check()
                command = [
                    fio,
                    f"--filename={place / 'fio'}",
                    f"--size={file_bytes}",
                    *_FIO.split(),
                ]
                for words, way, batch in _WAYS:
                    ratios = []
                    for _ in range(rounds):
                        theirs = _fio_rate(command, block_bytes, way, batch)
                        ours = _our_rate(store, way, count, block_bytes, batch)
                        ratios.append(theirs / ours if batch == 1 else ours / theirs)
                    figures[words.format(f"_{block_bytes >> 10}k")] = figure_of(ratios)
    return figures
