# SPDX-License-Identifier: Apache-2.0
"""Finds the length from which copies shared between processor and DSA beat the processor alone.

Method. Processes with the preload library copy buffers of growing lengths, hot and cold, with
`--path dsa` and `--path cpu` alternately; the figure is the ratio of their times. The result is the
smallest length from which on sharing gains at both temperatures at every longer length too: a
program does not state the temperature of its copies.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace._apps.tune import dsa_child as _dsa_child
from headrace._direct import preload_variable
from headrace._temporary import run_child
from headrace._trials import typical
from headrace.errors import IoFailedError

TEMPERATURES = ("hot", "cold")
GAIN_MIN = 0.03
"""Minimum gain by sharing."""
ROUNDS = 7
BYTES_MIN = 16 << 10
POOL_BYTES_MAX = 256 << 20
TIME_LIMIT_S = 120

Times = list[list[float]]
"""Nanoseconds of a copy for each length: [hot, cold]."""
Measure = Callable[[str, Sequence[int]], Times]
"""Measures a path once, at the given lengths."""


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


def lengths_up_to(bytes_max: int) -> list[int]:
    """The lengths to measure: powers of two."""
    return [1 << bits for bits in range(BYTES_MIN.bit_length() - 1, bytes_max.bit_length())]


def find_threshold(
    measure: Measure,
    lengths: Sequence[int],
    check_stop: Callable[[], None],
    progress: Callable[[float], None],
    rounds: int = ROUNDS,
) -> DsaFinding:
    """Compare the two paths at each length."""
    logs: dict[int, list[list[float]]] = {length: [[], []] for length in lengths}
    for index in range(rounds):
        times = {}
        # Alternate the order.
        for path in ("dsa", "cpu") if index % 2 else ("cpu", "dsa"):
            check_stop()
            times[path] = measure(path, lengths)
        for length, ours, theirs in zip(lengths, times["dsa"], times["cpu"], strict=True):
            for of_one, shared_ns, alone_ns in zip(logs[length], ours, theirs, strict=True):
                of_one.append(math.log(max(alone_ns, 1e-3) / max(shared_ns, 1e-3)))
        progress((index + 1) / rounds)
    ratios = {
        length: tuple(math.exp(typical(of_one)) for of_one in both) for length, both in logs.items()
    }
    bytes_min = None
    for length in reversed(lengths):
        if min(ratios[length]) < 1 + GAIN_MIN:
            break
        bytes_min = length
    return DsaFinding(bytes_min, ratios)


@dataclass(frozen=True, slots=True)
class ChildMeasure:
    """Measures in processes with the preload library.

    Attributes:
        pool_bytes: Size of the source pool and of the target pool; cold copies walk through both.
    """

    preload_path: Path
    profile: Path
    pool_bytes: int

    def __call__(self, path: str, lengths: Sequence[int]) -> Times:
        """Measure once.

        Raises:
            IoFailedError: The process failed.
        """
        environment = os.environ | {
            "LD_PRELOAD": preload_variable(
                str(self.preload_path), os.environ.get("LD_PRELOAD", "")
            ),
            "HEADRACE_PATH": path,
            "HEADRACE_MIN_BYTES": "4096",
            "HEADRACE_PROFILE": str(self.profile.absolute()),
        }
        words = [sys.executable, "-I", "-S", "-B", str(Path(_dsa_child.__file__).absolute())]
        words += map(str, (self.pool_bytes, *lengths))
        done = run_child(words, env=environment, timeout_s=TIME_LIMIT_S)
        if done.returncode != 0:
            raise IoFailedError(
                "measure copies shared with DSA",
                f"the process that copies ended with {done.returncode}",
                "try 'headrace run --path dsa -- true'",
            )
        times: Times = json.loads(done.stdout)
        return times


def pool_bytes(last_level_bytes: int, bytes_max: int) -> int:
    """Size of a pool: twice the last-level cache, at least two of the longest copies."""
    return max(min(2 * last_level_bytes, POOL_BYTES_MAX), 2 * bytes_max)
