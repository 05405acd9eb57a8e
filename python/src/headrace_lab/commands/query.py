# SPDX-License-Identifier: Apache-2.0
"""``headrace query``: TPC-H query 6 with query-driven prefetching, checked against DuckDB."""

import math
import os
import re
from pathlib import Path
from typing import Any

import click

from headrace import _core
from headrace._apps.doctor.diagnosis import EXIT_USABLE, diagnose
from headrace._arguments import PREFETCH_MODES
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import EXIT_FAILED, EXIT_OK, complain, print_document, progress
from headrace._cli._report import Report
from headrace._cli.sim._machine import machine_of
from headrace._files import Output
from headrace._gather import gather
from headrace._words import counted
from headrace.cache import Cache
from headrace.engine import MoverPath
from headrace.errors import HardwareAbsentError, InvalidArgumentError, NotFoundError
from headrace.machine import Machine, replay, topo
from headrace_lab.commands._query_report import print_report, results_of, summary_of
from headrace_lab.sim.advice import predict_query
from headrace_lab.tpch import table
from headrace_lab.tpch.lineitem import BYTES_PER_ROW, check_memory, read_lineitem
from headrace_lab.tpch.q6 import CHUNK_BYTES_MIN
from headrace_lab.tpch.study import Settings, Study, make_engine, run_study
from headrace_lab.tpch.timeline import draw_timelines


class _Placement(_options.Value[str | int | dict[int, list[int]]]):
    def __init__(self) -> None:
        super().__init__(
            "PLACE",
            "fastest, local, none, the number of a node, or a map such as 0:8,1:9+8",
        )

    def read(self, text: str) -> str | int | dict[int, list[int]]:
        """Convert a word, a number, or a map from nodes of workers to nodes."""
        if text in {"fastest", "local", "none"}:
            return text
        if re.fullmatch("[0-9]{1,9}", text):
            return int(text)
        places: dict[int, list[int]] = {}
        for place in text.split(","):
            if re.fullmatch(r"[0-9]{1,9}:[0-9]{1,9}(\+[0-9]{1,9})*", place) is None:
                raise ValueError
            worker, _, nodes = place.partition(":")
            if int(worker) in places:
                raise ValueError
            places[int(worker)] = [int(number) for number in nodes.split("+")]
        return places


data_dir_option = _options.option(
    "--data-dir",
    type=_options.FilePath("DIR"),
    help="Where generated tables are kept; else $HEADRACE_DATA, else ~/.cache/headrace/tpch.",
)
path_option = _options.option(
    "--path",
    type=_options.Choice("auto", "dsa", "cpu"),
    default="auto",
    help="What moves the bytes; auto: a DSA if present and the chunk is large enough.",
)


@click.command("query", cls=Command)
@_options.option(
    "--scale-factor",
    type=_options.Number(table.SCALE_FACTOR_MIN, table.SCALE_FACTOR_MAX),
    help="TPC-H scale factor of the generated table; 1 if neither --scale-factor nor --data is "
    "given.",
)
@_options.option(
    "--data",
    type=_options.FilePath(),
    help="Parquet file with lineitem, instead of a generated one.",
)
@data_dir_option
@_options.option(
    "--prefetch",
    type=_options.Choice(*PREFETCH_MODES),
    default="auto",
    help="auto prefetches where the bandwidths of memory predict a gain; where they are not known, "
    "if there is faster memory.",
)
@_options.option(
    "--measured",
    type=_options.FilePath(),
    help="Record of 'headrace topo --measure --record FILE', whose bandwidths auto uses where "
    "the firmware states none.",
)
@path_option
@_options.option(
    "--chunk-bytes",
    type=_options.Size(CHUNK_BYTES_MIN),
    default="1MiB",
    help="Rows are processed in chunks of this many bytes of an 8-byte column.",
)
@_options.threads_option("Worker threads")
@_options.option(
    "--rounds",
    "round_count",
    type=_options.Count(1, _options.ROUNDS_MAX),
    help="Measured rounds; as many as take 8 s if not given.",
)
@_options.option(
    "--capacity",
    "capacity_bytes",
    type=_options.Size(1),
    help="Capacity of the cache per node; all columns if not given.",
)
@_options.option(
    "--placement",
    type=_Placement(),
    help="Where copies go: fastest, local, none, a node, or by the node of the worker, as in "
    "0:8,1:9+8; fastest if not given, local where no memory is faster.",
)
@_options.flag("--no-compare", help="Do not run DuckDB beside it.")
@_options.plot_option("the timeline")
@_options.option(
    "--simulate",
    type=_options.FilePath("MACHINE"),
    help="Also print what the simulator predicts for the same query on a machine of "
    "'headrace sim list'.",
)
@_options.json_option
def command(
    scale_factor: float | None,
    data: str | None,
    data_dir: str | None,
    measured: str | None,
    threads: int | None,
    plot: Output | None,
    simulate: str | None,
    *,
    no_compare: bool,
    as_json: bool,
    **given: Any,  # noqa: ANN401 - Of several types, as the fields of the settings.
) -> int:
    """Run TPC-H query 6 with prefetching and compare it with DuckDB.

    While one pipeline scans the filter's columns, another moves the columns that the aggregate
    will touch, and the third aggregates from wherever the data is. Prefetching off, auto and on
    and DuckDB take turns; the answer and the figures are those of the mode chosen by --prefetch.

    Example: headrace query --scale-factor 1 --prefetch auto --plot timeline.svg
    """
    settings = Settings(
        thread_count=threads or len(os.sched_getaffinity(0)),
        compare=not no_compare,
        **given,
    )
    if data is not None and scale_factor is not None:
        _options.refuse("--scale-factor cannot be given with --data, which names the table")
    simulated_machine = None if simulate is None else machine_of(simulate, "--simulate")
    machine = topo() if measured is None else _measured(measured)
    _check_cache(settings, machine)
    check_path(settings.path, machine)
    file = _generated(scale_factor or 1, data_dir) if data is None else Path(data)
    with progress("reading the columns") as share:
        columns = read_lineitem(file, share)
    with progress("measuring") as share:
        study = run_study(file, columns, machine, settings, share)
    if plot is not None:
        _draw(plot, file, study)
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
            "query",
            machine=machine.document,
            results=results_of(study, file)
            | ({} if simulated is None else {"simulated": {"machine": simulate, **simulated}}),
            summary=summary_of(study),
        )
    else:
        print_report(study, file, plot)
        if simulated is not None:
            report = Report()
            report.say()
            report.say(
                f"simulated on {simulate}: prefetching off {simulated['off_ms']:.2f} ms, "
                f"advised {simulated['on_ms']:.2f} ms ({simulated['gain']:+.1%}; read from "
                f"{simulated['tier']}, mover {simulated['mover']}; bound: {simulated['bound']})"
            )
    if not study.agrees:
        complain(
            f"the answer {study.answer} is not DuckDB's, {study.answer_baseline}: "
            "one of them is wrong; please report it with the file"
        )
        return EXIT_FAILED
    return EXIT_OK


def _measured(path: str) -> Machine:
    machine, here = replay(path), topo()
    if [(each.id, each.cpus) for each in machine.nodes] != [
        (each.id, each.cpus) for each in here.nodes
    ]:
        raise InvalidArgumentError(
            f"use the record '{path}'",
            "its nodes and processors are not those of this machine",
            "record this one by 'headrace topo --measure --record FILE'",
        )
    return machine


def _generated(scale_factor: float, directory: str | None) -> Path:
    check_memory(
        f"run query 6 at scale factor {scale_factor:g}",
        math.ceil(scale_factor * table.ROWS_PER_SCALE_FACTOR) * BYTES_PER_ROW,
    )
    with progress(f"generating TPC-H lineitem, scale factor {scale_factor:g}") as share:
        return table.ensure_lineitem(
            scale_factor, Path(directory) if directory else table.default_directory(), share
        )


def _check_cache(settings: Settings, machine: Machine) -> None:
    """Refuse what the cache will refuse, before the table is made and read."""
    place = "local" if settings.placement is None else settings.placement
    try:
        with make_engine(machine, "cpu") as engine:
            Cache(engine, settings.capacity_bytes or 1, place).close()
    except InvalidArgumentError as problem:
        _options.refuse_value("--capacity", f"{problem.cause}; {problem.remedy}")
    except NotFoundError as problem:
        raise HardwareAbsentError(problem.tried, problem.cause, problem.remedy) from problem


def check_path(path: MoverPath, machine: Machine) -> None:
    """Refuse the path dsa where no queue can be used, with what the doctor finds."""
    if path != "dsa":
        return
    with make_engine(machine, path) as engine:
        if any(mover.hardware for mover in engine.mover_infos):
            return
        notes = engine.notes
    tried = "move bytes by a DSA"
    instead = "use --path auto or cpu"
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


def _draw(plot: Output, path: Path, study: Study) -> None:
    settings = study.settings
    caption = (
        f"{study.machine.cpu_model}, {counted(settings.thread_count, 'worker')}, "
        f"chunks of {_core.bytes_text(settings.chunk_bytes)}, {study.row_count:,} rows of "
        f"{path.parent.name}/{path.name}; fastest of "
        f"{counted(settings.timeline_run_count, 'run')} of each mode"
    )
    draw_timelines(plot, study.timelines, "TPC-H query 6: timeline of workers", caption)
