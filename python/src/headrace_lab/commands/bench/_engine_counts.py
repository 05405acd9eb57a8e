# SPDX-License-Identifier: Apache-2.0
"""Counts for ``headrace bench engine``: instructions, allocations, locks, without a clock."""

import json
import re
import shutil
from collections.abc import Callable

from headrace._temporary import run_to_end, temporary_folder
from headrace.errors import Error, NotFoundError
from headrace_lab.commands.bench._measure import find_program, run_program

PROGRAM = "headrace-bench-engine"
TRIED = "count the instructions of the engine"
REMEDY = "reinstall the package"
_TIME_LIMIT_S = 600
# Only this function is counted; the difference of two runs cancels its one-time work.
_COUNTED = "--toggle-collect=headrace_bench_counted"
_COUNT_LESS, _COUNT_MORE = 320, 6_720
# Each operation traps some hundred times.
_COUNT_STEPPED = 640
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
    """Run the program in every mode, under valgrind and single-stepped; also return all results."""
    program = find_program(PROGRAM, TRIED)
    modes = [*_DEVICE_OF, *dict.fromkeys(of for of in _DEVICE_OF.values() if of is not None)]
    runs: dict[str, list[dict[str, int]]] = {}
    stepped: dict[str, dict[str, int]] = {}
    for index, mode in enumerate(modes):
        runs[mode] = [_run(program, mode, each) for each in (_COUNT_LESS, _COUNT_MORE)]
        stepped[mode] = run_program([program, mode, str(_COUNT_STEPPED), "step"], TRIED)
        share((index + 1) / len(modes))
    each = {
        mode: (more["instructions"] - less["instructions"]) / (_COUNT_MORE - _COUNT_LESS)
        for mode, (less, more) in runs.items()
    }
    counts = {
        "instructions": {
            mode: each[mode] - (0 if of is None else each[of]) for mode, of in _DEVICE_OF.items()
        },
        "allocations": {mode: runs[mode][1]["allocations"] / _COUNT_MORE for mode in _DEVICE_OF},
        "locked": {m: stepped[m]["locked_instructions"] / _COUNT_STEPPED for m in _DEVICE_OF},
        "mutexes": {mode: stepped[mode]["mutexes_locked"] / _COUNT_STEPPED for mode in _DEVICE_OF},
    }
    return counts, {"instructions_per_operation": each, "runs": runs, "stepped": stepped}


def count_instructions(command: list[str], *, tried: str) -> tuple[int, str]:
    """Count the instructions of `headrace_bench_counted`; return them and the program's output."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotFoundError(tried, "valgrind is not installed", "install the package valgrind")
    with temporary_folder("headrace-") as directory:
        out = f"--callgrind-out-file={directory}/out"
        words = [valgrind, "--tool=callgrind", out, _COUNTED, *command]
        done = run_to_end(words, tried, "try again when the machine has less to do", _TIME_LIMIT_S)
    counted = re.search(r"Collected *: *(\d+)", done.stderr)
    if counted is None or int(counted[1]) == 0:
        raise Error(tried, f"valgrind does not see the counted part of {command[0]}", REMEDY)
    return int(counted[1]), done.stdout


def _run(program: str, mode: str, operations: int) -> dict[str, int]:
    command = [program, mode, str(operations)]
    instructions, output = count_instructions(command, tried=TRIED)
    allocations = json.loads(output)["allocations"]
    return {"operations": operations, "instructions": instructions, "allocations": allocations}
