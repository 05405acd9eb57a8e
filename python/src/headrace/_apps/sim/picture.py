# SPDX-License-Identifier: Apache-2.0
"""Draws results of a scenario: a line for each combination of the other parameters."""

from collections.abc import Sequence
from typing import Any

from headrace import _core
from headrace._apps.picture import drawing
from headrace._files import Output
from headrace._scenarios import Result
from headrace.errors import Error

_CEILING = "ceiling_gb_per_s"
_LINES_MAX = 12
_THREADS_MAX = 16
_WIDER = 4.0
_BAND = 9.0
"""In points: wide enough to show on both sides of a line that reaches its ceiling."""


def draw_results(picture: Output, title: str, results: Sequence[Result]) -> None:
    """Draw the first figure of each result over the parameter with the most values."""
    swept = {
        key: list(dict.fromkeys(each.parameters[key] for each in results))
        for key in results[0].parameters
    }
    across = max(swept, key=lambda key: len(swept[key])) if swept else ""
    figure_name = next(iter(results[0].figures))
    lines: dict[str, list[Result]] = {}
    for each in results:
        label = ", ".join(
            f"{key}={value}"
            for key, value in each.parameters.items()
            if key != across and len(swept[key]) > 1
        )
        lines.setdefault(label, []).append(each)
    ticks = swept.get(across, [""])
    caption = "bands: ceilings" if _CEILING in results[0].figures else ""
    with drawing(picture, title, caption, (9, 5)) as figure:
        axes = figure.add_subplot()
        drawn = list(lines.items())[:_LINES_MAX]
        for index, (label, members) in enumerate(drawn):
            at = [ticks.index(each.parameters.get(across, "")) for each in members]
            values = [each.figures[figure_name] for each in members]
            color = f"C{index}"
            # Lines often coincide: later ones are thinner, so that all are visible.
            wider = (len(drawn) - 1 - index) * _WIDER / max(1, len(drawn) - 1)
            axes.plot(
                at,
                values,
                marker="o",
                color=color,
                linewidth=1.5 + wider,
                markersize=6 + wider,
                label=label or figure_name,
            )
            if _CEILING in members[0].figures:
                ceilings = [each.figures[_CEILING] for each in members]
                band = _BAND + 2 * wider
                axes.plot(at, ceilings, color=color, linewidth=band, alpha=0.25, zorder=1)
        axes.set_xticks(range(len(ticks)), [_tick(tick) for tick in ticks])
        axes.set_xlabel(across)
        axes.set_ylabel(figure_name)
        axes.grid(visible=True, alpha=0.3)
        if len(lines) > 1:
            axes.legend(fontsize="small")


def _tick(text: str) -> str:
    # Sizes of a range are numbers of bytes.
    try:
        count = _core.parse_bytes(text)
    except Error:
        return text
    return _core.bytes_text(count) if count >= 1024 and text.isdigit() else text  # noqa: PLR2004


def draw_timeline(picture: Output, title: str, replayed: Any) -> None:  # noqa: ANN401 - Replayed
    """Draw what each thread does over time: computing, moving, waiting."""
    threads = replayed.timeline[:_THREADS_MAX]
    with drawing(picture, title, "", (9, 1 + 0.6 * max(2, len(threads)))) as figure:
        axes = figure.add_subplot()
        for index, bins in enumerate(threads):
            times = [replayed.time_s * i / len(bins) for i in range(len(bins))]
            width = replayed.time_s / len(bins)
            below = [float(index)] * len(bins)
            for kind, color in enumerate(("C0", "C2", "C3")):
                heights = [0.9 * each[kind] for each in bins]
                axes.bar(
                    times,
                    heights,
                    width,
                    below,
                    align="edge",
                    color=color,
                    linewidth=0,
                    label=("computing", "moving", "waiting")[kind] if index == 0 else None,
                )
                below = [low + high for low, high in zip(below, heights, strict=True)]
        axes.set_xlabel("seconds")
        axes.set_yticks(range(len(threads)), [f"thread {i}" for i in range(len(threads))])
        axes.legend(fontsize="small", loc="upper right")
