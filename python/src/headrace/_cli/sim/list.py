# SPDX-License-Identifier: Apache-2.0
"""``headrace sim list``: the scenarios and machines."""

from dataclasses import asdict

import click

from headrace._cli._app import Command
from headrace._cli._options import json_option
from headrace._cli._output import print_document
from headrace._cli._report import Column, Report
from headrace._scenarios import machines, scenarios


@click.command("list", cls=Command)
@json_option
def command(*, as_json: bool) -> None:
    """List the scenarios with their parameters, and the machines.

    Example: headrace sim list
    """
    if as_json:
        print_document(
            "sim-list",
            machine={},
            results={
                "scenarios": [
                    {key: value for key, value in asdict(each).items() if key != "function"}
                    for each in scenarios()
                ],
                "machines": list(machines()),
            },
            summary={"scenarios": len(scenarios()), "machines": len(machines())},
        )
        return
    report = Report()
    report.table(
        [
            Column("scenario"),
            Column("question", folds=True),
            Column("machine"),
            Column("parameters", folds=True),
        ],
        [
            [each.name, each.question, each.machine, ", ".join(one.name for one in each.parameters)]
            for each in scenarios()
        ],
    )
    report.say()
    report.say(f"Machines: {', '.join(machines())}, or the path of a record with a model")
