# SPDX-License-Identifier: Apache-2.0
"""``headrace sim list``: which scenarios and machines there are."""

from typing import Annotated

import typer
from rich.table import Table

from headrace._apps.sim import machines, scenarios
from headrace._cli._output import print_document
from headrace._cli._topo_report import report_console

SCHEMA_NAME = "headrace-sim-list"
SCHEMA_VERSION = 1


def register(sim: typer.Typer) -> None:
    """Add the subcommand."""
    sim.command("list")(list_all)


def list_all(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """List the scenarios with their parameters, and the machines.

    Example: headrace sim list
    """
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine={},
            results={
                "scenarios": [
                    {
                        "name": each.name,
                        "question": each.question,
                        "machine": each.machine,
                        "parameters": [
                            {
                                "name": one.name,
                                "kind": one.kind,
                                "values": list(one.values),
                                "allowed": list(one.allowed),
                            }
                            for one in each.parameters
                        ],
                    }
                    for each in scenarios()
                ],
                "machines": list(machines()),
            },
            summary={"scenarios": len(scenarios()), "machines": len(machines())},
        )
        return
    table = Table("scenario", "question", "machine", "parameters", box=None, pad_edge=False)
    for each in scenarios():
        names = ", ".join(one.name for one in each.parameters)
        table.add_row(each.name, each.question, each.machine, names)
    console = report_console()
    console.print(table)
    console.print()
    console.print(f"Machines: {', '.join(machines())}, or the path of a record with a model")
