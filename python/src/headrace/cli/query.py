# SPDX-License-Identifier: Apache-2.0
"""``headrace query``: TPC-H query 6 with query-driven prefetching, checked against DuckDB."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace import _core
from headrace.cli._output import EXIT_FAILED, complain, print_document, progress
from headrace.cli._query_report import print_report, results_of, summary_of
from headrace.errors import Error
from headrace.lineitem import read_lineitem
from headrace.machine import topo
from headrace.q6 import CHUNK_BYTES_MIN
from headrace.q6_study import TIMELINE_RUN_COUNT, Settings, Study, run_study
from headrace.timeline import check_picture_path, draw_timelines
from headrace.tpch import check_scale_factor, default_directory, ensure_lineitem

SCHEMA_NAME = "headrace-query"
SCHEMA_VERSION = 1


class Engine(StrEnum):
    """Who moves the bytes."""

    cpu = "cpu"


class Prefetch(StrEnum):
    """Modes of prefetching."""

    off = "off"
    on = "on"
    auto = "auto"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("query")(query)


def query(
    scale_factor: Annotated[
        float | None,
        typer.Option(help="TPC-H scale factor of the generated table; 1 if neither is given."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Parquet file with lineitem, instead of a generated one."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where generated tables are kept ($HEADRACE_DATA, else ~/.cache)."),
    ] = None,
    prefetch: Annotated[
        Prefetch, typer.Option(help="auto: prefetch if this machine has faster memory.")
    ] = Prefetch.auto,
    engine: Annotated[Engine, typer.Option(help="Who moves the bytes.")] = Engine.cpu,
    chunk_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes of one 8-byte column per chunk.")
    ] = "1MiB",
    threads: Annotated[
        int | None,
        typer.Option(help="Workers; all processors that this process may use if not given."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Measured rounds.")] = 15,
    capacity: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Room of the cache per node; all columns if not given."),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            help="Where copies go: fastest, local, none or a node; "
            "fastest if not given, local where no memory is faster."
        ),
    ] = None,
    no_compare: Annotated[
        bool, typer.Option("--no-compare", help="Do not run DuckDB beside it.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the timeline into this .svg or .png file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Run TPC-H query 6 with query-driven prefetching and check it against DuckDB.

    While one pipeline scans the filter's columns, another moves the columns that the aggregate
    will touch, and the third aggregates from wherever the data is. Prefetching off, auto and on
    and DuckDB take turns; the answer and the figures are those of the mode chosen by --prefetch.

    Example: headrace query --scale-factor 1 --prefetch auto --plot timeline.svg
    """
    del engine  # There is one; the option exists so that scripts can say so.
    settings = Settings(
        prefetch=prefetch.value,
        chunk_bytes=_parse_size("--chunk-bytes", chunk_bytes, CHUNK_BYTES_MIN),
        thread_count=_check_threads(threads),
        repeat_count=repeat,
        capacity_bytes=None if capacity is None else _parse_size("--capacity", capacity, 1),
        placement=None if placement is None else _parse_placement(placement),
        compare=not no_compare,
    )
    if data is not None and scale_factor is not None:
        raise _usage("--scale-factor", "a file was given by --data")
    if plot is not None:
        check_picture_path(plot)
    path = (
        data
        if data is not None
        else _generated(1 if scale_factor is None else scale_factor, data_dir)
    )
    machine = topo()
    with progress("reading the columns") as share:
        columns = read_lineitem(path, share)
    with progress("measuring") as share:
        study = run_study(path, columns, machine, settings, share)
    if plot is not None:
        _draw(plot, path, study)
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=machine.document,
            results=results_of(study, path),
            summary=summary_of(study),
        )
    else:
        print_report(study, path, plot)
    if not study.agrees:
        complain(
            f"the answer {study.answer} is not DuckDB's, {study.answer_baseline}: "
            "one of them is wrong; please report it with the file"
        )
        raise typer.Exit(EXIT_FAILED)


def _generated(scale_factor: float, data_dir: Path | None) -> Path:
    try:
        check_scale_factor(scale_factor)
    except Error as error:
        raise _usage("--scale-factor", f"{error.cause}; {error.remedy}") from error
    with progress(f"generating TPC-H lineitem, scale factor {scale_factor:g}") as share:
        return ensure_lineitem(scale_factor, data_dir or default_directory(), share)


def _parse_size(option: str, text: str, bytes_min: int) -> int:
    try:
        size_bytes = _core.parse_bytes(text)
    except Error as error:
        raise _usage(option, f"'{text}': {error.cause}; {error.remedy}") from error
    if size_bytes < bytes_min:
        raise _usage(option, f"'{text}' is too small; use at least {_core.bytes_text(bytes_min)}")
    return size_bytes


def _parse_placement(text: str) -> str | int:
    if text in {"fastest", "local", "none"}:
        return text
    if text.isdecimal():
        return int(text)
    raise _usage("--placement", f"'{text}' is not fastest, local, none or the number of a node")


def _check_threads(threads: int | None) -> int:
    allowed = len(os.sched_getaffinity(0))
    if threads is None:
        return allowed
    if not 1 <= threads <= allowed:
        raise _usage("--threads", f"{threads} is not from 1 to {allowed}, the processors allowed")
    return threads


def _usage(option: str, cause: str) -> typer.BadParameter:
    return typer.BadParameter(cause, param_hint=f"'{option}'")


def _draw(plot: Path, path: Path, study: Study) -> None:
    settings = study.settings
    caption = (
        f"{study.machine.cpu_model}, {settings.thread_count} workers, "
        f"chunks of {_core.bytes_text(settings.chunk_bytes)}, {study.row_count:,} rows of "
        f"{path.parent.name}/{path.name}; fastest of {TIMELINE_RUN_COUNT} runs of each mode"
    )
    draw_timelines(plot, study.timelines, "TPC-H query 6: who did what when", caption)
