# SPDX-License-Identifier: Apache-2.0
"""Finds the fastest fill and comparison kernels of this machine, for each class of lengths.

Method. That of `headrace.tune.search`, with the C library's routine as the reference, and hot and
cold bytes at fixed and random lengths as conditions. What is chosen is searched for again in other
pages and on another processor, and dropped if it does not win there. Short calls through 64-byte
registers get the same handicap as copies.
"""

import json
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace import _core, tune
from headrace._apps.memory import available_bytes, pool_bytes_of, too_little
from headrace._apps.tune.search import ALONE, GAIN_MIN, LIBC, LONG_BYTES, handicap
from headrace.errors import OutOfMemoryError

KINDS = ("fills", "comparisons")
"""Names in the profile."""
CELLS = {cell.name: cell for cell in ALONE}
ROUNDS, ROUNDS_LONG = 24, 12
PASSES = 3
CACHE_BYTES_MAX = 64 << 20
"""Maximum assumed size of a last-level cache: hypervisors report larger ones than a guest has."""


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel of a class of lengths.

    Attributes:
        ratios: Speed relative to the C library in each cell, of the kernel or, if none is chosen,
            of the best one.
        reason: Why, as a clause.
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
        return {
            "bytes_max": self.bytes_max,
            "kernel": self.kernel,
            "measured": {"ratios": self.ratios, "reason": self.reason},
        }


Kernels = dict[str, list[KernelChoice]]
"""The choices for fills and for comparisons."""


def documents_of(kernels: Kernels | None) -> dict[str, list[dict[str, object]]]:
    return {kind: [each.document for each in choices] for kind, choices in (kernels or {}).items()}


def tune_kernels(
    classes: Sequence[int],
    seed: int,
    check_stop: Callable[[], None],
    progress: Callable[[float], None],
) -> Kernels:
    kernels: Kernels = {}
    cpus = sorted(os.sched_getaffinity(0))
    try:
        for number, kind in enumerate(KINDS):
            passes: dict[int, list[tune.Result]] = {bytes_max: [] for bytes_max in classes}
            for index in range(PASSES):
                os.sched_setaffinity(0, {cpus[index % len(cpus)]})
                meter = _make_meter(classes[-1], kind, seed + index)
                for bytes_max, found in passes.items():
                    if tried := [found[-1].best["kernel"]] if found else meter.kernels():
                        found.append(_search(meter, bytes_max, tried, seed + index, check_stop))
                progress((number * PASSES + index + 1) / len(KINDS) / PASSES)
            kernels[kind] = [choose(*each) for each in passes.items()]
    finally:
        os.sched_setaffinity(0, cpus)
    return kernels


def choose(bytes_max: int, passes: Sequence[tune.Result]) -> KernelChoice:
    """Choose the kernel that wins in every pass, and gains enough over all of them; or none."""
    compared = [each for each in passes if each.rival]
    if not compared:
        return KernelChoice(bytes_max, None, {}, "there are no kernels here")
    best = str(compared[0].rival["kernel"])
    less = handicap(best, bytes_max)
    ratios = {
        name: statistics.geometric_mean(each.speeds[name] for each in compared) for name in CELLS
    }
    lost = next((each for each in passes if each.best["kernel"] == LIBC), None)
    reason = "it is the fastest"
    if lost is not None:
        reason = lost.reason.replace("another one", "it")
    elif statistics.geometric_mean(ratios.values()) < 1 + GAIN_MIN:
        reason, lost = f"it gains less than {GAIN_MIN:.0%}", passes[0]
    # The ratios in the profile are as measured, without the handicap.
    measured = {name: each * math.exp(less) for name, each in ratios.items()}
    return KernelChoice(bytes_max, None if lost else best, measured, reason)


def _search(
    meter: _core.CopyMeter,
    bytes_max: int,
    kernels: Sequence[tune.Value],
    seed: int,
    check_stop: Callable[[], None],
) -> tune.Result:
    def measure(kernel: str, condition: str) -> float:
        (time_ns,) = CELLS[condition].measure(meter, [kernel], bytes_max)
        # A broken clock may give 0.
        return max(time_ns, 1e-3) * math.exp(handicap(kernel, bytes_max))

    rounds = ROUNDS if bytes_max < LONG_BYTES else ROUNDS_LONG
    return tune.search(
        {"kernel": [LIBC, *kernels]},
        measure,
        conditions=list(CELLS),
        measurements=rounds * len(CELLS) * (len(kernels) + 2),
        seed=seed,
        progress=lambda _: check_stop(),
    )


def _make_meter(bytes_max: int, kind: str, seed: int) -> _core.CopyMeter:
    l3_bytes = json.loads(_core.empty_copy_profile())["machine"]["l3_bytes"] or 32 << 20
    pool_bytes = pool_bytes_of(bytes_max, min(l3_bytes, CACHE_BYTES_MAX), available_bytes())
    try:
        return _core.CopyMeter.of_kernels(pool_bytes, kind == "fills", seed)
    except OutOfMemoryError as problem:
        # A cgroup may limit memory below the machine's.
        raise too_little(2 * pool_bytes, problem.cause) from problem
