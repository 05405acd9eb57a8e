# SPDX-License-Identifier: Apache-2.0
"""``headrace dsa``: what is configured on the DSA devices, and making a configuration."""

import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from headrace import _core
from headrace._apps.doctor.diagnosis import diagnose
from headrace._apps.dsa.apply import Step, Undo, apply, check_applicable, save_undo
from headrace._apps.dsa.configuration import (
    DEVICE_COUNT_MAX,
    LABEL_LENGTH_MAX,
    MODES,
    PRESETS,
    Configuration,
    Wish,
    changes,
    configure,
    to_text,
)
from headrace._apps.dsa.facts import Facts, load_record, to_document
from headrace._apps.dsa.gather import gather
from headrace._cli._app import make_app, needs_subcommand
from headrace._cli._dsa_report import print_devices, summary_of
from headrace._cli._output import (
    EXIT_FAILED,
    WrongUseError,
    check_path,
    complain,
    open_output,
    print_document,
    refuse_two_on_stdout,
)
from headrace._cli._topo_report import report_console
from headrace._files import Output
from headrace._samples import doctor_path
from headrace._signals import undone_at_signals
from headrace.errors import Error, InvalidArgumentError

LIST_SCHEMA_NAME = "headrace-dsa-list"
CONFIGURE_SCHEMA_NAME = "headrace-dsa-configure"
SCHEMA_VERSION = 1
UNDO_FILE = "headrace-dsa-undo.json"

_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
_REPLAY = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Take the machine of this record of the doctor's, or a sample by its name.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    ours = make_app("dsa")
    ours.callback()(dsa)
    ours.command("list")(list_devices)
    ours.command("configure")(configure_devices)
    app.add_typer(ours, name="dsa")


def dsa(context: typer.Context) -> None:
    """Show how the DSA devices are configured, or configure them.

    Example: headrace dsa configure --preset shared --output dsa.json
    """
    needs_subcommand(context)


def list_devices(replay: _REPLAY = None, as_json: _JSON = False) -> None:
    """Show every device with its groups, engines and WQs, also those that are off.

    The column "from here" says how this process reaches a WQ: by its portal, by write(), or why
    not. The exit code is 0 if any device is there; else it is the doctor's.

    Example: headrace dsa list --replay healthy
    """
    facts, origin = _facts(replay, "dsa list")
    if as_json:
        print_document(
            LIST_SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=to_document(facts, origin),
            results={"devices": [asdict(device) for device in facts.devices or ()]},
            summary=summary_of(facts),
        )
    elif facts.devices:
        print_devices(report_console(), facts)
    if not facts.devices:
        diagnosis = diagnose(facts)
        complain(f"{diagnosis.headline} See 'headrace doctor'.")
        raise typer.Exit(diagnosis.exit_code or EXIT_FAILED)


# Every value comes as text, so that what is wrong with it is said by us, in one way.
def configure_devices(
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"{', '.join(PRESETS)}; 'shared' if nothing is asked."),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(metavar="N", help="How many devices, or their names: dsa0,dsa2; else all."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(metavar="N", help="Groups per device; WQs and engines are dealt out to them."),
    ] = None,
    engines: Annotated[
        str | None, typer.Option(metavar="N", help="Engines per device that work.")
    ] = None,
    queues: Annotated[str | None, typer.Option(metavar="N", help="WQs per device.")] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="shared, dedicated or both in turn.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="N", help="Entries per WQ; else all are shared out.")
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(metavar="N", help="Entries of a shared WQ that programs may fill; else all."),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(metavar="N", help="Weight of a WQ in its group, 1 to 15.")
    ] = None,
    block_on_fault: Annotated[
        str | None,
        typer.Option(metavar="on, off", help="Whether an engine waits at a page fault."),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="N", help="Descriptors of the largest batch, a power of two."),
    ] = None,
    transfer: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The largest transfer, such as 2GiB; a power of two."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the names of the WQs begin with.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the configuration there, not to stdout."),
    ] = None,
    apply_it: Annotated[
        bool, typer.Option("--apply", help="Load it by accel-config, after asking; needs root.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Let --apply not ask.")] = False,
    undo: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help=f"Where --apply saves the present configuration; else {UNDO_FILE}."
        ),
    ] = None,
    replay: _REPLAY = None,
    as_json: _JSON = False,
) -> None:
    """Make a configuration that accel-config loads, and say what it would change.

    Changes nothing without --apply.

    Example: headrace dsa configure --preset 8n1d1e1w --output c.json

    Example: headrace dsa configure --queues 2 --mode both --size 32 --devices dsa0 --apply
    """
    _check_together(apply_it=apply_it, yes=yes, undo=undo, output=output, replay=replay)
    wish = _parse_wish(
        preset,
        {
            "group_count": ("--groups", groups),
            "engine_count": ("--engines", engines),
            "queue_count": ("--queues", queues),
            "entry_count": ("--size", size),
            "threshold": ("--threshold", threshold),
            "priority": ("--priority", priority),
            "batch_count_max": ("--batch", batch),
        },
    )
    wish = _parse_words(wish, mode, block_on_fault, transfer, name)
    if threshold is not None and wish.mode == "dedicated":
        _refuse("--threshold is of shared WQs, and all are dedicated; leave it out, or set --mode")
    count, names = _parse_devices(devices)
    if count is not None:
        wish = replace(wish, device_count=count)
    written: Output | None = None
    if output is not None:
        tried = f"write the configuration to '{output}'"
        written = open_output("dsa configure", "--output", output, tried)
        refuse_two_on_stdout("dsa configure", "--output", written, as_json=as_json)
    facts, origin = _facts(replay, "dsa configure")
    try:
        configuration = configure(wish, facts, names)
    except InvalidArgumentError as error:
        _refuse(f"{error.cause}; {error.remedy}")
    if written is not None and written.is_stdout:
        output = None  # Where it goes anyway.
    elif written is not None:
        written.write(to_text(configuration))
    steps: list[Step] = []
    way_back: Undo | None = None
    if apply_it:
        steps, way_back = _apply(configuration, facts, Path(undo or UNDO_FILE), yes)
    lines = changes(configuration, facts)
    if as_json:
        print_document(
            CONFIGURE_SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=to_document(facts, origin),
            results=_results(configuration, lines, steps, way_back),
            summary=_summary(configuration, steps, applied=apply_it),
        )
    else:
        _report(configuration, lines, steps, way_back, output, facts)
    if not all(step.done for step in steps):
        raise typer.Exit(EXIT_FAILED)


def _check_together(
    *, apply_it: bool, yes: bool, undo: str | None, output: str | None, replay: str | None
) -> None:
    if apply_it and replay is not None:
        _refuse("--apply changes this machine and --replay is about another; give one of them")
    if not apply_it and (yes or undo is not None):
        _refuse(f"{'--yes' if yes else '--undo'} is for --apply, and nothing is applied; add it")
    for option, path in (("--output", output), ("--undo", undo)):
        check_path("dsa configure", option, path)


def _facts(replay: str | None, subcommand: str) -> tuple[Facts, str]:
    if replay is None:
        return gather(), "this machine"
    check_path(subcommand, "--replay", replay)
    return load_record(doctor_path(replay))


def _refuse(sentence: str) -> NoReturn:
    raise WrongUseError("dsa configure", sentence)


def _parse_wish(preset: str | None, numbers: dict[str, tuple[str, str | None]]) -> Wish:
    wish = PRESETS.get(preset if preset is not None else "shared")
    if wish is None:
        _refuse(f"--preset: there is no preset '{preset}'; use {', '.join(PRESETS)}")
    given: dict[str, Any] = {
        field: _parse_count(option, text)
        for field, (option, text) in numbers.items()
        if text is not None
    }
    # A threshold that a preset gives belongs to the size that it gives.
    if given.keys() & {"queue_count", "entry_count"}:
        wish = replace(wish, threshold=None)
    return replace(wish, **given)


def _parse_words(
    wish: Wish, mode: str | None, block_on_fault: str | None, transfer: str | None, name: str | None
) -> Wish:
    if mode is not None:
        known = next((each for each in MODES if each == mode), None)
        if known is None:
            _refuse(f"--mode: there is no mode '{mode}'; use {', '.join(MODES)}")
        wish = replace(wish, mode=known)
    if block_on_fault is not None:
        if block_on_fault not in {"on", "off"}:
            _refuse(f"--block-on-fault: '{block_on_fault}' is neither on nor off")
        wish = replace(wish, block_on_fault=block_on_fault == "on")
    if transfer is not None:
        try:
            wish = replace(wish, transfer_bytes_max=_core.parse_bytes(transfer))
        except Error as error:
            _refuse(f"--transfer: '{transfer}': {error.cause}; {error.remedy}")
    if name is not None:
        if re.fullmatch(rf"[A-Za-z0-9_.-]{{1,{LABEL_LENGTH_MAX}}}", name) is None:
            _refuse(
                f"--name: '{name}' is not 1 to {LABEL_LENGTH_MAX} letters, digits, '_', '.' or '-'"
            )
        wish = replace(wish, label=name)
    return wish


def _parse_count(option: str, text: str) -> int:
    # Not what int() takes: that is also "1_0", other digits than ours, and as many as one likes.
    if re.fullmatch(r"[0-9]{1,9}", text) is None:
        _refuse(f"{option}: '{text}' is not a whole number")
    return int(text)


def _parse_devices(text: str | None) -> tuple[int | None, list[str] | None]:
    """A number of devices, or their names."""
    if text is None:
        return None, None
    if re.fullmatch(r"[0-9]{1,9}", text):
        count = int(text)
        if not 1 <= count <= DEVICE_COUNT_MAX:
            _refuse(f"--devices: '{text}' is not a number from 1 to {DEVICE_COUNT_MAX}")
        return count, None
    names = text.split(",")
    if not all(re.fullmatch(r"dsa(?:0|[1-9][0-9]{0,3})", name) for name in names):
        _refuse(f"--devices: '{text}' is neither a number nor names such as dsa0,dsa2")
    if len(set(names)) < len(names):
        _refuse(f"--devices: '{text}' names a device twice")
    return None, names


def _apply(
    configuration: Configuration, facts: Facts, undo: Path, yes: bool
) -> tuple[list[Step], Undo]:
    check_applicable(configuration, facts)
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            _refuse("--apply asks before it changes anything and stdin is no terminal; add --yes")
        for line in changes(configuration, facts):
            typer.echo(line, err=True)
        if not typer.confirm("Apply this?", err=True):
            raise typer.Exit(EXIT_FAILED)
    way_back = save_undo(configuration, facts, undo)
    told = "headrace: stopped half-way; what is done stays. " + _told(way_back)
    with undone_at_signals(lambda: os.write(2, told.encode())):
        try:
            return apply(configuration, facts, gather), way_back
        except Error:
            typer.echo(told, err=True, nl=False)
            raise


def _told(way_back: Undo) -> str:
    return "\n  ".join(["To undo it, as root:", *way_back.commands]) + "\n"


def _results(
    configuration: Configuration, lines: list[str], steps: list[Step], way_back: Undo | None
) -> dict[str, Any]:
    return {
        "configuration": configuration,
        "changes": lines,
        "steps": [asdict(step) for step in steps],
        "undo": None
        if way_back is None
        else {
            "file": None if way_back.path is None else str(way_back.path),
            "commands": list(way_back.commands),
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
    way_back: Undo | None,
    output: str | None,
    facts: Facts,
) -> None:
    # The configuration is data if it comes on stdout: then what is said of it is not.
    if output is None and way_back is None:
        sys.stdout.write(to_text(configuration))
    console = Console(stderr=output is None and way_back is None, highlight=False, soft_wrap=True)
    if output is not None:
        console.print(f"The configuration is in {output}.", markup=False)
    if way_back is None:
        _say_what_would_change(console, lines, output, facts)
        return
    for step in steps:
        said = "done" if step.done else f"failed: {step.cause}"
        console.print(f"{step.what}: {said}", markup=False)
    console.print(_told(way_back), markup=False, end="")


def _say_what_would_change(
    console: Console, lines: list[str], output: str | None, facts: Facts
) -> None:
    if not facts.devices:
        console.print("Nothing to compare with: no DSA is set up by a driver here.", markup=False)
    else:
        console.print("Nothing was changed. Loading it would:", markup=False)
        for line in lines:
            console.print(f"  {line}", markup=False)
    file = output if output is not None else "FILE"
    console.print(
        f"Load it by 'accel-config load-config -c {file} -e' as root, its devices being disabled, "
        "or by --apply.",
        markup=False,
    )
