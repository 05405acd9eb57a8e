# SPDX-License-Identifier: Apache-2.0
"""Predicts times on machines described in a file, and compares them with published ones.

Every figure is the result of a model, not a measurement. docs/concepts/simulator.md describes the
model, its equations and its limits.
"""

import json
import runpy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headrace import _simulator
from headrace._samples import samples
from headrace.errors import InvalidArgumentError, NotFoundError, UnsupportedError, from_code

__all__ = [
    "Parameter",
    "Result",
    "Scenario",
    "answer_of",
    "find_machine",
    "machines",
    "pace_of",
    "run",
    "scenarios",
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a scenario.

    Attributes:
        name: Name to set it by.
        kind: count, size, number, word or text.
        values: Values of the default sweep; the first is the default if another parameter is swept.
        allowed: All values of a word.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    allowed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named experiment on a model of a machine.

    Attributes:
        name: Name to run it by.
        question: The question that it answers.
        machine: Default machine.
        parameters: In the order of the sweep.
        function: Of a scenario of one's own (headrace.simulator.scenario).
    """

    name: str
    question: str
    machine: str
    parameters: tuple[Parameter, ...]
    function: Callable[..., Mapping[str, float]] | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one point; all figures are simulated.

    Attributes:
        parameters: The given parameters.
        figures: By name, which ends in the unit.
        bound: The saturated resource; "latency" if none is.
        notes: Remarks about the figures.
    """

    parameters: dict[str, str]
    figures: dict[str, float]
    bound: str
    notes: tuple[str, ...]


@cache
def scenarios() -> tuple[Scenario, ...]:
    """List all scenarios."""

    def made(known: dict[str, Any]) -> Any:  # noqa: ANN401 - As JSON has it.
        known = {
            key: tuple(each) if isinstance(each, list) else each for key, each in known.items()
        }
        return Scenario(**known) if "question" in known else Parameter(**known)

    return tuple(json.loads(_simulator.scenarios(), object_hook=made))


@cache
def scenario(name: str) -> Scenario:
    """Find a scenario by name, or the one in a Python file.

    Raises:
        NotFoundError: There is none of that name, or none in the file.
    """
    if name.endswith(".py"):
        return _scenario_of(name)
    for each in scenarios():
        if each.name == name:
            return each
    raise NotFoundError(
        f"run the scenario '{name}'", "there is no such scenario", "'headrace sim list' names all"
    )


def _scenario_of(path: str) -> Scenario:
    tried = f"run the scenario in '{path}'"
    if not Path(path).is_file():
        raise NotFoundError(tried, "there is no such file", "write one: docs/tutorials/scenario.md")
    found = [each for each in runpy.run_path(path).values() if isinstance(each, Scenario)]
    if len(found) != 1:
        raise NotFoundError(
            tried, f"it has {len(found)} scenarios", "make one by headrace.simulator.scenario"
        )
    return found[0]


_FORMERLY = {"xeon-max-9468": "xeon-max-flat", "cloud-guest": "cloud-guest-2cpu"}


@cache
def machines() -> dict[str, Path]:
    """Paths of the sample machines of which the record has a model, by name."""
    return {
        name: path
        for name, path in samples().items()
        if "model" in json.loads(path.read_text(encoding="utf-8"))
    }


def find_machine(name: str) -> Path:
    """Find a machine of the package by name, or a record by path.

    Raises:
        NotFoundError: It is neither.
    """
    known = machines()
    path = known.get(_FORMERLY.get(name, name), Path(name))
    str(path).encode()  # What is not UTF-8 would be no JSON.
    if path.is_file():
        return path
    raise NotFoundError(
        f"find the machine '{name}'",
        "there is neither such a machine nor such a file",
        f"use one of {', '.join(known)}, or the path of a record",
    )


def run(
    name: str, points: Iterable[Mapping[str, object]] = ({},), *, machine: str | None = None
) -> list[Result]:
    """Run points of a scenario; deterministic.

    Args:
        name: Name of the scenario.
        points: Values of parameters; missing ones take their first value.
        machine: Name or path of a record; default: the scenario's.

    Raises:
        Error: A name or value is wrong, or the machine lacks what the scenario needs.
    """
    found = scenario(name)
    path = find_machine(machine or found.machine)
    if found.function is not None:
        return [_run_own(found, dict(point), str(path)) for point in points]
    request = {
        "machine": str(path),
        "scenario": name,
        "points": [{key: str(value) for key, value in point.items()} for point in points],
    }
    return [
        Result(each["parameters"], each["figures"], each["bound"], tuple(each["notes"]))
        for each in answer_of(_simulator.answer(json.dumps(request)))["results"]
    ]


def _run_own(found: Scenario, point: dict[str, object], machine: str) -> Result:
    values = {each.name: str(point.get(each.name, each.values[0])) for each in found.parameters}
    figures = dict(found.function(machine, **values)) if found.function else {}
    if not figures or not all(isinstance(each, int | float) for each in figures.values()):
        raise InvalidArgumentError(
            f"run the scenario '{found.name}'",
            f"its function returned {figures!r}",
            "return figures by name, at least one",
        )
    return Result({key: str(value) for key, value in point.items()}, figures, "", ())


def answer_of(text: str) -> dict[str, Any]:
    """Read an answer of the native module, or raise its error."""
    answer: dict[str, Any] = json.loads(text)
    if "error" in answer:
        raise from_code(**answer["error"])
    return answer


def pace_of(machine: str) -> str:
    """Latency and rate of a machine's DSA devices, in the format of 'headrace emulate --pace'.

    Raises:
        NotFoundError: There is no such machine.
        UnsupportedError: It has no DSA.
    """
    model = json.loads(find_machine(machine).read_text(encoding="utf-8")).get("model", {})
    if "dsa" not in model:
        raise UnsupportedError(
            f"pace devices as those of '{machine}'",
            "its record describes no DSA",
            "use spr-1dsa, or write LATENCY,RATE",
        )
    (result,) = run("submission", [{"bytes": 1, "mode": "sync"}], machine=machine)
    (longest,) = run("submission", [{"bytes": 1 << 20, "mode": "async"}], machine=machine)
    latency_ns = result.figures["time_us"] * 1e3
    return f"{latency_ns:.0f}ns,{longest.figures['gb_per_s']:.4g}GB/s"
