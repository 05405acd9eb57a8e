# SPDX-License-Identifier: Apache-2.0
"""The search for the best copy of one class of lengths: candidates and selection.

Method. That of `headrace.tune`: candidates are variants, the reference is the C library's memmove,
and a condition is a cell: a temperature, an alignment and a number of threads. memmove is called as
a program calls it, and a variant through the entry that a program gets. The last variants are
measured in every cell. The search chooses the best of these that is faster than memmove overall, in
no cell slower by more than `LOSS_MAX`, and in none likely to be slower by more than
`LIKELY_LOSS_MAX`; else memmove. A cell in which noise could hide such a loss also disqualifies a
variant.

The fastest copies from memory are the slowest in the caches. From `PAIRED_BYTES_MIN` on, pairs
therefore join the finalists: one variant, or memmove, for cached bytes, and one halved only in cold
cells for the others; code in front of both probes where the bytes are. A pair is measured and
judged as a variant; its first variant is the one that would be chosen without pairs, because a
program whose copies do not probe gets that alone. In shorter classes the probe costs too much, and
a copy that bypasses the caches loses more than it gained when the target is read next. Longer
copies than a quarter of the last-level cache find little in it, with both sides and other data.

If a core needs time to switch to 64-byte registers (`Meter.find_wide_cost`), short copies through
them are judged slower by `WIDE_HANDICAP`: a batch of them hides that time, a copy in a program does
not.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from headrace import _trials
from headrace._apps.tune.model import encode

LIBC = "libc"
"""memmove, as a program calls it: through the PLT."""

LIKELY_LOSS_MAX = 0.03
"""Maximum loss there that has a probability of 1 - `CONFIDENCE_MIN`."""
PASS_LOSS_MAX = 0.05
"""Maximum certain loss in one confirming pass."""
GAIN_MIN = 0.03
"""Minimum overall gain; a smaller one is often the luck of one run."""
CONFIDENCE_MIN = 0.9

WIDE_HANDICAP = 0.1
"""Extra cost of the first instructions with 64-byte registers, as a share of a copy."""
WIDE_COST_MIN = 1.3
"""Minimum slowdown of a single copy at which that cost is charged."""
WIDE_BYTES_MIN = 1 << 20
"""From this upper bound of a class on, copies are long enough to hide that cost."""

PREFETCH_WORD = 3
"""Place of the prefetch in the words of a variant: it has the most values."""

PAIR = " | "
"""Separates the two variants of a pair: for cached and for uncached bytes."""
PAIRED_BYTES_MIN = 1 << 16
"""Smallest upper bound of a class with pairs; docs/concepts/copy.md has the figures."""
PAIRED_COLD = 3
"""Variants for uncached bytes that are tried in pairs."""

SCREENED_SHARE = 0.05
SCREENED_MIN, SCREENED_MAX = 1000, 2000
"""Variants that the model may have measured: a share of all, and its limits."""
SCREENED_FIRST = 200
"""Maximum number of these measured before the first model."""
HALVING, FINALISTS = ((128, 2), (48, 6)), 16
"""Variants left, and rounds to measure each; variants left at last."""
FINAL_ROUNDS_MIN, FINAL_ROUNDS_MAX = 8, 96
"""Minimum and maximum rounds of the last stage, by the time left."""
FINAL_ROUNDS_ALL, FINAL_FEW = 16, 5
"""After this many rounds, only the best few that do not certainly lose continue."""
LONG_BYTES = 4 << 20
"""From this length on a round takes long: fewer rounds where time is short."""


class Meter(Protocol):
    """The interface of the meters of copies and of kernels."""

    def measure_round(
        self,
        subjects: Sequence[str],
        *,
        bytes_min: int,
        bytes_max: int,
        temperature: str,
        aligned: bool,
        thread_count: int,
    ) -> list[float]:
        """Nanoseconds per copy of each subject."""
        ...


@dataclass(frozen=True, slots=True)
class Cell:
    """Conditions under which copies are compared.

    Attributes:
        temperature: "hot", "last_level" or "cold".
        fixed: One length, both sides page-aligned; else lengths of the whole class, anywhere.
        thread_count: Threads that copy at the same time.
        weight: Weight in the overall figure.
    """

    temperature: str
    fixed: bool
    thread_count: int
    weight: float

    @property
    def name(self) -> str:
        """Name for reports: "cold fixed", "hot random x2"."""
        threads = "" if self.thread_count == 1 else f" x{self.thread_count}"
        return f"{self.temperature} {'fixed' if self.fixed else 'random'}{threads}"

    def measure(self, meter: Meter, subjects: Sequence[str], bytes_max: int) -> list[float]:
        """Measure one round in this cell, of the class that ends at `bytes_max`."""
        return meter.measure_round(
            subjects,
            bytes_min=bytes_max if self.fixed else bytes_max // 2 + 1,
            bytes_max=bytes_max,
            temperature=self.temperature,
            aligned=self.fixed,
            thread_count=self.thread_count,
        )


ALONE = tuple(Cell(t, fixed, 1, 1.0) for t in ("hot", "cold") for fixed in (True, False))
"""The cells of one thread that every class has."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice for a class of lengths.

    Attributes:
        variant: The chosen variant or pair; None is memmove.
        others: Acceptable alternatives, the best first.
        best: The best variant found, chosen or not.
        ratios: Speed of `best` relative to memmove in each cell: figure, lower and upper quartile.
        ratio: The same over all cells.
        confidence: Confidence that `best` is faster than memmove overall: share of resampled
            rounds in which it is, handicap included.
        confidence_best: Confidence that no other finalist is better.
        bytes_per_s_cold: Speed of `best` when cold, with one thread.
        bytes_per_s_hot: The same when hot.
        reason: Reason of the choice, as a clause.
    """

    bytes_max: int
    variant: str | None
    best: str | None
    ratios: dict[str, tuple[float, float, float]]
    variant_count: int
    tried_count: int
    batch_count: int
    reason: str
    ratio: float = 1.0
    confidence: float = 0.0
    confidence_best: float = 0.0
    bytes_per_s_cold: float = 0.0
    bytes_per_s_hot: float | None = None
    others: tuple[str, ...] = ()


class StoppedError(Exception):
    """The user has asked to stop the search."""


class Bench(_trials.Trials[str, Cell]):
    """Measures variants of one class against memmove, and keeps the results.

    The meter is None after the last measurement, to free its memory.
    """

    def __init__(
        self,
        meter: Meter | None,
        bytes_max: int,
        check_stop: Callable[[], None] = lambda: None,
        wide_handicap: float = WIDE_HANDICAP,
        logs: dict[str, dict[Cell, list[float]]] | None = None,
    ) -> None:
        super().__init__(logs)
        self.meter = meter
        self.bytes_max = bytes_max
        self.times_ns: dict[tuple[str, Cell], list[float]] = {}
        self.batch_count = 0
        self._check_stop = check_stop
        self._wide_handicap = wide_handicap

    def compare(self, chunk: Sequence[str], cell: Cell) -> list[float]:
        self._check_stop()
        subjects = [LIBC, *chunk, LIBC]
        assert self.meter is not None  # noqa: S101 - A retired meter is not used.
        times_ns = cell.measure(self.meter, subjects, self.bytes_max)
        self.batch_count += len(subjects)
        base = math.sqrt(times_ns[0] * times_ns[-1])
        for variant, time_ns in zip(chunk, times_ns[1:-1], strict=True):
            self.times_ns.setdefault((variant, cell), []).append(time_ns)
        # A broken clock may give 0.
        return [math.log(max(base, 1e-3) / max(time_ns, 1e-3)) for time_ns in times_ns[1:-1]]

    def encode(self, candidates: Sequence[str]) -> _trials.Vectors:
        return encode(candidates)

    def changed(self, candidate: str, other: str, draw: random.Random) -> str:
        """The variant with another prefetch, or another word of the other variant."""
        words, others = candidate.split(" "), other.split(" ")
        at = draw.choice((PREFETCH_WORD, draw.randrange(min(len(words), len(others)))))
        words[at] = others[at]
        return " ".join(words)

    def screening(self, index: int) -> tuple[Cell, ...]:
        return tuple(Cell(t, index % 2 == 1, 1, 1.0) for t in ("hot", "cold"))

    def counts(self, condition: Cell, goal: str | None) -> bool:
        """Whether a cell is of a temperature; None is all."""
        return goal in {None, condition.temperature}

    def weight(self, condition: Cell) -> float:
        return condition.weight

    def handicap(self, variant: str) -> float:
        return handicap(variant, self.bytes_max, self._wide_handicap)


def handicap(subject: str, bytes_max: int, wide: float = WIDE_HANDICAP) -> float:
    """The handicap of a short copy or kernel through 64-byte registers."""
    is_wide = any(each.startswith("zmm") for each in subject.split(PAIR))
    return wide if is_wide and bytes_max < WIDE_BYTES_MIN else 0.0


def wide_handicap(cost: float | None) -> float:
    """The handicap if a single copy through 64-byte registers takes `cost` times as long."""
    return 0.0 if cost is not None and cost < WIDE_COST_MIN else WIDE_HANDICAP


def final_cells(
    bytes_max: int, thread_count: int, *, last_level_bytes_max: int, threads_bytes_max: int
) -> tuple[Cell, ...]:
    """The cells of a class.

    Longer copies have too few different places: in the region that fits the last-level cache
    (`last_level_bytes_max`), and in each thread's part of the pools (`threads_bytes_max`).
    """
    cells = list(ALONE)
    if bytes_max <= last_level_bytes_max:
        cells.append(Cell("last_level", False, 1, 0.5))
    if thread_count > 1 and bytes_max <= threads_bytes_max:
        cells += [Cell(t, False, thread_count, 0.5) for t in ("hot", "cold")]
    return tuple(cells)


def screen(
    bench: Bench, variants: Sequence[str], *, deadline: float, seed: int, paired: bool = False
) -> None:
    """Measure variants that the model selects, until there are enough or time is up."""
    share = round(len(variants) * SCREENED_SHARE)
    count_max = min(len(variants), max(SCREENED_MIN, min(SCREENED_MAX, share)))
    draw = random.Random(seed)  # noqa: S311 - Nothing is secret here.
    first = plain_variants(variants)[: count_max // 4]
    chosen = set(first)
    rest = [variant for variant in variants if variant not in chosen]
    first += draw.sample(rest, min(len(rest), min(count_max // 2, SCREENED_FIRST) - len(first)))
    _trials.screen_by_model(
        bench,
        variants,
        first,
        count_max,
        lambda: time.monotonic() > deadline,
        seed=seed,
        always=[each for each in variants if " prefetch=none " in each],
        goals=(None, "cold") if paired else (None,),
    )


def plain_variants(variants: Sequence[str]) -> list[str]:
    """The variants to start with: plain ones for each kind of register."""
    return [
        variant
        for variant in variants
        if "align=target forward streams=1" in variant
        and ("block=4" in variant or variant.startswith("rep"))
        and ("prefetch=none " in variant or "prefetch=t0:4@0+target" in variant)
    ]


def halve(
    bench: Bench, cells: Sequence[Cell], *, deadline: float, paired: bool = False
) -> list[str]:
    """Select finalists by successive halving, and measure them in every cell.

    Args:
        bench: Has the screened variants.
        cells: The cells of the final rounds.
        deadline: Time of `time.monotonic()`; if infinite, all rounds run.
        paired: Whether to add pairs to the finalists.
    """

    def is_over() -> bool:
        return time.monotonic() > deadline

    left = _trials.halved(bench, HALVING, FINALISTS, is_over)
    cold = _trials.halved(bench, HALVING, PAIRED_COLD, is_over, goal="cold") if paired else []
    bench.times_ns.clear()
    if not cold:
        return _finals(bench, left, cells, deadline)
    left = _finals(bench, left, cells, (time.monotonic() + deadline) / 2)
    warm = choose(bench, left, cells, 0).variant or LIBC
    pairs = [f"{warm}{PAIR}{each}" for each in cold if each != warm]
    return left + _finals(bench, pairs, cells, deadline)


def _finals(bench: Bench, left: Sequence[str], cells: Sequence[Cell], deadline: float) -> list[str]:
    """Measure variants in every cell until the deadline, at last only the best few."""
    # Discard the rounds that selected them: they are biased by luck.
    for variant in left:
        bench.logs[variant] = {}
    for index in range(FINAL_ROUNDS_MAX):
        if index == FINAL_ROUNDS_ALL:
            left = _hopeful(bench, left)
        for cell in cells:
            bench.measure(left, cell)
        is_long = bench.bytes_max >= LONG_BYTES
        rounds_min = FINAL_ROUNDS_MIN if is_long else FINAL_ROUNDS_ALL
        if index + 1 >= rounds_min and time.monotonic() > deadline:
            break
    return list(left)


def _hopeful(bench: Bench, left: Sequence[str]) -> list[str]:
    """The `FINAL_FEW` best of those that are not certain to lose; of all, if all are."""
    hopeful = [
        each
        for each in left
        if all(
            np.quantile(_trials.drawn(logs), CONFIDENCE_MIN) - bench.handicap(each)
            >= -_trials.LOSS_MAX / cell.weight
            for cell, logs in bench.logs[each].items()
        )
    ]
    return bench.best(FINAL_FEW, hopeful or left)


def confirmed(choice: Choice, passes: Sequence[Bench]) -> Choice:
    """Check a choice with a variant against repeated measurements, later and in other pages.

    A variant that certainly loses in one pass, may lose in all passes together, or no longer gains
    is replaced by the next of `others`, and finally by memmove.
    """
    reasons = []
    for variant in (choice.variant, *choice.others):
        if variant is None or variant not in passes[0].logs:
            break
        reason = _lost_again(variant, passes)
        if not reason:
            return replace(choice, variant=variant)
        reasons.append(reason)
    return replace(choice, variant=None, reason=reasons[0])


def _lost_again(variant: str, passes: Sequence[Bench]) -> str:
    """Why a variant is rejected; empty if it is not."""
    less = passes[0].handicap(variant)
    together = Bench(None, passes[0].bytes_max, logs={variant: {}})
    for cell in passes[0].logs[variant]:
        logs = together.logs[variant][cell] = [
            log for each in passes for log in each.logs[variant][cell]
        ]
        highs = [_trials.interval(each.logs[variant][cell])[1] - less for each in passes]
        if min(highs) < -PASS_LOSS_MAX:
            return f"it loses {1 - math.exp(min(highs)):.0%} when {cell.name} in one place"
        figure = _trials.typical(logs) - less
        if figure < -_trials.LOSS_MAX / cell.weight:
            return f"it loses {1 - math.exp(figure):.1%} when {cell.name}, measured again"
        low = likely_low(logs) - less
        if low < -LIKELY_LOSS_MAX / cell.weight:
            return f"it may lose {1 - math.exp(low):.1%} when {cell.name}, measured again"
    if _on_the_whole(together, variant, [*together.logs[variant]]) * math.exp(-less) < 1 + GAIN_MIN:
        return f"it gains less than {GAIN_MIN:.0%}, measured again"
    return ""


def likely_low(logs: Sequence[float]) -> float:
    """Lower confidence bound of a cell's figure, at `CONFIDENCE_MIN`."""
    return float(np.quantile(_trials.drawn(logs), 1 - CONFIDENCE_MIN))


def choose(bench: Bench, finalists: Sequence[str], cells: Sequence[Cell], count: int) -> Choice:
    if not finalists:
        why, tried = "nothing is generated here", len(bench.logs)
        return Choice(bench.bytes_max, None, None, {}, count, tried, bench.batch_count, why)
    resampled = {each: _resampled(bench, each, cells) for each in finalists}
    ranked = sorted(finalists, key=lambda each: float(np.median(resampled[each])), reverse=True)
    objections = {
        each: _objection(bench, each, cells, float(np.mean(resampled[each] > 0))) for each in ranked
    }
    best = next((each for each in ranked if not objections[each]), ranked[0])
    rivals = [
        resampled[best] >= resampled[each]
        for each in ranked
        if each != best and not objections[each]
    ]
    cold_ns, hot_ns = (
        float(np.median(bench.times_ns[best, Cell(temperature, True, 1, 1.0)]))
        for temperature in ("cold", "hot")
    )
    return Choice(
        bytes_max=bench.bytes_max,
        variant=None if objections[best] else best,
        best=best,
        ratios={cell.name: _quartiles(bench.logs[best][cell]) for cell in cells},
        ratio=_on_the_whole(bench, best, cells),
        confidence=float(np.mean(resampled[best] > 0)),
        confidence_best=float(np.mean(np.all(rivals, axis=0))) if rivals else 1.0,
        bytes_per_s_cold=bench.bytes_max / cold_ns * 1e9,
        bytes_per_s_hot=bench.bytes_max / hot_ns * 1e9,
        variant_count=count,
        tried_count=len(bench.logs),
        batch_count=bench.batch_count,
        reason=objections[best] or "it is the fastest",
        others=tuple(each for each in ranked if each != best and not objections[each]),
    )


def _on_the_whole(bench: Bench, variant: str, cells: Sequence[Cell]) -> float:
    """Speed relative to memmove over all cells."""
    total = sum(cell.weight for cell in cells)
    logs = bench.logs[variant]
    return math.exp(sum(cell.weight * _trials.typical(logs[cell]) for cell in cells) / total)


def _objection(bench: Bench, variant: str, cells: Sequence[Cell], confidence: float) -> str:
    """Why memmove is preferred; empty if it is not."""
    less = bench.handicap(variant)
    besides = f", {less:.0%} for registers of 64 bytes included" if less else ""
    logs = bench.logs[variant]
    for what, loss_max, figure in (
        ("loses", _trials.LOSS_MAX, _trials.typical),
        ("may lose", LIKELY_LOSS_MAX, likely_low),
    ):
        losses = {cell: 1 - math.exp(figure(logs[cell]) - less) for cell in cells}
        worst = max(cells, key=lambda cell: losses[cell] * cell.weight)
        if losses[worst] * worst.weight > loss_max:
            return f"it {what} {losses[worst]:.0%} when {worst.name}{besides}"
    if _on_the_whole(bench, variant, cells) * math.exp(-less) < 1 + GAIN_MIN:
        return f"it gains less than {GAIN_MIN:.0%}{besides}"
    return "" if confidence >= CONFIDENCE_MIN else "it is not sure to gain"


def _resampled(bench: Bench, variant: str, cells: Sequence[Cell]) -> _trials.Vectors:
    """The overall figure for rounds resampled with replacement, less the handicap."""
    total = sum(cell.weight for cell in cells)
    scores = np.full(_trials.RESAMPLE_COUNT, -bench.handicap(variant))
    for number, cell in enumerate(cells):
        scores += cell.weight / total * _trials.drawn(bench.logs[variant][cell], number)
    return scores


def _quartiles(logs: Sequence[float]) -> tuple[float, float, float]:
    low, high = np.exp(np.quantile(np.array(logs), (0.25, 0.75)))
    return math.exp(_trials.typical(logs)), float(low), float(high)
