# SPDX-License-Identifier: Apache-2.0
"""Counts for ``headrace bench engine``: instructions, allocations, locks, without a clock."""

from collections.abc import Callable

from headrace_lab.commands.bench._measure import find_program, run_program

PROGRAM = "headrace-bench-engine"
TRIED = "count the instructions of the engine"
_COUNT = 640
"""Operations of a run, each of which traps some hundred times."""
# The mode that counts the device's part.
_DEVICE_OF: dict[str, str | None] = {
    "channel_copy": "device",
    "channel_batch32": "device_batch32",
    "job_copy": "device",
    "job_batch32": "device_batch32",
    "run_copy": None,
}


Counts = dict[str, dict[str, float]]
"""Cost of one engine operation, by kind and by the mode of the program."""


def count(share: Callable[[float], None]) -> tuple[Counts, dict[str, object]]:
    """Run the program in every mode; also return all results."""
    program = find_program(PROGRAM, TRIED)
    modes = [*_DEVICE_OF, *dict.fromkeys(of for of in _DEVICE_OF.values() if of is not None)]
    runs: dict[str, dict[str, int]] = {}
    for index, mode in enumerate(modes):
        runs[mode] = run_program([program, mode, str(_COUNT)], TRIED)
        share((index + 1) / len(modes))
    each = {mode: run["instructions"] / _COUNT for mode, run in runs.items()}
    counts = {
        "instructions": {
            mode: each[mode] - (0 if of is None else each[of]) for mode, of in _DEVICE_OF.items()
        },
        "allocations": {mode: runs[mode]["allocations"] / _COUNT for mode in _DEVICE_OF},
        "locked": {mode: runs[mode]["locked_instructions"] / _COUNT for mode in _DEVICE_OF},
        "mutexes": {mode: runs[mode]["mutexes_locked"] / _COUNT for mode in _DEVICE_OF},
    }
    return counts, {"instructions_per_operation": each, "runs": runs}
