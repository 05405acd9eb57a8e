# SPDX-License-Identifier: Apache-2.0
"""``headrace report``: all families on one page, beside published figures."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from headrace import __version__, _core
from headrace._apps.doctor.diagnosis import diagnose
from headrace._apps.doctor.finding import Finding
from headrace._apps.tune.table import load_profile
from headrace._cli import _options
from headrace._cli._app import Command
from headrace._cli._output import EXIT_OK, print_document, progress
from headrace._cli._report import Column, Report
from headrace._files import Output
from headrace._gather import gather
from headrace._signals import EndedBySignalError, noticed
from headrace.errors import Error
from headrace.machine import Machine, topo
from headrace_lab.commands.bench._family import find_measuring_program
from headrace_lab.commands.bench.injection import measure_injection, shares_of
from headrace_lab.commands.bench.pmem import measure_rings, memory_folder
from headrace_lab.families import FAMILIES, measure
from headrace_lab.families.facts import Facts, gather_facts
from headrace_lab.families.points import LeftOut, Place
from headrace_lab.report.cards import cards_of
from headrace_lab.report.guidelines import BROKEN, HOLDS, Guideline, Measured, guidelines_of
from headrace_lab.report.page import page_of

_OUT = "report.html"
_EMULATED = (
    "The devices of this machine are emulated: their figures, which are marked, say nothing "
    "about real devices."
)
_PARTIAL = "This report is partial: the measurement was stopped early."
_NOT_PINNED = f"Memory was not locked: {{}}; {measure.PIN_REMEDY}."
_TRIED = "write the report to '{}'"


@click.command("report", cls=Command)
@_options.option(
    "--output",
    type=_options.OutputFile(_TRIED),
    help=f"Write the page into this file; {_OUT} if not given.",
)
@_options.rounds_option(7, " of each point")
@_options.json_option
def command(output: Output | None, rounds: int, *, as_json: bool) -> int:
    """Measure this machine and write one page about it.

    The page has the machine, what the doctor says, every family of 'headrace bench' beside
    published and simulated figures, and the guidelines of the papers with whether they hold here.
    It is one file that needs no network. Ctrl-C keeps what was measured, and the page says so.

    Example: headrace report --rounds 1 --output report.html
    """
    output = output or Output(_OUT, _TRIED.format(_OUT))
    if output.is_stdout:
        _options.refuse("--output takes a file: the page would mix with what is printed")
    machine = topo()
    measured = (
        f"{time.strftime('%Y-%m-%d')} by Headrace {__version__}, {rounds} rounds of each point"
    )
    outcomes: dict[str, measure.Outcome] = {}
    with (
        suppress(EndedBySignalError),  # What was measured by then is shown.
        progress("measuring this machine") as share,
        noticed() as noticed_signal,
    ):
        program = find_measuring_program()
        facts = gather_facts()
        for family in FAMILIES:
            outcomes[family] = measure.measure_family(
                family,
                facts,
                program,
                rounds,
                noticed_signal,
                lambda part: share((len(outcomes) + part) / len(FAMILIES)),
            )
        if not noticed_signal():
            outcomes["rings"] = _as_family("rings", _rings(rounds))
            outcomes["injection"] = _as_family("injection", _injection(rounds))
            none = "no variant of the profile beats memmove"
            outcomes["copies"] = _as_family("copies", _copies(), none)
        # The rest takes seconds; ending here would lose the whole page.
        number = noticed_signal()
        cards = cards_of(outcomes)
        guidelines = guidelines_of(
            Measured(
                outcomes,
                no_queue="" if facts.queues else facts.no_queue,
                has_tiers=len({node.tier for node in facts.nodes}) > 1,
            )
        )
        not_pinned = next((each.not_pinned for each in outcomes.values() if each.not_pinned), "")
        diagnosis = diagnose(gather())
        page = page_of(
            title=f"Headrace report: {machine.cpu_model}",
            machine={"measured": measured, **_described(machine, facts)},
            headline=diagnosis.headline,
            findings=_findings(diagnosis.findings),
            cards=cards,
            guidelines=guidelines,
            remarks=[
                (kind, text)
                for kind, text in (
                    ("unpinned", not_pinned and _NOT_PINNED.format(not_pinned)),
                    ("partial", number and _PARTIAL),
                    ("emulated", facts.emulated and _EMULATED),
                )
                if text
            ],
        ).encode()
        output.write(page)
    verdicts = Counter(each.verdict.state for each in guidelines)
    summary: dict[str, Any] = {
        "figures": len(cards),
        "figures_measured": sum(not card.absent for card in cards),
        "guidelines": len(guidelines),
        "guidelines_judged": verdicts[HOLDS] + verdicts[BROKEN],
        "bytes": len(page),
        "emulated": any(each.emulated for each in outcomes.values()),
        "partial": any(each.partial for each in outcomes.values()),
        "memory_pinned": not not_pinned,
    }
    if as_json:
        print_document(
            "report",
            machine=machine.document,
            results={
                "path": output.path,
                "round_count": rounds,
                "measured": [each.document() for each in outcomes.values()],
                "figures": [card.document() for card in cards],
                "guidelines": [each.document() for each in guidelines],
            },
            summary=summary,
        )
    else:
        _print(guidelines, summary, not_pinned, output.path)
    return 128 + number if number else EXIT_OK


Figures = Iterator[tuple[Place, list[float]]]


def _as_family(name: str, figures: Figures, none: str = "") -> measure.Outcome:
    """Make an outcome of figures whose measurement may fail; `none` says why there are none."""
    try:
        shown = tuple(
            measure.Shown(place, emulated=False, values=tuple(values)) for place, values in figures
        )
    except Error as error:
        shown, none = (), str(error)
    return measure.Outcome(name, shown, () if shown else (LeftOut(name, none),), partial=False)


def _rings(rounds: int) -> Figures:
    measured = measure_rings(rounds, memory_folder())
    memory = "persistent memory" if measured["persistent"] else "DRAM, durability is pretended"
    for each in measured["lengths"]:
        byte_count = each["entry_bytes"]
        for name, times in each["series"].items():
            place = Place(memory, name, _core.bytes_text(byte_count))
            yield place, [byte_count / time_ns for time_ns in times["enqueue_ns"]]


def _injection(rounds: int) -> Figures:
    for (working_set, size), gains in shares_of(
        measure_injection(rounds), "computation_ns"
    ).items():
        line = f"working set {_core.bytes_text(working_set)}"
        yield Place("share of the time saved", line, _core.bytes_text(size), "share"), gains


def _copies() -> Figures:
    for each in load_profile(Path(_core.default_copy_profile_path()))["classes"]:
        if (variant := each.get("variant")) is not None:
            size = _core.bytes_text(each["bytes_max"])
            place = Place("speed relative to memmove", variant, size, "ratio")
            yield place, [each["measured"]["ratio"]]


def _described(machine: Machine, facts: Facts) -> dict[str, str]:
    nodes = ", ".join(
        f"node {node.id}: {node.tier}, {_core.bytes_text(node.capacity_bytes)}, "
        f"{len(node.cpus)} processors"
        for node in machine.nodes
    )
    queues = ", ".join(f"{each.name} ({each.mode})" for each in facts.queues)
    return {
        "processor": machine.cpu_model,
        "memory": nodes,
        "caches": ", ".join(
            f"L{each.level}: {each.instance_count} x {_core.bytes_text(each.capacity_bytes)}"
            for each in machine.cpu_caches
        ),
        "DSA work queues": queues or f"none: {facts.no_queue}",
    }


def _findings(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    """Rows of the doctor's checks; checks skipped for the same reason share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for each in findings:
        found = "; ".join(filter(None, (each.finding, each.cause)))
        key = (each.state, found if each.state == "skipped" else f"{each.check} {found}")
        rows.setdefault(key, [found]).append(each.check)
    return [(", ".join(checks), state, found) for (state, _), (found, *checks) in rows.items()]


def _print(
    guidelines: list[Guideline], summary: dict[str, Any], not_pinned: str, path: str
) -> None:
    report = Report()
    judged = [each for each in guidelines if each.verdict.state in {HOLDS, BROKEN}]
    report.table(
        [Column("guideline"), Column("here"), Column("because", folds=True, optional=1)],
        [[each.name, each.verdict.state, each.verdict.reason] for each in judged],
    )
    if untold := [each.name for each in guidelines if each not in judged]:
        report.say(f"{len(untold)} cannot be told here: {', '.join(untold)}.")
    report.say()
    if not_pinned:
        report.say(_NOT_PINNED.format(not_pinned), "yellow")
    ended = " It is partial: the measurement was stopped early." if summary["partial"] else ""
    report.say(
        f"The page is in {path}: {summary['figures']} figures, {summary['figures_measured']} of "
        f"them measured here, {len(guidelines)} guidelines.{ended}"
    )
