# SPDX-License-Identifier: Apache-2.0
"""``headrace doctor``: why the accelerator of this machine can or cannot be used."""

from typing import Annotated

import typer

from headrace._apps.doctor.diagnosis import diagnose
from headrace._apps.dsa.facts import load_record, record_text, to_document
from headrace._apps.dsa.gather import gather
from headrace._cli._doctor_report import print_diagnosis, results_of, summary_of
from headrace._cli._output import (
    EXIT_OK,
    WrongUseError,
    check_path,
    open_output,
    print_document,
    refuse_two_on_stdout,
)
from headrace._cli._topo_report import report_console
from headrace._files import Output
from headrace._samples import doctor_path

SCHEMA_NAME = "headrace-doctor"
SCHEMA_VERSION = 1
HERE = "this machine"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("doctor")(doctor)


def doctor(
    record: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write what was found into this file as well."),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Examine the machine of this record, or a sample by its name, not this one.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Check whether DSA can be used here; if not, show the cause and the remedy.

    The first line is the answer. Needs no root and changes nothing. Exit code: 0 it can be used,
    1 something is wrong with what is there, 3 there is no DSA.

    Example: headrace doctor --replay scalable-mode-off
    """
    if record is not None and replay is not None:
        message = "--record describes this machine and --replay another one; give one of them"
        raise WrongUseError("doctor", message)
    check_path("doctor", "--replay", replay)
    output: Output | None = None
    if record is not None:
        output = open_output("doctor", "--record", record, f"record the machine in '{record}'")
        refuse_two_on_stdout("doctor", "--record", output, as_json=as_json)
    if replay is not None:
        facts, origin = load_record(doctor_path(replay))
    else:
        facts, origin = gather(), HERE
    if output is not None:
        output.write(record_text(facts, "recorded"))
    diagnosis = diagnose(facts)
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=to_document(facts, origin),
            results=results_of(diagnosis),
            summary=summary_of(diagnosis, facts),
        )
    elif output is None or not output.is_stdout:
        console = report_console()
        shown = origin if replay is not None else None
        # In a file or pipe every check is one line.
        print_diagnosis(console, diagnosis, shown, console.width if console.is_terminal else None)
    if diagnosis.exit_code != EXIT_OK:
        raise typer.Exit(diagnosis.exit_code)
