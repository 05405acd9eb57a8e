#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Derives what published figures share with the inputs of the simulator's models.

Each measured number of a model is changed by 5 %, and the published points are simulated again.
Writes python/src/headrace/_apps/sim/provenance.json; with --check, compares it instead.

    scripts/sim_provenance.py [--check]
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headrace._apps.sim.provenance import Number, numbers_of, published_series, simulate_series
from headrace._scenarios import Result, find_machine
from headrace.errors import Error

_PATH = Path(__file__).parent.parent / "python/src/headrace/_apps/sim/provenance.json"
_CHANGES = (0.95, 1.05)
_MOVED = 0.001
"""A fiftieth of the change of the number."""
_CONSTRUCTION = ("data sheet", "the machine")
"""Sources of what is counted, not measured: cores, DIMMs, sizes of caches."""


def changed(series: Mapping[str, Any], *, own: bool) -> Iterator[tuple[Number, list[list[Result]]]]:
    """Yield the measured numbers of the series' machine, with the results after each change.

    Args:
        series: The series.
        own: Change only the numbers that were fitted to this series, in both directions; else all,
            in the first direction that the simulator accepts.
    """
    record = json.loads(find_machine(series["machine"]).read_text(encoding="utf-8"))
    with TemporaryDirectory(prefix="headrace-") as folder:
        path = Path(folder) / "changed.json"
        for number in numbers_of(record["model"]):
            if number.source in _CONSTRUCTION or (own and number.fitted_to != series["name"]):
                continue
            value, _, unit = number.value.partition(" ")
            results: list[list[Result]] = []
            for change in _CHANGES:
                if results and not own:
                    break
                for quantity in number.quantities:
                    quantity["value"] = f"{float(value) * change:.10g} {unit}".strip()
                path.write_text(json.dumps(record), encoding="utf-8")
                with suppress(Error):  # No machine can be so.
                    results.append(simulate_series(series, path))
            for quantity in number.quantities:
                quantity["value"] = number.value
            yield number, results


def inputs_of(series: Mapping[str, Any]) -> list[list[str]]:
    """Return, for each point of a series, the measured numbers that move it."""
    before = simulate_series(series)
    moved: list[list[str]] = [[] for _ in before]
    for number, results in changed(series, own=False):
        for names, old, *new in zip(moved, before, *results, strict=True):
            if any(moves(old, each, series["metric"]) for each in new):
                names.append(number.name)
    return moved


def echoes_of(series: Mapping[str, Any]) -> list[list[str]]:
    """Return, for each point of a fitted series, the figures that restate the published one.

    A point restates it if a number was fitted to it alone, or n numbers to n such points. The
    figures are the metric of the series and what is in proportion to it.
    """
    metric = series["metric"]
    before = simulate_series(series)
    own = list(changed(series, own=True))
    # A limit, such as a size, moves a figure in one direction only: it restates nothing.
    points_of = {
        number.name: {
            index
            for index, old in enumerate(before)
            if len(results) == len(_CHANGES) and all(moves(old, r[index], metric) for r in results)
        }
        for number, results in own
    }
    found: set[int] = set()
    while single := next((each for each in points_of.values() if len(each) == 1), set()):
        found |= single
        points_of = {name: each - single for name, each in points_of.items()}
    for each in points_of.values():
        if each and len(each) <= sum(other == each for other in points_of.values()):
            found |= each
    echoes: list[list[str]] = [[] for _ in before]
    for _, results in own:
        for index in found:
            old, new = before[index].figures, results[0][index].figures
            change = abs(math.log(new[metric] / old[metric]))
            if change > _MOVED:
                echoes[index] = [
                    name
                    for name, value in sorted(new.items())
                    if value > 0 and math.isclose(abs(math.log(value / old[name])), change)
                ]
    return echoes


def moves(old: Result, new: Result, metric: str) -> bool:
    """Tell whether a figure has changed."""
    return abs(new.figures[metric] - old.figures[metric]) > _MOVED * abs(old.figures[metric])


def main() -> int:
    """Write or check the file."""
    of = {use: [s for s in published_series() if s["use"] == use] for use in ("held_out", "fit")}
    text = json.dumps(
        {
            "inputs": {each["name"]: inputs_of(each) for each in of["held_out"]},
            "echoes": {each["name"]: echoes_of(each) for each in of["fit"]},
        },
        indent=1,
    )
    if "--check" not in sys.argv:
        _PATH.write_text(text + "\n", encoding="utf-8")
        return 0
    if json.loads(text) == json.loads(_PATH.read_text(encoding="utf-8")):
        return 0
    sys.stderr.write(f"{_PATH} differs from the models: run scripts/sim_provenance.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
