# SPDX-License-Identifier: Apache-2.0
"""``headrace dsa configure``: make a configuration, and say what loading it would change."""

import re
import shlex
import sys
from dataclasses import replace
from typing import Any

import click

from headrace._apps.dsa.configuration import (
    DEVICE_COUNT_MAX,
    LABEL_LENGTH_MAX,
    MODES,
    PRESETS,
    Configuration,
    Wish,
    changes,
    configure,
    queues_in,
    to_text,
)
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import print_document
from headrace._cli._report import Report
from headrace._cli.dsa import facts_of
from headrace._facts import Facts, to_document
from headrace._files import Output
from headrace.errors import InvalidArgumentError

_NUMBER_MAX = 999_999_999


class _Devices(_options.Value[int | list[str]]):
    def __init__(self) -> None:
        super().__init__(
            "N", f"a number from 1 to {DEVICE_COUNT_MAX}, or different names such as dsa0,dsa2"
        )

    def read(self, text: str) -> int | list[str]:
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


class _Numbers(_options.Value[tuple[int, ...]]):
    """A number for all WQs, or several, assigned to them in turn."""

    def __init__(self) -> None:
        super().__init__("N,...", "a whole number, or several such as 16,64")

    def read(self, text: str) -> tuple[int, ...]:
        if re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9}){0,63}", text) is None:
            raise ValueError
        return tuple(int(each) for each in text.split(","))


def _count(name: str, field: str, text: str) -> _options.Decorator:
    return _options.option(name, field, type=_options.Count(0, _NUMBER_MAX), help=text)


@click.command("configure", cls=Command)
@_options.option(
    "--preset",
    type=_options.Choice(*PRESETS, metavar="NAME"),
    help=f"{', '.join(PRESETS)}; 'shared' if not given.",
)
@_options.option(
    "--devices",
    type=_Devices(),
    help="How many devices, or their names: dsa0,dsa2; all if not given.",
)
@_count("--groups", "group_count", "Groups per device; WQs and engines are distributed among them.")
@_count("--engines", "engine_count", "Engines per device to use.")
@_count("--queues", "queue_count", "WQs per device.")
@_options.option("--mode", type=_options.Choice(*MODES), help="Mode of the WQs; both: in turn.")
@_options.option(
    "--size",
    "entry_counts",
    type=_Numbers(),
    help="Entries per WQ, or of each in turn: 16,64; if not given, all in equal parts.",
)
@_count(
    "--threshold",
    "threshold",
    "Entries of a shared WQ that programs may fill; all if not given.",
)
@_options.option(
    "--priority",
    "priorities",
    type=_Numbers(),
    help="Weight of a WQ in its group, 1 to 15, or of each in turn: 15,1.",
)
@_options.option(
    "--block-on-fault",
    type=_options.Choice("on", "off"),
    help="Whether an engine waits at a page fault.",
)
@_count("--batch", "batch_count_max", "Descriptors of the largest batch, a power of two.")
@_options.option(
    "--transfer",
    "transfer_bytes_max",
    type=_options.Size(),
    help="The largest transfer, such as 2GiB; a power of two.",
)
@_options.option(
    "--name",
    "label",
    type=_options.Name(
        rf"[A-Za-z0-9_.-]{{1,{LABEL_LENGTH_MAX}}}",
        f"1 to {LABEL_LENGTH_MAX} letters, digits, '_', '.' or '-'",
    ),
    help="Prefix of the names of the WQs.",
)
@_options.option(
    "--output",
    type=_options.OutputFile("write the configuration to '{}'"),
    help="Write the configuration there, not to stdout.",
)
@_options.replay_option
@_options.json_option
def command(
    preset: str | None,
    devices: int | list[str] | None,
    block_on_fault: str | None,
    output: Output | None,
    replay: str | None,
    *,
    as_json: bool,
    **asked: Any,  # noqa: ANN401 - Of several types, as the fields of a wish.
) -> None:
    """Make a configuration that accel-config loads, and say what it would change.

    Changes nothing: the commands that load it are printed, with one that saves what is there.

    Example: headrace dsa configure --preset 8n1d1e1w --output c.json

    Example: headrace dsa configure --queues 2 --mode both --size 32 --devices dsa0
    """
    _options.refuse_two_on_stdout("--output", output, as_json=as_json)
    # The other options are named as the fields of a wish.
    asked["block_on_fault"] = None if block_on_fault is None else block_on_fault == "on"
    asked["device_count"] = devices if isinstance(devices, int) else None
    wish = _wish(PRESETS[preset or "shared"], asked)
    if asked["threshold"] is not None and wish.mode == "dedicated":
        _options.refuse(
            "--threshold applies to shared WQs, and all are dedicated; leave it out, or set --mode"
        )
    facts, origin = facts_of(replay)
    try:
        configuration = configure(wish, facts, devices if isinstance(devices, list) else None)
    except InvalidArgumentError as error:
        _options.refuse(f"{error.cause}; {error.remedy}")
    if output is not None and output.is_stdout:
        output = None  # The default.
    elif output is not None:
        output.write(to_text(configuration))
    lines = changes(configuration, facts) if facts.devices else []
    file = "FILE" if output is None else output.path
    commands = load_commands(configuration, facts, file)
    if as_json:
        print_document(
            "dsa-configure",
            machine=to_document(facts, origin),
            results={"configuration": configuration, "changes": lines, "commands": commands},
            summary=_summary(configuration),
        )
        return
    if output is None:
        sys.stdout.write(to_text(configuration))
    _report(lines, commands, None if output is None else file)


def _report(changed: list[str], commands: list[str], file: str | None) -> None:
    # If the configuration goes to stdout, the report goes to stderr.
    report = Report(sys.stderr if file is None else None)
    if file is not None:
        report.say(f"The configuration is in {file}.")
    report.say("Nothing was changed. Loading it would:")
    for line in changed or ["(nothing to compare with: no DSA is set up by a driver here)"]:
        report.say(line, head="  ")
    report.say("To save the present configuration and load this one, as root:")
    for line in commands:
        report.say(line, head="  ")
    report.say("Then 'headrace dsa list' shows the result: accel-config reports success even then.")


def load_commands(configuration: Configuration, facts: Facts, file: str) -> list[str]:
    """The commands of accel-config that save the present configuration and load another."""
    names = {device["dev"] for device in configuration}
    enabled = [each.name for each in facts.devices or () if each.state == "enabled"]
    # load-config passes over devices that are enabled and reports success. Its option -f leaves a
    # stale errno in 3.5.3, by which accel-config takes the next 0 for an error.
    return [
        "accel-config save-config -s before.json",
        *(f"accel-config disable-device {name}" for name in enabled if name in names),
        f"accel-config load-config -c {shlex.quote(file)} -e",
    ]


def _wish(preset: Wish, asked: dict[str, Any]) -> Wish:
    given = {field: value for field, value in asked.items() if value is not None}
    # The threshold of a preset belongs to its size.
    if given.keys() & {"queue_count", "entry_counts"}:
        preset = replace(preset, threshold=None)
    return replace(preset, **given)


def _summary(configuration: Configuration) -> dict[str, Any]:
    queues = [queue for _, queue in queues_in(configuration)]
    return {
        "device_count": len(configuration),
        "queue_count": len(queues),
        "entry_count": sum(queue["size"] for queue in queues),
    }
