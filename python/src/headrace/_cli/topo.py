# SPDX-License-Identifier: Apache-2.0
"""``headrace topo``: what memory, processors and movers a machine has."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace import _core
from headrace import machine as machines
from headrace._apps.sim import measured
from headrace._cli._output import (
    WrongUseError,
    check_path,
    open_output,
    print_document,
    progress,
    refuse_two_on_stdout,
)
from headrace._cli._topo_report import render, report_console
from headrace._samples import machine_path

SCHEMA_NAME = "headrace-topo"
SCHEMA_VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("topo")(topo)


def topo(
    record: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the record of this machine into this file as well."
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Describe the machine of this record, or a sample by its name, not this one.",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure bandwidth and latency between all nodes, and with --record keep the "
            "model that the simulator makes of them; some seconds.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Show the memory nodes of this machine, their tiers and distances, and the movers.

    Example: headrace topo --replay xeon-max-flat
    """
    if record is not None and replay is not None:
        message = "--record describes this machine and --replay another one; give one of them"
        raise WrongUseError("topo", message)
    if measure and replay is not None:
        raise WrongUseError("topo", "--measure is about this machine; leave out --replay")
    check_path("topo", "--replay", replay)
    if measure:
        _measure(record, as_json=as_json)
        return
    if record is not None:
        output = open_output("topo", "--record", record, f"record the machine in '{record}'")
        refuse_two_on_stdout("topo", "--record", output, as_json=as_json)
        machine = machines.record_into(output)
        if output.is_stdout:
            return
    elif replay is not None:
        machine = machines.replay(machine_path(replay))
    else:
        machine = machines.topo()
    document = machine.document
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=document,
            results={"faster_nodes": document["faster_nodes"]},
            summary=_summary(document),
        )
        return
    console = report_console()
    console.print(render(document, console.width))


def _measure(record: str | None, *, as_json: bool) -> None:
    output = None
    if record is not None:
        output = open_output("topo", "--record", record, f"record the machine in '{record}'")
        refuse_two_on_stdout("topo", "--record", output, as_json=as_json)
    native, text = _core.Machine.make_record()
    machine = machines.Machine.from_native(native)
    with progress("measuring memory") as share:
        pairs = measured.measure(machine, share)
    model = measured.model_of(machine, pairs)
    if output is not None:
        output.write(json.dumps(json.loads(text) | {"model": model}, indent=2) + "\n")
        if output.is_stdout:
            return
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=machine.document,
            results={"faster_nodes": machine.document["faster_nodes"], "model": model},
            summary=_summary(machine.document),
        )
        return
    table = Table("from node", "to node", "threads", box=None, pad_edge=False)
    for name in ("read GB/s", "copied GB/s", "latency ns"):
        table.add_column(name, justify="right")
    for each in pairs:
        table.add_row(
            str(each.initiator),
            str(each.target),
            str(each.threads),
            f"{each.read_gb_per_s:.1f}",
            f"{each.copy_gb_per_s:.1f}",
            f"{each.latency_ns:.0f}",
        )
    report_console().print(table)


def _summary(document: dict[str, Any]) -> dict[str, Any]:
    nodes = document["nodes"]
    return {
        "node_count": len(nodes),
        "cpu_count": sum(len(node["cpus"]) for node in nodes),
        "tiers": ",".join(sorted({node["tier"] for node in nodes})),
        "has_faster_tier": document["has_faster_tier"],
        "dsa_device_count": len(document["dsa_devices"]),
    }
