# SPDX-License-Identifier: Apache-2.0
"""The model-based search behind `headrace.tune` and the command ``headrace tune``.

Method. A round measures some candidates and a reference, in random order. The figure is the
logarithm of the ratio of their times in the same round, because the machine may be slower in the
next one. A candidate's figure under a condition is the mean over its rounds, without the lowest and
highest sixth.

Screening measures many candidates in few rounds: all of them, or those that a model selects. The
model is a Gaussian process over the parameters, fitted to the measurements; it selects the
candidates with the highest predicted figure plus uncertainty. Each turn it evaluates some thousand
candidates, not the whole space, so that its time does not grow with the space, and measuring takes
at least as long as selecting. Then successive halving: fewer candidates, more rounds, until few are
left, which are measured again, because the rounds that selected them are biased by luck.
"""

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

LOSS_MAX = 0.02
"""Maximum loss against the reference under a condition of weight 1, as a share."""
LOSS_PENALTY = 5
"""Weight of a loss beyond the maximum, relative to a gain."""
CHUNK_COUNT = 12
"""Candidates that take turns with the reference in one round."""
CANDIDATES = 2000
"""Candidates of a large space that the model predicts in a turn, beside those of `always`."""
RELATIVES_OF, RELATIVES = 8, 40
"""Number of best candidates so far, and of changes of each among those that the model predicts."""
FITTED_MAX = 400
"""Measured candidates that the model is fitted to: half of them the best."""
RESAMPLE_COUNT = 400

C = TypeVar("C", bound=Hashable)
K = TypeVar("K", bound=Hashable)
Vectors = NDArray[np.float64]


class Trials(ABC, Generic[C, K]):
    """Measures candidates of type `C` against a reference, and keeps the results.

    `K` is a condition, such as cached or not. A goal is a name for some of the conditions; None is
    all of them.

    Attributes:
        logs: For each candidate and condition, the logarithm of its speed relative to the reference
            in each round.
    """

    def __init__(self, logs: dict[C, dict[K, list[float]]] | None = None) -> None:
        self.logs: dict[C, dict[K, list[float]]] = {} if logs is None else logs

    @abstractmethod
    def compare(self, chunk: Sequence[C], condition: K) -> list[float]:
        """Measure some candidates in one round: logarithms of their speeds."""

    @abstractmethod
    def encode(self, candidates: Sequence[C]) -> Vectors:
        """Points whose distance says how much two candidates differ."""

    @abstractmethod
    def changed(self, candidate: C, other: C, draw: random.Random) -> C:
        """The candidate with a parameter of another one; may be invalid."""

    @abstractmethod
    def screening(self, index: int) -> Sequence[K]:
        """The conditions of a round of screening."""

    def counts(self, condition: K, goal: str | None) -> bool:  # noqa: ARG002
        return True

    def weight(self, condition: K) -> float:  # noqa: ARG002
        return 1.0

    def handicap(self, candidate: C) -> float:  # noqa: ARG002
        """Subtracted from the figures of a candidate."""
        return 0.0

    def measure(self, candidates: Sequence[C], condition: K) -> None:
        """Run one round of each candidate under one condition."""
        for begin in range(0, len(candidates), CHUNK_COUNT):
            chunk = candidates[begin : begin + CHUNK_COUNT]
            for candidate, log in zip(chunk, self.compare(chunk, condition), strict=True):
                self.logs.setdefault(candidate, {}).setdefault(condition, []).append(log)

    def score(self, candidate: C, goal: str | None = None) -> float:
        """Weighted mean of a candidate's figures, less a penalty for losses."""
        less = self.handicap(candidate)
        return self.judged(
            {
                condition: typical(logs) - less
                for condition, logs in self.logs[candidate].items()
                if self.counts(condition, goal)
            }
        )

    def judged(self, figures: Mapping[K, float]) -> float:
        """One figure for all conditions; a loss under one of them gets a penalty."""
        total = sum(map(self.weight, figures))
        mean = sum(self.weight(condition) * log for condition, log in figures.items()) / total
        return mean - LOSS_PENALTY * max(0.0, -min(figures.values()) - LOSS_MAX)

    def best(
        self, count: int, among: Sequence[C] | None = None, goal: str | None = None
    ) -> list[C]:
        names = self.logs if among is None else among
        return sorted(names, key=lambda each: self.score(each, goal), reverse=True)[:count]


def screen_by_model(  # noqa: PLR0913
    trials: Trials[C, K],
    candidates: Sequence[C],
    first: Sequence[C],
    count_max: int,
    is_over: Callable[[], bool],
    *,
    seed: int,
    always: Sequence[C] = (),
    goals: Sequence[str | None] = (None,),
) -> None:
    """Measure candidates that the model selects, until there are `count_max` or `is_over`.

    Args:
        trials: Measures.
        candidates: The whole space.
        first: Measured before the first model.
        count_max: Measured candidates at most.
        is_over: Whether time is up.
        seed: Seed of the candidates that the model looks at.
        always: Those that it always looks at.
        goals: What it selects for, in turn.
    """
    draw = random.Random(seed)  # noqa: S311 - Nothing is secret here.
    known = set(candidates)

    def looked_at(goal: str | None) -> list[C]:
        if len(candidates) <= CANDIDATES:
            return [each for each in candidates if each not in trials.logs]
        some = draw.sample(candidates, CANDIDATES)
        found = dict.fromkeys([*always, *some])
        for best in trials.best(RELATIVES_OF, goal=goal):
            for other in draw.sample(some, RELATIVES):
                found[trials.changed(best, other, draw)] = None
        return [each for each in found if each in known and each not in trials.logs]

    for begin in range(0, len(first), CHUNK_COUNT):
        _screen(trials, first[begin : begin + CHUNK_COUNT])
        if is_over():
            return
    turn = 0
    while len(trials.logs) < min(count_max, len(candidates)) and not is_over():
        begin_s = time.monotonic()
        goal = goals[turn % len(goals)]
        named = _promising(trials, looked_at(goal), goal)[: count_max - len(trials.logs)]
        took_s = time.monotonic() - begin_s
        turn += 1
        _screen(trials, named[:CHUNK_COUNT])
        del named[:CHUNK_COUNT]
        while named and time.monotonic() < begin_s + 2 * took_s and not is_over():
            _screen(trials, named[:CHUNK_COUNT])
            del named[:CHUNK_COUNT]


def _screen(trials: Trials[C, K], candidates: Sequence[C]) -> None:
    """One round each: a candidate must be good under all conditions of screening."""
    odd, even = trials.screening(1), trials.screening(0)
    for condition in dict.fromkeys([*odd[:1], *even[-1:]]):
        trials.measure(candidates, condition)


def _promising(trials: Trials[C, K], candidates: Sequence[C], goal: str | None) -> list[C]:
    """Sort the candidates by predicted score plus uncertainty, highest first."""
    if not candidates:
        return []
    fitted = trials.best(len(trials.logs), goal=goal)
    if not fitted:  # Nothing is measured that could predict them.
        return list(candidates)
    if len(fitted) > FITTED_MAX:
        half = FITTED_MAX // 2
        fitted = fitted[:half] + fitted[half :: -(-(len(fitted) - half) // half)]
    conditions = [each for each in trials.logs[fitted[0]] if trials.counts(each, goal)]
    figures = [
        np.array([typical(trials.logs[each][condition]) for each in fitted])
        for condition in conditions
    ]
    means, deviation = predict(trials.encode(candidates), trials.encode(fitted), figures)
    less = np.array([trials.handicap(each) for each in candidates])
    weights = [trials.weight(condition) for condition in conditions]
    hopes = np.average(means, axis=0, weights=weights) - less + deviation
    hopes -= LOSS_PENALTY * np.maximum(0.0, less - np.min(means, axis=0) - LOSS_MAX)
    return [candidates[i] for i in np.argsort(-hopes, kind="stable")]


def halved(
    trials: Trials[C, K],
    stages: Sequence[tuple[int, int]],
    left: int,
    is_over: Callable[[], bool],
    *,
    goal: str | None = None,
) -> list[C]:
    """Select the best `left` of the screened candidates by successive halving.

    `stages` has candidates and rounds to measure each; `goal` restricts the conditions.
    """
    named = trials.best(len(trials.logs), goal=goal)
    for count, round_count in stages:
        if is_over():
            break
        named = trials.best(count, named, goal)
        for index in range(round_count):
            for condition in trials.screening(index):
                if trials.counts(condition, goal):
                    trials.measure(named, condition)
            if is_over():
                break
    return trials.best(left, named, goal)


def predict(
    points: Vectors, measured: Vectors, values: Sequence[Vectors], noise: float = 0.03
) -> tuple[list[Vectors], Vectors]:
    """Predict figures by a Gaussian process over points.

    Args:
        points: Predicted.
        measured: Points that the process is fitted to.
        values: The figures of `measured`, under each condition.
        noise: Standard deviation of the figures.

    Returns:
        The mean under each condition, and the standard deviation, the same for all, of every point.
    """
    across = _kernel(points, measured)
    scales = [max(float(each.std()), 1e-3) for each in values]
    scale = math.exp(sum(map(math.log, scales)) / len(scales))
    gram = _kernel(measured, measured) + np.eye(len(measured)) * (noise / scale) ** 2
    centers = [float(np.median(each)) for each in values]
    offsets = [each - center for each, center in zip(values, centers, strict=True)]
    solved = np.linalg.solve(gram, np.column_stack([*offsets, across.T]))
    means = across @ solved[:, : len(values)] + np.array(centers)
    variance = np.maximum(1.0 - np.einsum("ij,ji->i", across, solved[:, len(values) :]), 0.0)
    return list(means.T), np.sqrt(variance) * scale


def _kernel(left: Vectors, right: Vectors) -> Vectors:
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0)), dtype=np.float64)


def typical(logs: Sequence[float] | Vectors) -> float:
    """The mean without the lowest and highest sixth.

    Not the median: relative page offsets make some copies faster and others slower, and all of them
    count. Not the mean: other processes disturb it.
    """
    values = sorted(logs)  # Not by NumPy, which is ten times as slow for as few.
    cut = len(values) // 6
    return math.fsum(values[cut : len(values) - cut]) / (len(values) - 2 * cut)


def drawn(logs: Sequence[float], seed: int = 0) -> Vectors:
    """`typical` for rounds resampled with replacement."""
    # All candidates share the draws, because they were measured in the same rounds.
    generator = np.random.default_rng(seed)
    values = np.array(logs)
    draws = generator.integers(0, len(values), (RESAMPLE_COUNT, len(values)))
    cut = len(values) // 6
    drawn = np.sort(values[draws], axis=1)[:, cut : len(values) - cut]
    return np.asarray(drawn.mean(axis=1))


def interval(logs: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of `typical`, by resampling the rounds."""
    low, high = np.quantile(drawn(logs), (0.025, 0.975))
    return float(low), float(high)
