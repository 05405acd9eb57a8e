# SPDX-License-Identifier: Apache-2.0
"""Finds the fastest setting of any routine, by the search of ``headrace tune``.

Example:
    >>> import time
    >>> from headrace import tune
    >>> def measure(block, unroll):
    ...     return 1e-6 * (1 + abs(block - 256) / 1000) / unroll
    >>> found = tune.search(
    ...     {"block": [64, 128, 256, 512], "unroll": [1, 2]}, measure, measurements=200
    ... )
    >>> found.best
    {'block': 256, 'unroll': 2}

Times are compared within a round, in which a reference takes turns with some settings; see
`search`. Nothing here is specific to copies.
"""

import itertools
import json
import math
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, cast

import numpy as np

from headrace import _core, _trials
from headrace._files import Output, read_file
from headrace._temporary import run_child
from headrace.errors import (
    CorruptDataError,
    Error,
    HardwareAbsentError,
    InvalidArgumentError,
    VersionMismatchError,
)

__all__ = ["Measure", "Result", "SearchError", "Setting", "Value", "load", "search"]

Value = bool | int | float | str
Setting = dict[str, Value]

SECONDS = 60.0
"""Budget if none is given."""
SPACE_MAX = 1_000_000
FIRST_MAX = 200
FINALISTS = 5
SELECTING_ROUNDS_MAX = 16
"""Most rounds that select the best of the finalists, by half of the rest of the budget."""
FINAL_ROUNDS_MIN, FINAL_ROUNDS_MAX = 5, 64
"""Rounds of the best beside the reference: least for an interval, and most."""
COMMAND_SECONDS_MAX = 3600.0
SCHEMA, VERSION = "headrace-search", 1
_SCREENING_SHARE, _HALVING_SHARE = 0.4, 0.6
_BYTES_MAX = 64 << 20
_TRIED = "search for the fastest setting"
_SAVE, _LOAD = "save the result '{}'", "read the result '{}'"


Measure = Callable[..., Any]
"""Takes a setting as keywords; returns its time, or several, in any unit."""


@dataclass(frozen=True)
class Result:
    """What a search has found.

    Attributes:
        best: The fastest setting; the reference, unless another one is faster for certain.
        reference: The setting that all are compared with.
        rival: The fastest of the other settings, which is `best` if it is faster for certain; empty
            if none was compared often enough.
        speeds: Speed of `rival` relative to the reference under each condition.
        reason: Why `best` is the best, as a clause.
        speed: Speed of `best` relative to the reference.
        interval: Its 95 % confidence interval, from rounds that did not select `best`.
        time: Typical time of `best`, in the unit of the measure; with several conditions, their
            geometric mean.
        measured: Typical time of every measured setting, fastest relative to the reference first;
            settings whose round was not completed come last.
        setting_count: Valid settings in the space.
        measurement_count: Calls of the measure.
        seconds: Duration.
        complete: Whether the best settings were compared often enough; false if the budget was too
            small, the search was interrupted or a measurement failed.
    """

    best: Setting
    reference: Setting
    speed: float
    interval: tuple[float, float]
    time: float
    measured: list[tuple[Setting, float]] = field(repr=False)
    setting_count: int
    measurement_count: int
    seconds: float
    complete: bool
    rival: Setting = field(default_factory=dict)
    speeds: dict[str, float] = field(default_factory=dict)
    reason: str = ""


class SearchError(Error, RuntimeError):
    """A measurement failed.

    Attributes:
        setting: The setting that was measured.
        result: What was known before; None if nothing was.
    """

    code = "measurement_failed"

    def __init__(
        self, setting: Setting, cause: str, remedy: str, result: Result | None = None
    ) -> None:
        super().__init__(f"measure {_text(setting)}", cause, remedy)
        self.setting = setting
        self.result = result

    def __reduce__(self) -> tuple[type["SearchError"], tuple[Any, ...]]:
        return type(self), (self.setting, self.cause, self.remedy, self.result)


def search(  # noqa: PLR0913
    space: Mapping[str, Iterable[Value]],
    measure: Measure | Sequence[str],
    *,
    conditions: Sequence[str] = (),
    constraint: Callable[..., bool] | None = None,
    reference: Mapping[str, Value] | None = None,
    seconds: float | None = None,
    measurements: int | None = None,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Result:
    """Find the setting with the least time.

    A model of the measured times selects what is measured next; the best are measured again, in
    more and more rounds, in which they take turns with the reference.

    Args:
        space: Values of each parameter. Numbers that differ little are expected to perform alike.
        measure: Called with a setting as keywords; returns one or more times. Or a command line in
            which ``{name}`` stands for a value: the numbers that it prints are the times, and a
            command that prints nothing is timed itself.
        conditions: Names of conditions under which settings are measured, such as with warm and
            with cold caches: `measure` gets one as the keyword ``condition``. What counts is the
            mean over all of them, and a setting that loses more than 2 % under one is not chosen.
        constraint: Called with a setting as keywords; false leaves it out.
        reference: The setting to compare with, such as today's; the first valid one if not given.
        seconds: Budget in seconds; 60 if no budget is given. No measurement begins later.
        measurements: Budget in calls of `measure`. With both, the first to be used up ends it.
        seed: Seed of orders and samples.
        progress: Called with the share of the budget that is used.
        save: File for the result, also of a search that fails or is interrupted; see `load`.

    Raises:
        InvalidArgumentError: The space is empty or has too many settings, or the budget allows no
            measurement. Nothing was measured.
        SearchError: `measure` raised, returned nothing, or a time that is not a positive number.
            Its `result` has what was measured before, and `save` was written.
        IoFailedError: `save` cannot be written; checked before anything is measured.
        PermissionDeniedError: Likewise.
    """
    budget = _Budget(seconds, measurements, progress)
    settings = _Settings(space, constraint, reference)
    output = None if save is None else Output(save, _SAVE.format(os.fspath(save)))
    trials = _Measured(settings, _caller(measure), budget, seed, conditions)
    failed: SearchError | None = None
    try:
        with suppress(_SpentError):
            _run(trials, settings, budget, seed)
    except SearchError as problem:
        failed = problem
        raise
    finally:
        found = trials.result()
        if failed is not None:
            failed.result = found
        if output is not None and found is not None:
            output.write(_document(found, settings))
    assert found is not None  # noqa: S101 - The reference, at least, was measured.
    return found


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that `search` saved on this machine.

    Raises:
        NotFoundError: There is no such file.
        CorruptDataError: It is no result, or truncated.
        VersionMismatchError: It has another version.
        HardwareAbsentError: It is of another processor.
    """
    tried = _LOAD.format(os.fspath(path))
    again = "search again"
    try:
        document = json.loads(read_file(path, tried, _BYTES_MAX))
        schema, machine = document["schema"], document["machine"]
        if schema["name"] != SCHEMA:
            raise CorruptDataError(tried, "it is no result of a search", "check the path")
        if schema["version"] != VERSION:
            cause = f"it has version {schema['version']} and this program reads {VERSION}"
            raise VersionMismatchError(tried, cause, again)
        if machine != _machine():
            raise HardwareAbsentError(tried, "it is of another processor", again)
        found = document["result"]
        return Result(
            **found
            | {
                "interval": tuple(found["interval"]),
                "measured": [(setting, each) for setting, each in found["measured"]],
            }
        )
    except (ValueError, LookupError, TypeError) as problem:
        if isinstance(problem, Error):
            raise
        cause = "it is no result of a search, or truncated"
        raise CorruptDataError(tried, cause, again) from problem


def _machine() -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(_core.empty_copy_profile())["machine"])


def _document(found: Result, settings: "_Settings") -> str:
    document = {
        "schema": {"name": SCHEMA, "version": VERSION},
        "machine": _machine(),
        "space": settings.space,
        "result": found.__dict__,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _text(setting: Setting) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items())


class _SpentError(Exception):
    """The budget is used up."""


class _Budget:
    def __init__(
        self,
        seconds: float | None,
        measurements: int | None,
        progress: Callable[[float], None] | None,
    ) -> None:
        for name, given in (("seconds", seconds), ("measurements", measurements)):
            if given is not None and not given > 0:
                cause = f"a budget of {given} {name} allows no measurement"
                raise InvalidArgumentError(_TRIED, cause, "give a positive one")
        if seconds is None and measurements is None:
            seconds = SECONDS
        self.seconds = math.inf if seconds is None else seconds
        self.measurements = math.inf if measurements is None else measurements
        self.begin_s = time.monotonic()
        self.count = 0
        self._progress = progress

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.begin_s

    @property
    def used(self) -> float:
        return max(self.spent_s / self.seconds, self.count / self.measurements)

    @property
    def count_left(self) -> float:
        """Calls of the measure for which the rest suffices."""
        return self.count * (1 - self.used) / self.used

    def is_over(self, share: float = 1.0) -> bool:
        """Whether this share is used; reports the progress."""
        used = self.used
        if self._progress is not None:
            self._progress(min(used, 1.0))
        return used >= share


class _Settings:
    """The valid settings, as tuples of values."""

    def __init__(
        self,
        space: Mapping[str, Iterable[Value]],
        constraint: Callable[..., bool] | None,
        reference: Mapping[str, Value] | None,
    ) -> None:
        self.space = {name: list(dict.fromkeys(values)) for name, values in space.items()}
        count = math.prod(map(len, self.space.values()))
        if not self.space or count == 0:
            empty = next((name for name, values in self.space.items() if not values), None)
            cause = "there are no parameters" if empty is None else f"'{empty}' has no values"
            raise InvalidArgumentError(_TRIED, cause, "give each parameter its values")
        if count > SPACE_MAX:
            cause = f"the space has {count:,} settings; {SPACE_MAX:,} is the limit"
            raise InvalidArgumentError(_TRIED, cause, "give fewer values")
        for name, values in self.space.items():
            for value in values:
                # Saved as JSON, and compared by their place.
                is_finite = not isinstance(value, float) or math.isfinite(value)
                if type(value) not in {bool, int, float, str} or not is_finite:
                    cause = f"{value!r} of '{name}' is no number, text or bool"
                    raise InvalidArgumentError(_TRIED, cause, "name values by text")
        self.all = [
            each
            for each in itertools.product(*self.space.values())
            if constraint is None or constraint(**self.named(each))
        ]
        if not self.all:
            raise InvalidArgumentError(_TRIED, "no setting is valid", "relax the constraint")
        self.reference = self.all[0]
        if reference is not None:
            self.reference = tuple(reference.get(name, "") for name in self.space)
            if reference.keys() != self.space.keys():
                cause = f"the reference must have the parameters {', '.join(self.space)}"
                raise InvalidArgumentError(_TRIED, cause, "name each of them")
        self._columns = [_coordinates(values) for values in self.space.values()]

    def named(self, setting: tuple[Value, ...]) -> Setting:
        return dict(zip(self.space, setting, strict=True))

    def encode(self, settings: Sequence[tuple[Value, ...]]) -> _trials.Vectors:
        return np.array(
            [
                np.concatenate(
                    [column[value] for column, value in zip(self._columns, each, strict=True)]
                )
                for each in settings
            ]
        )


def _coordinates(values: Sequence[Value]) -> dict[Value, _trials.Vectors]:
    """A point for each value: numbers on a line (by their logarithm if positive), others apart."""
    numbers = [each for each in values if not isinstance(each, str | bool)]
    if len(numbers) < len(values):
        return dict(zip(values, 0.7 * np.eye(len(values)), strict=True))
    line = np.array(numbers, dtype=np.float64)
    line = np.log2(line) if line.min() > 0 else line
    # From end to end as far as three categories: neighbours of many values are nearly alike.
    line = (line - line.min()) / max(float(np.ptp(line)), 1e-9) * min(len(values) - 1, 3) * 0.7
    return dict(zip(values, line[:, None], strict=True))


Caller = Callable[[Setting], Any]
Point = tuple[Value, ...]


def _caller(measure: Measure | Sequence[str]) -> Caller:
    if callable(measure):
        return lambda words: measure(**words)
    if isinstance(measure, str) or not measure:
        raise InvalidArgumentError(_TRIED, "the measure is no function or list of words", "")
    return lambda words: _times_of_command([each.format(**words) for each in measure])


def _times_of_command(words: list[str]) -> list[float]:
    begin_s = time.perf_counter()
    done = run_child(words, timeout_s=COMMAND_SECONDS_MAX)
    spent_s = time.perf_counter() - begin_s
    if done.returncode != 0:
        said = done.stderr.strip().rpartition("\n")[2]
        message = f"'{words[0]}' ended with {done.returncode}{said and ': '}{said}"
        raise subprocess.SubprocessError(message)
    return [float(each) for each in done.stdout.split()] or [spent_s]


class _Measured(_trials.Trials[Point, str]):
    """Trials of settings; without conditions, under one that has no name."""

    def __init__(
        self,
        settings: _Settings,
        caller: Caller,
        budget: _Budget,
        seed: int,
        conditions: Sequence[str],
    ) -> None:
        super().__init__()
        self._settings = settings
        self._caller = caller
        self._budget = budget
        self._draw = random.Random(seed)  # noqa: S311 - Nothing is secret here.
        self.conditions = tuple(conditions) or ("",)
        self.complete = False
        self.times: dict[Point, dict[str, list[float]]] = {}
        self.chosen: Point | None = None
        self.final: dict[str, list[float]] = {each: [] for each in self.conditions}

    def compare(self, chunk: Sequence[Point], condition: str) -> list[float]:
        """The reference at both ends: a drift of the machine cancels."""
        order = self._draw.sample(list(chunk), len(chunk))
        times = {}
        first = self._time_of(self._settings.reference, condition)
        for setting in order:
            times[setting] = self._time_of(setting, condition)
        base = math.sqrt(first * self._time_of(self._settings.reference, condition))
        return [math.log(base / times[setting]) for setting in chunk]

    def encode(self, candidates: Sequence[Point]) -> _trials.Vectors:
        return self._settings.encode(candidates)

    def changed(self, candidate: Point, other: Point, draw: random.Random) -> Point:
        at = draw.randrange(len(candidate))
        return (*candidate[:at], other[at], *candidate[at + 1 :])

    def screening(self, _index: int) -> Sequence[str]:
        return self.conditions

    def _time_of(self, point: Point, condition: str) -> float:
        setting = self._settings.named(point)
        if self.times and self._budget.is_over():
            raise _SpentError
        self._budget.count += 1
        try:
            told = self._caller(setting | ({"condition": condition} if condition else {}))
        except Exception as problem:
            cause = f"it raised {type(problem).__name__}: {problem}"
            raise SearchError(setting, cause, "leave it out by the constraint") from problem
        if told is None:
            raise SearchError(setting, "it returned nothing", "return its time")
        try:
            times = [float(each) for each in (told if isinstance(told, Iterable) else [told])]
        except (TypeError, ValueError):
            raise SearchError(setting, f"it returned {told!r}", "return its time") from None
        if not times:
            raise SearchError(setting, "it returned no times", "return one or more")
        for each in times:
            if not (math.isfinite(each) and each > 0):
                raise SearchError(setting, f"its time is {each}", "return positive numbers")
        self.times.setdefault(point, {}).setdefault(condition, []).extend(times)
        return _trials.typical(times)

    def typical_time(self, point: Point) -> float:
        return math.exp(
            fmean(math.log(_trials.typical(each)) for each in self.times[point].values())
        )

    def finish(self, finalists: Sequence[Point]) -> None:
        """Select the best finalist, and measure it again: rounds that select are biased by luck."""
        share = self._budget.count_left / 2 / (len(finalists) + 2) / len(self.conditions)
        rounds = math.ceil(min(share, SELECTING_ROUNDS_MAX)) if len(finalists) > 1 else 0
        logs: dict[Point, dict[str, list[float]]] = {
            each: {condition: [] for condition in self.conditions} for each in finalists
        }
        for _, condition in itertools.product(range(rounds), self.conditions):
            for each, log in zip(finalists, self.compare(finalists, condition), strict=True):
                logs[each][condition].append(log)
        scores = {
            each: self.judged({name: _trials.typical(values) for name, values in by_name.items()})
            for each, by_name in logs.items()
            if rounds
        }
        self.chosen = max(finalists, key=lambda each: scores.get(each, 0.0))
        for _ in range(FINAL_ROUNDS_MAX):
            for condition in self.conditions:
                self.final[condition] += self.compare([self.chosen], condition)
            self.complete = len(self.final[self.conditions[-1]]) >= FINAL_ROUNDS_MIN

    def result(self) -> Result | None:
        """What is known so far; None if nothing is."""
        if not self.times:
            return None
        named, best = self._settings.named, self._settings.reference
        speed, low, high = 0.0, 0.0, 0.0
        speeds: dict[str, float] = {}
        reason = "the others were not compared often enough"
        if self.chosen is not None and self.complete:
            speeds = {name: _trials.typical(logs) for name, logs in self.final.items()}
            draws = np.mean(
                [_trials.drawn(each, i) for i, each in enumerate(self.final.values())], axis=0
            )
            low, high = map(float, np.quantile(draws, (0.025, 0.975)))
            worst = min(speeds, key=lambda name: speeds[name])
            reason = "it is the fastest"
            if len(speeds) > 1 and speeds[worst] < -_trials.LOSS_MAX:
                reason = f"another one loses {1 - math.exp(speeds[worst]):.0%} when {worst}"
            elif low <= 0:
                reason = "no other is faster for certain"
            else:
                best, speed = self.chosen, fmean(speeds.values())
        if best == self._settings.reference:
            low, high = 0.0, 0.0
        return Result(
            best=named(best),
            reference=named(self._settings.reference),
            speed=math.exp(speed),
            interval=(math.exp(low), math.exp(high)),
            time=self.typical_time(best),
            measured=[
                (named(each), self.typical_time(each))
                for each in dict.fromkeys([*self.best(len(self.logs)), *self.times])
            ],
            setting_count=len(self._settings.all),
            measurement_count=self._budget.count,
            seconds=self._budget.spent_s,
            complete=self.complete,
            rival=named(self.chosen) if speeds and self.chosen is not None else {},
            speeds={name: math.exp(each) for name, each in speeds.items()},
            reason=reason,
        )


def _run(trials: _Measured, settings: _Settings, budget: _Budget, seed: int) -> None:
    candidates = [each for each in settings.all if each != settings.reference]
    if not candidates:
        trials.compare([], trials.conditions[0])
        trials.complete = True
        return
    draw = random.Random(seed)  # noqa: S311 - As above.
    share = min(budget.measurements, _trials.CANDIDATES) * _SCREENING_SHARE
    first = draw.sample(candidates, min(len(candidates), FIRST_MAX, max(4, int(share) // 2)))
    _trials.screen_by_model(
        trials,
        candidates,
        first,
        _trials.CANDIDATES,
        lambda: budget.is_over(_SCREENING_SHARE),
        seed=seed,
    )
    count = len(trials.logs)
    stages = [(max(count // 3, FINALISTS), 2), (max(count // 8, FINALISTS), 4)]
    if count <= FINALISTS:
        stages = []
    left = _trials.halved(trials, stages, FINALISTS, lambda: budget.is_over(_HALVING_SHARE))
    # As many as half of the rest lets compare often enough; the reference takes two.
    rounds = budget.count_left / 2 / len(trials.conditions)
    trials.finish(left[: max(1, int(rounds / FINAL_ROUNDS_MIN) - 2)])
