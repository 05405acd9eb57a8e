# SPDX-License-Identifier: Apache-2.0
"""``headrace sim advise``: where to place data, who moves it, and the gain."""

from contextlib import ExitStack
from dataclasses import asdict

import click

from headrace import _core
from headrace._cli._app import Command
from headrace._cli._options import (
    Choice,
    Count,
    FilePath,
    Number,
    Size,
    flag,
    json_option,
    option,
    refuse,
)
from headrace._cli._output import print_document, progress
from headrace._cli._report import Column, Report, figures
from headrace._cli.sim._machine import machine_of, machine_option
from headrace._scenarios import machines
from headrace_lab.sim.advice import (
    GAIN_MIN,
    Advice,
    TraceAdvice,
    advise_data,
    advise_query,
    advise_trace,
    cache_mode_gain,
    column_bytes_of,
)
from headrace_lab.sim.measured import measured_record
from headrace_lab.tpch.table import SCALE_FACTOR_MAX, SCALE_FACTOR_MIN

_PASSES_MAX = 1_000_000
_THREADS_MAX = 4096
_ROWS_MAX = 20


def _refuse_sql(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        refuse("a query's gain is 'headrace sql SQL --data DIR --plan --simulate MACHINE' now")


@click.command("advise", cls=Command)
@machine_option("give it or --here")
@flag("--here", "on_this_machine", help="About this machine, which is measured first.")
@option("--bytes", "size", type=Size(1), help="Bytes of node 0 that are read.")
@option(
    "--passes",
    type=Count(1, _PASSES_MAX),
    default="1",
    help="With --bytes: number of times they are read.",
)
@option(
    "--pattern",
    type=Choice("scan", "update", "chase"),
    default="scan",
    help="With --bytes: in order, in order and written back, or each load needs the one before.",
)
@option("--query", type=Choice("q6"), help="The query's columns, each read once.")
@click.option("--sql", "--data", "--tables", hidden=True, expose_value=False, callback=_refuse_sql)
@option(
    "--scale-factor",
    type=Number(SCALE_FACTOR_MIN, SCALE_FACTOR_MAX),
    default="1",
    help="With --query: scale factor of its table.",
)
@option("--trace", type=FilePath(), help="A traced program: on which machine, with what.")
@option("--threads", type=Count(1, _THREADS_MAX), default="12", help="Cores of node 0 that read.")
@json_option
def command(
    machine: str | None,
    size: int | None,
    passes: int,
    pattern: str,
    query: str | None,
    scale_factor: float,
    trace: str | None,
    threads: int,
    *,
    on_this_machine: bool,
    as_json: bool,
) -> None:
    """Say which memory to read from, which mover to use, and the gain to expect.

    The gain is simulated. Data that would gain less than 2 % stays in place. Give one of --bytes,
    --query and --trace; with --trace all machines are compared if none is named.

    Example: headrace sim advise --machine xeon-max-flat --bytes 1GiB --passes 4
    """
    _refuse_unclear(machine, (size, query, trace), on_this_machine=on_this_machine)
    if trace is not None and machine is None and not on_this_machine:
        _print_traced(advise_trace(trace, machines()), as_json=as_json)
        return
    with ExitStack() as stack:
        if machine is not None:
            path = machine_of(machine)
        else:
            share = stack.enter_context(progress("measuring this machine"))
            path = stack.enter_context(measured_record(share))
        in_cache_mode = None
        if trace is not None:
            _print_traced(advise_trace(trace, [machine or str(path)]), as_json=as_json)
            return
        if size is not None:
            ranked = advise_data(path, size, passes=passes, threads=threads, pattern=pattern)
            if pattern == "scan":
                in_cache_mode = cache_mode_gain(path, size, passes=passes)
        else:
            ranked = advise_query(path, column_bytes_of(scale_factor), threads=threads)
    best = ranked[0]
    other = {} if in_cache_mode is None else {"cache_mode_gain": in_cache_mode}
    if as_json:
        print_document(
            "sim-advise",
            machine={"name": machine or "this machine"},
            results=[asdict(each) for each in ranked],
            summary={"kind": "simulated", **asdict(best), **other},
        )
        return
    _print(ranked)
    if in_cache_mode is not None:
        Report().say(
            f"HBM in cache mode, a setting of the firmware: {in_cache_mode:+.1%} without any move, "
            "read by all cores of the node (simulated)"
        )


def _refuse_unclear(
    machine: str | None, subjects: tuple[object, ...], *, on_this_machine: bool
) -> None:
    if sum(each is not None for each in subjects) != 1:
        refuse("give one of --bytes, --query and --trace")
    needs = subjects[-1] is None
    if (needs and machine is None and not on_this_machine) or (machine and on_this_machine):
        refuse("give one of --machine and --here")


def _print_traced(ranked: list[TraceAdvice], *, as_json: bool) -> None:
    best = ranked[0]
    if as_json:
        print_document(
            "sim-advise",
            machine={"name": best.machine},
            results=[asdict(each) for each in ranked],
            summary={"kind": "simulated", **asdict(best)},
        )
        return
    report = Report()
    report.table(
        [
            Column("machine", key=True),
            Column("copies on"),
            Column("mover"),
            Column("policy"),
            *figures("time s", "gain"),
            Column("bound", folds=True),
        ],
        [
            [
                each.machine,
                each.tier if each.tier == "as recorded" else f"{each.tier}, node {each.node}",
                f"{each.devices} DSA" if each.devices else each.mover,
                each.policy,
                f"{each.time_s:.4g}",
                f"{each.gain:+.1%}",
                each.bound,
            ]
            for each in ranked[:_ROWS_MAX]
        ],
    )
    report.say()
    report.say(
        "Best: the first line (simulated); gain: over the processors of the same machine. The "
        "program's own computing is taken as it was recorded"
    )


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
