# SPDX-License-Identifier: Apache-2.0
"""``headrace doctor``: why DSA can or cannot be used on this machine."""

from dataclasses import asdict

import click

from headrace._apps.doctor.diagnosis import diagnose
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._doctor_report import print_diagnosis, results_of, summary_of
from headrace._cli._output import print_document
from headrace._cli._report import Report
from headrace._cli.dsa import facts_of
from headrace._facts import to_document
from headrace._files import Output
from headrace.machine import record_into


@click.command("doctor", cls=Command)
@_options.record_option
@_options.replay_option
@_options.json_option
def command(record: Output | None, replay: str | None, *, as_json: bool) -> int:
    """Check whether DSA can be used here; if not, show the cause and the remedy.

    The first line is the answer. Needs no root and changes nothing. Exit code: 0 usable, 1 a
    problem with DSA, 3 no DSA.

    Example: headrace doctor --replay scalable-mode-off
    """
    if record is not None and replay is not None:
        _options.refuse(
            "--record describes this machine and --replay another one; give one of them"
        )
    _options.refuse_two_on_stdout("--record", record, as_json=as_json)
    facts, origin = facts_of(replay)
    if record is not None:
        record_into(record, facts=asdict(facts))
    diagnosis = diagnose(facts)
    if as_json:
        print_document(
            "doctor",
            machine=to_document(facts, origin),
            results=results_of(diagnosis),
            summary=summary_of(diagnosis, facts),
        )
    elif record is None or not record.is_stdout:
        print_diagnosis(Report(), diagnosis, origin if replay is not None else None)
    return diagnosis.exit_code
