# SPDX-License-Identifier: Apache-2.0
"""``headrace sim validate``: published figures beside simulated ones."""

import click

from headrace._apps.sim.validation import Validation, validate
from headrace._cli._app import Command
from headrace._cli._options import json_option
from headrace._cli._output import EXIT_FAILED, EXIT_OK, complain, print_document
from headrace._cli._report import Column, Report, figures


@click.command("validate", cls=Command)
@json_option
def command(*, as_json: bool) -> int:
    """Compare simulated figures with published ones; exit code 1 if a threshold is broken.

    Example: headrace sim validate
    """
    validation = validate()
    if as_json:
        print_document(
            "sim-validate",
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
    return EXIT_FAILED if validation.broken else EXIT_OK


def _print(validation: Validation) -> None:
    flags: dict[str, None] = {}
    rows = []
    for each in validation.points:
        if each.flag:
            flags[f"{each.series}: {each.flag}"] = None
        rows.append(
            [
                each.series,
                each.use,
                each.where,
                each.metric,
                f"{each.published:.4g}",
                f"{each.simulated:.4g}",
                f"{each.error:+.1%}",
            ]
        )
    report = Report()
    report.table(
        [
            Column("series", folds=True, key=True),
            Column("use", optional=1),
            Column("where", folds=True, key=True),
            Column("metric", folds=True, key=True),
            *figures("published", "simulated", "error"),
        ],
        rows,
    )
    report.say()
    summary = validation.summary
    report.say(
        f"Held out: {summary['points']} points, median error {summary['error_median']:.1%}, "
        f"worst {summary['error_worst']:.1%}. "
        f"Fitted: {summary['fit_points']} points, median {summary['fit_error_median']:.1%}. "
        f"Flagged and not counted: {summary['flagged']}."
    )
    for flag in flags:
        report.say(flag, head="- ")
