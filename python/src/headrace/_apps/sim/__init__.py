# SPDX-License-Identifier: Apache-2.0
"""Predicts times on machines described in a file, and compares them with published ones.

Every figure is simulated: what a model of the machine gives, not a measurement. The model, its
equations and what it leaves out are in docs/concepts/simulator.md.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headrace import _simulator
from headrace.errors import NotFoundError, UnsupportedError, from_code

__all__ = [
    "Parameter",
    "Result",
    "Scenario",
    "find_machine",
    "machines",
    "pace_of",
    "run",
    "scenarios",
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a scenario can be asked about.

    Attributes:
        name: How it is set.
        kind: count, size, number, word or text.
        values: Swept if nothing is said; the first one counts if another parameter is swept.
        allowed: All that a word may be.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    allowed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named question to a model of a machine.

    Attributes:
        name: How it is asked.
        question: What it answers.
        machine: Asked about this one if none is named.
        parameters: In the order in which they are swept.
    """

    name: str
    question: str
    machine: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one point; all figures are simulated.

    Attributes:
        parameters: Those that were given.
        figures: By name, which ends in the unit.
        bound: The resource that limits it; "latency" if none is full.
        notes: What to know about the figures.
    """

    parameters: dict[str, str]
    figures: dict[str, float]
    bound: str
    notes: tuple[str, ...]


@cache
def scenarios() -> tuple[Scenario, ...]:
    """List all scenarios."""
    return tuple(
        Scenario(
            each["name"],
            each["question"],
            each["machine"],
            tuple(
                Parameter(one["name"], one["kind"], tuple(one["values"]), tuple(one["allowed"]))
                for one in each["parameters"]
            ),
        )
        for each in json.loads(_simulator.scenarios())
    )


def scenario(name: str) -> Scenario:
    """Give the scenario of that name.

    Raises:
        NotFoundError: There is none.
    """
    for each in scenarios():
        if each.name == name:
            return each
    raise NotFoundError(
        f"run the scenario '{name}'", "there is none", "'headrace sim list' names all"
    )


@cache
def machines() -> dict[str, Path]:
    """Paths of the records that come with the package and have a model, by name."""
    # The package may be in two places: its sources, and what was built of them.
    folder = Path(_simulator.__file__ or "").parent / "_machines"
    found = {}
    for path in sorted(folder.glob("*.json")):
        model = json.loads(path.read_text(encoding="utf-8")).get("model")
        if model is not None:
            found[str(model["name"])] = path
    return found


def find_machine(name: str) -> Path:
    """Give the path of a machine that comes with the package, or of a record that is a file.

    Raises:
        NotFoundError: It is neither.
    """
    known = machines()
    if name in known:
        return known[name]
    if Path(name).is_file():
        return Path(name)
    raise NotFoundError(
        f"find the machine '{name}'",
        "there is neither such a machine nor such a file",
        f"use one of {', '.join(known)}, or the path of a record",
    )


def run(
    name: str, points: Iterable[Mapping[str, object]] = ({},), *, machine: str | None = None
) -> list[Result]:
    """Run points of a scenario; the same points give the same results every time.

    Args:
        name: Of the scenario.
        points: Values of parameters; of those that are missing the first one counts.
        machine: Name or path of a record; else the scenario's own.

    Raises:
        Error: A name or value is wrong, or the machine lacks what the scenario needs.
    """
    path = find_machine(machine or scenario(name).machine)
    request = {
        "machine": str(path),
        "scenario": name,
        "points": [{key: str(value) for key, value in point.items()} for point in points],
    }
    answer = json.loads(_simulator.answer(json.dumps(request)))
    if "error" in answer:
        raise from_code(**answer["error"])
    return [
        Result(each["parameters"], each["figures"], each["bound"], tuple(each["notes"]))
        for each in answer["results"]
    ]


def pace_of(machine: str) -> str:
    """Give latency and rate of a machine's DSA devices as 'headrace emulate --pace' takes them.

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
