# SPDX-License-Identifier: Apache-2.0
"""``headrace machine show``: what would be booted for a record."""

import shlex

import click

from headrace._apps.machine.hardware import hardware_of
from headrace._cli._app import Command
from headrace._cli._options import json_option
from headrace._cli._output import print_document
from headrace._cli._report import Report
from headrace._cli._topo_report import print_machine
from headrace._cli.machine.run import memory_option
from headrace._samples import machine_path
from headrace.machine import replay


@click.command("show", cls=Command)
@click.argument("record", metavar="RECORD")
@memory_option
@json_option
def command(record: str, memory: int | None, *, as_json: bool) -> None:
    """Show what would be booted for a record, and what is scaled down.

    Example: headrace machine show ddr-optane
    """
    machine = replay(machine_path(record))
    hardware = hardware_of(machine, record, memory)
    if as_json:
        print_document(
            "machine-show",
            machine=machine.document,
            results={
                "scaled": hardware.scaled,
                "devices": hardware.devices,
                "qemu": hardware.arguments,
            },
            summary={
                "node_count": len(machine.nodes),
                "dsa_device_count": len(hardware.devices),
                "nvdimm_count": len(hardware.dimms),
            },
        )
        return
    report = Report()
    print_machine(report, machine.document)
    report.say()
    report.say("Different in the booted machine", "bold")
    for sentence in hardware.scaled:
        report.say(sentence, head="- ")
    report.say()
    report.say(f"QEMU: {shlex.join(hardware.arguments)}")
