# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, each with measured, published and simulated lines."""

import functools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace._apps.sim.provenance import published_figures, published_series
from headrace._core import bytes_text
from headrace._scenarios import find_machine, run, scenario
from headrace_lab.families.measure import Outcome
from headrace_lab.families.picture import Line, Panel, panels_of

_MIB = (1 << 20) / 1e9
_SCALES = {"mib_per_s": _MIB, "cpu_mib_per_s": _MIB}
"""Published units that become GB/s."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A line of simulated values; without a machine of the scenario's default."""

    label: str
    scenario: str
    key: str
    values: list[object]
    metric: str = "gb_per_s"
    fixed: Mapping[str, object] | None = None
    machine: str | None = None

    def line(self, names: Mapping[str, str]) -> Line:
        """Run the simulator; omits what restates the published line."""
        fixed = dict(self.fixed or {})
        points = [{**fixed, self.key: value} for value in self.values]
        machine = find_machine(self.machine or scenario(self.scenario).machine)
        results = run(self.scenario, points, machine=str(machine))
        model = json.loads(machine.read_text(encoding="utf-8"))["model"]
        published = published_figures(model, self.scenario, results)
        found = {}
        for value, result, restated in zip(self.values, results, published, strict=True):
            if self.metric in restated:
                continue
            figure = result.figures[self.metric] * _SCALES.get(self.metric, 1)
            found[names.get(str(value), _tick(self.key, value))] = (figure, figure, figure)
        return Line(f"{self.label} (simulated)", "simulated", found)


@dataclass(frozen=True, slots=True)
class Spec:
    """The definition of a figure.

    Attributes:
        family: The family that measures it; empty if none.
        panel: Prefix of the title of the family's panel.
        names: Names on the axis for values that have another one there.
    """

    name: str
    title: str
    unit: str
    family: str = ""
    panel: str = ""
    simulated: tuple[Simulated, ...] = ()
    published: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Card:
    """A figure of the report; `absent`: why nothing was measured, empty if something was."""

    name: str
    title: str
    panel: Panel
    absent: str
    sources: tuple[str, ...]

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.panel.metric,
            "absent": self.absent,
            "lines": [
                {
                    "label": line.label,
                    "kind": line.kind,
                    "points": [
                        {"x": x, "median": middle, "low": low, "high": high}
                        for x, (middle, low, high) in line.points.items()
                    ],
                }
                for line in self.panel.lines
            ],
        }


def _tick(key: str, value: object) -> str:
    return bytes_text(value) if key == "bytes" and isinstance(value, int) else str(value)


@functools.cache
def specs() -> tuple[Spec, ...]:
    text = Path(__file__).with_name("figures.toml").read_text(encoding="utf-8")
    return tuple(
        Spec(**each | {"simulated": tuple(Simulated(**one) for one in each.get("simulated", ()))})
        for each in tomllib.loads(text)["figure"]
    )


def cards_of(outcomes: Mapping[str, Outcome]) -> list[Card]:
    published = {each["name"]: each for each in published_series()}
    return [_card(spec, outcomes.get(spec.family), published) for spec in specs()]


def _card(spec: Spec, outcome: Outcome | None, published: Mapping[str, dict[str, Any]]) -> Card:
    lines: list[Line] = []
    absent = "" if spec.family else "Headrace does not measure this."
    if outcome is not None:
        for panel in panels_of(outcome.shown):
            if panel.title.startswith(spec.panel) and panel.metric == spec.unit:
                lines += panel.lines
                break
        if not lines:
            absent = f"Not measured: {_why_not(spec, outcome)}."
    elif spec.family:
        absent = "Not measured: the report was stopped before it."
    sources = []
    for name in spec.published:
        line, source = _published(published[name], spec)
        lines.append(line)
        sources.append(f"{name}: {source}")
    lines += [line for each in spec.simulated if (line := each.line(spec.names)).points]
    return Card(spec.name, spec.title, Panel(spec.title, spec.unit, lines), absent, tuple(sources))


def _why_not(spec: Spec, outcome: Outcome) -> str:
    """Join the reasons for this figure, or else for its family."""
    about = [each for each in outcome.left_out if spec.panel and each.what.startswith(spec.panel)]
    reasons = dict.fromkeys(each.why.rstrip(".") for each in about or outcome.left_out)
    return "; ".join(reasons) or "the report was stopped before it"


def _published(series: Mapping[str, Any], spec: Spec) -> tuple[Line, str]:
    key, metric = str(series["key"]), str(series["metric"])
    scale = _SCALES.get(metric, 1)
    points: dict[str, tuple[float, float, float]] = {}
    for value, figure in series["points"]:
        low, high = figure if isinstance(figure, list) else (figure, figure)
        tick = spec.names.get(str(value), _tick(key, value))
        points[tick] = ((low + high) / 2 * scale, low * scale, high * scale)
    doubt = ", in doubt" if "reason" in series else ""
    return Line(f"{series['name']} (published{doubt})", "published", points), str(series["source"])
