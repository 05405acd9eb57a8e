# SPDX-License-Identifier: Apache-2.0
"""Draws figures over an axis: measured ones, and published and simulated ones beside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace import _core
from headrace._apps.families.measure import UNITS, Shown
from headrace.errors import Error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

# Okabe and Ito: told apart with any colour vision, on light and on dark.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#b8a000")
_STYLES = {"measured": "-", "emulated": "-", "simulated": ":", "published": "--"}
_MARKERS = {"measured": "o", "emulated": "D", "simulated": "^", "published": "s"}
_DECADES = 30.0
"""A panel whose figures span more is logarithmic."""
_TICKS_WIDE = 6
_TICKS_MAX = 12
_LEGEND_LINE = 0.22
"""Inches that a line of the legend takes."""
_LEGEND_TOP = -0.22


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a panel.

    Attributes:
        label: In the legend.
        kind: "measured", "emulated", "simulated" or "published".
        points: By where on the axis: the median, and lower and upper quartile.
    """

    label: str
    kind: str
    points: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes.

    Attributes:
        title: Above it.
        metric: Of all its figures.
        lines: In the order of the legend.
    """

    title: str
    metric: str
    lines: Sequence[Line]

    @property
    def ticks(self) -> list[str]:
        """Where its lines have points: sizes and numbers ascending, else as they come."""
        found = list(dict.fromkeys(x for line in self.lines for x in line.points))
        sizes = [_size(x) for x in found]
        if None in sizes:
            return found
        return [x for _, x in sorted(zip(sizes, found, strict=True))]


def _size(text: str) -> int | None:
    try:
        return int(_core.parse_bytes(text))
    except Error:
        return None


def panels_of(shown: Iterable[Shown]) -> list[Panel]:
    """Sort figures into panels."""
    found: dict[tuple[str, str], dict[tuple[str, bool], dict[str, tuple[float, float, float]]]] = {}
    for each in shown:
        figure = each.figure
        # What is measured at one place of several parts has lines of one unit.
        unit = UNITS[each.place.metric]
        lines = found.setdefault((each.place.panel, unit), {})
        points = lines.setdefault((each.line, each.emulated), {})
        points[each.place.x] = (figure.median, figure.low, figure.high)
    return [
        Panel(
            title,
            unit,
            [
                Line(label, "emulated" if emulated else "measured", points)
                for (label, emulated), points in lines.items()
            ],
        )
        for (title, unit), lines in found.items()
    ]


def draw_panels(
    panels: Sequence[Panel], title: str, caption: str, *, width: float = 6.4
) -> "Picture":
    """Draw panels one below the other; call it within `matplotlib_settled`."""
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415 - Costs half a second.

    heights = [0.64 * width + _LEGEND_LINE * len(panel.lines) for panel in panels] or [2.0]
    picture = Picture(figsize=(width, sum(heights)), layout="constrained")
    axes = picture.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, panel in zip(axes, panels, strict=False):
        _draw_panel(axis, panel)
    if not panels:
        axes[0].set_axis_off()
        axes[0].text(0.5, 0.5, "Nothing of this can be measured here.", ha="center")
    if title:
        picture.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
    if caption:
        picture.supxlabel(caption, fontsize=8, x=0.01, ha="left")
    return picture


def _draw_panel(axis: "Axes", panel: Panel) -> None:
    ticks = panel.ticks
    medians = [point[0] for line in panel.lines for point in line.points.values()]
    for number, line in enumerate(panel.lines):
        points = [(ticks.index(x), *line.points[x]) for x in ticks if x in line.points]
        ours = line.kind in ("measured", "emulated")
        axis.errorbar(
            [at for at, *_ in points],
            [middle for _, middle, _, _ in points],
            yerr=(
                [max(0.0, middle - low) for _, middle, low, _ in points],
                [max(0.0, high - middle) for _, middle, _, high in points],
            ),
            label=line.label,
            color=_COLOURS[number % len(_COLOURS)],
            linestyle=_STYLES[line.kind],
            linewidth=2.2 if ours else 1.2,
            zorder=3 if ours else 2,
            marker=_MARKERS[line.kind],
            markersize=5 if ours else 3.5,
            # Colours come again after eight lines.
            markerfacecolor=None if number < len(_COLOURS) else "none",
            capsize=2,
        )
    if medians and min(medians) > 0 and max(medians) / min(medians) > _DECADES:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    turned = len(ticks) > _TICKS_WIDE
    every = -(-len(ticks) // _TICKS_MAX) or 1
    axis.set_xticks(
        range(0, len(ticks), every),
        ticks[::every],
        rotation=35 if turned else 0,
        ha="right" if turned else "center",
    )
    axis.set_ylabel(panel.metric)
    axis.set_title(panel.title, fontsize=10, loc="left")
    axis.grid(visible=True, alpha=0.3)
    if panel.lines:
        # Below, where it hides nothing.
        axis.legend(
            fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(0.0, _LEGEND_TOP)
        )
