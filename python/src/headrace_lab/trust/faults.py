# SPDX-License-Identifier: Apache-2.0
"""Faults under stores, and the judgement of what a store serves and has kept.

A put that returned is acknowledged: unless the fault destroyed the bytes at rest, the block must be
there in this version or a later one. What cannot be served must be missing or fail.
"""

import json
import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace._signals import held, undone_at_signals
from headrace._temporary import child_process, temporary_folder
from headrace_lab.trust.stores import BLOCK, block

COUNTS = ("wrong_bytes", "acknowledged_lost", "hangs", "crashes")
_KEYS = range(48)
_ANSWER_S = 10.0
_PIECE = 512
_CONTEXT = 16


class NotPossibleError(Exception):
    """The fault cannot be made under this store."""


class Trial:
    """A store in a folder, what it has acknowledged, and what was counted.

    Threading: confined.
    """

    def __init__(self, name: str, folder: Path, seed: str, faults: Path | None = None) -> None:
        """Begin in an empty folder. `faults` is the control of the faulty file system."""
        self.counts: Counter[str] = Counter()
        self.random = random.Random(seed)  # noqa: S311 - Not for secrets.
        self.folder = folder
        self._name = name
        self._faults = faults
        self._begun = dict.fromkeys(_KEYS, 0)
        self.acknowledged: dict[int, int] = {}
        self._child: subprocess.Popen[bytes] | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the store in a new process for the block."""
        words = [sys.executable, "-m", f"{__package__}.stores", self._name, str(self.folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with child_process(words, **pipes) as self._child:
            self.process_id = self._child.pid
            try:
                yield
                self.ask("close", [])
            finally:
                self.set_faults("")
                self.kill()

    def kill(self) -> None:
        """End the process, and note what it had acknowledged."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def send(self, what: str, argument: Sequence[object]) -> None:
        if self._child is not None and self._child.stdin is not None:
            with suppress(BrokenPipeError):
                self._child.stdin.write(json.dumps([what, list(argument)]).encode() + b"\n")
                self._child.stdin.flush()

    def ask(self, what: str, argument: Sequence[object]) -> Any:  # noqa: ANN401 - JSON.
        """Send a command and return its answer; a text is an error. None: closed, or put."""
        self.send(what, argument)
        return self.answer()

    def answer(self) -> Any:  # noqa: ANN401 - JSON.
        """Return the next answer; "ended" if the process crashed, or hung and was killed."""
        if self._child is None or self._child.stdout is None:
            return "ended"
        if not select.select([self._child.stdout], [], [], _ANSWER_S)[0]:
            self.counts["hangs"] += 1
        elif line := self._child.stdout.readline():
            return json.loads(line)
        else:
            self.counts["crashes"] += 1
        self.set_faults("")  # A process that waits for the file system ends when that answers.
        self.kill()
        return "ended"

    def new_versions(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        """Keys and the versions that are put next."""
        for key in keys:
            self._begun[key] += 1
        return [(key, self._begun[key]) for key in keys]

    def put(self, keys: Sequence[int]) -> bool:
        """Put a new version of each; whether that was acknowledged."""
        versions = self.new_versions(keys)
        done = self.ask("put", versions) is None
        if done:
            self.acknowledged |= dict(versions)
        return done

    def fill(self) -> None:
        if not self.put(_KEYS):
            raise NotPossibleError("the first puts fail")

    def judge(self, keys: Sequence[int] = _KEYS, *, kept: bool = True) -> None:
        """Compare what is served; `kept`: acknowledged blocks must be there."""
        answers = self.ask("get", keys)
        if isinstance(answers, str):
            answers = ["failed"] * len(keys)
        for key, answer in zip(keys, answers, strict=True):
            acknowledged = self.acknowledged.get(key, 0)
            if isinstance(answer, int) and acknowledged <= answer <= self._begun[key]:
                continue
            if isinstance(answer, int) or answer == "wrong":
                # An older version than the acknowledged one is lost if it was to be kept.
                is_old = isinstance(answer, int) and answer < acknowledged and kept
                self.counts["acknowledged_lost" if is_old else "wrong_bytes"] += 1
            elif acknowledged != 0:
                self.counts["acknowledged_lost" if kept else "unavailable"] += 1

    def set_faults(self, text: str) -> None:
        if self._faults is not None:
            self._faults.write_text(text + "\n")

    def files(self) -> list[Path]:
        """Files of the store, the largest first."""
        found = [each for each in self.folder.rglob("*") if each.is_file()]
        return sorted(found, key=lambda each: (-each.stat().st_size, each))


def _kill(trial: Trial, batch: int) -> None:
    with trial.opened():
        trial.fill()
        begin = time.monotonic()
        for _ in range(trial.random.randrange(4)):
            trial.put(trial.random.sample(_KEYS, batch))
        took_s = (time.monotonic() - begin) / 3
        trial.send("put", trial.new_versions(trial.random.sample(_KEYS, batch)))
        time.sleep(trial.random.uniform(0, max(took_s, 0.001)))
        trial.kill()
    with trial.opened():
        trial.judge()


def _at_rest(trial: Trial, damage: Callable[[Trial], None]) -> None:
    with trial.opened():
        trial.fill()
    damage(trial)
    with trial.opened():
        trial.judge(kept=False)


def _truncate(trial: Trial) -> None:
    file = trial.files()[0]
    os.truncate(file, trial.random.randrange(file.stat().st_size))


def _replace(trial: Trial) -> None:
    file = trial.files()[0]
    file.write_bytes(trial.random.randbytes(file.stat().st_size))


def _is_data(found: bytes, blocks: bytes) -> NDArray[np.bool_]:
    """Which bytes of a file are pieces of blocks."""
    is_data = np.zeros(len(found), bool)
    for begin in range(0, len(blocks), BLOCK):
        at = found.find(blocks[begin : begin + _PIECE])
        for first in range(begin, begin + BLOCK if at >= 0 else begin, _PIECE):
            # Mostly right behind the one before.
            at = found.find(blocks[first : first + _PIECE], at, at + 2 * BLOCK)
            if at < 0:
                break
            is_data[at : at + _PIECE] = True
    return is_data


def _flip(trial: Trial, *, data: bool) -> None:
    """Flip one bit within a block, or outside of all."""
    blocks = b"".join(block(*each) for each in trial.acknowledged.items())
    places = []
    for file in trial.files():
        found = file.read_bytes()
        is_data = _is_data(found, blocks)
        # Zeros are mostly not in use.
        is_meant = is_data if data else ~is_data & (np.frombuffer(found, np.uint8) != 0)
        places += [(file, int(at)) for at in np.flatnonzero(is_meant)[:: _PIECE if data else 1]]
    for file, at in trial.random.sample(places, len(places)):
        found = file.read_bytes()
        if (found[max(0, at - _CONTEXT) : at + _CONTEXT] in blocks) != data:
            continue  # Between two pieces.
        with file.open("r+b") as opened:
            opened.seek(at)
            opened.write(bytes([found[at] ^ 1 << trial.random.randrange(8)]))
        return
    raise NotPossibleError("no block was found" if data else "all bytes are of blocks")


def _delete(trial: Trial) -> None:
    with trial.opened():
        trial.fill()
        trial.files()[0].unlink()
        trial.acknowledged = {}  # Destroyed.
        for key in trial.random.sample(_KEYS, 16):
            trial.put([key])
    with trial.opened():
        trial.judge()


def _on_faulty_disk(trial: Trial, faults: str) -> None:
    hangs = "hang" in faults
    with trial.opened():
        trial.fill()
        trial.set_faults(faults)
        for key in trial.random.sample(_KEYS, 1 if hangs else 6):
            trial.put([key])
            trial.judge([key], kept=False)
        if not hangs:
            trial.judge(kept=False)
    if not hangs:
        with trial.opened():
            trial.set_faults(faults)
            trial.judge(kept=False)
    trial.counts["unavailable"] = 0
    with trial.opened():
        trial.judge()


FAULTS: dict[str, Callable[[Trial], None]] = {
    "kill -9 in a put": partial(_kill, batch=1),
    "kill -9 in a batch": partial(_kill, batch=16),
    "file cut off": partial(_at_rest, damage=_truncate),
    "bit of data flipped": partial(_at_rest, damage=partial(_flip, data=True)),
    "bit of headers flipped": partial(_at_rest, damage=partial(_flip, data=False)),
    "another file in place": partial(_at_rest, damage=_replace),
    "file deleted while open": _delete,
}
ON_FAULTY_DISK = {
    "disk full (ENOSPC)": "write 28",
    "EIO of reads": "read 5",
    "EIO of writes": "write 5",
    "EIO of flushes": "sync 5",
    "short transfers": "read short\nwrite short",
    "hang": "read hang\nwrite hang\nsync hang",
}
ALL_FAULTS = (*FAULTS, *ON_FAULTY_DISK)


@contextmanager
def faulty_disk(program: str, folder: Path) -> Iterator[Path]:
    """Mount the faulty file system; the path of the mount."""
    mount = folder / "mount"
    for each in (mount, folder / "real"):
        each.mkdir()
    with held():
        server = subprocess.Popen(  # noqa: S603 - Our own program.
            [program, str(folder / "real"), str(mount), "cached"], stderr=subprocess.PIPE, text=True
        )
    with undone_at_signals(server.terminate):
        try:
            while not (mount / ".faults").exists():
                if server.poll() is not None:
                    _, why = server.communicate()
                    raise NotPossibleError(f"FUSE file systems cannot be mounted here: {why}")
                time.sleep(0.01)
            yield mount
        finally:
            server.terminate()  # It unmounts.
            server.communicate()


def try_store(name: str, rounds: int, program: str) -> dict[str, dict[str, Any]]:
    """Put one store under every fault, by chance the same for each; counts by fault."""
    results: dict[str, dict[str, Any]] = {}
    for fault in ALL_FAULTS:
        counts: Counter[str] = Counter()
        disk_faults = ON_FAULTY_DISK.get(fault)
        tries = 1 if disk_faults is not None and "hang" in disk_faults else rounds
        try:
            for number in range(tries):
                with temporary_folder("headrace-trust-") as folder:
                    seed = f"{fault} {number}"
                    if disk_faults is None:
                        trial = Trial(name, folder, seed)
                        FAULTS[fault](trial)
                    else:
                        with faulty_disk(program, folder) as mount:
                            trial = Trial(name, mount / "store", seed, mount / ".faults")
                            trial.folder.mkdir()
                            _on_faulty_disk(trial, disk_faults)
                    counts += trial.counts
        except NotPossibleError as problem:
            results[fault] = {"not_possible": str(problem)}
        else:
            names = (*COUNTS, "unavailable")
            results[fault] = {"tries": tries} | {each: counts[each] for each in names}
    return results
