# SPDX-License-Identifier: Apache-2.0
"""Upper bound of the copy speed at one point: the best variant, measured beside the C library's.

Method. The first half of the time measures variants of the grid in random order, each at least once
if time allows; the next quarter the best of them, the last quarter the best few of these. Only the
last rounds, which chose nothing, give the figure. If all variants were measured, it is an upper
bound for a profile, which must choose for hot and cold bytes, fixed and random lengths at once.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace import _core
from headrace._apps.tune.search import LIBC
from headrace._trials import CHUNK_COUNT, typical

_STAGES = ((0.5, 60), (0.75, 8), (1.0, 1))
"""For each stage: share of the time at its end, and variants that it passes on."""

Measure = Callable[[Sequence[str]], list[float]]
"""One round at the point: nanoseconds of each subject."""


@dataclass(frozen=True)
class Bound:
    """The best of the variants at one point.

    Attributes:
        variant: The best variant; None if memmove is best.
        ratio: Its speed relative to memmove, at least 1.
    """

    variant: str | None
    ratio: float
    measured_count: int
    variant_count: int


def bound_of(measure: Measure, bytes_min: int, seconds: float, seed: int) -> Bound:
    """Find the best variant for copies of at least `bytes_min` bytes."""
    grid = left = _core.copy_variants(bytes_min)
    draw = random.Random(seed)  # noqa: S311 - No secret.
    begin = time.monotonic()
    measured_count = 0
    ratio = 1.0
    for share, count in _STAGES:
        logs: dict[str, list[float]] = {}
        while left and (not logs or time.monotonic() < begin + share * seconds):
            _sweep(measure, draw.sample(left, len(left)), logs, begin + share * seconds)
        measured_count = measured_count or len(logs)
        left = sorted(logs, key=lambda each: typical(logs[each]), reverse=True)[:count]
        ratio = math.exp(typical(logs[left[0]])) if left else 1.0
    return Bound(left[0] if ratio > 1 else None, max(1.0, ratio), measured_count, len(grid))


def _sweep(
    measure: Measure, variants: Sequence[str], logs: dict[str, list[float]], deadline: float
) -> None:
    """Measure each variant once, until the deadline."""
    for begin in range(0, len(variants), CHUNK_COUNT):
        chunk = variants[begin : begin + CHUNK_COUNT]
        first, *times_ns, last = (max(each, 1e-3) for each in measure([LIBC, *chunk, LIBC]))
        for variant, time_ns in zip(chunk, times_ns, strict=True):
            logs.setdefault(variant, []).append(math.log(math.sqrt(first * last) / time_ns))
        if time.monotonic() > deadline:
            break
