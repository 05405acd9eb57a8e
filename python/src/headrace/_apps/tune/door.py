# SPDX-License-Identifier: Apache-2.0
"""Measures copies as a program gets them: an ordinary C program, without and with a preload.

Method. ``headrace-bench-copy`` calls memcpy, memmove, memset and memcmp through its PLT and prints
the time of each point. A round runs it once in every way (without a preload, again without as a
control, with Headrace's; and the same program with calls of libheadrace's own functions), each in a
process of its own, in random order; only ratios within a round count, so that a slower minute does
no harm.
"""

import json
import math
import os
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from headrace import _core
from headrace._apps.figures import Figure, figure_of
from headrace._apps.memory import available_bytes, too_little
from headrace._direct import built, environment_given
from headrace._temporary import run_to_end
from headrace.errors import Error, NotFoundError

GLIBC, CONTROL, TUNED, BESIDE = "glibc", "glibc again", "headrace", "beside"
LIBRARY = "library"
"""The library's own functions, in the program of this name with "-library"."""
FUNCTIONS = ("memcpy", "memmove", "memset", "memcmp")
PROGRAM = "headrace-bench-copy"
BYTES_MAX = 64 << 20
SHORT_BYTES_MAX = 2 << 10
LONG_BYTES_MIN = 16 << 20

LOSS_MAX = 0.02
"""Loss in one condition that keeps a class with the C library."""
_POOL_BYTES = 128 << 20
_BATCH_US = 200
_TIME_LIMIT_S = 300
_TRIED = "measure copies in a program"

T = TypeVar("T")


class Point(NamedTuple):
    """One function, length and condition.

    Attributes:
        bytes_max: The length; random lengths are in (bytes_max / 2, bytes_max].
        temperature: "hot", or "memory": random places in a pool of 128 MiB.
        lengths: "fixed" (aligned), or "random" (at any address).
    """

    function: str
    bytes_max: int
    temperature: str
    lengths: str


def alternated(
    ways: Mapping[str, Callable[[], T]],
    round_count: int,
    tell: Callable[[float], None] = lambda _: None,
) -> dict[str, list[T]]:
    """Run every way once a round, in random order; a first round warms up and is dropped."""
    order = random.Random(1)  # noqa: S311 - No secret.
    outcomes: dict[str, list[T]] = {name: [] for name in ways}
    for index in range(round_count + 1):
        for name in order.sample(list(ways), len(ways)):
            outcome = ways[name]()
            if index:
                outcomes[name].append(outcome)
        tell((index + 1) / (round_count + 1))
    return outcomes


@dataclass(frozen=True)
class Door:
    """Times by way and round."""

    times_ns: dict[str, list[dict[Point, float]]] = field(default_factory=dict)

    @property
    def ways(self) -> list[str]:
        """The ways beside glibc."""
        return [way for way in self.times_ns if way != GLIBC]

    @property
    def points(self) -> list[Point]:
        """The points, ascending by length."""
        return list(self.times_ns[GLIBC][0])

    @property
    def lengths(self) -> list[int]:
        """The lengths, ascending."""
        return sorted({point.bytes_max for point in self.points})

    def ratio(self, way: str, *points: Point) -> Figure:
        """Speed relative to glibc, geometric mean over the points: median over the rounds."""
        pairs = zip(self.times_ns[GLIBC], self.times_ns[way], strict=True)
        return figure_of(
            [
                math.exp(
                    statistics.fmean(
                        math.log(max(theirs[each], 1e-3) / max(ours[each], 1e-3)) for each in points
                    )
                )
                for theirs, ours in pairs
            ]
        )

    def time_ns(self, way: str, *points: Point) -> float:
        """Time of a call, geometric mean over the points: median over the rounds."""
        return statistics.median(
            math.exp(statistics.fmean(math.log(max(each[point], 1e-3)) for point in points))
            for each in self.times_ns[way]
        )

    def objection(self, function: str, bytes_max: int) -> str:
        """Why lengths up to `bytes_max` must stay with the C library: a clause, or empty.

        They lose in a condition by more than `LOSS_MAX`, and by more than glibc beside itself in
        three of four rounds; or they gain nothing on the whole.
        """
        points = self._points_of(function, bytes_max)
        if loss := self.loss(function, bytes_max):
            return loss
        if points and self.ratio(TUNED, *points).median <= 1:
            return "it gains nothing in a program"
        return ""

    def loss(self, function: str, bytes_max: int) -> str:
        """How lengths up to `bytes_max` lose: a clause, or empty."""
        for point in self._points_of(function, bytes_max):
            ours = self.ratio(TUNED, point).median
            if ours < min(1 - LOSS_MAX, self.ratio(CONTROL, point).low):
                where = f"{point.temperature} {point.lengths}"
                return f"it loses {1 - ours:.0%} in a program when {where}"
        return ""

    def _points_of(self, function: str, bytes_max: int) -> list[Point]:
        return [
            point
            for point in self.points
            if (point.function, point.bytes_max) == (function, bytes_max)
        ]

    def summary(self) -> dict[str, Any]:
        """The key figures: ours as ``program_*``, the control and another library likewise."""
        known: dict[str, Any] = {}
        prefixes = {TUNED: "program", CONTROL: "program_null", BESIDE: "program_beside"}
        copies = [each for each in self.points if each.function == "memcpy"]
        groups = {
            "hot_geomean": [each for each in copies if each.temperature == "hot"],
            "random_geomean": [each for each in copies if each.temperature == "memory"],
            "long_geomean": [each for each in copies if each.bytes_max >= LONG_BYTES_MIN],
        }
        if LIBRARY in self.ways:
            known |= self._library_summary(copies)
        hot = [each for each in self.points if each.temperature == "hot"]
        worst_of = {
            "hot_worst": [
                each
                for each in hot
                if each.function in {"memcpy", "memmove"} and each.bytes_max <= SHORT_BYTES_MAX
            ],
            "memset_worst": [each for each in hot if each.function == "memset"],
            "memcmp_worst": [each for each in hot if each.function == "memcmp"],
        }
        for way in filter(prefixes.get, self.ways):
            figures = {name: self.ratio(way, *group) for name, group in groups.items() if group}
            for name, group in worst_of.items():
                ratios = [self.ratio(way, each) for each in group]
                if ratios:
                    figures[name] = min(ratios, key=lambda ratio: ratio.median)
            for name, figure in figures.items():
                known[f"{prefixes[way]}_{name}"] = figure.median
                known[f"{prefixes[way]}_{name}_interval"] = figure.interval
        return known

    def _library_summary(self, copies: Sequence[Point]) -> dict[str, Any]:
        ratios = [self.ratio(LIBRARY, each) for each in copies]
        best, worst = (pick(ratios, key=lambda ratio: ratio.median) for pick in (max, min))
        figures = {
            "geomean_vs_glibc_fixed": [each for each in copies if each.lengths == "fixed"],
            "geomean_vs_glibc_random": [each for each in copies if each.lengths == "random"],
        }
        return {
            **{name: self.ratio(LIBRARY, *group).median for name, group in figures.items()},
            "best_vs_glibc": best.median,
            "worst_vs_glibc": worst.median,
            "worst_vs_glibc_interval": worst.interval,
        }

    def document(self) -> list[dict[str, Any]]:
        return [
            {
                **point._asdict(),
                "glibc_ns": self.time_ns(GLIBC, point),
                "vs_glibc": {way: self.ratio(way, point).document() for way in self.ways},
            }
            for point in self.points
        ]


def measure(
    ways: Mapping[str, Mapping[str, str]],
    round_count: int,
    tell: Callable[[float], None] = lambda _: None,
    *,
    bytes_max: int = BYTES_MAX,
    functions: Sequence[str] = FUNCTIONS,
    clock: Literal["time", "elapsed"] = "time",
) -> Door:
    """`clock`: "time" of the processor, or "elapsed", which counts what waits for a device."""
    programs = {way: PROGRAM + "-library" * (way == LIBRARY) for way in ways}
    paths = {name: built(f"_bench/{name}") for name in programs.values()}
    for name, path in paths.items():
        if path is None:
            raise NotFoundError(_TRIED, f"'{name}' is not in the package", "reinstall the package")
    pool_bytes = max(_POOL_BYTES, 2 * bytes_max)
    free_bytes = available_bytes()
    if free_bytes is not None and 2 * pool_bytes > free_bytes:
        raise too_little(2 * pool_bytes, f"{_core.bytes_text(free_bytes)} are free")
    words = [clock, *map(str, (bytes_max, pool_bytes, _BATCH_US)), *functions]
    given = environment_given()
    for name in ("LD_PRELOAD", "HEADRACE_PROFILE"):
        given.pop(name, None)
    runs = {
        way: partial(_times_of, [str(paths[programs[way]]), *words], given | dict(added))
        for way, added in ways.items()
    }
    return Door(alternated(runs, round_count, tell))


def _times_of(words: list[str], environment: dict[str, str]) -> dict[Point, float]:
    late = "measure on a machine that does less"
    done = run_to_end(words, _TRIED, late, _TIME_LIMIT_S, environment)
    # The loader ignores a library that it cannot load, with a line on stderr.
    if "cannot be preloaded" in done.stderr:
        cause = done.stderr.strip().rpartition("\n")[2]
        raise Error(_TRIED, cause, "check the library that is preloaded")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return {
        Point(row["function"], row["bytes_max"], row["temperature"], row["lengths"]): row["ns"]
        for row in rows
    }


def ways_of(
    preload: Path, profile: str | None, beside: str | None = None, *, library: bool = False
) -> dict[str, dict[str, str]]:
    """The variables of each way.

    Args:
        preload: Headrace's library for programs with this profile.
        profile: Its profile: a path, "none", or None for the user's.
        beside: Another library to preload.
        library: Measure the library's own functions, too.
    """
    given = os.environ.get("HEADRACE_PROFILE") if profile is None else profile
    if given not in {None, "none"}:
        given = str(Path(str(given)).absolute())
    named = {} if given is None else {"HEADRACE_PROFILE": given}
    ways = {GLIBC: {}, CONTROL: {}, TUNED: {"LD_PRELOAD": str(preload)} | named}
    if library:
        ways[LIBRARY] = named
    if beside is not None:
        path = Path(beside).absolute()
        if not path.is_file():
            raise NotFoundError(_TRIED, f"there is no file '{path}'", "name a shared library")
        ways[BESIDE] = {"LD_PRELOAD": str(path)}
    return ways
