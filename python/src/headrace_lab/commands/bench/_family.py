# SPDX-License-Identifier: Apache-2.0
"""The commands of the families; each family is a list of points for one program."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

import click

from headrace._apps.picture import matplotlib_defaults, save_picture
from headrace._cli._output import EXIT_OK, progress
from headrace._cli._report import Column, Report, figures
from headrace._files import Output
from headrace._signals import EndedBySignalError, noticed
from headrace.machine import Machine
from headrace_lab.commands.bench._measure import Outcome, benchmark, find_program
from headrace_lab.families import FAMILIES, measure
from headrace_lab.families.facts import gather_facts
from headrace_lab.families.measure import Outcome as Measured
from headrace_lab.families.picture import draw_panels, panels_of

ROUNDS = 7
_METHOD = """Memory is written and locked before the clock starts, threads are pinned and begin
    together, and the time is that of the slowest. Points take turns in every round. What this
    machine lacks is left out and named; figures of devices of 'headrace emulate' are marked."""


def family_command(name: str) -> click.Command:
    def command(rounds: int) -> Outcome:
        with (
            suppress(EndedBySignalError),  # What was measured by then is shown.
            progress(f"measuring {name}") as share,
            noticed() as noticed_signal,
        ):
            program = find_measuring_program()
            facts = gather_facts()
            found = measure.measure_family(name, facts, program, rounds, noticed_signal, share)
            number = noticed_signal()
        return Outcome(
            "family",
            rounds,
            results=found.document(),
            summary=summary_of(found),
            show=lambda report: _print(report, found, rounds),
            draw=lambda plot, machine: _draw(found, machine, plot),
            exit_code=128 + number if number else EXIT_OK,
        )

    example = f"Example: headrace bench {name} --json"
    command.__doc__ = f"{FAMILIES[name].summary}\n\n    {_METHOD}\n\n    {example}\n    "
    return benchmark(name, ROUNDS, "", plots=True)(command)


def find_measuring_program() -> str:
    return find_program(measure.PROGRAM, measure.TRIED)


def summary_of(outcome: Measured) -> Mapping[str, object]:
    def best(shown: Iterable[measure.Shown]) -> float | None:
        return max((each.figure.median for each in shown), default=None)

    rates = [each for each in outcome.shown if each.place.metric == "gb_per_s"]
    by_processor = [each for each in rates if "processor" in each.place.line]
    return {
        "figures": len(outcome.shown),
        "left_out": len(outcome.left_out),
        "emulated": outcome.emulated,
        "partial": outcome.partial,
        "memory_pinned": not outcome.not_pinned,
        "device_gb_per_s_best": best(each for each in rates if each not in by_processor),
        "processor_gb_per_s_best": best(by_processor),
    }


def _draw(outcome: Measured, machine: Machine, plot: Output) -> None:
    with matplotlib_defaults():
        emulated = " (devices are emulated)" if outcome.emulated else ""
        picture = draw_panels(
            panels_of(outcome.shown),
            f"headrace bench {outcome.family}{emulated}",
            f"{machine.cpu_model}; medians, whiskers: quartiles",
        )
        save_picture(picture, plot)


def _print(report: Report, outcome: Measured, rounds: int) -> None:
    if outcome.emulated:
        report.say(
            "The devices are emulated: their figures say nothing about real devices.", "bold"
        )
    groups: dict[tuple[str, str], list[measure.Shown]] = {}
    for each in outcome.shown:
        groups.setdefault((each.place.panel, measure.UNITS[each.place.metric]), []).append(each)
    for (panel, unit), members in groups.items():
        report.say()
        report.say(f"{unit}, {panel}", "bold")
        cells = {(each.line, each.place.x): _text(each) for each in members}
        lines = list(dict.fromkeys(line for line, _ in cells))
        ticks = list(dict.fromkeys(x for _, x in cells))
        rows = [[x, *(cells.get((line, x), "-") for line in lines)] for x in ticks]
        report.table([Column(""), *figures(*lines)], rows)
    if outcome.left_out:
        report.say()
        report.say("Left out", "bold")
        for absent in outcome.left_out:
            report.say(f"{absent.what}: {absent.why}", head="- ")
    report.say()
    if outcome.not_pinned:
        report.say(f"Memory is not locked: {outcome.not_pinned}; {measure.PIN_REMEDY}.", "yellow")
    partial = " Stopped early: not every point has all rounds." if outcome.partial else ""
    if rounds == 1:
        report.say(f"One round: use more --rounds for medians with quartiles.{partial}")
    else:
        report.say(f"Medians of {rounds} rounds, in brackets quartiles.{partial}")


def _text(shown: measure.Shown) -> str:
    figure, metric = shown.figure, shown.place.metric
    if len(shown.values) == 1:
        return measure.value_text(figure.median, metric)
    low, high = measure.value_text(figure.low, metric), measure.value_text(figure.high, metric)
    return f"{measure.value_text(figure.median, metric)} ({low}-{high})"
