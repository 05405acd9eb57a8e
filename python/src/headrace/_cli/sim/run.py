# SPDX-License-Identifier: Apache-2.0
"""``headrace sim run``: a scenario on a machine, as a table, JSON or a picture."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace._apps.sim import Result, find_machine, run, scenario
from headrace._apps.sim.picture import SUBJECT, draw_results
from headrace._apps.sim.sweep import points_of
from headrace._cli._output import (
    WrongUseError,
    parse_picture,
    print_document,
    refuse_two_on_stdout,
)
from headrace._cli._topo_report import report_console
from headrace.errors import InvalidArgumentError, NotFoundError

SCHEMA_NAME = "headrace-sim-run"
SCHEMA_VERSION = 1


def register(sim: typer.Typer) -> None:
    """Add the subcommand."""
    sim.command("run")(run_scenario)


def run_scenario(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A scenario of 'headrace sim list'.")],
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="MACHINE",
            help="A machine of 'headrace sim list', or the path of a record with a model; "
            "the scenario's own if not given.",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Values of a parameter, as in bytes=64:1MiB (which doubles) or devices=1,2,4; "
            "can be repeated. The first value of each other parameter holds then. "
            "Without it, all values of all parameters are combined.",
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the figures into this .svg or .png file."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Simulate a scenario. The same command gives the same figures every time.

    Example: headrace sim run ddr-to-hbm --machine xeon-max-9468 --plot devices.svg
    """
    picture = None if plot is None else parse_picture("sim run", plot, SUBJECT)
    if picture is not None:
        refuse_two_on_stdout("sim run", "--plot", picture, as_json=as_json)
    try:
        asked = scenario(name)
        path = find_machine(machine or asked.machine)
        points = points_of(asked, sweep or [])
    except (InvalidArgumentError, NotFoundError) as error:
        raise WrongUseError("sim run", str(error)) from error
    results = run(name, points, machine=str(path))
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    title = f"{name} on {model.get('name', path.name)} (simulated)"
    if picture is not None:
        draw_results(picture, title, results)
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine={"name": model.get("name", path.name), "model": model},
            results=[
                {
                    "parameters": each.parameters,
                    "figures": each.figures,
                    "bound": each.bound,
                    "notes": list(each.notes),
                }
                for each in results
            ],
            summary=_summary(name, results),
        )
        return
    console = report_console()
    console.print(title)
    console.print(_table(results))
    for note in sorted({note for each in results for note in each.notes}):
        console.print(f"- {note}")


def _summary(name: str, results: list[Result]) -> dict[str, Any]:
    summary: dict[str, Any] = {"scenario": name, "points": len(results), "kind": "simulated"}
    for key in results[0].figures:
        values = [each.figures[key] for each in results if key in each.figures]
        summary[f"{key}_min"] = min(values)
        summary[f"{key}_max"] = max(values)
    return summary


def _table(results: list[Result]) -> Table:
    # Parameters that are the same everywhere tell nothing of one row.
    keys = [
        key
        for key in results[0].parameters
        if len(results) == 1 or len({each.parameters[key] for each in results}) > 1
    ]
    figures = list(dict.fromkeys(key for each in results for key in each.figures))
    table = Table(*keys, box=None, pad_edge=False)
    for key in figures:
        table.add_column(key, justify="right")
    table.add_column("bound")
    for each in results:
        table.add_row(
            *(each.parameters[key] for key in keys),
            *(f"{each.figures[key]:.4g}" if key in each.figures else "-" for key in figures),
            each.bound,
        )
    return table
