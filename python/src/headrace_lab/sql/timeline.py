# SPDX-License-Identifier: Apache-2.0
"""Draws when each column of each chunk of a query was submitted and read."""

import math
from typing import TYPE_CHECKING

from headrace._apps.picture import drawing
from headrace._files import Output
from headrace._words import counted
from headrace.sql import ChunkEvent, ColumnRead, ScanRead
from headrace_lab.sql.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUBJECT = "the timeline of the first run, with an empty cache,"
"""Name of the picture in messages."""

_STYLES = {
    "submitted": ("|", "#ee7733", "submitted"),
    "copies": ("o", "#228833", "read from its copy"),
    "source": ("x", "#4477aa", "read from the source"),
}
"""Marker, color and meaning of each kind of event."""
_LANE_INCHES = 0.42


def draw_timeline(picture: Output, study: Study) -> None:
    """Draw the first run with prefetching of a study of one query.

    A lane is a column of a scan, with the first chunk at the top. A line from the submission of a
    chunk to its read is the lead.
    """
    ((name, query),) = study.queries.items()
    scans = () if query.first is None else query.first.scans
    lanes = [
        (index, scan, column)
        for index, scan in enumerate(scans)
        for column in scan.columns
        if any(each.scan_index == index and each.column == column.name for each in query.timeline)
    ]
    title = "Query" if name == "query" else f"TPC-H query {name}"
    caption = (
        f"{study.machine.cpu_model}, {counted(study.settings.thread_count, 'thread')}, path "
        f"{study.settings.path}; in a lane the first chunk is at the top, and a line is the lead "
        "of a chunk"
    )
    with drawing(
        picture,
        f"{title}: chunks submitted and read in the first run",
        caption,
        (11, 2.1 + _LANE_INCHES * max(len(lanes), 1)),
    ) as figure:
        from matplotlib.lines import Line2D  # noqa: PLC0415 - As of Figure.

        panel = figure.subplots()
        for lane, (index, scan, column) in enumerate(lanes):
            events = [
                each
                for each in query.timeline
                if each.scan_index == index and each.column == column.name
            ]
            _draw_lane(panel, lane, scan, column, events)
        if not lanes:
            panel.text(
                0.5, 0.5, "nothing was prefetched", color="#999999", ha="center", gid="nothing"
            )
        filters = [set(scan.filter_columns) for scan in query.plan]
        panel.set_yticks(
            [lane + 0.5 for lane in range(len(lanes))],
            [
                f"{scan.table}.{column.name}"
                + (" (filter)" if column.name in filters[index] else "")
                for index, scan, column in lanes
            ],
        )
        panel.set_ylim(max(len(lanes), 1), 0)
        panel.set_xlim(left=0)
        panel.set_xlabel("time since prefetching began (ms)")
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", color="#e5e5e5", linewidth=0.6)
        panel.set_axisbelow(True)
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
        figure.legend(
            handles=[
                Line2D([], [], marker=marker, color=color, linestyle="", label=label)
                for marker, color, label in _STYLES.values()
            ],
            loc="outside upper right",
            ncols=len(_STYLES),
            frameon=False,
            fontsize=9,
        )


def _draw_lane(
    panel: "Axes", lane: int, scan: ScanRead, column: ColumnRead, events: list[ChunkEvent]
) -> None:
    def height(event: ChunkEvent) -> float:
        return lane + 0.1 + 0.8 * (event.chunk_index + 0.5) / max(scan.chunks, 1)

    label = f"{scan.table}.{column.name}"
    submitted: dict[int, float] = {}
    for event in events:
        if event.kind == "submitted":
            submitted.setdefault(event.chunk_index, event.time_ns / 1e6)
    read = {
        each: each.time_ns / 1e6
        for each in events
        if each.kind != "submitted"
        and submitted.get(each.chunk_index, math.inf) < each.time_ns / 1e6
    }
    panel.hlines(
        [height(each) for each in read],
        [submitted[each.chunk_index] for each in read],
        list(read.values()),
        color="#cccccc",
        linewidth=0.8,
        gid=f"lead:{label}",
    )
    for kind, (marker, color, _label) in _STYLES.items():
        own = [each for each in events if each.kind == kind]
        if own:
            panel.plot(
                [each.time_ns / 1e6 for each in own],
                [height(each) for each in own],
                marker,
                color=color,
                markersize=3.5,
                gid=f"{kind}:{label}",
            )
    chunks = {each.chunk_index for each in events if each.kind != "submitted"}
    copies = {each.chunk_index for each in events if each.kind == "copies"}
    copies -= {each.chunk_index for each in events if each.kind == "source"}
    lead = "none" if column.lead_ns is None else f"{column.lead_ns / 1e6:.1f} ms"
    panel.text(
        1.01,
        lane + 0.5,
        f"lead {lead}\n{len(copies)} of {counted(len(chunks), 'chunk')} from copies",
        transform=panel.get_yaxis_transform(),
        fontsize=7.5,
        va="center",
        color="#333333",
        gid=f"text:{label}",
    )
    if lane:
        panel.axhline(lane, color="#dddddd", linewidth=0.6)
