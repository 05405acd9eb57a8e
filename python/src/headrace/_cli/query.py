# SPDX-License-Identifier: Apache-2.0
"""``headrace query``: TPC-H query 6 with query-driven prefetching, checked against DuckDB."""

import math
import os
import re
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from headrace import _core
from headrace._apps.doctor.diagnosis import EXIT_USABLE, diagnose
from headrace._apps.dsa.gather import gather
from headrace._apps.sim import find_machine
from headrace._apps.sim.advice import predict_query
from headrace._apps.tpch.lineitem import check_memory, read_lineitem
from headrace._apps.tpch.q6 import CHUNK_BYTES_MIN, PREFETCH_MODES
from headrace._apps.tpch.study import (
    ENGINES,
    Settings,
    Study,
    make_engine,
    run_study,
)
from headrace._apps.tpch.table import (
    ROWS_PER_SCALE_FACTOR,
    check_scale_factor,
    default_directory,
    ensure_lineitem,
)
from headrace._apps.tpch.timeline import SUBJECT, draw_timelines
from headrace._cli._output import (
    EXIT_FAILED,
    WrongUseError,
    check_path,
    complain,
    parse_picture,
    print_document,
    progress,
)
from headrace._cli._query_report import print_report, results_of, summary_of
from headrace._files import Output
from headrace._words import counted
from headrace.errors import Error, HardwareAbsentError
from headrace.machine import Machine, topo

SCHEMA_NAME = "headrace-query"
SCHEMA_VERSION = 1

PLACEMENTS = ("fastest", "local", "none")
REPEAT_MAX = 10_000


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("query")(query)


# Every value comes as text, so that what is wrong with it is said by us, in one way.
def query(
    scale_factor: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="TPC-H scale factor of the generated table; "
            "1 if neither --scale-factor nor --data is given.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Parquet file with lineitem, not a generated one."),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where generated tables are kept; else $HEADRACE_DATA, "
            "else ~/.cache/headrace/tpch.",
        ),
    ] = None,
    prefetch: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="off, on or auto; auto prefetches if this machine has faster memory.",
        ),
    ] = "auto",
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who moves the bytes: cpu, dsa, or automatic: a DSA where there is one and the "
            "chunk is worth it.",
        ),
    ] = "automatic",
    chunk_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Rows are worked on in chunks: so many bytes of an 8-byte column.",
        ),
    ] = "1MiB",
    threads: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Workers; all processors that this process may use if not given.",
        ),
    ] = None,
    repeat: Annotated[
        str | None,
        typer.Option(metavar="N", help="Measured rounds; as many as take 8 s if not given."),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Room of the cache per node; all columns if not given."),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where copies go: fastest, local, none, a node, or by the node of the worker, "
            "as in 0:8,1:9+8; "
            "fastest if not given, local where no memory is faster.",
        ),
    ] = None,
    no_compare: Annotated[
        bool, typer.Option("--no-compare", help="Do not run DuckDB beside it.")
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the timeline into this .svg or .png file."),
    ] = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="MACHINE",
            help="Print too what the simulator predicts for the same query on a machine of "
            "'headrace sim list'.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Run TPC-H query 6 with prefetching and compare it with DuckDB.

    While one pipeline scans the filter's columns, another moves the columns that the aggregate
    will touch, and the third aggregates from wherever the data is. Prefetching off, auto and on
    and DuckDB take turns; the answer and the figures are those of the mode chosen by --prefetch.

    Example: headrace query --scale-factor 1 --prefetch auto --plot timeline.svg
    """
    settings = Settings(
        prefetch=_parse_choice("--prefetch", prefetch, PREFETCH_MODES, "mode"),
        chunk_bytes=_parse_size("--chunk-bytes", chunk_bytes, CHUNK_BYTES_MIN),
        thread_count=_parse_threads(threads),
        repeat_count=None if repeat is None else _parse_count("--repeat", repeat, REPEAT_MAX),
        capacity_bytes=None if capacity is None else _parse_size("--capacity", capacity, 1),
        placement=None if placement is None else _parse_placement(placement),
        compare=not no_compare,
        engine=_parse_choice("--engine", engine, tuple(ENGINES), "engine"),
    )
    if data is not None and scale_factor is not None:
        _refuse("--scale-factor cannot be given with --data, which names the table")
    data_path = _parse_path("--data", data)
    directory = _parse_path("--data-dir", data_dir)
    picture = None if plot is None else parse_picture("query", plot, SUBJECT)
    factor = _parse_scale_factor("1" if scale_factor is None else scale_factor)
    simulated_machine = _parse_simulated(simulate)
    machine = topo()
    _check_node(settings, machine)
    _check_capacity(settings, capacity, machine)
    _check_engine(settings, machine)
    path = data_path if data_path is not None else _generated(factor, directory)
    with progress("reading the columns") as share:
        columns = read_lineitem(path, share)
    with progress("measuring") as share:
        study = run_study(path, columns, machine, settings, share)
    if picture is not None:
        _draw(picture, path, study)
    simulated = None
    if simulated_machine is not None:
        simulated = predict_query(
            simulated_machine,
            row_count=study.row_count,
            chunk_bytes=settings.chunk_bytes,
            threads=settings.thread_count,
        )
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=machine.document,
            results=results_of(study, path)
            | ({} if simulated is None else {"simulated": {"machine": simulate, **simulated}}),
            summary=summary_of(study),
        )
    else:
        print_report(study, path, picture)
        if simulated is not None:
            typer.echo(
                f"\nsimulated on {simulate}: prefetching off {simulated['off_ms']:.2f} ms, "
                f"advised {simulated['on_ms']:.2f} ms ({simulated['gain']:+.1%}; read from "
                f"{simulated['tier']}, mover {simulated['mover']}; bound: {simulated['bound']})"
            )
    if not study.agrees:
        complain(
            f"the answer {study.answer} is not DuckDB's, {study.answer_baseline}: "
            "one of them is wrong; please report it with the file"
        )
        raise typer.Exit(EXIT_FAILED)


def _parse_simulated(name: str | None) -> Path | None:
    if name is None:
        return None
    try:
        return find_machine(name)
    except Error as error:
        _refuse(f"--simulate: {error.cause}; {error.remedy}")


def _generated(scale_factor: float, directory: Path | None) -> Path:
    check_memory(
        f"run query 6 at scale factor {scale_factor:g}",
        math.ceil(scale_factor * ROWS_PER_SCALE_FACTOR),
    )
    with progress(f"generating TPC-H lineitem, scale factor {scale_factor:g}") as share:
        return ensure_lineitem(scale_factor, directory or default_directory(), share)


def _parse_choice(option: str, text: str, known: tuple[str, ...], noun: str) -> str:
    if text not in known:
        _refuse(f"{option}: there is no {noun} '{text}'; use {_either(known)}")
    return text


def _either(words: tuple[str, ...]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _parse_count(option: str, text: str, count_max: int, why: str = "") -> int:
    count = int(text) if _is_number(text) else 0
    if not 1 <= count <= count_max:
        _refuse(f"{option}: '{text}' is not a whole number from 1 to {count_max}{why}")
    return count


def _is_number(text: str) -> bool:
    # Not what int() takes: that is also "1_0", other digits than ours, and as many as one likes.
    return re.fullmatch(r"[0-9]{1,9}", text) is not None


def _parse_threads(text: str | None) -> int:
    allowed = len(os.sched_getaffinity(0))
    if text is None:
        return allowed
    return _parse_count("--threads", text, allowed, ", the processors allowed")


def _parse_scale_factor(text: str) -> float:
    try:
        scale_factor = float(text)
    except ValueError:
        _refuse(f"--scale-factor: '{text}' is not a number; use 1 for six million rows")
    try:
        check_scale_factor(scale_factor)
    except Error as error:
        _refuse(f"--scale-factor: '{text}': {error.cause}; {error.remedy}")
    return scale_factor


def _parse_size(option: str, text: str, bytes_min: int) -> int:
    try:
        size_bytes = _core.parse_bytes(text)
    except Error as error:
        _refuse(f"{option}: '{text}': {error.cause}; {error.remedy}")
    if size_bytes < bytes_min:
        _refuse(f"{option}: '{text}' is too small; use at least {_core.bytes_text(bytes_min)}")
    return size_bytes


def _parse_path(option: str, text: str | None) -> Path | None:
    check_path("query", option, text)
    return None if text is None else Path(text)


def _parse_placement(text: str) -> str | int | dict[int, list[int]]:
    if text in PLACEMENTS:
        return text
    if _is_number(text):
        return int(text)
    places: dict[int, list[int]] = {}
    for place in text.split(","):
        worker, _, nodes = place.partition(":")
        numbers = nodes.split("+")
        if not all(map(_is_number, [worker, *numbers])) or int(worker) in places:
            _refuse(
                f"--placement: '{text}' is not fastest, local, none, the number of a node, "
                "or a map such as 0:8,1:9+8"
            )
        places[int(worker)] = [int(number) for number in numbers]
    return places


def _nodes_named(settings: Settings) -> list[int]:
    placement = settings.placement
    if isinstance(placement, dict):
        return [node for worker, nodes in placement.items() for node in (worker, *nodes)]
    return [placement] if isinstance(placement, int) else []


def _check_node(settings: Settings, machine: Machine) -> None:
    for node in _nodes_named(settings):
        if machine.node(node) is not None:
            continue
        there = ", ".join(str(known.id) for known in machine.nodes)
        raise HardwareAbsentError(
            f"place copies on node {node}",
            f"this machine has only node {there}",
            "choose one of these by --placement",
        )


def _check_capacity(settings: Settings, text: str | None, machine: Machine) -> None:
    wanted = settings.capacity_bytes or 0
    named = _nodes_named(settings)
    nodes = [node for node in machine.nodes if not named or node.id in named]
    largest = max(nodes, key=lambda node: node.capacity_bytes)
    if 0 < largest.capacity_bytes < wanted:
        _refuse(
            f"--capacity: '{text}' is {_core.bytes_text(wanted)} and node {largest.id} has "
            f"{_core.bytes_text(largest.capacity_bytes)}; use a smaller capacity"
        )


def _check_engine(settings: Settings, machine: Machine) -> None:
    if settings.engine != "dsa":
        return
    with make_engine(machine, settings.engine) as engine:
        if any(mover.hardware for mover in engine.mover_infos):
            return
        notes = engine.notes
    tried = "move bytes by a DSA"
    instead = "use --engine automatic or cpu"
    diagnosis = diagnose(gather())
    if diagnosis.exit_code == EXIT_USABLE:
        raise HardwareAbsentError(tried, " ".join(notes).rstrip("."), instead)
    remedy = diagnosis.root.remedy if diagnosis.root is not None else ""
    headline = diagnosis.headline.rstrip(".")
    raise HardwareAbsentError(
        tried,
        f"'headrace doctor' says: {headline}",
        f"{remedy}; or {instead}" if remedy else instead,
    )


def _refuse(sentence: str) -> NoReturn:
    raise WrongUseError("query", sentence)


def _draw(plot: Output, path: Path, study: Study) -> None:
    settings = study.settings
    caption = (
        f"{study.machine.cpu_model}, {counted(settings.thread_count, 'worker')}, "
        f"chunks of {_core.bytes_text(settings.chunk_bytes)}, {study.row_count:,} rows of "
        f"{path.parent.name}/{path.name}; fastest of "
        f"{counted(settings.timeline_run_count, 'run')} of each mode"
    )
    draw_timelines(plot, study.timelines, "TPC-H query 6: who did what when", caption)
