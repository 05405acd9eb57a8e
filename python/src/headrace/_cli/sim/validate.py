# SPDX-License-Identifier: Apache-2.0
"""``headrace sim validate``: published figures beside simulated ones."""

from typing import Annotated

import typer
from rich.table import Table

from headrace._apps.sim.validation import Validation, validate
from headrace._cli._output import EXIT_FAILED, complain, print_document
from headrace._cli._topo_report import report_console

SCHEMA_NAME = "headrace-sim-validate"
SCHEMA_VERSION = 1


def register(sim: typer.Typer) -> None:
    """Add the subcommand."""
    sim.command("validate")(validate_all)


def validate_all(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Compare simulated figures with published ones; exit code 1 if a threshold is broken.

    Example: headrace sim validate
    """
    validation = validate()
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine={},
            results=[
                {
                    "series": each.series,
                    "use": each.use,
                    "source": each.source,
                    "where": each.where,
                    "metric": each.metric,
                    "published": each.published,
                    "simulated": each.simulated,
                    "error": each.error,
                    "flag": each.flag,
                }
                for each in validation.points
            ],
            summary=validation.summary,
        )
    else:
        _print(validation)
    for sentence in validation.broken:
        complain(sentence)
    if validation.broken:
        raise typer.Exit(EXIT_FAILED)


def _print(validation: Validation) -> None:
    table = Table("series", "use", "where", "metric", box=None, pad_edge=False)
    for name in ("published", "simulated", "error"):
        table.add_column(name, justify="right")
    flags: dict[str, None] = {}
    for each in validation.points:
        if each.flag:
            flags[f"{each.series}: {each.flag}"] = None
        table.add_row(
            each.series,
            each.use,
            each.where,
            each.metric,
            f"{each.published:.4g}",
            f"{each.simulated:.4g}",
            f"{each.error:+.1%}",
        )
    console = report_console()
    console.print(table)
    console.print()
    summary = validation.summary
    console.print(
        f"Held out: {summary['points']} points, median error {summary['error_median']:.1%}, "
        f"worst {summary['error_worst']:.1%}. "
        f"Fitted: {summary['fit_points']} points, median {summary['fit_error_median']:.1%}. "
        f"Flagged and not counted: {summary['flagged']}."
    )
    for flag in flags:
        console.print(f"- {flag}")
