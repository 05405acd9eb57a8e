# SPDX-License-Identifier: Apache-2.0
"""Cycles of a store in a file whose disk fails by chance: each block that is served is compared."""

import hashlib
import random
import struct
from collections import Counter
from contextlib import suppress
from pathlib import Path

from headrace.engine import Engine
from headrace.errors import IoFailedError
from headrace.store import Store, Tier

_BLOCK = 4096
_KEYS = 200
_BATCH = 32
_IN_MEMORY = 40
_IN_FILE = 2000
_HEAD = struct.Struct("<QQ")
_FAULTS = (
    *("write 5", "write 5 4096 8192", "write 5 0 8192", "write 5 100000 400000", "write 28"),
    *("write 30", "write short\nread short", "read 5", "read 5 40960 200000", "sync 5"),
)
"""Of all bytes, a page of headers, all headers, some blocks; a full, and a read-only disk; ..."""


def _block(key: int, version: int) -> bytes:
    head = _HEAD.pack(key, version)
    return head + hashlib.shake_128(head).digest(48 + (key * 31 + version * 64) % (_BLOCK - 64))


class _Cycles:
    """What is known of the blocks of a store; `control` sets the faults of its disk.

    Threading: confined.
    """

    def __init__(self, seed: int, control: Path | None) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - Not for secrets.
        self.counts = Counter(cycles=0, got=0, failed=0, evicted=0, dropped=0, lost=0, bad=0)
        self._control = control
        self._version = 0
        self._oldest = dict.fromkeys(range(_KEYS), 0)  # That may be served.
        self._is_there = dict.fromkeys(range(_KEYS), False)

    def set_faults(self, text: str) -> None:
        if self._control is not None:
            self._control.write_text(text + "\n")

    def step(self, store: Store) -> None:
        if self.chance.randrange(6) == 0:
            self.set_faults(self.chance.choice(_FAULTS + ("",) * len(_FAULTS)))
        keys = self.chance.sample(range(_KEYS), _BATCH)
        self.counts["cycles"] += _BATCH
        if self.chance.randrange(8) == 0:
            self._remove(store, keys[0])
        (self._put if self.chance.randrange(2) else self._get)(store, keys)

    def _remove(self, store: Store, key: int) -> None:
        self._is_there[key] = False
        with suppress(IoFailedError):
            store.remove(b"%d" % key)
            self._oldest[key] = self._version + 1

    def _put(self, store: Store, keys: list[int]) -> None:
        versions = range(self._version + 1, self._version + 1 + len(keys))
        self._version = versions[-1]
        blocks = [_block(*each) for each in zip(keys, versions, strict=True)]
        ends = store.put_many([b"%d" % key for key in keys], blocks).outcomes
        for key, version, end in zip(keys, versions, ends, strict=True):
            # One that failed may have ended the version before.
            self._is_there[key] = end == "done"
            self.counts["failed"] += end != "done"
            if end == "done":
                self._oldest[key] = version

    def _get(self, store: Store, keys: list[int]) -> None:
        buffers = [bytearray(_BLOCK) for _ in keys]
        transfer = store.get_many([b"%d" % key for key in keys], buffers)
        found = zip(keys, transfer.outcomes, transfer.byte_counts, buffers, strict=True)
        for key, end, length, buffer in found:
            if end == "done":
                version = _HEAD.unpack_from(buffer)[1]
                is_good = buffer[:length] == _block(key, version)
                self.counts["got"] += 1
                self.counts["bad"] += not is_good or version < self._oldest[key]
                continue
            self.counts["lost"] += end == "unknown_key" and self._is_there[key]
            self.counts["failed"] += end != "unknown_key"
            self._is_there[key] = False  # If it failed, until the file is opened again.


def run_cycles(count: int, seed: int, folder: Path, control: Path | None) -> dict[str, int]:
    """Put, get and remove `count` blocks, with openings in between. `control`: sets faults.

    Blocks are written through to the file, which has room for all, so none need be dropped. One
    that is not there, although it was acknowledged and not removed, is bad, unless the statistics
    say that it was dropped.
    """
    cycles = _Cycles(seed, control)
    counts = cycles.counts
    tiers = [
        Tier(_IN_MEMORY * _BLOCK, unwritten=0),
        Tier(_IN_FILE * _BLOCK, path=folder / "blocks", deadline_s=1),
    ]
    with Engine(threads_per_node=1, path="cpu") as engine:
        while counts["cycles"] < count:
            counts["openings"] += 1
            until = min(count, counts["cycles"] + cycles.chance.randrange(_IN_FILE * _BATCH // 8))
            with Store(tiers, block_bytes=_BLOCK, engine=engine, promote_after=1) as store:
                while counts["cycles"] < until:
                    cycles.step(store)
                cycles.set_faults("")
                known = store.statistics
            counts["dropped"] += known.dropped
            counts["evicted"] += sum(each.evictions for each in known.tiers)
    counts["bad"] += max(0, counts["lost"] - counts["dropped"])
    return {"seed": seed, **counts}
