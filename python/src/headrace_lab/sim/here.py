# SPDX-License-Identifier: Apache-2.0
"""Validates predictions for this machine by measurements.

Each round measures the inputs of the model (measured.py), then the validation points: copies and
fills by size and threads, updates in place, two kinds of traffic at once, messages, the query. No
size of a call is one of the calibration's, and two are outside its range. The model is built from
the medians of the inputs, and its predictions are compared with the medians of the validation
points; no measurement serves both. Some points are options of a decision: threads and size of
copies, whether the query prefetches. The model's choice is compared with the measured best.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._scenarios import run
from headrace._words import counted
from headrace.cache import Cache
from headrace.engine import Engine
from headrace.machine import Machine
from headrace_lab.sim import measured
from headrace_lab.sim.advice import GAIN_MIN
from headrace_lab.sim.validation import missed
from headrace_lab.tpch.lineitem import BYTES_PER_ROW, Columns
from headrace_lab.tpch.q6 import CHUNK_BYTES, run_q6

ROUNDS = 7
ERROR_WORST_MAX = 0.5
"""Of one point; the time of two threads that share a guest's memory varies by nearly as much."""
REGRET_MAX = 0.10
"""Most that a choice may lose, however much the measurements vary."""
LOADED_SHARE = 0.05
"""Share of disturbed rounds above which the machine counts as loaded."""
_CALLS = (512, 6 << 10, 96 << 10, 3 << 20, 24 << 20)
_CACHED_CALL = 8 << 10
_UPDATE_CALL = 64 << 10
"""A loop has no calls whose length matters."""
_CHOSEN = ("copy", "memory")
_QUERY_REPEATS = 15
_QUERY_PAUSE_S = 0.005
"""Pause before each run, after which the scheduler favours this thread."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point, measured and predicted; `spread` is the interquartile range over the median."""

    what: str
    unit: str
    measured: float
    spread: float
    simulated: float
    bound: str

    @property
    def error(self) -> float:
        return (self.simulated - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class Decision:
    """The model's choice and the measured best.

    Attributes:
        regret: How much slower the advised option was measured than the best, as a share.
        tolerance: Accepted regret: the spread of the best, at least the smallest gain that advice
            is given for, at most `REGRET_MAX`.
    """

    what: str
    advised: str
    best: str
    regret: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.regret <= self.tolerance


@dataclass(frozen=True, slots=True)
class Comparison:
    """All points, and the model that predicted them.

    Attributes:
        decisions: The model's choices among the points.
        disturbed: Share of short rounds in which other processes took a processor; discarded.
        rounds: Rounds of calibration and validation.
    """

    points: tuple[Point, ...]
    model: dict[str, Any]
    disturbed: float
    rounds: int
    decisions: tuple[Decision, ...] = ()

    @property
    def summary(self) -> dict[str, Any]:
        errors = [abs(point.error) for point in self.points]
        return {
            "points": len(errors),
            "error_median": round(statistics.median(errors), 4),
            "error_worst": round(max(errors), 4),
            "flagged": 0,
            "rounds": self.rounds,
            "disturbed": round(self.disturbed, 4),
            "loaded": self.disturbed > LOADED_SHARE,
            "decisions": len(self.decisions),
            "decisions_agreed": sum(each.agrees for each in self.decisions),
            "regret_worst": round(max((each.regret for each in self.decisions), default=0.0), 4),
        }

    @property
    def broken(self) -> list[str]:
        """Messages about missed thresholds."""
        beside = (
            f"; other work disturbed {self.disturbed:.0%} of the rounds: measure again without it"
            if self.disturbed > LOADED_SHARE
            else ""
        )
        return missed(
            "on this machine",
            self.summary["error_median"],
            ((f"'{point.what}'", point.error) for point in self.points),
            ERROR_WORST_MAX,
            beside,
        )


@dataclass(frozen=True, slots=True)
class _Question:
    task: measured.Task
    unit: str
    scenario: str
    point: dict[str, object]
    metric: str
    choices: tuple[tuple[str, str], ...] = ()
    """Pairs of a decision and an option of it; the option to change nothing comes first."""


def compare(
    share: Callable[[float], None] = lambda _: None,
    *,
    rounds: int = ROUNDS,
    effort: measured.Effort = measured.Effort(),  # noqa: B008 - It is immutable.
) -> Comparison:
    """Calibrate and validate in alternating rounds, and compare."""
    native, text = _core.Machine.make_record()
    machine = Machine.from_native(native)
    calibration = measured.calibration_tasks(machine)
    with ExitStack() as stack:
        questions = [
            *_stream_questions(machine),
            *_message_questions(machine),
            *_query_questions(machine, stack),
        ]
        figures = measured.measure_tasks(
            [*calibration, *(each.task for each in questions)], share, rounds=rounds, effort=effort
        )
    figures = measured.in_one_state(figures)
    measurement = measured.measurement_of(
        machine, {task.key: figures[task.key] for task in calibration}
    )
    model = measured.model_of(machine, measurement)
    with measured.record_of(text, model) as path:
        points = [
            _point(each, figures[each.task.key], path, measurement.values["compute"])
            for each in questions
        ]
    return Comparison(
        tuple(points),
        model,
        measured.load_of(figures.values()),
        rounds,
        tuple(_decide(questions, points)),
    )


def _decide(questions: list[_Question], points: list[Point]) -> Iterator[Decision]:
    options: dict[str, dict[str, Point]] = {}
    for question, point in zip(questions, points, strict=True):
        for what, option in question.choices:
            options.setdefault(what, {})[option] = point
    for what, of in options.items():
        # Rates are maximized, times minimized.
        sign = 1 if next(iter(of.values())).unit == "GB/s" else -1
        speed = {option: point.simulated**sign for option, point in of.items()}
        advised = max(speed, key=lambda option: speed[option])
        stay = next(iter(of))
        if speed[advised] < speed[stay] * (1 + GAIN_MIN):
            advised = stay
        rates = {option: point.measured**sign for option, point in of.items()}
        best = max(rates, key=lambda option: rates[option])
        regret = 1 - rates[advised] / rates[best]
        tolerance = max(GAIN_MIN, min(of[best].spread, REGRET_MAX))
        yield Decision(what, advised, best, regret, tolerance)


def _point(question: _Question, figure: measured.Figure, machine: Path, compute: float) -> Point:
    point = dict(question.point)
    if question.scenario == "qdp":
        point["compute"] = round(compute, 4)
    (result,) = run(question.scenario, [point], machine=str(machine))
    return Point(
        question.task.key,
        question.unit,
        figure.median,
        figure.spread,
        result.figures[question.metric],
        result.bound,
    )


def _stream_questions(machine: Machine) -> Iterator[_Question]:
    home = measured.hosts(machine)[0]
    count = len(home.cpus)
    spans = {"memory": {threads: measured.span_of(machine, threads) for threads in {1, count}}}
    for level in machine.document["cpu_caches"]:
        if level["level"] > 1:
            span = _span_in(level["capacity_bytes"], count)
            spans[f"L{level['level']}"] = {1: span, count: span}
    for place, span_by_threads in spans.items():
        for access in ("copy", "fill", "update"):
            for threads, span in sorted(span_by_threads.items()):
                for call in _calls_of(access, place):
                    by, size = counted(threads, "thread"), _core.bytes_text(call)
                    yield _streams(
                        f"{access} {size} in {place}, {by}",
                        home.id,
                        [(access, cpu) for cpu in home.cpus[:threads]],
                        span,
                        call,
                        choices=_choices_of(size, by) if (access, place) == _CHOSEN else (),
                    )
    half = len(home.cpus) // 2
    if half == 0:
        return
    for first, second in itertools.combinations(("copy", "read", "fill", "update"), 2):
        for one, other in ((first, second), (second, first)):
            kinds = [one] * half + [other] * half
            yield _streams(
                f"{one} beside {other}, {counted(half, 'thread')} each",
                home.id,
                list(zip(kinds, home.cpus, strict=False)),
                measured.span_of(machine, 2 * half),
                64 << 10,
                beside=other,
            )


def _calls_of(access: str, place: str) -> tuple[int, ...]:
    if place != "memory":
        return (_CACHED_CALL,)
    return (_UPDATE_CALL,) if access == "update" else _CALLS


def _choices_of(size: str, by: str) -> tuple[tuple[str, str], ...]:
    return (f"threads for copies of {size}", by), (f"size of copies by {by}", size)


def _span_in(capacity_bytes: int, cpus: int) -> int:
    """Half of the calibration's span, so that they differ; all threads' spans fit the cache."""
    return max(
        2 * _CACHED_CALL, capacity_bytes // (8 * max(1, cpus)) // _CACHED_CALL * _CACHED_CALL
    )


def _streams(
    what: str,
    node: int,
    threads: list[tuple[str, int]],
    span: int,
    call: int,
    *,
    beside: str = "",
    choices: tuple[tuple[str, str], ...] = (),
) -> _Question:
    group = len(threads) // 2 if beside else 0
    streams = [measured.stream(access, cpu, node, span, call) for access, cpu in threads]
    point: dict[str, object] = {
        "access": threads[0][0],
        "beside": beside or "nothing",
        "threads": group or len(threads),
        "bytes": min(call, span),
        "span": span,
    }
    task = measured.Task(what, lambda effort: measured.ask("streams", streams, effort, group))
    return _Question(task, "GB/s", "streams", point, "gb_per_s", choices)


def _message_questions(machine: Machine) -> Iterator[_Question]:
    cpus = measured.hosts(machine)[0].cpus
    if len(cpus) < 2:  # noqa: PLR2004
        return
    for what, name, metric, sizes in (
        ("messages", "message of", "message_ns", (4 << 10, 64 << 10)),
        ("trips", "round trip of", "trip_ns", (64, 4 << 10)),
    ):
        for size in sizes:
            streams = [measured.stream("copy", cpu, 0, size, size) for cpu in cpus[:2]]
            task = measured.Task(
                f"{name} {_core.bytes_text(size)}", partial(measured.ask, what, streams)
            )
            yield _Question(task, "ns", "messages", {"bytes": size}, metric)


def _query_questions(machine: Machine, stack: ExitStack) -> Iterator[_Question]:
    home = measured.hosts(machine)[0]
    rows = measured.span_of(machine, 2) // BYTES_PER_ROW
    columns = measured.make_columns(rows)
    engine = stack.enter_context(Engine(machine, path="cpu", queues=()))
    cache = stack.enter_context(Cache(engine, 2 * 8 * rows, "local", recycle=True))
    for threads in sorted({1, len(home.cpus)}):
        for mode in ("off", "on"):
            point: dict[str, object] = {
                "a": home.id,
                "b": home.id,
                "target": home.id,
                "devices": 0,
                "threads": threads,
                "column": 8 * rows,
                "chunk": min(CHUNK_BYTES, 8 * rows),
                "capacity": 2 * 8 * rows,
                "scanned": 2.5,
                "moved": 2,
                "shared": 1,
            }
            time_ms = partial(_query_ms, columns, machine, cache, mode, threads)
            by = counted(threads, "thread")
            task = measured.Task(f"query 6, prefetching {mode}, {by}", time_ms)
            choice = (f"query 6 by {by}", f"prefetching {mode}")
            yield _Question(task, "ms", "qdp", point, f"{mode}_ms", (choice,))


def _query_ms(
    columns: Columns, machine: Machine, cache: Cache, mode: str, threads: int, _: measured.Effort
) -> measured.Sample:
    times = []
    for _repeat in range(_QUERY_REPEATS):
        cache.clear()
        time.sleep(_QUERY_PAUSE_S)
        found = run_q6(
            columns,
            cache,
            machine=machine,
            prefetch=mode,
            chunk_bytes=CHUNK_BYTES,
            thread_count=threads,
        )
        times.append(found.time_ns)
    # Disturbance only adds time.
    return measured.Sample(min(times) / 1e6)
