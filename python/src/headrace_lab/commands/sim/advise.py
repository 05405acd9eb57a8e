# SPDX-License-Identifier: Apache-2.0
"""``headrace sim advise``: where to place data, who moves it, and the gain."""

from dataclasses import asdict

import click

from headrace import _core
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import print_document
from headrace._cli._report import Column, Report, figures
from headrace._cli.sim._machine import machine_of, machine_option
from headrace._scenarios import machines
from headrace_lab.sim import advice

_PASSES_MAX = 1_000_000
_THREADS_MAX = 4096
_ROWS_MAX = 20


def _refuse_sql(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        _options.refuse(
            "a query's gain is 'headrace sql SQL --data DIR --plan --simulate MACHINE' now"
        )


@click.command("advise", cls=Command)
@machine_option("needed with --bytes")
@_options.option("--bytes", "size", type=_options.Size(1), help="Bytes of node 0 that are read.")
@_options.option(
    "--passes",
    type=_options.Count(1, _PASSES_MAX),
    default="1",
    help="With --bytes: number of times they are read.",
)
@_options.option(
    "--pattern",
    type=_options.Choice("scan", "update", "chase"),
    default="scan",
    help="With --bytes: in order, in order and written back, or each load needs the one before.",
)
@click.option("--sql", "--data", "--tables", hidden=True, expose_value=False, callback=_refuse_sql)
@_options.option(
    "--trace", type=_options.FilePath(), help="A traced program: on which machine, with what."
)
@_options.option(
    "--threads",
    type=_options.Count(1, _THREADS_MAX),
    default="12",
    help="Cores of node 0 that read.",
)
@_options.json_option
def command(
    machine: str | None,
    size: int | None,
    passes: int,
    pattern: str,
    trace: str | None,
    threads: int,
    *,
    as_json: bool,
) -> None:
    """Say which memory to read from, which mover to use, and the gain to expect.

    The gain is simulated. Data that would gain less than 2 % stays in place. Give --bytes
    or --trace; with --trace all machines are compared if none is named. A record of this machine is
    made by 'headrace topo --measure --record FILE'.

    Example: headrace sim advise --machine xeon-max-flat --bytes 1GiB --passes 4
    """
    if (size is None) == (trace is None):
        _options.refuse("give one of --bytes and --trace")
    path = None if machine is None else machine_of(machine)
    if trace is not None:
        traced = advice.advise_trace(trace, [machine] if machine else machines())
        (_print_json if as_json else _print_traced)(traced, traced[0].machine)
        return
    if path is None or size is None:
        _options.refuse("--bytes is about a --machine; give one")
    ranked = advice.advise_data(path, size, passes=passes, threads=threads, pattern=pattern)
    in_cache_mode = advice.cache_mode_gain(path, size, passes=passes) if pattern == "scan" else None
    other = {} if in_cache_mode is None else {"cache_mode_gain": in_cache_mode}
    if as_json:
        _print_json(ranked, machine, **other)
        return
    _print(ranked)
    if in_cache_mode is not None:
        Report().say(
            f"HBM in cache mode, a setting of the firmware: {in_cache_mode:+.1%} without any move, "
            "read by all cores of the node (simulated)"
        )


def _print_json(
    ranked: list[advice.TraceAdvice] | list[advice.Advice], machine: str | None, **other: float
) -> None:
    print_document(
        "sim-advise",
        machine={"name": machine},
        results=[asdict(each) for each in ranked],
        summary={"kind": "simulated", **asdict(ranked[0]), **other},
    )


def _print_traced(ranked: list[advice.TraceAdvice], _: str) -> None:
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


def _print(ranked: list[advice.Advice]) -> None:
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
        report.say(f"Leave the data where it is: nothing gains {advice.GAIN_MIN:.0%} (simulated)")
    else:
        report.say(f"Best: the first line, {best.gain:+.1%} throughput (simulated)")
        for note in best.notes:
            report.say(note, head="- ")
