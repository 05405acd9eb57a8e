# SPDX-License-Identifier: Apache-2.0
"""Programs of several patterns, and how well replays of their traces predict them on this machine.

    python replay_programs.py [ROUNDS]

Each program runs with one worker and records a trace. The trace is replayed with two workers on
this machine's measured record, and compared with what traces of the program with two workers say:
the time in submissions and waits, the median of the rounds. The same median of as many further
runs, in turns with the first, says what the measure is worth. As root all of it runs with a
real-time priority, because a program that other work preempts says nothing about the model.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.simulator import replay

SIZES = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
PATTERNS = ("wait", "compute", "batch")
COMPUTE_S = 100e-6
BATCH = 8
POOL_BYTES = 64 << 20
"""Of each side, so that no place is cached when it is used again."""
MOVED_BYTES = 256 << 20
RECORDED, PREDICTED = 1, 2
"""Workers."""
HEAD_BYTES, RECORD_WORDS = 4096, 8
KINDS = (2, 3, 5)
"""Of records: job, run and wait (docs/reference/trace.md)."""


@dataclass(frozen=True)
class Program:
    """What a program does: moves of one size, from memory or from one place, by some threads."""

    pattern: str
    size: int
    cold: bool
    threads: int = 1

    @property
    def name(self) -> str:
        """For the table."""
        place = "memory" if self.cold else "one place"
        return f"{self.pattern} {self.size >> 10} KiB, {place}, {self.threads} threads"


def programs() -> list[Program]:
    """All programs."""
    return [
        Program(pattern, size, cold)
        for pattern in PATTERNS
        for size in SIZES
        for cold in (False, True)
    ] + [Program(pattern, size, True, 2) for pattern in PATTERNS[:2] for size in SIZES[1:3]]


def execute(program: Program, workers: int) -> None:
    """Run it in this process."""
    with headrace.Engine(path="cpu", threads_per_node=workers) as engine:
        threads = [
            threading.Thread(target=_moves, args=(program, engine)) for _ in range(program.threads)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()


def _moves(program: Program, engine: headrace.Engine) -> None:
    pool = max(POOL_BYTES if program.cold else BATCH * program.size, program.size)
    source, target = (np.ones(pool, np.uint8) for _ in range(2))
    count = MOVED_BYTES // program.size // program.threads
    group = BATCH if program.pattern == "batch" else 1
    for index in range(0, count, group):
        parts = [
            slice(at, at + program.size)
            for at in ((index + i) * program.size % pool if program.cold else i * program.size
                       for i in range(group))
        ]  # fmt: skip
        jobs = [engine.submit(source=source[part], target=target[part]) for part in parts]
        if program.pattern == "compute":
            until = time.perf_counter() + COMPUTE_S
            while time.perf_counter() < until:
                pass
        for job in jobs:
            job.wait()


def _record(program: Program, workers: int, trace: Path) -> float:
    """Run it: seconds in submissions and waits, over all threads."""
    words = [*map(str, (program.pattern, program.size, int(program.cold), program.threads))]
    trace.unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, __file__, "run", *words, str(workers)],
        env=os.environ | {"HEADRACE_TRACE": str(trace)},
        check=True,
        timeout=600,
    )
    whole = trace.read_bytes()
    ticks = json.loads(whole[: whole.index(b"\n")])["ticks_per_second"]
    records = np.frombuffer(whole, np.uint64, offset=HEAD_BYTES).reshape(-1, RECORD_WORDS)
    chosen = records[np.isin(records[:, -1] >> np.uint64(56), KINDS)]
    return float((chosen[:, 1] - chosen[:, 0]).sum()) / float(ticks)


@dataclass(frozen=True)
class Outcome:
    """Seconds of one program."""

    program: Program
    predicted_s: float
    measured_s: float
    again_s: float

    @property
    def error(self) -> float:
        """Of the prediction, as a share of the measured time."""
        return abs(self.predicted_s / self.measured_s - 1)

    @property
    def noise(self) -> float:
        """Of the measured time."""
        return abs(self.again_s / self.measured_s - 1)


def compare(record: Path, given: Sequence[Program], round_count: int) -> Iterator[Outcome]:
    """Predict and measure."""
    draw = random.Random(1)  # noqa: S311 - No secret.
    with tempfile.TemporaryDirectory() as folder:
        for program in given:
            trace = Path(folder) / "trace"
            _record(program, RECORDED, trace)
            machine: dict[str, Any] = {"machine": str(record), "workers": PREDICTED}
            (result,) = replay(str(trace), [machine])[1]
            times: dict[str, list[float]] = {"measured": [], "again": []}
            for _ in range(round_count):
                for name in draw.sample(list(times), 2):
                    times[name].append(_record(program, PREDICTED, trace))
            measured, again = (statistics.median(each) for each in times.values())
            yield Outcome(program, result.moving_s + result.waited_s, measured, again)


def main() -> None:
    """Print a table, and the errors."""
    if sys.argv[1:2] == ["run"]:
        pattern, *numbers = sys.argv[2:]
        size, cold, threads, workers = map(int, numbers)
        execute(Program(pattern, size, bool(cold), threads), workers)
        return
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    from headrace_lab.sim.measured import measured_record  # noqa: PLC0415 - Not in a program.

    with measured_record() as record:
        found = []
        for each in compare(record, programs(), int(sys.argv[1]) if sys.argv[1:] else 5):
            found.append(each)
            times = (each.predicted_s, each.measured_s, each.again_s)
            print(  # noqa: T201 - A program.
                each.program.name, *(f"{1e3 * one:.1f}" for one in times), f"{each.error:.0%}"
            )
        errors, noises = [each.error for each in found], [each.noise for each in found]
        print(f"{len(found)} programs")  # noqa: T201
        for name, values in (("errors", errors), ("noise", noises)):
            text = f"{name}: median {statistics.median(values):.1%}, worst {max(values):.1%}"
            print(text)  # noqa: T201


if __name__ == "__main__":
    main()
