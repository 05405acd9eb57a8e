# SPDX-License-Identifier: Apache-2.0
"""``headrace machine list``: the sample machines."""

import click

from headrace._cli._app import Command
from headrace._cli._options import json_option
from headrace._cli._output import print_document
from headrace._cli._report import Column, Report, figures
from headrace._samples import samples
from headrace.machine import replay


@click.command("list", cls=Command)
@json_option
def command(*, as_json: bool) -> None:
    """Show the sample machines.

    Example: headrace machine list
    """
    found = [
        {
            "name": name,
            "node_count": len(machine.nodes),
            "tiers": ",".join(sorted({node.tier for node in machine.nodes})),
            "cpu_count": sum(len(node.cpus) for node in machine.nodes),
            "dsa_device_count": len(machine.dsa_devices),
            "cpu_model": machine.cpu_model,
        }
        for name, machine in ((name, replay(path)) for name, path in samples().items())
    ]
    if as_json:
        summary = {"machine_count": len(found)}
        print_document("machine-list", machine={}, results={"machines": found}, summary=summary)
        return
    columns = [Column("name"), *figures("nodes"), Column("tiers"), *figures("processors", "DSAs")]
    rows = [[str(value) for value in each.values()] for each in found]
    Report().table([*columns, Column("model", folds=True)], rows)
