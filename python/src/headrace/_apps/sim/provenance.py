# SPDX-License-Identifier: Apache-2.0
"""Reads the published figures, and what each shares with the inputs of the model.

published.toml has the figures. provenance.json is derived from the models by
scripts/sim_provenance.py, which changes each number and simulates again.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._scenarios import Result, find_machine, run, scenario


@dataclass(slots=True)
class Number:
    """A number of a model, which may stand in several places of its record.

    Attributes:
        name: Its first place, as in "nodes[0].read".
        value: With its unit.
        fitted_to: The published series that it was fitted to; empty if none.
        source: Its source otherwise.
        quantities: The members of the record.
    """

    name: str
    value: str
    fitted_to: str
    source: str
    quantities: list[dict[str, str]] = field(default_factory=list)


def numbers_of(model: Mapping[str, Any]) -> list[Number]:
    """List the distinct numbers of a model: equal values of one source are one number."""
    found: dict[tuple[str, ...], Number] = {}
    for name, quantity in _quantities(model, ""):
        fitted_to, source = quantity.get("fitted_to", ""), quantity.get("source", "")
        key = (quantity["value"], fitted_to, source)
        number = found.setdefault(key, Number(name, *key))
        number.quantities.append(quantity)
    return list(found.values())


def _quantities(value: object, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _quantities(each, f"{name}[{index}]")
    elif isinstance(value, dict) and "value" in value:
        yield name, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _quantities(each, f"{name}.{key}".lstrip("."))


@cache
def published_series() -> list[dict[str, Any]]:
    return list(tomllib.loads(_text("published.toml"))["series"])


@cache
def provenance() -> dict[str, dict[str, list[list[str]]]]:
    """Read what the model's inputs determine, by series and point.

    Returns:
        "inputs": of held-out series, the measured numbers of the model that move the figure.
        "echoes": of fitted series, the figures of the result that restate the published one,
        because as many numbers were fitted to such points as there are.
    """
    found: dict[str, dict[str, list[list[str]]]] = json.loads(_text("provenance.json"))
    return found


def _text(name: str) -> str:
    return (resources.files("headrace._apps.sim") / name).read_text(encoding="utf-8")


def simulate_series(series: Mapping[str, Any], machine: Path | None = None) -> list[Result]:
    return run(series["scenario"], points_of(series), machine=str(machine or series["machine"]))


def points_of(series: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Parameters of the points of a published series."""
    return [{**series.get("fixed", {}), series["key"]: value} for value, _ in series["points"]]


def published_figures(model: Mapping[str, Any], name: str, results: list[Result]) -> list[set[str]]:
    """Return, for each result of a scenario, the figures that restate a published one."""
    known = {each.name: each for each in scenario(name).parameters}
    first = {each.name: each.values[0] for each in known.values()}

    def full(point: Mapping[str, object]) -> dict[str, float | str]:
        given = {**first, **{key: str(value) for key, value in point.items()}}
        return {key: _plain(known[key].kind, value) for key, value in given.items()}

    there = {(each.fitted_to, each.value) for each in numbers_of(model)}
    echoes = provenance()["echoes"]
    found: list[set[str]] = [set() for _ in results]
    for series in published_series():
        if series["scenario"] != name:
            continue
        own = numbers_of(json.loads(find_machine(series["machine"]).read_text("utf-8"))["model"])
        fitted = {(each.fitted_to, each.value) for each in own if each.fitted_to == series["name"]}
        if not fitted or not fitted <= there:
            continue
        points = [full(each) for each in points_of(series)]
        asked = [full(each.parameters) for each in results]
        for figures, point in zip(found, asked, strict=True):
            if point in points:
                figures.update(echoes[series["name"]][points.index(point)])
    return found


def _plain(kind: str, value: str) -> float | str:
    if kind == "size":
        return _core.parse_bytes(value)
    return float(value) if kind in {"count", "number"} else value
