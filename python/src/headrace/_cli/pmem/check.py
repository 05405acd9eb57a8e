# SPDX-License-Identifier: Apache-2.0
"""``headrace pmem check``: try the states that a crash could leave."""

from typing import Any

import click

from headrace._cli._app import Command
from headrace._cli._options import Count, FilePath, flag, json_option, option, refuse_value
from headrace._cli._output import EXIT_FAILED, EXIT_OK, print_document, progress
from headrace._cli._report import Column, Report
from headrace._words import counted
from headrace.machine import topo
from headrace_lab import _lab

GALLERY = "gallery"
SOUND = "sound"
ENTRIES_MAX = 1000
STATES_MAX = 10_000_000


@click.command("check", cls=Command)
@option(
    "--variant",
    type=FilePath("NAME"),
    default=SOUND,
    help="What to check: a name of --list, 'sound' for all rings of the library, 'gallery' for all "
    "broken ones.",
)
@option(
    "--entries",
    type=Count(1, ENTRIES_MAX),
    default="6",
    help="Entries to enqueue while everything is recorded.",
)
@option(
    "--states",
    type=Count(1, STATES_MAX),
    default="1024",
    help="States to try at one moment; all if there are fewer.",
)
@option("--seed", type=Count(0, 2**63 - 1), default="1", help="Random seed.")
@flag("--all", "count_all", help="Count every bad state instead of stopping at the first.")
@flag("--list", "list_names", help="Print what can be checked.")
@json_option
def command(
    variant: str,
    entries: int,
    states: int,
    seed: int,
    *,
    count_all: bool,
    list_names: bool,
    as_json: bool,
) -> int:
    """Check that a ring recovers from the states that a crash can leave.

    Every store, flush and fence of the ring is recorded. After each of them memory can be in many
    states, because a line may reach it at any time before its flush and fence. The states are made
    one by one and recovered: every entry whose enqueue had returned must be there, whole and in
    order. Where there are too many states, a sample is tried. Exit code 1 if a state is bad.

    Example: headrace pmem check --variant optimised --entries 6
    """
    subjects = {name: (summary, sound) for name, summary, sound in _lab.check_subjects()}
    if list_names:
        rows = [
            [name, "sound" if sound else "broken", summary]
            for name, (summary, sound) in subjects.items()
        ]
        Report().table([Column(""), Column(""), Column("", folds=True)], rows)
        return EXIT_OK
    if variant in {SOUND, GALLERY}:
        names = [name for name, (_, sound) in subjects.items() if sound == (variant == SOUND)]
    elif variant in subjects:
        names = [variant]
    else:
        refuse_value("--variant", f"'{variant}' is not a name that --list prints")
    reports: dict[str, dict[str, Any]] = {}
    with progress("trying crash states") as share:
        for index, name in enumerate(names):

            def tell(part: float, index: int = index) -> None:
                share((index + part) / len(names))

            reports[name] = _lab.check_subject(
                name,
                entry_count=entries,
                states=states,
                seed=seed,
                stop_at_first=not count_all,
                progress=tell,
            )
    summary = {
        "states_tried": sum(report["states_tried"] for report in reports.values()),
        "states_bad": sum(report["states_bad"] for report in reports.values()),
    }
    if as_json:
        print_document(
            "pmem-check",
            machine=topo().document,
            results={"entry_count": entries, "seed": seed, "subjects": reports},
            summary=summary,
        )
    else:
        for name, report in reports.items():
            _print_report(name, subjects[name][0], report)
    return EXIT_FAILED if summary["states_bad"] else EXIT_OK


def _print_report(name: str, summary: str, report: dict[str, Any]) -> None:
    out = Report()
    out.say(f"{name}: {summary}")
    out.say(
        f"{counted(report['states_tried'], 'crash state')} tried, {report['states_bad']:,} bad; "
        f"{counted(report['moments'], 'moment')} of {counted(report['runs'], 'run')}, "
        f"{report['moments_exhaustive']:,} of them with every state; "
        f"{counted(report['second_crashes'], 'second crash')}",
        head="  ",
    )
    if report["first_bad"]:
        for line in report["first_bad"].rstrip().split("\n"):
            out.say(line, head="  ")
        return
    out.say(
        f"waste of one run: {report['clean_flushes']} clean lines flushed, "
        f"{report['needless_drains']} needless fences, {report['partial_blocks']} of "
        f"{report['blocks']} blocks written in part",
        head="  ",
    )
