# SPDX-License-Identifier: Apache-2.0
"""Output of ``headrace tune``: text, JSON and picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._apps.tune.kernels import KernelChoice, documents_of
from headrace._apps.tune.search import LIBC, PAIR, Choice
from headrace._apps.tune.table import table_of
from headrace._apps.tune.tuner import Settings, Tuning
from headrace._cli._report import Column, Report, figures

LEFT_OUT = (
    "Not in the grid: numbers between those it has; prefetches where the loop is aligned to"
    " nothing, but for string moves; pages touched with several streams or string moves, and of"
    " the source alone."
)
"""Parts of the search space that no search covers."""


def grid_of(choices: Sequence[Choice]) -> dict[str, list[int]]:
    """Values of each parameter in the grid of the longest class, which has all of them."""
    numbers: dict[str, set[int]] = {}
    for variant in _core.copy_variants(max((c.bytes_max for c in choices), default=0) // 2 + 1):
        _, _, _, prefetch, block, _, _, streams, *_ = variant.split(" ")
        found = {"block_lines": block.partition("=")[2], "streams": streams.partition("=")[2]}
        if ":" in prefetch:
            lines, _, distance = prefetch.partition(":")[2].partition("@")
            found["prefetch_lines"] = lines
            found["prefetch_distance_lines"] = distance.removesuffix("+target")
        for name, number in found.items():
            numbers.setdefault(name, set()).add(int(number))
    return {name: sorted(values) for name, values in numbers.items()}


def summary_of(profile: dict[str, Any]) -> dict[str, object]:
    made = profile.get("made", {})
    tuned = [each for each in profile["classes"] if each.get("variant") or each.get("cold_variant")]
    return {
        "seconds": made.get("seconds", 0.0),
        "classes": len(profile["classes"]),
        "classes_tuned": len(tuned),
        "complete": made.get("complete", False),
        "others_share": made.get("others_share"),
    }


def results_of(
    tuning: Tuning, settings: Settings, profile: dict[str, Any], path: str
) -> dict[str, object]:
    return {
        "profile": path,
        "table": table_of(profile["classes"]),
        "thread_count": settings.thread_count,
        "seed": settings.seed,
        "choices": [
            {key: each[key] for key in each if key != "measured"} | each["measured"]
            for each in profile["classes"]
        ],
        "grid": {**grid_of(tuning.choices), "left_out": LEFT_OUT},
        "dsa_bytes_min": None if tuning.dsa is None else tuning.dsa.bytes_min,
        "dsa": [] if tuning.dsa is None else tuning.dsa.document,
        **documents_of(tuning.kernels),
    }


def print_report(tuning: Tuning, profile: Path | None) -> None:
    report = Report()
    report.say(f"Copies tuned to {_core.copy_machine_text()}")
    report.table(_COLUMNS, [row for choice in tuning.choices for row in _rows(choice)])
    report.say(
        "RT register, ST store (T temporal, NT not), PT prefetch (+w: the target too), PS lines at "
        "once, PD lines ahead."
    )
    report.say(
        "hot, cold, all: speed vs memmove, medians, all over every condition; sure: that it is "
        "faster than memmove; best: that no other of the last few is faster. A second line of a "
        "length serves bytes that are not in the caches."
    )
    for sentence in [*_conditions(tuning.choices), *_findings(tuning)]:
        report.say(sentence)
    if tuning.stopped:
        report.say("Stopped early: lengths without a line are memmove's.")
    if profile is not None:
        report.say(f"The profile is in {profile}.")


def print_table(rows: Sequence[dict[str, Any]], profile: Path) -> None:
    report = Report()
    columns = [
        Column("up to", right=True),
        Column("here", folds=True),
        *figures("GB/s hot", "GB/s cold", "gain"),
        Column("Asterope, Xeon Gold 5218", folds=True),
        *figures("GB/s"),
    ]
    report.table(columns, [_table_cells(row) for row in rows])
    report.say(f"The profile is {profile}. gain: speed vs memmove, over all conditions.")
    report.say("Asterope does not state the unit of its prefetches; lines are assumed.")
    for row in rows:
        if row["asterope_absent"]:
            length = _core.bytes_text(row["bytes_max"])
            report.say(
                f"Asterope's copy up to {length} cannot be generated: {row['asterope_absent']}."
            )


def _table_cells(row: dict[str, Any]) -> list[str]:
    def rate(name: str) -> str:
        return "" if row[name] is None else f"{row[name] / 1e9:.2f}"

    cold = "" if row["cold_variant"] is None else f"; cold: {row['cold_variant']}"
    return [
        _core.bytes_text(row["bytes_max"]),
        ("memmove" if row["variant"] == LIBC else row["variant"]) + cold,
        rate("bytes_per_s_hot"),
        rate("bytes_per_s_cold"),
        "" if row["gain"] is None else f"{row['gain']:.2f}",
        row["asterope_variant"] or "",
        rate("asterope_bytes_per_s"),
    ]


_COLUMNS = (
    Column("up to", right=True),
    Column("RT"),
    Column("ST"),
    Column("PT", optional=3),
    Column("PS", optional=3),
    Column("PD", optional=3),
    Column("shape", folds=True, optional=2),
    *figures("GB/s cold", "hot", "cold", "all"),
    Column("sure", right=True, optional=1),
    Column("best", right=True, optional=1),
)


def _findings(tuning: Tuning) -> list[str]:
    """Further results and conditions, as sentences."""
    sentences = []
    if tuning.dsa is not None:
        least = tuning.dsa.bytes_min
        sentences.append(
            "Copies shared with DSA pay nowhere."
            if least is None
            else f"Copies shared with DSA pay from {_core.bytes_text(least)} on."
        )
    if tuning.kernels is not None:
        sentences += [_kernels_text(*each) for each in tuning.kernels.items()]
    tried = sum(choice.tried_count for choice in tuning.choices)
    there = sum(choice.variant_count for choice in tuning.choices)
    sentences.append(
        f"{tried} of {there} variants were measured in {tuning.seconds:.0f} s; "
        f"{there - tried} were not tried. {LEFT_OUT}"
    )
    return sentences


def _conditions(choices: Sequence[Choice]) -> list[str]:
    """Conditions that were not measured for every length, as sentences."""
    measured_ones = [choice for choice in choices if choice.ratios]
    sentences = []
    for name in dict.fromkeys(name for choice in measured_ones for name in choice.ratios):
        ends = [choice.bytes_max for choice in measured_ones if name in choice.ratios]
        if len(ends) < len(measured_ones):
            sentences.append(f"Measured up to {_core.bytes_text(max(ends))} only: {name}.")
    return sentences


def _kernels_text(kind: str, choices: Sequence[KernelChoice]) -> str:
    """The kernels for fills or comparisons, as a sentence."""
    chosen = [
        f"up to {_core.bytes_text(each.bytes_max)} {each.kernel} ({each.ratio:.2f})"
        for each in choices
        if each.kernel is not None
    ]
    libc = "memset" if kind == "fills" else "memcmp"
    if not chosen:
        return f"{kind.capitalize()} stay {libc}'s: no kernel is faster."
    return f"{kind.capitalize()}: {', '.join(chosen)}; all others {libc}'s."


def _rows(choice: Choice) -> list[list[str]]:
    """One line, or two if cold targets have a separate variant."""
    sizes = _core.bytes_text(choice.bytes_max)
    if choice.best is None:
        return [[sizes, "memmove", *[""] * 11]]
    confidences = (choice.confidence, choice.confidence_best)
    speeds = [
        f"{choice.bytes_per_s_cold / 1e9:.1f}",
        *(f"{choice.ratios[f'{temperature} random'][0]:.2f}" for temperature in ("hot", "cold")),
        f"{choice.ratio:.2f}",
        # Confidences of a variant that was not chosen would contradict the line.
        *(f"{each:.0%}" if choice.variant else "-" for each in confidences),
    ]
    if choice.variant is None:
        return [[sizes, "memmove", *[""] * 4, choice.reason, *speeds]]
    warm, _, cold = choice.variant.partition(PAIR)
    rows = [[sizes, *_parameters(warm), *speeds]]
    return [*rows, ["  cold", *_parameters(cold), *[""] * 6]] if cold else rows


def _parameters(variant: str) -> list[str]:
    if variant == LIBC:
        return ["memmove", *[""] * 5]
    through, _, store, prefetch, block, align, _, streams, *touch = variant.split(" ")
    kind, _, rest = prefetch.removeprefix("prefetch=").partition(":")
    numbers, _, target = rest.partition("+")
    lines, _, distance = numbers.partition("@")
    shape = [f"block {block.removeprefix('block=')}"]
    if align != "align=target":
        shape.append("unaligned")
    if streams != "streams=1":
        shape.append(f"{streams.removeprefix('streams=')} pages")
    if touch:
        shape.append("touch " + touch[0].removeprefix("touch="))
    return [
        through,
        store.removeprefix("store=").upper(),
        kind + ("+w" if target else ""),
        lines,
        distance,
        ", ".join(shape),
    ]
