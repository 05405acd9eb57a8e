# SPDX-License-Identifier: Apache-2.0
"""Statistics over several rounds: median, quartiles, and confidence interval."""

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_OUTSIDE = 0.05


@dataclass(frozen=True)
class Figure:
    """Median and quartiles over the rounds; `interval`: 95 %, of the median, not of counts."""

    median: float
    low: float
    high: float
    interval: tuple[float, float] | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval, or the quartiles of counts."""
        return self.interval or (self.low, self.high)

    @property
    def text(self) -> str:
        return f"{_rounded(self.median)} ({_rounded(self.low)} to {_rounded(self.high)})"

    def document(self) -> dict[str, float]:
        known = {"median": self.median, "quartile_low": self.low, "quartile_high": self.high}
        if self.interval is None:
            return known
        return {**known, "interval_low": self.interval[0], "interval_high": self.interval[1]}


def figure_of(values: Sequence[float]) -> Figure:
    low, high = _quartiles(values)
    return Figure(statistics.median(values), low, high, median_interval(values))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median, for any distribution of the values.

    By order statistics: the narrowest pair of values with equal ranks from below and above. With
    less than six values, their whole range.
    """
    rank = _outer_rank(len(values))
    ordered = sorted(values)
    return ordered[rank], ordered[-1 - rank]


@functools.cache
def _outer_rank(count: int) -> int:
    # The number of values below the median is binomial, with p = 1/2.
    most = int(_OUTSIDE / 2 * 2**53) * 2**count >> 53
    rank, cases = 0, 1
    cases_or_fewer = 1
    while True:
        cases = cases * (count - rank) // (rank + 1)
        cases_or_fewer += cases
        if cases_or_fewer > most:
            return rank
        rank += 1


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"  # noqa: PLR2004
