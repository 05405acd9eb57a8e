# SPDX-License-Identifier: Apache-2.0
"""Finds the fastest fill and comparison kernels of this machine, for each class of lengths.

Method. There are few kernels, so all are measured: each round runs all of them and the C library,
hot and cold, with fixed and random lengths. The figure is the logarithm of the ratio of their times
in a round, averaged without the lowest and highest sixth. A kernel is chosen if it loses in no
cell, is not likely to, and gains overall; then it is measured again, in other pages and on another
processor, and dropped if it loses there. Short calls through 64-byte registers get the same
handicap as copies.
"""

import json
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace import _core
from headrace._apps.memory import available_bytes, pool_bytes_of, too_little
from headrace._apps.tune.search import (
    GAIN_MIN,
    LIKELY_LOSS_MAX,
    LONG_BYTES,
    Bench,
    Cell,
    handicap,
    rounds_within,
)
from headrace._trials import LOSS_MAX, interval, typical
from headrace.errors import OutOfMemoryError

KINDS = ("fills", "comparisons")
"""Names in the profile."""
CELLS = tuple(Cell(t, fixed, 1, 1.0) for t in ("hot", "cold") for fixed in (True, False))
ROUNDS, ROUNDS_LONG, ROUNDS_MIN = 24, 8, 6
SECONDS = 35.0
PASSES = 3
CACHE_BYTES_MAX = 64 << 20
"""Maximum assumed size of a last-level cache: hypervisors report larger ones than a guest has."""

Logs = dict[str, dict[Cell, list[float]]]
"""Logarithms of the speed relative to the C library, of each kernel in each cell."""


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel of a class of lengths.

    Attributes:
        ratios: Speed relative to the C library in each cell, of the kernel or, if none is chosen,
            of the best one.
        reason: Why it was chosen, as a clause.
    """

    bytes_max: int
    kernel: str | None
    ratios: dict[str, float]
    reason: str

    @property
    def ratio(self) -> float:
        """Speed relative to the C library over all cells."""
        return math.exp(statistics.fmean(math.log(each) for each in self.ratios.values()))

    @property
    def document(self) -> dict[str, object]:
        """Convert to fields of a profile or report."""
        return {
            "bytes_max": self.bytes_max,
            "kernel": self.kernel,
            "measured": {"ratios": self.ratios, "reason": self.reason},
        }


@dataclass(slots=True)
class KernelTuning:
    """The choices for fills and for comparisons."""

    choices: dict[str, list[KernelChoice]] = field(default_factory=lambda: {k: [] for k in KINDS})

    @property
    def document(self) -> dict[str, list[dict[str, object]]]:
        """Convert to fields of a profile."""
        return {kind: [each.document for each in self.choices[kind]] for kind in KINDS}


def tune_kernels(
    classes: Sequence[int],
    seed: int,
    check_stop: Callable[[], None],
    progress: Callable[[float], None],
) -> KernelTuning:
    """Choose a kernel for every class, ascending."""
    tuning = KernelTuning()
    cpus = sorted(os.sched_getaffinity(0))
    share_s = SECONDS / len(KINDS) / PASSES / len(classes)
    try:
        for number, kind in enumerate(KINDS):
            passes: list[list[Logs]] = []
            for index in range(PASSES):
                os.sched_setaffinity(0, {cpus[index % len(cpus)]})
                meter = _make_meter(classes[-1], kind, seed + index)
                passes.append(
                    [_measure(meter, bytes_max, share_s, check_stop) for bytes_max in classes]
                )
                progress((number * PASSES + index + 1) / len(KINDS) / PASSES)
            tuning.choices[kind] = [
                choose(bytes_max, [logs[place] for logs in passes])
                for place, bytes_max in enumerate(classes)
            ]
    finally:
        os.sched_setaffinity(0, cpus)
    return tuning


def choose(bytes_max: int, passes: Sequence[Logs]) -> KernelChoice:
    """Choose the kernel with the largest gain over all passes that loses in none, or none."""
    kernels = list(passes[0])
    if not kernels:
        return KernelChoice(bytes_max, None, {}, "there are no kernels here")
    figures = {each: _figures(each, bytes_max, passes) for each in kernels}
    ranked = sorted(kernels, key=lambda each: statistics.fmean(figures[each].values()))
    ranked.reverse()
    objections = {each: _objection(each, bytes_max, passes, figures[each]) for each in ranked}
    best = next((each for each in ranked if not objections[each]), ranked[0])
    less = handicap(best, bytes_max)
    return KernelChoice(
        bytes_max,
        None if objections[best] else best,
        {cell.name: math.exp(value + less) for cell, value in figures[best].items()},
        objections[best] or "it is the fastest",
    )


def _make_meter(bytes_max: int, kind: str, seed: int) -> _core.KernelMeter:
    l3_bytes = json.loads(_core.empty_copy_profile())["machine"]["l3_bytes"] or 32 << 20
    pool_bytes = pool_bytes_of(bytes_max, min(l3_bytes, CACHE_BYTES_MAX), available_bytes())
    try:
        return _core.KernelMeter.make(pool_bytes, kind == "fills", seed)
    except OutOfMemoryError as problem:
        # A cgroup may limit memory below the machine's.
        raise too_little(2 * pool_bytes, problem.cause) from problem


def _measure(
    meter: _core.KernelMeter, bytes_max: int, seconds: float, check_stop: Callable[[], None]
) -> Logs:
    kernels = meter.kernels()
    bench = Bench(meter, bytes_max, check_stop)
    rounds = ROUNDS if bytes_max < LONG_BYTES else ROUNDS_LONG
    for _ in rounds_within(seconds, rounds, ROUNDS_MIN):
        check_stop()
        for cell in CELLS:
            bench.measure(kernels, cell)
    return bench.logs


def _figures(kernel: str, bytes_max: int, passes: Sequence[Logs]) -> dict[Cell, float]:
    """For each cell the mean over the passes, equally weighted."""
    less = handicap(kernel, bytes_max)
    return {
        cell: statistics.fmean(typical(logs[kernel][cell]) for logs in passes) - less
        for cell in CELLS
    }


def _objection(
    kernel: str,
    bytes_max: int,
    passes: Sequence[Logs],
    figures: dict[Cell, float],
) -> str:
    """Why the C library is preferred; empty if it is not."""
    worst = min(figures, key=lambda cell: figures[cell])
    if figures[worst] < -LOSS_MAX:
        return f"it loses {1 - math.exp(figures[worst]):.0%} when {worst.name}"
    less = handicap(kernel, bytes_max)
    for cell in CELLS:
        for logs in passes:
            _, high = interval(logs[kernel][cell])
            if high - less < -LIKELY_LOSS_MAX:
                return f"it loses {1 - math.exp(high - less):.0%} in one pass when {cell.name}"
    if statistics.fmean(figures.values()) < math.log(1 + GAIN_MIN):
        return f"it gains less than {GAIN_MIN:.0%}"
    return ""
