# SPDX-License-Identifier: Apache-2.0
"""``headrace dsa list``: every device with its groups, engines and WQs."""

from dataclasses import asdict

import click

from headrace._apps.doctor.diagnosis import diagnose
from headrace._cli._app import Command
from headrace._cli._dsa_report import print_devices, summary_of
from headrace._cli._options import json_option, replay_option
from headrace._cli._output import EXIT_FAILED, EXIT_OK, complain, print_document
from headrace._cli._report import Report
from headrace._cli.dsa import facts_of
from headrace._facts import to_document


@click.command("list", cls=Command)
@replay_option
@json_option
def command(replay: str | None, *, as_json: bool) -> int:
    """Show every device with its groups, engines and WQs, also those that are off.

    The column "from here" says how this process reaches a WQ: by its portal, by write(), or why
    not. The exit code is 0 if any device is there; else it is the doctor's.

    Example: headrace dsa list --replay healthy
    """
    facts, origin = facts_of(replay)
    if as_json:
        print_document(
            "dsa-list",
            machine=to_document(facts, origin),
            results={"devices": [asdict(device) for device in facts.devices or ()]},
            summary=summary_of(facts),
        )
    elif facts.devices:
        print_devices(Report(), facts)
    if facts.devices:
        return EXIT_OK
    diagnosis = diagnose(facts)
    complain(f"{diagnosis.headline} See 'headrace doctor'.")
    return diagnosis.exit_code or EXIT_FAILED
