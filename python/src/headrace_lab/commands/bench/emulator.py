# SPDX-License-Identifier: Apache-2.0
"""``headrace bench emulator``: speed of the emulated DSA, in this process and trapped."""

from dataclasses import dataclass
from typing import Any

from headrace._apps.figures import Figure
from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace._words import counted
from headrace_lab.commands.bench._measure import (
    Outcome,
    Series,
    benchmark,
    find_program,
    rate_per_s,
    run_program,
    speed_ratio,
)

_TRIED = "measure the emulator"
_NOOP_COUNT = 20_000
_COPY_BYTES = 1 << 20
_QUEUE_FILE = "/dev/dsa/wq0.0"


_SERIES = {
    "noop": "noop_ns",
    "noop_batched": "noop_batched_ns",
    "copy_batch": "copy_ns",
    "memcpy_batch": "memcpy_ns",
}
"""Series in the JSON document, by their names in the output of the programs."""


@dataclass(frozen=True)
class Way:
    """Measurements of one of the two ways to reach the device."""

    series: dict[str, Series]

    @property
    def figures(self) -> dict[str, Figure]:
        """The figures by name: rates in descriptors/s, and a ratio of speeds."""
        return {
            "single_per_s": rate_per_s(self.series["noop"]),
            "batched_per_s": rate_per_s(self.series["noop_batched"]),
            "copy_vs_memcpy": speed_ratio(self.series["copy_batch"], self.series["memcpy_batch"]),
        }

    def document(self) -> dict[str, Any]:
        return {
            "series": {name: times.document() for name, times in self.series.items()},
            "figures": {name: figure.document() for name, figure in self.figures.items()},
        }


@benchmark("emulator", 15)
def command(rounds: int) -> Outcome:
    """Measure the emulated DSA: descriptors per second, and copies beside memcpy.

    The same method is used in two ways: by the portal of a device in the measuring process, and by
    a plain C client under 'headrace emulate', whose ENQCMD instructions are trapped. A round is
    20,000 no-ops one at a time (8 in flight), as many in batches of 32, and a batch of 32 copies of
    1 MiB taking turns with the same copies by memcpy.

    Example: headrace bench emulator --json
    """
    scale = [str(rounds), str(_NOOP_COUNT), str(_COPY_BYTES)]
    with progress("measuring the emulator") as share:
        inprocess = _measure([_program("headrace-emulator-inprocess"), *scale])
        share(0.5)
        emulate = [_program("headrace-emulator"), "--wq", "shared", "--engines", "1", "--"]
        client = [_program("headrace-emulator-client"), _QUEUE_FILE, *scale]
        trapped = _measure([*emulate, *client])
    ways = {"inprocess": inprocess, "trapped": trapped}
    return Outcome(
        "emulator",
        rounds,
        results={
            "noop_count": _NOOP_COUNT,
            "copy_bytes": _COPY_BYTES,
            **{name: way.document() for name, way in ways.items()},
        },
        summary={
            "inprocess_noop_per_s": inprocess.figures["batched_per_s"].median,
            "inprocess_copy_vs_memcpy": inprocess.figures["copy_vs_memcpy"].median,
            "trapped_per_s": trapped.figures["single_per_s"].median,
            "trapped_copy_vs_memcpy": trapped.figures["copy_vs_memcpy"].median,
        },
        show=lambda report: _print_report(report, ways, rounds),
    )


def _program(name: str) -> str:
    remedy = "reinstall the package, with libfuse3-dev and libtomlplusplus-dev"
    return find_program(name, _TRIED, "_emulator", remedy)


def _measure(command: list[str]) -> Way:
    times = run_program(command, _TRIED, late="please report it")
    return Way({name: Series(times[key]) for name, key in _SERIES.items()})


def _print_report(report: Report, ways: dict[str, Way], round_count: int) -> None:
    names = {"inprocess": "in this process", "trapped": "trapped"}
    rows = {
        "single_per_s": "no-ops/s, singly",
        "batched_per_s": "no-ops/s, by 32",
        "copy_vs_memcpy": "copies / memcpy",
    }
    report.table(
        [Column(""), *figures(*(names[name] for name in ways))],
        [[label, *(way.figures[key].text for way in ways.values())] for key, label in rows.items()],
    )
    report.say(
        f"Medians of {counted(round_count, 'round')}, in brackets the quartiles. By 32: in "
        "batches. Copies: speed of 32 x 1 MiB relative to memcpy, taking turns."
    )
