# SPDX-License-Identifier: Apache-2.0
"""``headrace sim advise``: where data should lie, who moves it, and what that brings."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from headrace import _core
from headrace._apps.sim import find_machine
from headrace._apps.sim.advice import GAIN_MIN, Advice, advise_data, advise_query, column_bytes_of
from headrace._apps.tpch.table import check_scale_factor
from headrace._cli._output import WrongUseError, print_document
from headrace._cli._topo_report import report_console
from headrace.errors import Error

SCHEMA_NAME = "headrace-sim-advise"
SCHEMA_VERSION = 1
_PASSES_MAX = 1_000_000
_THREADS_MAX = 4096


def register(sim: typer.Typer) -> None:
    """Add the subcommand."""
    sim.command("advise")(advise)


def advise(
    machine: Annotated[
        str,
        typer.Option(
            metavar="MACHINE",
            help="A machine of 'headrace sim list', or the path of a record with a model.",
        ),
    ],
    size: Annotated[
        str | None,
        typer.Option("--bytes", metavar="SIZE", help="So much data of node 0 is read."),
    ] = None,
    passes: Annotated[
        int, typer.Option(metavar="N", help="With --bytes: it is read so many times.")
    ] = 1,
    query: Annotated[
        str | None, typer.Option(metavar="NAME", help="q6: the query's columns, each read once.")
    ] = None,
    scale_factor: Annotated[
        float, typer.Option(metavar="N", help="With --query: of its table.")
    ] = 1,
    threads: Annotated[int, typer.Option(metavar="N", help="Cores of node 0 that read.")] = 12,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Say which memory to read from, who moves the data there, and the gain to expect.

    The gain is simulated. What would gain less than 2 % is left where it is.

    Example: headrace sim advise --machine xeon-max-9468 --bytes 1GiB --passes 4
    """
    if (size is None) == (query is None):
        raise WrongUseError("sim advise", "give one of --bytes and --query")
    for option, value, most in (
        ("--passes", passes, _PASSES_MAX),
        ("--threads", threads, _THREADS_MAX),
    ):
        if not 1 <= value <= most:
            raise WrongUseError("sim advise", f"{option}: {value} is not from 1 to {most}")
    if query not in {None, "q6"}:
        raise WrongUseError("sim advise", f"--query: there is no query '{query}'; use q6")
    try:
        path = find_machine(machine)
        byte_count = _core.parse_bytes(size) if size is not None else 0
        check_scale_factor(scale_factor)
    except Error as error:
        raise WrongUseError("sim advise", str(error)) from error
    if size is not None:
        ranked = advise_data(path, byte_count, passes=passes, threads=threads)
    else:
        ranked = advise_query(path, column_bytes_of(scale_factor), threads=threads)
    best = ranked[0]
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine={"name": machine},
            results=[asdict(each) for each in ranked],
            summary={"kind": "simulated", **asdict(best)},
        )
        return
    _print(ranked)


def _print(ranked: list[Advice]) -> None:
    best = ranked[0]
    table = Table("read from", "mover", "chunk", "gain", "bound", box=None, pad_edge=False)
    for each in ranked:
        mover = f"{each.devices} DSA" if each.devices else each.mover
        chunk = _core.bytes_text(each.chunk_bytes) if each.chunk_bytes else "-"
        table.add_row(
            f"{each.tier}, node {each.node}", mover, chunk, f"{each.gain:+.1%}", each.bound
        )
    console = report_console()
    console.print(table)
    console.print()
    if best.mover == "none":
        console.print(f"Leave the data where it is: nothing gains {GAIN_MIN:.0%} (simulated)")
    else:
        console.print(f"Best: the first line, {best.gain:+.1%} throughput (simulated)")
        for note in best.notes:
            console.print(f"- {note}")
