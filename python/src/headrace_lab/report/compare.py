# SPDX-License-Identifier: Apache-2.0
"""Compares two reports: two machines, or two days of one."""

import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from headrace._files import read_file
from headrace.errors import CorruptDataError, VersionMismatchError

_BYTES_MAX = 64 << 20
_SURE = 0.05
ROUNDS_MIN = 4
"""With fewer of each no difference is certain, however large."""
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure in both reports.

    Attributes:
        probability: The p-value of the difference, by the Mann-Whitney rank test.
        certain: Whether it is below 5 %; None with too few rounds.
    """

    family: str
    panel: str
    line: str
    x: str
    metric: str
    before: float
    after: float
    probability: float
    certain: bool | None

    @property
    def ratio(self) -> float:
        """The second median over the first."""
        return self.after / self.before if self.before else math.inf

    def document(self) -> dict[str, object]:
        """Convert to JSON fields."""
        return asdict(self) | {"ratio": None if math.isinf(self.ratio) else self.ratio}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two reports."""

    differences: tuple[Difference, ...]
    only_before: int
    only_after: int


def compare_reports(before: str, after: str) -> Comparison:
    """Compare two files that ``headrace report --json`` printed."""
    one, other = _values(before), _values(after)
    # The key has the metric: figures of different units are not compared.
    common = [key for key in one if key in other]
    differences = []
    for key in common:
        (first, second) = one[key], other[key]
        chance = _probability(first, second)
        enough = min(len(first), len(second)) >= ROUNDS_MIN
        middle = (statistics.median(first), statistics.median(second))
        certain = chance < _SURE if enough else None
        differences.append(Difference(*key, *middle, chance, certain))
    return Comparison(tuple(differences), len(one.keys() - other), len(other.keys() - one))


def _values(path: str) -> dict[Key, list[float]]:
    tried = f"compare the report '{path}'"
    text = read_file(path, tried, _BYTES_MAX)
    try:
        document = json.loads(text)
        schema = document["schema"]
        name, version = schema["name"], schema["version"]
    except (ValueError, TypeError, KeyError):
        raise _not_a_report(tried) from None
    if name != "headrace-report":
        raise CorruptDataError(
            tried, f"it is a document '{name}'", "use what 'headrace report --json' printed"
        )
    if version != 1:
        raise VersionMismatchError(
            tried, f"it is of version {version}, and this is version 1", "make it again"
        )
    try:
        return dict(_figures(document))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _not_a_report(tried) from None


def _figures(document: dict[str, Any]) -> Iterator[tuple[Key, list[float]]]:
    for outcome in document["results"]["measured"]:
        for each in outcome["figures"]:
            words = (outcome["family"], each["panel"], each["line"], each["x"], each["metric"])
            values = [float(value) for value in each["values"]]
            if not values or not all(math.isfinite(value) for value in values):
                raise ValueError
            family, panel, line, x, metric = (str(word) for word in words)
            # Lines of emulated and real devices are not compared.
            yield (family, panel, line + " (emulated)" * bool(each["emulated"]), x, metric), values


def _not_a_report(tried: str) -> CorruptDataError:
    return CorruptDataError(
        tried, "it is not what 'headrace report --json' printed", "make it again"
    )


def _probability(first: list[float], second: list[float]) -> float:
    """The two-sided p-value: exact up to `_EXACT_MAX` pairs, else by the normal distribution."""
    count, other = len(first), len(second)
    above = sum((a > b) + 0.5 * (a == b) for a in first for b in second)
    middle = count * other / 2
    distance = abs(above - middle)
    if count * other <= _EXACT_MAX:
        ways = _ways(count, other)
        extreme = sum(n for u, n in enumerate(ways) if abs(u - middle) >= distance)
        return extreme / sum(ways)
    deviation = math.sqrt(count * other * (count + other + 1) / 12)
    return math.erfc(max(0.0, distance - 0.5) / deviation / math.sqrt(2))


_EXACT_MAX = 400


def _ways(count: int, other: int) -> list[int]:
    """For each rank statistic U, the number of orders of the values that have it."""
    # Coefficients of the Gaussian binomial: a product of (1 - q^(other+i)) / (1 - q^i).
    size = count * other + 1
    found = [1] + [0] * (size - 1)
    for i in range(1, count + 1):
        for at in range(size - 1, other + i - 1, -1):
            found[at] -= found[at - other - i]
        for at in range(i, size):
            found[at] += found[at - i]
    return found
