# SPDX-License-Identifier: Apache-2.0
"""Draws measured, published and simulated figures over a common axis."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace import _core
from headrace.errors import Error
from headrace_lab.families.measure import UNITS, Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

# Okabe and Ito: distinct with any colour vision, on light and dark backgrounds.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#b8a000")
_STYLES = {"measured": "-", "emulated": "-", "simulated": ":", "published": "--"}
_MARKERS = {"measured": "o", "emulated": "D", "simulated": "^", "published": "s"}
_DECADES = 30.0
"""A panel whose figures span a larger ratio is logarithmic."""
_SIZES_MAX, _NAMES_MAX = 11, 20
_LETTERS_PER_INCH = 8
"""Maximum density of labels in a row; denser ones are rotated."""
_TURNED = 35
_TURNED_LETTER = 0.046
"""Height in inches of a letter of a rotated label."""
_LEGEND_LINE = 0.22
"""Height in inches of a line of the legend."""
_HEIGHT = 0.52
"""Height of the axes relative to the width of the picture."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line: "measured", "emulated", "simulated" or "published"; by tick median and quartiles."""

    label: str
    kind: str
    points: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    metric: str
    lines: Sequence[Line]

    @property
    def ticks(self) -> list[str]:
        """The places of its points: sizes and numbers ascending, else in order of appearance."""
        found = list(dict.fromkeys(x for line in self.lines for x in line.points))
        sizes = [_size(x) for x in found]
        if None not in sizes:
            return [x for _, x in sorted(zip(sizes, found, strict=True))]
        # Pairs of nodes, and texts that begin with a size.
        numbers = [[int(each) for each in re.findall(r"\d+", x)] for x in found]
        if all(x[0].isdigit() for x in found):
            return [x for _, x in sorted(zip(numbers, found, strict=True), key=lambda one: one[0])]
        return found

    @property
    def labels(self) -> list[str]:
        """The ticks with a label; of too many ticks, every n-th."""
        ticks = self.ticks
        most = _NAMES_MAX if None in map(_size, ticks) else _SIZES_MAX
        return ticks[:: -(-len(ticks) // most) or 1]

    def label_inches(self, width: float) -> float:
        """Height of rotated labels; 0 if they fit in a row."""
        if sum(len(label) + 2 for label in self.labels) <= _LETTERS_PER_INCH * width:
            return 0.0
        return _TURNED_LETTER * max(map(len, self.labels))


def _size(text: str) -> int | None:
    try:
        return int(_core.parse_bytes(text))
    except Error:
        return None


def panels_of(shown: Iterable[Shown]) -> list[Panel]:
    found: dict[tuple[str, str], dict[tuple[str, bool], dict[str, tuple[float, float, float]]]] = {}
    for each in shown:
        figure = each.figure
        # Metrics of one unit share a panel.
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
    """Draw panels below each other; call within `matplotlib_defaults`."""
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415 - Costs half a second.

    heights = [
        (_HEIGHT + 0.12) * width + _LEGEND_LINE * len(panel.lines) + panel.label_inches(width)
        for panel in panels
    ] or [2.0]
    picture = Picture(figsize=(width, sum(heights)), layout="constrained")
    axes = picture.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, panel in zip(axes, panels, strict=False):
        _draw_panel(picture, axis, panel, width)
    if not panels:
        axes[0].set_axis_off()
        axes[0].text(0.5, 0.5, "Nothing of this can be measured here.", ha="center")
    if title:
        picture.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
    if caption:
        picture.supxlabel(caption, fontsize=8, x=0.01, ha="left")
    return picture


def _draw_panel(picture: "Picture", axis: "Axes", panel: Panel, width: float) -> None:
    from matplotlib.transforms import ScaledTranslation  # noqa: PLC0415 - As above.

    ticks, labels = panel.ticks, panel.labels
    turned_inches = panel.label_inches(width)
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
            # Colours repeat after eight lines.
            markerfacecolor=None if number < len(_COLOURS) else "none",
            capsize=2,
        )
    if medians and min(medians) > 0 and max(medians) / min(medians) > _DECADES:
        axis.set_yscale("log")
    else:
        # Leave room at the edge, which would cut markers off.
        highest = max(
            (point[2] for line in panel.lines for point in line.points.values()), default=1
        )
        axis.set_ylim(bottom=0, top=1.08 * highest or 1)
    axis.set_xticks(
        [ticks.index(label) for label in labels],
        labels,
        rotation=_TURNED if turned_inches else 0,
        ha="right" if turned_inches else "center",
        rotation_mode="anchor" if turned_inches else "default",
    )
    if turned_inches:
        axis.tick_params(axis="x", pad=8)
    axis.set_ylabel(panel.metric)
    axis.set_title(panel.title, fontsize=10, loc="left")
    axis.grid(visible=True, alpha=0.3)
    if panel.lines:
        # Below the axes, where it hides no points.
        below = ScaledTranslation(0, -(0.28 + turned_inches), picture.dpi_scale_trans)
        axis.legend(
            fontsize="small",
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(0.0, 0.0),
            bbox_transform=axis.transAxes + below,
        )
