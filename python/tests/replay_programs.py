# SPDX-License-Identifier: Apache-2.0
"""Programs of several patterns, and how well replays of their traces predict them on this machine.

    python replay_programs.py [ROUNDS]

Each program runs with one worker and records a trace. The trace is replayed with two workers on
this machine's measured record, and compared with what traces of the program with two workers say:
the time in submissions and waits, the median of the rounds. The same median of as many further
runs, in turns with the first, says what the measure is worth.

A program first does the same without recording. Linux may begin a worker on the processor of the
thread that submits, and leaves it there for the first 10 to 40 ms: then each wait takes 6 to 55 us
longer, although the other processor is idle.

A run that other work disturbs says nothing about the model, and other work only adds time. So of
several runs the fastest count. How much they were disturbed is printed: the time in which threads
of the program waited for a processor, but at most the time in which other programs had one. As
root all runs have the highest priority that is not real-time.
"""

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from traces import entries

import headrace
from headrace import _core
from headrace.simulator import replay
from headrace_lab.sim import measured

SIZES = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
PATTERNS = ("wait", "compute", "batch")
COMPUTE_S = 100e-6
BATCH = 8
POOL_BYTES = 128 << 20
"""Of each side, so that no place is cached when it is used again."""
MOVED_BYTES = 256 << 20
MOVES_MIN = 256
"""Threads learn for how long to look from some 20 waits; a replay begins with new threads."""
WARM_S = 0.1
"""Long enough for Linux to move a worker away from the thread that submits."""
TRIES = 3
"""Runs for each one that counts."""
RECORDED, PREDICTED = 1, 2
"""Workers."""
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


def execute(program: Program, workers: int, trace: str) -> float:
    """Run it in this process, and record it into `trace`.

    Returns how much other work disturbed it, as a share of its time.
    """
    processors = len(os.sched_getaffinity(0))
    with headrace.Engine(path="cpu", threads_per_node=workers) as engine:
        turns = threading.Barrier(program.threads + 1)
        threads = [
            threading.Thread(target=_moves, args=(program, engine, turns))
            for _ in range(program.threads)
        ]
        for each in threads:
            each.start()
        turns.wait()
        headrace.start_trace(trace)
        begin_ns, (ran_ns, waited_ns) = time.perf_counter_ns(), _scheduled()
        turns.wait()
        turns.wait()
        (ran_after_ns, waited_after_ns), end_ns = _scheduled(), time.perf_counter_ns()
        headrace.stop_trace()
        turns.wait()
        for each in threads:
            each.join()
    lasted_ns = end_ns - begin_ns
    others_ns = processors * lasted_ns - (ran_after_ns - ran_ns)
    return max(0, min(waited_after_ns - waited_ns, others_ns)) / lasted_ns


def _scheduled() -> tuple[int, int]:
    """Nanoseconds that all threads ran, and that they waited for a processor; 0 if not known."""
    ran_ns = waited_ns = 0
    for each in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):
            ran, waited, _ = each.read_text().split()
            ran_ns, waited_ns = ran_ns + int(ran), waited_ns + int(waited)
    return ran_ns, waited_ns


def _moves(program: Program, engine: headrace.Engine, turns: threading.Barrier) -> None:
    pool = max(POOL_BYTES if program.cold else BATCH * program.size, program.size)
    source, target = (np.ones(pool, np.uint8) for _ in range(2))
    count = max(MOVED_BYTES // program.size, MOVES_MIN) // program.threads
    group = BATCH if program.pattern == "batch" else 1

    def move(index: int) -> None:
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

    warm = time.perf_counter() + WARM_S
    for index in itertools.count(0, group):
        move(index)
        if time.perf_counter() > warm:
            break
    turns.wait()
    turns.wait()
    for index in range(0, count, group):
        move(index)
    turns.wait()
    turns.wait()


@dataclass(frozen=True, order=True)
class _Run:
    moved_s: float
    """In submissions and waits, over all threads."""
    disturbed: float
    trace: bytes


def _run(program: Program, workers: int, trace: Path) -> _Run:
    words = [*map(str, (program.pattern, program.size, int(program.cold), program.threads))]
    trace.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, __file__, "run", *words, str(workers), str(trace)],
        check=True,
        timeout=600,
        capture_output=True,
    )
    whole = trace.read_bytes()
    ticks = json.loads(whole[: whole.index(b"\n")])["ticks_per_second"]
    moved = sum(each.end - each.begin for each in entries(whole) if each.kind in KINDS)
    moved_s = moved / float(ticks)
    return _Run(moved_s, float(done.stdout), whole)


@dataclass(frozen=True)
class Outcome:
    """Seconds of one program."""

    program: Program
    predicted_s: float
    measured_s: float
    again_s: float
    disturbed: float
    """Of the most disturbed run that counts."""

    @property
    def error(self) -> float:
        """Of the prediction, as a share of the measured time."""
        return abs(self.predicted_s / self.measured_s - 1)

    @property
    def noise(self) -> float:
        """Of the measured time."""
        return abs(self.again_s / self.measured_s - 1)


def compare(
    record_now: Callable[[], Path], given: Sequence[Program], round_count: int
) -> Iterator[Outcome]:
    """Predict and measure; runs between which `record_now` gives another record do not count."""
    draw = random.Random(1)  # noqa: S311 - No secret.
    with tempfile.TemporaryDirectory() as folder:
        for program in given:
            trace = Path(folder) / "trace"
            recorded = min(_run(program, RECORDED, trace) for _ in range(TRIES))
            runs: dict[Path, dict[str, list[_Run]]] = {}
            record = record_now()
            while all(min(map(len, each.values())) < TRIES * round_count for each in runs.values()):
                for name in draw.sample(["measured", "again"], 2):
                    one = _run(program, PREDICTED, trace)
                    before, record = record, record_now()
                    if record == before:
                        found = runs.setdefault(record, {"measured": [], "again": []})
                        found[name].append(one)
            record, chosen = max(runs.items(), key=lambda each: min(map(len, each[1].values())))
            best = [sorted(each)[:round_count] for each in chosen.values()]
            measured_s, again_s = (statistics.median(run.moved_s for run in each) for each in best)
            trace.write_bytes(recorded.trace)
            machine: dict[str, Any] = {"machine": str(record), "workers": PREDICTED}
            (result,) = replay(str(trace), [machine])[1]
            worst = max(run.disturbed for each in best for run in each)
            yield Outcome(program, result.moving_s + result.waited_s, measured_s, again_s, worst)


class Records:
    """Records of this machine in each state that it has been found in.

    A hypervisor moves virtual processors. If two have a last-level cache in common, a line passes
    between them in a fifth of the time, but together they copy no more from memory than one.
    """

    def __init__(self, stack: ExitStack) -> None:
        """`stack` removes them."""
        self._stack = stack
        self._found: list[tuple[float, Path]] = []

    def now(self) -> Path:
        """Return the record of the present state, which is measured if it is new."""
        while True:
            line_ns = self._line_ns()
            for known_ns, path in self._found:
                if 1 / measured.STATE_RATIO < line_ns / known_ns < measured.STATE_RATIO:
                    return path
            machine = headrace.topo()
            model = measured.model_of(machine, measured.measure(machine))
            text = _core.Machine.make_record()[1]
            path = self._stack.enter_context(measured.record_of(text, model))
            if 1 / measured.STATE_RATIO < line_ns / self._line_ns() < measured.STATE_RATIO:
                self._found.append((line_ns, path))

    @staticmethod
    def _line_ns() -> float:
        cpus = sorted(os.sched_getaffinity(0))[:2]
        both = [measured.stream("copy", each, 0, 64, 64) for each in cpus]
        return measured.ask("handover", both, measured.Effort(5, 200, 400)).value


def main() -> None:
    """Print a table, and the errors."""
    if sys.argv[1:2] == ["run"]:
        pattern, *numbers, trace = sys.argv[2:]
        size, cold, threads, workers = map(int, numbers)
        print(execute(Program(pattern, size, bool(cold), threads), workers, trace))  # noqa: T201
        return
    with suppress(OSError):
        # Linux shares processors between sessions first, by the priority of each.
        os.setsid()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        Path("/proc/self/autogroup").write_text("-20", encoding="utf-8")
    with ExitStack() as stack:
        found = []
        for each in compare(
            Records(stack).now, programs(), int(sys.argv[1]) if sys.argv[1:] else 5
        ):
            found.append(each)
            times = (each.predicted_s, each.measured_s, each.again_s)
            print(  # noqa: T201 - A program.
                each.program.name,
                *(f"{1e3 * one:.1f}" for one in times),
                f"{each.error:.0%}",
                f"disturbed {each.disturbed:.0%}",
                flush=True,
            )
        errors, noises = [each.error for each in found], [each.noise for each in found]
        print(f"{len(found)} programs")  # noqa: T201
        for name, values in (("errors", errors), ("noise", noises)):
            text = f"{name}: median {statistics.median(values):.1%}, worst {max(values):.1%}"
            print(text)  # noqa: T201


if __name__ == "__main__":
    main()
