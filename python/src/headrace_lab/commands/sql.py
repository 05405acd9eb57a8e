# SPDX-License-Identifier: Apache-2.0
"""``headrace sql``: any SQL with prefetching, measured beside DuckDB."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import duckdb

from headrace._apps.memory import resident_bytes
from headrace._arguments import PREFETCH_MODES, PrefetchMode
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import EXIT_FAILED, EXIT_OK, complain, print_document, progress
from headrace._cli.sim._machine import machine_of
from headrace.engine import MoverPath
from headrace.machine import topo
from headrace.table import Table
from headrace_lab.commands import _sql_report
from headrace_lab.commands.query import check_path, data_dir_option, path_option
from headrace_lab.sql.prediction import Simulated, simulated_on
from headrace_lab.sql.study import Settings, Study, make_plans, run_study
from headrace_lab.sql.tables import QUERY_COUNT, tables_of, tpch_queries, tpch_tables
from headrace_lab.tpch.table import SCALE_FACTOR_MAX, SCALE_FACTOR_MIN, default_directory


class _Queries(_options.Value[tuple[int, ...]]):
    def __init__(self) -> None:
        super().__init__("N,...", f"numbers from 1 to {QUERY_COUNT} such as 1,6 or 3..5, or all")

    def read(self, text: str) -> tuple[int, ...]:
        if text == "all":
            return tuple(range(1, QUERY_COUNT + 1))
        chosen: dict[int, None] = {}
        for part in text.split(","):
            if re.fullmatch(r"[0-9]{1,2}(\.\.[0-9]{1,2})?", part) is None:
                raise ValueError
            first, _, last = part.partition("..")
            numbers = range(int(first), int(last or first) + 1)
            if not numbers or numbers[0] < 1 or numbers[-1] > QUERY_COUNT:
                raise ValueError
            chosen |= dict.fromkeys(numbers)
        return tuple(chosen)


@click.command("sql", cls=Command)
@click.argument("query", metavar="[SQL]", required=False)
@_options.option(
    "--data",
    type=_options.FilePath("DIR"),
    help="Folder of Parquet and Arrow files; each is a table of its name.",
)
@_options.option(
    "--tpch",
    type=_options.Number(SCALE_FACTOR_MIN, SCALE_FACTOR_MAX),
    help="TPC-H tables of this scale factor, generated once, instead of --data.",
)
@_options.option("--query", "numbers", type=_Queries(), help="With --tpch: which of its queries.")
@data_dir_option
@_options.option(
    "--prefetch",
    type=_options.Choice(*PREFETCH_MODES),
    default="auto",
    help="The mode that the report is about; all are measured.",
)
@path_option
@_options.threads_option("Threads of DuckDB")
@_options.rounds_option(5)
@_options.option(
    "--capacity",
    type=_options.Size(1),
    help="Capacity of the cache per node; all tables if not given.",
)
@_options.flag(
    "--plan", help="Print which columns would be moved, in that order, and why; run nothing."
)
@_options.option(
    "--simulate",
    type=_options.FilePath("MACHINE"),
    help="Also print what the simulator predicts of reading the same columns on a machine of "
    "'headrace sim list', with --threads, or all processors of its first node.",
)
@_options.option(
    "--tables-on",
    type=_options.Name(
        "[a-z]+|[0-9]+", "a kind of memory such as cxl, or the number of a node", "PLACE"
    ),
    help="With --simulate: the memory of that machine where the tables lie; its first node if not "
    "given.",
)
@_options.json_option
def command(
    query: str | None,
    data: str | None,
    tpch: float | None,
    numbers: tuple[int, ...] | None,
    data_dir: str | None,
    prefetch: PrefetchMode,
    path: MoverPath,
    threads: int | None,
    rounds: int,
    capacity: int | None,
    simulate: str | None,
    tables_on: str | None,
    *,
    plan: bool,
    as_json: bool,
) -> int:
    """Run SQL queries with prefetching and compare them with DuckDB.

    DuckDB is asked for the plan of each query, and the columns that it will read are copied to
    faster memory ahead of it. Prefetching off, auto and on, DuckDB on the same Arrow tables and
    DuckDB on its own storage take turns; every answer is compared. SQL is one statement in
    quotes; --query names those of TPC-H.

    Example: headrace sql --tpch 0.1 --query 1,6 --prefetch on
    """
    _check_words(data, tpch, query, numbers)
    if plan and as_json:
        _options.refuse("--plan prints a table and measures nothing: leave out --json")
    queries = _queries(query, numbers)
    simulated = None
    if simulate is not None:
        record = machine_of(simulate, "--simulate")
        simulated = simulated_on(simulate, record, threads, tables_on)
    elif tables_on is not None:
        _options.refuse(
            "--tables-on places the tables of a simulated machine: give --simulate, too"
        )
    machine = topo()
    settings = Settings(
        prefetch=prefetch,
        thread_count=threads or len(os.sched_getaffinity(0)),
        round_count=rounds,
        path=path,
        capacity_bytes=capacity,
        base_bytes=resident_bytes(),
    )
    check_path(path, machine)
    with progress("reading the tables") as share:
        if tpch is not None:
            directory = Path(data_dir) if data_dir else default_directory()
            tables = tpch_tables(tpch, directory, share)
        else:
            tables = tables_of(Path(str(data)))
    try:
        if plan:
            _print_plans(tables, queries, prefetch, simulated)
            return EXIT_OK
        with progress("measuring") as share:
            study = run_study(tables, queries, machine, settings, share)
    except duckdb.Error as problem:
        complain(f"cannot run the query: {problem}")
        return EXIT_FAILED
    _report(study, simulated, as_json=as_json)
    if study.equal_count < len(study.queries):
        wrong = [name for name, each in study.queries.items() if not each.is_equal]
        complain(
            f"answers differ from DuckDB's: {', '.join(wrong)}; "
            "unless the query leaves them open, as random() and LIMIT without ORDER BY do, "
            "please report it with the query and the tables"
        )
        return EXIT_FAILED
    return EXIT_OK


def _check_words(
    data: str | None, tpch: float | None, query: str | None, numbers: tuple[int, ...] | None
) -> None:
    if (data is None) == (tpch is None):
        _options.refuse("give the tables: either --data DIR or --tpch SCALE")
    if (query is None) == (numbers is None):
        _options.refuse("give what to run: either SQL in quotes, or --query with --tpch")
    if numbers is not None and tpch is None:
        _options.refuse("--query names queries of TPC-H: give --tpch, too")


def _queries(sql: str | None, numbers: tuple[int, ...] | None) -> dict[str, str]:
    if numbers is None:
        return {"query": str(sql)}
    known = tpch_queries()
    return {str(number): known[str(number)] for number in numbers}


def _print_plans(
    tables: Mapping[str, Any],
    queries: Mapping[str, str],
    prefetch: PrefetchMode,
    simulated: Simulated | None,
) -> None:
    registered = {name: Table(table) for name, table in tables.items()}
    plans = make_plans(registered, queries, prefetch)
    _sql_report.print_plans(plans)
    if simulated is not None:
        scans = {name: each.scans for name, each in plans.items()}
        _sql_report.print_prediction(simulated, simulated.predict(scans, registered))


def _report(study: Study, simulated: Simulated | None, *, as_json: bool) -> None:
    plans = {name: each.plan for name, each in study.queries.items()}
    predicted = None if simulated is None else simulated.predict(plans, study.tables)
    if as_json:
        results = _sql_report.results_of(study)
        if simulated is not None and predicted is not None:
            results["simulated"] = _sql_report.simulated_of(simulated, predicted)
        print_document(
            "sql",
            machine=study.machine.document,
            results=results,
            summary=_sql_report.summary_of(study),
        )
        return
    _sql_report.print_report(study)
    if simulated is not None and predicted is not None:
        _sql_report.print_prediction(simulated, predicted)
