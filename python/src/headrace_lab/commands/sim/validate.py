# SPDX-License-Identifier: Apache-2.0
"""``headrace sim validate``: published figures, or this machine's, beside simulated ones."""

from dataclasses import asdict

import click

from headrace._cli._app import Command
from headrace._cli._options import flag, json_option, rounds_option
from headrace._cli._output import EXIT_FAILED, EXIT_OK, complain, print_document, progress
from headrace._cli._report import Column, Report, figures
from headrace_lab.sim import here
from headrace_lab.sim.validation import Validation, validate


@click.command("validate", cls=Command)
@flag(
    "--here",
    "on_this_machine",
    help="Measure this machine, make its model, and compare its predictions with other "
    "measurements; some minutes.",
)
@rounds_option(here.ROUNDS, " of --here, each of both; medians count")
@json_option
def command(rounds: int, *, on_this_machine: bool, as_json: bool) -> int:
    """Compare simulated figures with published ones; exit code 1 if a threshold is broken.

    Example: headrace sim validate
    """
    if on_this_machine:
        return _validate_here(rounds, as_json=as_json)
    validation = validate()
    if as_json:
        print_document(
            "sim-validate",
            machine={},
            results=[
                {key: value for key, value in asdict(each).items() if key != "is_echo"}
                | {
                    "error": each.error,
                    "kind": "published" if each.is_echo else "simulated",
                    "restates_input": each.restates_input,
                }
                for each in validation.points
            ],
            summary=validation.summary,
        )
    else:
        _print(validation)
    return _exit_code(validation.broken)


def _exit_code(broken: list[str]) -> int:
    for sentence in broken:
        complain(sentence)
    return EXIT_FAILED if broken else EXIT_OK


def _validate_here(rounds: int, *, as_json: bool) -> int:
    with progress("measuring this machine") as share:
        comparison = here.compare(share, rounds=rounds)
    if as_json:
        print_document(
            "sim-validate",
            machine={"name": "this machine", "model": comparison.model},
            results=[asdict(each) | {"error": each.error} for each in comparison.points]
            + [asdict(each) | {"agrees": each.agrees} for each in comparison.decisions],
            summary=comparison.summary,
        )
    else:
        _print_here(comparison)
    return _exit_code(comparison.broken)


def _print_here(comparison: here.Comparison) -> None:
    report = Report()
    report.table(
        [
            Column("what", folds=True, key=True),
            *figures("measured", "spread", "simulated", "error"),
            Column("bound", folds=True, optional=1),
        ],
        [
            [
                each.what,
                f"{each.measured:.4g} {each.unit}",
                f"{each.spread:.0%}",
                f"{each.simulated:.4g}",
                f"{each.error:+.1%}",
                each.bound,
            ]
            for each in comparison.points
        ],
    )
    report.say()
    report.table(
        [
            Column("choice", folds=True, key=True),
            Column("advised", key=True),
            Column("measured best"),
            *figures("lost by it"),
            Column("agrees"),
        ],
        [
            [
                each.what,
                each.advised,
                each.best,
                f"{each.regret:.1%}",
                "yes" if each.agrees else "no",
            ]
            for each in comparison.decisions
        ],
    )
    report.say()
    summary = comparison.summary
    report.say(
        f"This machine: {summary['points']} points, median error {summary['error_median']:.1%}, "
        f"worst {summary['error_worst']:.1%}. Medians of {comparison.rounds} rounds of "
        "calibration and validation in turn; spread: between quartiles."
    )
    report.say(
        f"The model's choice agrees with the measured best in {summary['decisions_agreed']} of "
        f"{summary['decisions']}: it is the best, or loses no more than 2 % or the best's spread, "
        f"which counts up to {here.REGRET_MAX:.0%}."
    )
    report.say(
        f"Other work disturbed {comparison.disturbed:.0%} of the samples, which are left out."
        + (" The machine is loaded: expect larger errors." if summary["loaded"] else "")
    )


def _print(validation: Validation) -> None:
    flags: dict[str, None] = {}
    rows = []
    for each in validation.points:
        if each.flag:
            flags[f"{each.series}: {each.flag}"] = None
        use = each.use.replace("_", " ")
        rows.append(
            [
                each.series,
                f"{use}, restates" if each.restates_input else use,
                each.where,
                each.metric,
                f"{each.published:.4g}",
                "published" if each.is_echo else f"{each.simulated:.4g}",
                "-" if each.is_echo else f"{each.error:+.1%}",
                ", ".join(each.inputs),
            ]
        )
    report = Report()
    report.table(
        [
            Column("series", folds=True, key=True),
            Column("use", folds=True, optional=1),
            Column("where", folds=True, key=True),
            Column("metric", folds=True, key=True),
            *figures("published", "simulated", "error"),
            Column("moved by", folds=True, optional=2),
        ],
        rows,
    )
    report.say()
    summary = validation.summary
    report.say(
        f"Held out: {summary['points']} points, median error {summary['error_median']:.1%}. "
        f"{summary['points_restating_inputs']} more restate an input: no more than one measured "
        f"number moves them. Worst of all: {summary['error_worst']:.1%}."
    )
    report.say(
        f"Fitted: {summary['fit_points']} points, median error {summary['fit_error_median']:.1%}. "
        f"{summary['echoes']} more are published figures to which a number was fitted alone. "
        f"Flagged and not counted: {summary['flagged']}."
    )
    for each_flag in flags:
        report.say(each_flag, head="- ")
