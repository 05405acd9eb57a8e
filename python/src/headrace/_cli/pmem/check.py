# SPDX-License-Identifier: Apache-2.0
"""``headrace pmem check``: try the states that a crash could leave of a ring."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console

from headrace import _core
from headrace._cli._output import EXIT_FAILED, WrongUseError, print_document, progress
from headrace._words import counted
from headrace.machine import topo

SCHEMA_NAME = "headrace-pmem-check"
SCHEMA_VERSION = 1

SUBCOMMAND = "pmem check"
GALLERY = "gallery"
SOUND = "sound"
ENTRIES_MAX = 1000
STATES_MAX = 10_000_000


def register(pmem: typer.Typer) -> None:
    """Add the subcommand."""
    pmem.command("check")(check)


# Numbers come as text, so that what is wrong with them is said by us, in one way.
def check(
    variant: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What to check: a name of --list, 'sound' for all rings of the library, "
            "'gallery' for all broken ones.",
        ),
    ] = SOUND,
    entries: Annotated[
        str, typer.Option(metavar="N", help="Entries to enqueue while everything is recorded.")
    ] = "6",
    states: Annotated[
        str, typer.Option(metavar="N", help="States to try at one moment; all if there are fewer.")
    ] = "1024",
    seed: Annotated[str, typer.Option(metavar="N", help="For what is drawn.")] = "1",
    count_all: Annotated[
        bool, typer.Option("--all", help="Count every bad state instead of stopping at the first.")
    ] = False,
    list_names: Annotated[bool, typer.Option("--list", help="Print what can be checked.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Check that a ring recovers from the states that a crash can leave.

    Every store, flush and fence of the ring is recorded. After each of them memory can be in many
    states, because a line may reach it at any time before its flush and fence. The states are made
    one by one and recovered: every entry whose enqueue had returned must be there, whole and in
    order. Where there are too many states, a sample is tried. Exit code 1 if a state is bad.

    Example: headrace pmem check --variant optimised --entries 6
    """
    subjects = {name: (summary, sound) for name, summary, sound in _core.check_subjects()}
    if list_names:
        _print_list(subjects)
        return
    if variant in {SOUND, GALLERY}:
        names = [name for name, (_, sound) in subjects.items() if sound == (variant == SOUND)]
    elif variant in subjects:
        names = [variant]
    else:
        message = f"--variant: there is nothing named '{variant}'; --list prints the names"
        raise WrongUseError(SUBCOMMAND, message)
    entry_count = _parse_number("--entries", entries, 1, ENTRIES_MAX)
    state_count = _parse_number("--states", states, 1, STATES_MAX)
    seed_number = _parse_number("--seed", seed, 0, 2**63 - 1)
    reports: dict[str, dict[str, Any]] = {}
    with progress("trying crash states") as share:
        for index, name in enumerate(names):
            reports[name] = _core.check_subject(
                name,
                entry_count=entry_count,
                states=state_count,
                seed=seed_number,
                stop_at_first=not count_all,
                progress=partial(_share_of, share, index, len(names)),
            )
    summary = {
        "states_tried": sum(report["states_tried"] for report in reports.values()),
        "states_bad": sum(report["states_bad"] for report in reports.values()),
    }
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=topo().document,
            results={"entry_count": entry_count, "seed": seed_number, "subjects": reports},
            summary=summary,
        )
    else:
        for name, report in reports.items():
            _print_report(name, subjects[name][0], report)
    if summary["states_bad"]:
        raise typer.Exit(EXIT_FAILED)


def _share_of(share: Callable[[float], None], index: int, count: int, part: float) -> None:
    share((index + part) / count)


def _parse_number(option: str, text: str, least: int, greatest: int) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 20  # noqa: PLR2004
    if not is_number or not least <= int(text) <= greatest:
        message = f"{option}: '{text}' is not a whole number from {least} to {greatest}"
        raise WrongUseError(SUBCOMMAND, message)
    return int(text)


def _print_list(subjects: dict[str, tuple[str, bool]]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(name) for name in subjects)
    for name, (summary, sound) in subjects.items():
        console.print(f"{name:{width}}  {'sound ' if sound else 'broken'}  {summary}", markup=False)


def _print_report(name: str, summary: str, report: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)

    def say(text: str) -> None:
        console.print(text, markup=False)

    say(f"{name}: {summary}")
    say(
        f"  {counted(report['states_tried'], 'crash state')} tried, {report['states_bad']:,} bad; "
        f"{counted(report['moments'], 'moment')} of {counted(report['runs'], 'run')}, "
        f"{report['moments_exhaustive']:,} of them with every state; "
        f"{counted(report['second_crashes'], 'second crash')}"
    )
    if report["first_bad"]:
        for line in report["first_bad"].rstrip().split("\n"):
            say(f"  {line}")
        return
    say(
        f"  waste of one run: {report['clean_flushes']} clean lines flushed, "
        f"{report['needless_drains']} needless fences, {report['partial_blocks']} of "
        f"{report['blocks']} blocks written in part"
    )
