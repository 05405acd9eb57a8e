# SPDX-License-Identifier: Apache-2.0
"""``headrace bench emulator``: speed of the emulated DSA, in this process and trapped."""

from headrace._apps.figures import Figure
from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace._words import counted
from headrace_lab.commands.bench import _measure

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


@_measure.benchmark("emulator", 15)
def command(rounds: int) -> _measure.Outcome:
    """Measure the emulated DSA: descriptors per second, and copies beside memcpy.

    The same method is used in two ways: by the portal of a device in the measuring process, and by
    a plain C client under 'headrace emulate', whose ENQCMD instructions are trapped. A round is
    20,000 no-ops one at a time (8 in flight), as many in batches of 32, and a batch of 32 copies of
    1 MiB taking turns with the same copies by memcpy.

    Example: headrace bench emulator --json
    """
    scale = [str(rounds), str(_NOOP_COUNT), str(_COPY_BYTES)]
    with progress("measuring the emulator") as share:
        inprocess = _times_of([_program("headrace-emulator-inprocess"), *scale])
        share(0.5)
        emulate = [_program("headrace-emulator"), "--wq", "shared", "--engines", "1", "--"]
        client = [_program("headrace-emulator-client"), _QUEUE_FILE, *scale]
        trapped = _times_of([*emulate, *client])
    ways = {"inprocess": _figures(inprocess), "trapped": _figures(trapped)}
    return _measure.Outcome(
        "emulator",
        rounds,
        results={
            "noop_count": _NOOP_COUNT,
            "copy_bytes": _COPY_BYTES,
            **{
                name: {
                    "series": {
                        key: _measure.times_document(times) for key, times in series.items()
                    },
                    "figures": _measure.documents_of(ways[name]),
                }
                for name, series in (("inprocess", inprocess), ("trapped", trapped))
            },
        },
        summary={
            "inprocess_noop_per_s": ways["inprocess"]["batched_per_s"].median,
            "inprocess_copy_vs_memcpy": ways["inprocess"]["copy_vs_memcpy"].median,
            "trapped_per_s": ways["trapped"]["single_per_s"].median,
            "trapped_copy_vs_memcpy": ways["trapped"]["copy_vs_memcpy"].median,
        },
        show=lambda report: _print_report(report, ways, rounds),
    )


def _program(name: str) -> str:
    remedy = "reinstall the package, with libfuse3-dev and libtomlplusplus-dev"
    return _measure.find_program(name, _TRIED, "_emulator", remedy)


def _times_of(command: list[str]) -> dict[str, _measure.Times]:
    times = _measure.run_program(command, _TRIED, late="please report it")
    return {name: times[key] for name, key in _SERIES.items()}


def _figures(series: dict[str, _measure.Times]) -> dict[str, Figure]:
    return {
        "single_per_s": _measure.rate_per_s(series["noop"]),
        "batched_per_s": _measure.rate_per_s(series["noop_batched"]),
        "copy_vs_memcpy": _measure.speed_ratio(series["copy_batch"], series["memcpy_batch"]),
    }


def _print_report(report: Report, ways: dict[str, dict[str, Figure]], round_count: int) -> None:
    names = {"inprocess": "in this process", "trapped": "trapped"}
    rows = {
        "single_per_s": "no-ops/s, singly",
        "batched_per_s": "no-ops/s, by 32",
        "copy_vs_memcpy": "copies / memcpy",
    }
    report.table(
        [Column(""), *figures(*(names[name] for name in ways))],
        [[label, *(way[key].text for way in ways.values())] for key, label in rows.items()],
    )
    report.say(
        f"Medians of {counted(round_count, 'round')}, in brackets the quartiles. By 32: in "
        "batches. Copies: speed of 32 x 1 MiB relative to memcpy, taking turns."
    )
