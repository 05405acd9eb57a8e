# SPDX-License-Identifier: Apache-2.0
"""``headrace dsa configure``: make a configuration and load it."""

import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from headrace._apps.dsa.apply import Step, Undo, apply, check_applicable, save_undo
from headrace._apps.dsa.configuration import (
    DEVICE_COUNT_MAX,
    LABEL_LENGTH_MAX,
    MODES,
    PRESETS,
    Configuration,
    Mode,
    Wish,
    changes,
    configure,
    to_text,
)
from headrace._cli._app import Command
from headrace._cli._options import (
    Choice,
    Count,
    FilePath,
    Name,
    OutputFile,
    Size,
    Value,
    flag,
    json_option,
    option,
    refuse,
    refuse_two_on_stdout,
    replay_option,
)
from headrace._cli._output import EXIT_FAILED, EXIT_OK, print_document
from headrace._cli._report import Report
from headrace._cli.dsa import facts_of
from headrace._facts import Facts, to_document
from headrace._files import Output
from headrace._gather import gather
from headrace._signals import undone_at_signals
from headrace.errors import Error, InvalidArgumentError

UNDO_FILE = "headrace-dsa-undo.json"

_NUMBER_MAX = 999_999_999


class _Devices(Value[int | list[str]]):
    """A number of devices, or their names."""

    def __init__(self) -> None:
        super().__init__(
            "N", f"a number from 1 to {DEVICE_COUNT_MAX}, or different names such as dsa0,dsa2"
        )

    def read(self, text: str) -> int | list[str]:
        """Convert a number, or distinct names."""
        if re.fullmatch(r"[0-9]{1,9}", text):
            if not 1 <= int(text) <= DEVICE_COUNT_MAX:
                raise ValueError
            return int(text)
        names = text.split(",")
        if not all(re.fullmatch(r"dsa(?:0|[1-9][0-9]{0,3})", name) for name in names):
            raise ValueError
        if len(set(names)) < len(names):
            raise ValueError
        return names


class _Numbers(Value[tuple[int, ...]]):
    """A number for all WQs, or several, assigned to them in turn."""

    def __init__(self) -> None:
        super().__init__("N,...", "a whole number, or several such as 16,64")

    def read(self, text: str) -> tuple[int, ...]:
        """Convert decimal numbers."""
        if re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9}){0,63}", text) is None:
            raise ValueError
        return tuple(int(each) for each in text.split(","))


@click.command("configure", cls=Command)
@option(
    "--preset",
    type=Choice(*PRESETS, metavar="NAME"),
    help=f"{', '.join(PRESETS)}; 'shared' if not given.",
)
@option(
    "--devices",
    type=_Devices(),
    help="How many devices, or their names: dsa0,dsa2; all if not given.",
)
@option(
    "--groups",
    type=Count(0, _NUMBER_MAX),
    help="Groups per device; WQs and engines are distributed among them.",
)
@option("--engines", type=Count(0, _NUMBER_MAX), help="Engines per device to use.")
@option("--queues", type=Count(0, _NUMBER_MAX), help="WQs per device.")
@option("--mode", type=Choice(*MODES), help="Mode of the WQs; both: in turn.")
@option(
    "--size",
    type=_Numbers(),
    help="Entries per WQ, or of each in turn: 16,64; if not given, all in equal parts.",
)
@option(
    "--threshold",
    type=Count(0, _NUMBER_MAX),
    help="Entries of a shared WQ that programs may fill; all if not given.",
)
@option(
    "--priority",
    type=_Numbers(),
    help="Weight of a WQ in its group, 1 to 15, or of each in turn: 15,1.",
)
@option(
    "--block-on-fault", type=Choice("on", "off"), help="Whether an engine waits at a page fault."
)
@option(
    "--batch", type=Count(0, _NUMBER_MAX), help="Descriptors of the largest batch, a power of two."
)
@option("--transfer", type=Size(), help="The largest transfer, such as 2GiB; a power of two.")
@option(
    "--name",
    type=Name(
        rf"[A-Za-z0-9_.-]{{1,{LABEL_LENGTH_MAX}}}",
        f"1 to {LABEL_LENGTH_MAX} letters, digits, '_', '.' or '-'",
    ),
    help="Prefix of the names of the WQs.",
)
@option(
    "--output",
    type=OutputFile("write the configuration to '{}'"),
    help="Write the configuration there, not to stdout.",
)
@flag("--apply", "apply_it", help="Load it by accel-config, after asking; needs root.")
@flag("--yes", help="Skip --apply's confirmation.")
@option(
    "--undo",
    type=FilePath(),
    help=f"Where --apply saves the present configuration; {UNDO_FILE} if not given.",
)
@replay_option
@json_option
def command(
    preset: str | None,
    devices: int | list[str] | None,
    groups: int | None,
    engines: int | None,
    queues: int | None,
    mode: Mode | None,
    size: tuple[int, ...] | None,
    threshold: int | None,
    priority: tuple[int, ...] | None,
    block_on_fault: str | None,
    batch: int | None,
    transfer: int | None,
    name: str | None,
    output: Output | None,
    undo: str | None,
    replay: str | None,
    *,
    apply_it: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Make a configuration that accel-config loads, and say what it would change.

    Changes nothing without --apply.

    Example: headrace dsa configure --preset 8n1d1e1w --output c.json

    Example: headrace dsa configure --queues 2 --mode both --size 32 --devices dsa0 --apply
    """
    _check_together(apply_it=apply_it, yes=yes, undo=undo, replay=replay)
    refuse_two_on_stdout("--output", output, as_json=as_json)
    wish = _wish(
        PRESETS[preset or "shared"],
        {
            "group_count": groups,
            "engine_count": engines,
            "queue_count": queues,
            "mode": mode,
            "entry_counts": size,
            "threshold": threshold,
            "priorities": priority,
            "block_on_fault": None if block_on_fault is None else block_on_fault == "on",
            "batch_count_max": batch,
            "transfer_bytes_max": transfer,
            "label": name,
            "device_count": devices if isinstance(devices, int) else None,
        },
    )
    if threshold is not None and wish.mode == "dedicated":
        refuse(
            "--threshold applies to shared WQs, and all are dedicated; leave it out, or set --mode"
        )
    facts, origin = facts_of(replay)
    try:
        configuration = configure(wish, facts, devices if isinstance(devices, list) else None)
    except InvalidArgumentError as error:
        refuse(f"{error.cause}; {error.remedy}")
    if output is not None and output.is_stdout:
        output = None  # The default.
    elif output is not None:
        output.write(to_text(configuration))
    steps: list[Step] = []
    undo_record: Undo | None = None
    if apply_it:
        steps, undo_record = _apply(configuration, facts, Path(undo or UNDO_FILE), yes)
    lines = changes(configuration, facts)
    if as_json:
        print_document(
            "dsa-configure",
            machine=to_document(facts, origin),
            results=_results(configuration, lines, steps, undo_record),
            summary=_summary(configuration, steps, applied=apply_it),
        )
    else:
        file = None if output is None else output.path
        _report(configuration, lines, steps, undo_record, file, facts)
    return EXIT_OK if all(step.done for step in steps) else EXIT_FAILED


def _check_together(*, apply_it: bool, yes: bool, undo: str | None, replay: str | None) -> None:
    if apply_it and replay is not None:
        refuse("--apply changes this machine and --replay is about another; give one of them")
    if not apply_it and (yes or undo is not None):
        refuse(f"{'--yes' if yes else '--undo'} is for --apply, and nothing is applied; add it")


def _wish(preset: Wish, asked: dict[str, Any]) -> Wish:
    given = {field: value for field, value in asked.items() if value is not None}
    # The threshold of a preset belongs to its size.
    if given.keys() & {"queue_count", "entry_counts"}:
        preset = replace(preset, threshold=None)
    return replace(preset, **given)


def _apply(
    configuration: Configuration, facts: Facts, undo: Path, yes: bool
) -> tuple[list[Step], Undo]:
    check_applicable(configuration, facts)
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            refuse("--apply asks before it changes anything and stdin is no terminal; add --yes")
        for line in changes(configuration, facts):
            click.echo(line, err=True)
        if not click.confirm("Apply this?", err=True):
            raise click.exceptions.Exit(EXIT_FAILED)
    undo_record = save_undo(configuration, facts, undo)
    told = "headrace: stopped half-way; completed steps stay. " + _told(undo_record)
    with undone_at_signals(lambda: os.write(2, told.encode())):
        try:
            return apply(configuration, facts, gather), undo_record
        except Error:
            click.echo(told, err=True, nl=False)
            raise


def _told(undo_record: Undo) -> str:
    return "\n  ".join(["To undo it, as root:", *undo_record.commands]) + "\n"


def _results(
    configuration: Configuration, lines: list[str], steps: list[Step], undo_record: Undo | None
) -> dict[str, Any]:
    return {
        "configuration": configuration,
        "changes": lines,
        "steps": [asdict(step) for step in steps],
        "undo": None
        if undo_record is None
        else {
            "file": None if undo_record.path is None else str(undo_record.path),
            "commands": list(undo_record.commands),
        },
    }


def _summary(configuration: Configuration, steps: list[Step], *, applied: bool) -> dict[str, Any]:
    queues = [
        queue
        for device in configuration
        for group in device["groups"]
        for queue in group["grouped_workqueues"]
    ]
    return {
        "device_count": len(configuration),
        "queue_count": len(queues),
        "entry_count": sum(queue["size"] for queue in queues),
        "applied": applied and all(step.done for step in steps),
        "failed_count": sum(not step.done for step in steps),
    }


def _report(
    configuration: Configuration,
    lines: list[str],
    steps: list[Step],
    undo_record: Undo | None,
    output: str | None,
    facts: Facts,
) -> None:
    # If the configuration goes to stdout, the report goes to stderr.
    if output is None and undo_record is None:
        sys.stdout.write(to_text(configuration))
    report = Report(sys.stderr if output is None and undo_record is None else None)
    if output is not None:
        report.say(f"The configuration is in {output}.")
    if undo_record is None:
        _say_what_would_change(report, lines, output, facts)
        return
    for step in steps:
        said = "done" if step.done else f"failed: {step.cause}"
        report.say(f"{step.what}: {said}")
    report.say(_told(undo_record).rstrip())


def _say_what_would_change(
    report: Report, lines: list[str], output: str | None, facts: Facts
) -> None:
    if not facts.devices:
        report.say("Nothing to compare with: no DSA is set up by a driver here.")
    else:
        report.say("Nothing was changed. Loading it would:")
        for line in lines:
            report.say(line, head="  ")
    file = output if output is not None else "FILE"
    report.say(
        f"Load it by 'accel-config load-config -c {file} -e' as root, its devices being disabled, "
        "or by --apply."
    )
