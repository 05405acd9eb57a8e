# SPDX-License-Identifier: Apache-2.0
"""``headrace bench copy``: tuned copies as a program gets them, and as the library makes them."""

import os

from headrace import _core
from headrace._apps.picture import drawing
from headrace._apps.tune import door
from headrace._cli._options import FilePath, option, profile_option
from headrace._cli._output import progress
from headrace._cli._report import Report, figures
from headrace._cli.run import library_for
from headrace._files import Output
from headrace.machine import Machine
from headrace_lab.commands.bench._measure import Outcome, benchmark

_COLORS = {door.TUNED: "#4477aa", door.LIBRARY: "#ee7733", door.BESIDE: "#228833"}


_beside_option = option(
    "--beside",
    type=FilePath(),
    help="Also preload this library, such as another memcpy, and show it as a further column.",
)


@benchmark("copy", 7, "", profile_option, _beside_option, plots=True)
def command(profile: str | None, beside: str | None, rounds: int) -> Outcome:
    """Measure tuned copies as a program gets them, and as the library makes them.

    An ordinary C program calls memcpy, memmove, memset and memcmp through its PLT: lengths from
    16 B to 64 MiB, hot and at random places in 128 MiB, of one length (fixed) and of random lengths
    at any address (random). It runs without a preload, again without (the error of the
    measurement), with Headrace's, and with calls of the library's own functions (library): in a
    round once each, in random order. Times are processor times.

    Example: headrace bench copy --profile copy.json --plot copy.svg

    Example: headrace bench copy --beside ./libaocl-libmem.so --json
    """
    note = _use(profile)
    with progress("measuring copies in a program") as share:
        ways = door.ways_of(library_for(profile), profile, beside, library=True)
        program = door.measure(ways, rounds, share)
    return Outcome(
        "copy",
        rounds,
        results={"profile": note, "program": program.document()},
        summary=program.summary(),
        show=lambda report: _print_report(report, program, note, rounds),
        draw=lambda picture, machine: _draw(picture, program, machine, note),
    )


def _use(profile: str | None) -> str:
    """Check the profile; return a sentence about which one is used."""
    if profile is None:
        _, _, note = _core.use_default_copy_profile()
        return str(note)
    if profile == "none":
        return "copies use no profile"
    _core.use_copy_profile_file(os.fspath(profile))
    _core.use_no_copy_profile()
    return f"copies are tuned by the profile '{profile}'"


def _groups(program: door.Door, temperature: str) -> dict[int, list[door.Point]]:
    """The points of memcpy by length."""
    groups: dict[int, list[door.Point]] = {}
    for point in program.points:
        if (point.function, point.temperature) == ("memcpy", temperature):
            groups.setdefault(point.bytes_max, []).append(point)
    return groups


def _print_report(report: Report, program: door.Door, note: str, round_count: int) -> None:
    for temperature in ("hot", "memory"):
        rows = [
            [
                _core.bytes_text(bytes_max),
                f"{program.time_ns(door.GLIBC, *group):,.1f}",
                *(program.ratio(way, *group).text for way in program.ways),
            ]
            for bytes_max, group in _groups(program, temperature).items()
        ]
        report.table(figures(f"memcpy, {temperature}", "glibc, ns", *program.ways), rows)
    spelled = ", ".join(
        f"{name.replace('_', ' ')} {value:.2f}"
        for name, value in program.summary().items()
        if isinstance(value, float)
    )
    report.say(f"Speed relative to glibc's functions: {spelled}.")
    report.say(
        f"Medians of the ratios within {round_count} rounds, in brackets the quartiles; {note}."
    )


def _draw(output: Output, program: door.Door, machine: Machine, note: str) -> None:
    caption = f"length of the copy (bytes)\n{machine.cpu_model}; {note}; bands: quartiles"
    with drawing(output, "Copies", caption, (11, 4.5)) as picture:
        panels = picture.subplots(1, 2, sharey=True)
        for axis, temperature in zip(panels, ("hot", "memory"), strict=True):
            groups = _groups(program, temperature)
            for way in program.ways:
                ratios = [program.ratio(way, *group) for group in groups.values()]
                color = _COLORS.get(way, "#bbbbbb")
                axis.plot(list(groups), [each.median for each in ratios], color=color, label=way)
                lows, highs = [each.low for each in ratios], [each.high for each in ratios]
                axis.fill_between(list(groups), lows, highs, color=color, alpha=0.2, linewidth=0)
            axis.axhline(1.0, color="#555555", linewidth=1)
            axis.set_xscale("log", base=2)
            axis.set_title(temperature, fontsize=10)
        panels[0].legend(frameon=False)
        picture.supylabel("speed vs glibc's memcpy")
