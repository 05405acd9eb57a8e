# SPDX-License-Identifier: Apache-2.0
"""``headrace sim run``: a scenario on a machine, as a table, JSON or a picture."""

import json
from dataclasses import asdict
from typing import Any

import click

from headrace._apps.sim.picture import draw_results
from headrace._apps.sim.provenance import published_figures
from headrace._apps.sim.sweep import points_of
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import print_document
from headrace._cli._report import Column, Report
from headrace._cli.sim._machine import machine_of, machine_option
from headrace._files import Output
from headrace._scenarios import Result, run, scenario
from headrace.errors import InvalidArgumentError, NotFoundError


@click.command("run", cls=Command)
@click.argument("name", type=_options.FilePath("NAME"), metavar="NAME")
@machine_option("default: the scenario's")
@_options.option(
    "--sweep",
    type=_options.FilePath("KEY=VALUES"),
    multiple=True,
    help="Values of a parameter, as in bytes=64:1MiB (which doubles) or devices=1,2,4; can be "
    "repeated. The first value of each other parameter holds then. Without it, all values of all "
    "parameters are combined.",
)
@_options.plot_option("the figures")
@_options.json_option
def command(
    name: str, machine: str | None, sweep: tuple[str, ...], plot: Output | None, *, as_json: bool
) -> None:
    """Simulate a scenario. The same command gives the same figures every time.

    Example: headrace sim run ddr-to-hbm --machine xeon-max-flat --plot devices.svg
    """
    _options.refuse_two_on_stdout("--plot", plot, as_json=as_json)
    try:
        asked = scenario(name)
        points = points_of(asked, list(sweep))
    except (InvalidArgumentError, NotFoundError) as error:
        _options.refuse(str(error))
    path = machine_of(machine or asked.machine)
    results = run(name, points, machine=str(path))
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    published = published_figures(model, name, results)
    title = f"{name} on {path.stem} ({_kind(published)})"
    if plot is not None:
        draw_results(plot, title, results)
    if as_json:
        print_document(
            "sim-run",
            machine={"name": path.stem, "model": model},
            results=[
                asdict(each) | {"published": sorted(restated)}
                for each, restated in zip(results, published, strict=True)
            ],
            summary=_summary(name, results) | {"kind": _kind(published)},
        )
        return
    report = Report()
    report.say(title)
    _print_table(report, results, published)
    if any(published):
        report.say("published: a number of the model was fitted to this figure alone", head="* ")
    for note in sorted({note for each in results for note in each.notes}):
        report.say(note, head="- ")


def _summary(name: str, results: list[Result]) -> dict[str, Any]:
    summary: dict[str, Any] = {"scenario": name, "points": len(results)}
    for key in results[0].figures:
        values = [each.figures[key] for each in results if key in each.figures]
        summary[f"{key}_min"] = min(values)
        summary[f"{key}_max"] = max(values)
    return summary


def _kind(published: list[set[str]]) -> str:
    """What the figures are; "published" if all of them restate published ones."""
    if not any(published):
        return "simulated"
    return "published" if all(published) else "simulated and published"


def _print_table(report: Report, results: list[Result], published: list[set[str]]) -> None:
    # Leave out parameters that are the same in all rows.
    keys = [
        key
        for key in results[0].parameters
        if len(results) == 1 or len({each.parameters[key] for each in results}) > 1
    ]
    figures = list(dict.fromkeys(key for each in results for key in each.figures))
    report.table(
        [
            *(Column(key, key=True) for key in keys),
            *(Column(key, right=True) for key in figures),
            Column("bound", folds=True),
        ],
        [
            [
                *(str(each.parameters[key]) for key in keys),
                *(
                    f"{'*' * (key in restated)}{each.figures[key]:.4g}"
                    if key in each.figures
                    else "-"
                    for key in figures
                ),
                each.bound,
            ]
            for each, restated in zip(results, published, strict=True)
        ],
    )
