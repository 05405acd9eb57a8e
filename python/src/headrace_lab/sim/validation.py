# SPDX-License-Identifier: Apache-2.0
"""Compares simulated figures with published ones.

The published ones are in published.toml. Each series there is "fit" (model figures may be derived
from it), "held_out" (they may not) or "doubtful".
"""

import math
import statistics
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from headrace._apps.sim import run

ERROR_MEDIAN_MAX = 0.10
"""Maximum median error of the held-out figures."""
ERROR_WORST_MAX = 0.25
_CEILING = "ceiling_gb_per_s"
_ROUNDING = 1.001


@dataclass(frozen=True, slots=True)
class Point:
    """One published figure beside the simulated one.

    Attributes:
        series: Name of the series.
        use: "fit", "held_out" or "doubtful".
        source: Who published it.
        where: The parameter that varies in the series, with its value.
        metric: What was published; the name ends in the unit.
        published: The figure, or the middle of a range.
        simulated: The prediction.
        flag: Why it is not counted; empty if it is.
    """

    series: str
    use: str
    source: str
    where: str
    metric: str
    published: float
    simulated: float
    flag: str

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return (self.simulated - self.published) / self.published


@dataclass(frozen=True, slots=True)
class Validation:
    """All points, and the figures for the thresholds.

    Attributes:
        points: In the order of the file.
    """

    points: tuple[Point, ...]

    @property
    def held_out(self) -> list[Point]:
        """Points that are held out and not flagged."""
        return [point for point in self.points if point.use == "held_out" and not point.flag]

    @property
    def summary(self) -> dict[str, Any]:
        """The summary figures of the held-out points."""
        errors = [abs(point.error) for point in self.held_out]
        fitted = [abs(point.error) for point in self.points if point.use == "fit"]
        return {
            "points": len(errors),
            "error_median": round(statistics.median(errors), 4),
            "error_worst": round(max(errors), 4),
            "flagged": sum(1 for point in self.points if point.flag),
            "fit_points": len(fitted),
            "fit_error_median": round(statistics.median(fitted), 4),
        }

    @property
    def broken(self) -> list[str]:
        """Messages about missed thresholds."""
        summary = self.summary
        sentences = []
        if summary["error_median"] > ERROR_MEDIAN_MAX:
            sentences.append(
                f"the median error of what is held out is {summary['error_median']:.1%}, "
                f"more than {ERROR_MEDIAN_MAX:.0%}"
            )
        sentences += [
            f"{point.series} at {point.where} is off by {point.error:+.1%}, "
            f"more than {ERROR_WORST_MAX:.0%}"
            for point in self.held_out
            if abs(point.error) > ERROR_WORST_MAX
        ]
        return sentences


def published_series() -> list[dict[str, Any]]:
    """Read the file of published figures."""
    text = (resources.files("headrace_lab.sim") / "published.toml").read_text(encoding="utf-8")
    series: list[dict[str, Any]] = tomllib.loads(text)["series"]
    return series


def validate() -> Validation:
    """Simulate every published point."""
    points: list[Point] = []
    for series in published_series():
        key = series["key"]
        fixed = series.get("fixed", {})
        asked = [{**fixed, key: value} for value, _ in series["points"]]
        results = run(series["scenario"], asked, machine=series["machine"])
        for (value, figure), result in zip(series["points"], results, strict=True):
            published = sum(figure) / len(figure) if isinstance(figure, list) else float(figure)
            flag = series["reason"] if series["use"] == "doubtful" else ""
            ceiling = result.figures.get(_CEILING, math.inf)
            is_rate = series["metric"] == "gb_per_s"
            if is_rate and published > ceiling * _ROUNDING:
                flag = f"above the ceiling of {ceiling:.1f} GB/s; {flag}".rstrip("; ")
            points.append(
                Point(
                    series["name"],
                    series["use"],
                    series["source"],
                    f"{key}={value}",
                    series["metric"],
                    published,
                    result.figures[series["metric"]],
                    flag,
                )
            )
    return Validation(tuple(points))
