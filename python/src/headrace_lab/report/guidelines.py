# SPDX-License-Identifier: Apache-2.0
"""The guidelines of papers, and whether they hold on this machine.

Verdicts use measured figures only. Figures of emulated devices are shown, but not judged.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from headrace_lab.families.measure import UNITS, Outcome, Shown, value_text

HOLDS, BROKEN, UNKNOWN, EMULATED = "holds", "does not hold", "cannot be told", "not judged"
_SAME = 0.1
"""Rates that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a guideline holds here: `HOLDS`, `BROKEN`, `UNKNOWN` or `EMULATED`."""

    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Guideline:
    """A guideline, its verdict, and the figure of the report behind that."""

    name: str
    source: str
    text: str
    figure: str
    verdict: Verdict

    def document(self) -> dict[str, object]:
        return {**asdict(self), "verdict": self.verdict.state, "reason": self.verdict.reason}


@dataclass(frozen=True, slots=True)
class Value:
    label: str
    median: float
    metric: str
    emulated: bool

    @classmethod
    def of(cls, shown: Shown) -> Self:
        place = shown.place
        return cls(f"{shown.line}, {place.x}", shown.figure.median, place.metric, shown.emulated)

    @property
    def text(self) -> str:
        return f"{self.label}: {value_text(self.median, self.metric)} {UNITS[self.metric]}"


class Measured:
    """Figures of all families, found by line and place."""

    def __init__(self, outcomes: Mapping[str, Outcome], *, no_queue: str, has_tiers: bool) -> None:
        """Keep the figures; `no_queue`: why no device is; `has_tiers`: some memory is faster."""
        self.outcomes = outcomes
        self.no_queue = no_queue
        self.has_tiers = has_tiers

    def shown(self, family: str) -> Sequence[Shown]:
        """All figures of a family; none if it was not measured."""
        outcome = self.outcomes.get(family)
        return outcome.shown if outcome else ()

    def find(self, family: str, line: str, x: str = "", metric: str = "gb_per_s") -> Value | None:
        """Return the first figure at `x` whose line contains the words."""
        for each in self.shown(family):
            place = each.place
            if line in place.line and x in ("", place.x) and place.metric == metric:
                return Value.of(each)
        return None

    def last(self, family: str, line: str) -> Value | None:
        """Return the last figure of a line on the axis."""
        xs = [each.place.x for each in self.shown(family) if line in each.place.line]
        return self.find(family, line, xs[-1]) if xs else None

    def why_not(self, family: str) -> str:
        if self.no_queue and family not in _WITHOUT_DEVICES:
            return "there is no work queue"
        outcome = self.outcomes.get(family)
        if outcome is None or not outcome.left_out:
            return "it was not measured"
        # The remedy after the semicolon repeats what the guideline needs.
        return outcome.left_out[0].why.partition(";")[0]


_WITHOUT_DEVICES = ("rings", "injection", "copies")


def _ratio(
    measured: Measured,
    family: str,
    first: Sequence[str],
    second: Sequence[str],
    least: float,
    most: float = float("inf"),
    metric: str = "gb_per_s",
) -> Verdict:
    """Holds if the first figure over the second is within the bounds."""
    one = measured.find(family, first[0], first[1], metric)
    other = measured.find(family, second[0], second[1], metric)
    if one is None or other is None:
        return Verdict(UNKNOWN, measured.why_not(family))
    return _judged(one, other, least, most)


def _judged(one: Value, other: Value, least: float, most: float = float("inf")) -> Verdict:
    ratio = one.median / other.median if other.median else float("inf")
    reason = f"{one.text}; {other.text}; ratio {ratio:.2f}"
    if one.emulated or other.emulated:
        return Verdict(EMULATED, f"the device is emulated; {reason}")
    return Verdict(HOLDS if least <= ratio <= most else BROKEN, reason)


def _most_over_one(measured: Measured, family: str, line: str, least: float) -> Verdict:
    """Judge by the last figure of a line over its first."""
    one, last = measured.find(family, line, "1"), measured.last(family, line)
    if one is None or last is None or last.label == one.label:
        return Verdict(UNKNOWN, measured.why_not(family))
    return _judged(last, one, least)


def _ceiling(measured: Measured) -> Verdict:
    found = measured.find("submission", "in flight", "1 MiB")
    if found is None:
        return Verdict(UNKNOWN, measured.why_not("submission"))
    if found.emulated:
        return Verdict(EMULATED, f"the device is emulated; {found.text}")
    limit = 32.2 * (1 + _SAME)
    return Verdict(HOLDS if found.median <= limit else BROKEN, f"{found.text}; 30 GiB/s is 32.2")


def _tiers(measured: Measured) -> Verdict:
    if not measured.has_tiers:
        return Verdict(UNKNOWN, "no memory here is faster than that beside the processors")
    for each in measured.shown("movement"):
        if "smart" in each.place.line and "processors" not in each.place.line:
            processors = measured.find("movement", " processor", each.place.x)
            if processors is not None:
                return _judged(Value.of(each), processors, 1.0)
    return Verdict(UNKNOWN, measured.why_not("movement"))


def _remote(measured: Measured) -> Verdict:
    """Judge by copies to the source's node and to the last other node of its kind."""
    shown = [each for each in measured.shown("movement") if each.place.line == "brute force"]
    # The first panel is of the node with processors.
    found = [
        (each.place.x.partition("(")[2], Value.of(each))
        for each in shown
        if each.place.panel == shown[0].place.panel
    ]
    alike = [value for kind, value in found if kind == found[0][0]]
    if len(alike) > 1:
        return _judged(alike[-1], alike[0], 1 - 2 * _SAME)
    return Verdict(UNKNOWN, measured.why_not("movement"))


def _most(measured: Measured, family: str, values: Sequence[Value], least: float) -> Verdict:
    """Judge by the highest of some values."""
    if not values:
        return Verdict(UNKNOWN, measured.why_not(family))
    best = max(values, key=lambda each: each.median)
    return Verdict(HOLDS if best.median >= least else BROKEN, f"the most is {best.text}")


def _injected_too_much(measured: Measured) -> Verdict:
    found = _gains(measured)
    if not found:
        return Verdict(UNKNOWN, measured.why_not("injection"))
    best, last = max(found, key=lambda each: each.median), found[-1]
    falls = last.median <= best.median / 2
    return Verdict(HOLDS if falls else BROKEN, f"the most is {best.text}; {last.text}")


def _gains(measured: Measured) -> list[Value]:
    """By message size, with the smallest working set."""
    shown = measured.shown("injection")
    return [Value.of(each) for each in shown if each.place.line == shown[0].place.line]


def _per_length(measured: Measured) -> Verdict:
    variants = {each.place.line for each in measured.shown("copies")}
    if not variants:
        return Verdict(UNKNOWN, measured.why_not("copies"))
    reason = f"the profile has {len(variants)} variants that beat memmove at some length"
    return Verdict(HOLDS if len(variants) > 1 else BROKEN, reason)


_JUDGES: dict[str, Callable[[Measured], Verdict]] = {
    "ceiling": _ceiling,
    "tiers": _tiers,
    "remote": _remote,
    "injection": lambda measured: _most(measured, "injection", _gains(measured), _SAME / 2),
    "injected_too_much": _injected_too_much,
    "tuned": lambda measured: _most(
        measured, "copies", [Value.of(each) for each in measured.shown("copies")], 1 + _SAME
    ),
    "per_length": _per_length,
}


def _judge(measured: Measured, known: Mapping[str, Any]) -> Verdict:
    if "ratio" in known:
        return _ratio(measured, **known["ratio"])
    if "over_one" in known:
        return _most_over_one(measured, **known["over_one"])
    return _JUDGES[known["judge"]](measured)


def guidelines_of(measured: Measured) -> list[Guideline]:
    """Judge all guidelines of guidelines.toml; unknown ones name what is needed to judge them."""
    text = Path(__file__).with_name("guidelines.toml").read_text(encoding="utf-8")
    found = []
    for known in tomllib.loads(text)["guideline"]:
        verdict = _judge(measured, known)
        if verdict.state == UNKNOWN:
            verdict = Verdict(UNKNOWN, f"Needs {known['needs']}. Here: {verdict.reason}")
        words = {each: known[each] for each in ("name", "source", "text", "figure")}
        found.append(Guideline(**words, verdict=verdict))
    return found
