# SPDX-License-Identifier: Apache-2.0
"""``headrace sim advise``: where data should lie, who moves it, and what that brings."""

from contextlib import ExitStack
from dataclasses import asdict

import click

from headrace import _core
from headrace._apps.sim.advice import GAIN_MIN, Advice, advise_data, advise_query, column_bytes_of
from headrace._apps.sim.measured import measured_record
from headrace._apps.tpch.table import SCALE_FACTOR_MAX, SCALE_FACTOR_MIN
from headrace._cli._app import Command
from headrace._cli._options import Choice, Count, Number, Size, flag, json_option, option, refuse
from headrace._cli._output import print_document, progress
from headrace._cli._report import Column, Report, figures
from headrace._cli.sim._machine import machine_of, machine_option

_PASSES_MAX = 1_000_000
_THREADS_MAX = 4096


@click.command("advise", cls=Command)
@machine_option(required=False)
@flag("--here", "on_this_machine", help="About this machine, which is measured first.")
@option("--bytes", "size", type=Size(1), help="So much data of node 0 is read.")
@option(
    "--passes",
    type=Count(1, _PASSES_MAX),
    default="1",
    help="With --bytes: it is read so many times.",
)
@option("--query", type=Choice("q6"), help="The query's columns, each read once.")
@option(
    "--scale-factor",
    type=Number(SCALE_FACTOR_MIN, SCALE_FACTOR_MAX),
    default="1",
    help="With --query: of its table.",
)
@option("--threads", type=Count(1, _THREADS_MAX), default="12", help="Cores of node 0 that read.")
@json_option
def command(
    machine: str | None,
    size: int | None,
    passes: int,
    query: str | None,
    scale_factor: float,
    threads: int,
    *,
    on_this_machine: bool,
    as_json: bool,
) -> None:
    """Say which memory to read from, who moves the data there, and the gain to expect.

    The gain is simulated. What would gain less than 2 % is left where it is.

    Example: headrace sim advise --machine xeon-max-9468 --bytes 1GiB --passes 4
    """
    if (size is None) == (query is None):
        refuse("give one of --bytes and --query")
    if (machine is None) != on_this_machine:
        refuse("give one of --machine and --here")
    with ExitStack() as stack:
        if machine is not None:
            path = machine_of(machine)
        else:
            share = stack.enter_context(progress("measuring this machine"))
            path = stack.enter_context(measured_record(share))
        if size is not None:
            ranked = advise_data(path, size, passes=passes, threads=threads)
        else:
            ranked = advise_query(path, column_bytes_of(scale_factor), threads=threads)
    best = ranked[0]
    if as_json:
        print_document(
            "sim-advise",
            machine={"name": machine or "this machine"},
            results=[asdict(each) for each in ranked],
            summary={"kind": "simulated", **asdict(best)},
        )
        return
    _print(ranked)


def _print(ranked: list[Advice]) -> None:
    best = ranked[0]
    report = Report()
    report.table(
        [
            Column("read from"),
            Column("mover"),
            *figures("chunk", "gain"),
            Column("bound", folds=True),
        ],
        [
            [
                f"{each.tier}, node {each.node}",
                f"{each.devices} DSA" if each.devices else each.mover,
                _core.bytes_text(each.chunk_bytes) if each.chunk_bytes else "-",
                f"{each.gain:+.1%}",
                each.bound,
            ]
            for each in ranked
        ],
    )
    report.say()
    if best.mover == "none":
        report.say(f"Leave the data where it is: nothing gains {GAIN_MIN:.0%} (simulated)")
    else:
        report.say(f"Best: the first line, {best.gain:+.1%} throughput (simulated)")
        for note in best.notes:
            report.say(note, head="- ")
