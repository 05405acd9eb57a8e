# SPDX-License-Identifier: Apache-2.0
"""Finds the length from which copies shared between processor and DSA beat the processor alone.

Method. That of `door`, by elapsed time: an ordinary program copies with `--path dsa` and with
`--path cpu`, lengths in powers of two, hot and from memory. The result is the smallest length from
which on sharing gains at both temperatures at every longer length too: a program does not state the
temperature of its copies.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace._apps.tune.door import GLIBC, TUNED, Door, Point, measure
from headrace._direct import preload_variable

TEMPERATURES = {"hot": "hot", "cold": "memory"}
"""Names in the report, and those of the program."""
GAIN_MIN = 0.03
"""Minimum gain by sharing."""
ROUNDS = 7
BYTES_MIN = 16 << 10


@dataclass(frozen=True, slots=True)
class DsaFinding:
    """The result of the comparison.

    Attributes:
        bytes_min: Length from which sharing pays; None if it never does.
        ratios: Speed of the shared copy relative to the processor's, for each length: hot, cold.
    """

    bytes_min: int | None
    ratios: dict[int, tuple[float, ...]]

    @property
    def document(self) -> list[dict[str, float]]:
        return [
            {"bytes": length, **dict(zip(TEMPERATURES, ratios, strict=True))}
            for length, ratios in self.ratios.items()
        ]


def measure_paths(
    library: Path, profile: Path, bytes_max: int, progress: Callable[[float], None]
) -> Door:
    """Time copies by processors, as `GLIBC`, and copies shared with DSA, as `TUNED`."""
    preload = preload_variable(str(library), os.environ.get("LD_PRELOAD", ""))
    given = {
        "LD_PRELOAD": preload,
        "HEADRACE_MIN_BYTES": "4096",
        "HEADRACE_PROFILE": str(profile.absolute()),
    }
    ways = {way: given | {"HEADRACE_PATH": path} for way, path in ((GLIBC, "cpu"), (TUNED, "dsa"))}
    return measure(
        ways, ROUNDS, progress, bytes_max=bytes_max, functions=["memcpy"], clock="elapsed"
    )


def finding_of(program: Door) -> DsaFinding:
    """Compare the two paths at each length."""
    ratios = {
        length: tuple(
            program.ratio(TUNED, Point("memcpy", length, temperature, "fixed")).median
            for temperature in TEMPERATURES.values()
        )
        for length in program.lengths
        if length >= BYTES_MIN
    }
    bytes_min = None
    for length in reversed(ratios):
        if min(ratios[length]) < 1 + GAIN_MIN:
            break
        bytes_min = length
    return DsaFinding(bytes_min, ratios)
