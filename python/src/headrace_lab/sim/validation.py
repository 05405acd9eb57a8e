# SPDX-License-Identifier: Apache-2.0
"""Compares simulated figures with published ones.

The published ones are in published.toml. Each series there is "fit" (numbers of the models may be
fitted to it), "held_out" (they may not), "doubtful" or "not_modelled". What a figure shares with
the model's inputs is derived from the models, not declared (provenance.py).
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace._apps.sim.provenance import provenance, published_series, simulate_series

ERROR_MEDIAN_MAX = 0.10
"""Maximum median error of the held-out figures that restate no input."""
ERROR_WORST_MAX = 0.25


@dataclass(frozen=True, slots=True)
class Point:
    """One published figure beside the simulated one.

    Attributes:
        use: "fit", "held_out", "doubtful" or "not_modelled".
        source: Who published it.
        where: The parameter that varies in the series, with its value.
        metric: What was published; the name ends in the unit.
        published: The figure, or the middle of a range.
        simulated: The prediction.
        flag: Why it is not counted; empty if it is.
        inputs: Of a held-out figure: the measured numbers of the model that move the prediction.
        is_echo: As many numbers were fitted as there are such figures: nothing is predicted.
    """

    series: str
    use: str
    source: str
    where: str
    metric: str
    published: float
    simulated: float
    flag: str
    inputs: tuple[str, ...] = ()
    is_echo: bool = False

    @property
    def error(self) -> float:
        return (self.simulated - self.published) / self.published

    @property
    def restates_input(self) -> bool:
        """Whether a held-out figure depends on no more than one measured number."""
        return self.use == "held_out" and len(self.inputs) <= 1


@dataclass(frozen=True, slots=True)
class Validation:
    points: tuple[Point, ...]

    @property
    def held_out(self) -> list[Point]:
        return [point for point in self.points if point.use == "held_out"]

    @property
    def summary(self) -> dict[str, Any]:
        """The summary figures; the median is of points that restate no input."""
        held_out = self.held_out
        errors = [abs(point.error) for point in held_out if not point.restates_input]
        fitted = [
            abs(point.error) for point in self.points if point.use == "fit" and not point.is_echo
        ]
        return {
            "points": len(errors),
            "points_restating_inputs": len(held_out) - len(errors),
            "error_median": round(statistics.median(errors), 4),
            "error_worst": round(max(abs(point.error) for point in held_out), 4),
            "flagged": sum(1 for point in self.points if point.flag),
            "fit_points": len(fitted),
            "fit_error_median": round(statistics.median(fitted), 4),
            "echoes": sum(1 for point in self.points if point.is_echo),
        }

    @property
    def broken(self) -> list[str]:
        """Messages about missed thresholds."""
        return missed(
            "of what is held out",
            self.summary["error_median"],
            ((f"{each.series} at {each.where}", each.error) for each in self.held_out),
            ERROR_WORST_MAX,
        )


def missed(
    where: str, median: float, errors: Iterable[tuple[str, float]], most: float, beside: str = ""
) -> list[str]:
    """Messages about a median, and errors of more than `most`."""
    limits = [(f"the median error {where} is {median:.1%}", median, ERROR_MEDIAN_MAX)]
    limits += [(f"{what} is off by {error:+.1%}", error, most) for what, error in errors]
    return [
        f"{what}, more than {limit:.0%}{beside}"
        for what, error, limit in limits
        if abs(error) > limit
    ]


def validate() -> Validation:
    points: list[Point] = []
    for series in published_series():
        nothing: list[list[str]] = [[]] * len(series["points"])
        inputs = provenance()["inputs"].get(series["name"], nothing)
        echoes = provenance()["echoes"].get(series["name"], nothing)
        for (value, figure), result, names, echo in zip(
            series["points"], simulate_series(series), inputs, echoes, strict=True
        ):
            points.append(
                Point(
                    series["name"],
                    series["use"],
                    series["source"],
                    f"{series['key']}={value}",
                    series["metric"],
                    sum(figure) / len(figure) if isinstance(figure, list) else float(figure),
                    result.figures[series["metric"]],
                    series.get("reason", ""),
                    tuple(names),
                    bool(echo),
                )
            )
    return Validation(tuple(points))
