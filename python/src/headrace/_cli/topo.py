# SPDX-License-Identifier: Apache-2.0
"""``headrace topo``: the memory, processors and movers of a machine."""

from typing import Any

import click

from headrace import machine as machines
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import print_document, progress
from headrace._cli._report import Column, Report, figures
from headrace._cli._topo_report import print_machine
from headrace._files import Output
from headrace._samples import machine_path
from headrace._words import counted


@click.command("topo", cls=Command)
@_options.record_option
@_options.replay_option
@_options.flag(
    "--measure",
    help="Measure bandwidth and latency between all nodes, and of caches, and with --record "
    "save the simulator's model; takes some seconds.",
)
@_options.json_option
def command(record: Output | None, replay: str | None, *, measure: bool, as_json: bool) -> None:
    """Show the memory nodes of this machine, their tiers and distances, and the movers.

    Example: headrace topo --replay xeon-max-flat
    """
    if record is not None and replay is not None:
        _options.refuse(
            "--record describes this machine and --replay another one; give one of them"
        )
    if measure and replay is not None:
        _options.refuse("--measure is about this machine; leave out --replay")
    _options.refuse_two_on_stdout("--record", record, as_json=as_json)
    machine = machines.topo() if replay is None else machines.replay(machine_path(replay))
    model = {}
    if measure:
        # This loads NumPy, which takes as long as all the rest.
        from headrace_lab.sim import measured  # noqa: PLC0415

        with progress("measuring memory") as share:
            model = {"model": measured.model_of(machine, measured.measure(machine, share))}
    if record is not None:
        machines.record_into(record, **model)
        if record.is_stdout:
            return
    document = machine.document
    if as_json:
        print_document(
            "topo",
            machine=document,
            results={"faster_nodes": document["faster_nodes"], **model},
            summary=_summary(document),
        )
    elif measure:
        _print_measurement(Report(), model["model"], measured.ROUNDS)
    else:
        print_machine(Report(), document)


def _print_measurement(report: Report, model: dict[str, Any], rounds: int) -> None:
    rates = ("read GB/s", "filled GB/s", "copied GB/s")
    report.table(
        figures("from node", "to node", "threads", *rates, "latency ns"),
        [
            [f"{value:.1f}" if isinstance(value, float) else str(value) for value in each.values()]
            for each in model["measured"]["pairs"]
        ],
    )
    report.say()
    report.table(
        [Column("one core, of a cache"), *figures("read", "filled", "copied")],
        [
            [each[name]["value"] for name in ("bytes", "read", "fill", "copy")]
            for each in model["core"]["levels"]
        ],
    )
    report.say()
    if line := model["core"].get("handover"):
        report.say(f"A line passes from one core to another in {line['value']}.")
    report.say(
        f"Medians of {counted(rounds, 'round')}. Other work disturbed "
        f"{model['measured']['disturbed']:.0%} of the samples, which are left out."
    )


def _summary(document: dict[str, Any]) -> dict[str, Any]:
    nodes = document["nodes"]
    return {
        "node_count": len(nodes),
        "cpu_count": sum(len(node["cpus"]) for node in nodes),
        "tiers": ",".join(sorted({node["tier"] for node in nodes})),
        "has_faster_tier": document["has_faster_tier"],
        "dsa_device_count": len(document["dsa_devices"]),
    }
