# SPDX-License-Identifier: Apache-2.0
"""Timelines of the three pipelines of a query, as a picture."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace._apps.picture import drawing
from headrace._files import Output
from headrace_lab.tpch.q6 import Event, Q6Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PIPELINES = ("scan", "prefetch", "aggregate")

_COLORS = {"scan": "#4477aa", "prefetch": "#ee7733", "aggregate": "#228833"}


def draw_timelines(picture: Output, runs: dict[str, Q6Run], title: str, caption: str) -> None:
    """Draw runs below each other on the same axis; the file is written atomically."""
    worker_count = max(len(_workers(run.timeline)) for run in runs.values())
    lane_inches = min(0.22, 6.0 / (worker_count * len(PIPELINES) * len(runs)))
    panel_inches = 0.55 + lane_inches * worker_count * len(PIPELINES)
    with drawing(picture, title, caption, (11, 1.9 + panel_inches * len(runs))) as figure:
        from matplotlib.patches import Patch  # noqa: PLC0415 - As of Figure.

        duration_ms = max(run.time_ns for run in runs.values()) / 1e6
        panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
        for panel, (mode, run) in zip(panels, runs.items(), strict=True):
            _draw_run(panel, run, worker_count, duration_ms)
            panel.set_title(
                f"prefetching {mode}: {run.time_ns / 1e6:.1f} ms", loc="left", fontsize=10
            )
        panels[-1].set_xlabel("time since the start of the query (ms)")
        panels[-1].set_xlim(0, duration_ms * 1.01)
        meanings = {"prefetch": "prefetch (submission of the copies)"}
        figure.legend(
            handles=[
                Patch(color=_COLORS[name], label=meanings.get(name, name)) for name in PIPELINES
            ],
            loc="outside upper right",
            ncols=len(PIPELINES),
            frameon=False,
            fontsize=9,
        )


def _draw_run(panel: "Axes", run: Q6Run, worker_count: int, duration_ms: float) -> None:
    workers = _workers(run.timeline)
    for group, pipeline in enumerate(PIPELINES):
        base = group * (worker_count + 0.6)
        events = [event for event in run.timeline if event.pipeline == pipeline]
        if not events:
            middle_ms, middle = duration_ms / 2, base + worker_count / 2
            panel.text(middle_ms, middle, "nothing", color="#999999", ha="center", va="center")
        for lane, worker in enumerate(workers):
            begins_ms = [event.begin_ns / 1e6 for event in events if event.worker_index == worker]
            ends_ms = [event.end_ns / 1e6 for event in events if event.worker_index == worker]
            # Events shorter than a pixel must be visible, and only wide ones get an edge.
            widths_ms = [
                max(end_ms - begin_ms, duration_ms / 1500)
                for begin_ms, end_ms in zip(begins_ms, ends_ms, strict=True)
            ]
            panel.broken_barh(
                list(zip(begins_ms, widths_ms, strict=True)),
                (base + lane + 0.08, 0.84),
                facecolor=_COLORS[pipeline],
                edgecolor="white",
                linewidth=[0.4 if width_ms > duration_ms / 250 else 0 for width_ms in widths_ms],
            )
        if group:
            panel.axhline(base - 0.3, color="#cccccc", linewidth=0.6)
    panel.set_yticks(
        [group * (worker_count + 0.6) + worker_count / 2 for group in range(len(PIPELINES))],
        PIPELINES,
    )
    panel.set_ylim(len(PIPELINES) * (worker_count + 0.6) - 0.6, 0)
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="x", color="#e5e5e5", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)


def _workers(events: Sequence[Event]) -> list[int]:
    return sorted({event.worker_index for event in events})
