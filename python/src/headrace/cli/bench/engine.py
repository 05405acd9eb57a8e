# SPDX-License-Identifier: Apache-2.0
"""``headrace bench engine``: instructions of the engine for an operation on a device."""

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from headrace import _core
from headrace.cli._output import print_document, progress
from headrace.cli.bench._measure import Figure, JsonOption, PlotOption, draw_figures, parse_plot
from headrace.errors import Error, NotFoundError
from headrace.machine import topo

SUBCOMMAND = "bench engine"
SCHEMA_NAME = "headrace-bench-engine"
SCHEMA_VERSION = 1

_PROGRAM = "headrace-bench-engine"
_TRIED = "count the instructions of the engine"
_TIME_LIMIT_S = 600
# Starting takes some thousand instructions more or less each time, which so many operations drown.
_COUNT_LESS, _COUNT_MORE = 3_200, 67_200
_MODES = {
    "channel_copy": "device",
    "job_copy": "device",
    "channel_batch32": "device_batch32",
    "job_batch32": "device_batch32",
    "job_coalesced32": "device_batch32",
}
_SUMMARY = {
    "instructions_submit_copy": "channel_copy",
    "instructions_per_op_batch32": "channel_batch32",
    "instructions_submit_copy_job": "job_copy",
    "instructions_per_op_batch32_job": "job_batch32",
    "instructions_per_op_coalesced32": "job_coalesced32",
}
_LABELS = {
    "instructions_submit_copy": "a copy by a channel: submit_copy and poll",
    "instructions_per_op_batch32": "a copy in a batch of 32 by a channel",
    "instructions_submit_copy_job": "a copy by a job: submit_copy and poll",
    "instructions_per_op_batch32_job": "a copy in a batch of 32 by a job",
    "instructions_per_op_coalesced32": "a copy by a job of its own, 32 coalesced",
}


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run of the program counted."""

    instructions: int
    allocations: int


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("engine")(engine)


def engine(plot: PlotOption = None, as_json: JsonOption = False) -> None:
    """Count the instructions that the engine itself takes for an operation on a device.

    The device costs nothing but a few instructions, which are counted apart and taken away. Counted
    is by valgrind, so the figures do not depend on what else this machine does.

    Example: headrace bench engine --json
    """
    picture = parse_plot(SUBCOMMAND, plot)
    programs = _programs()
    modes = [*_MODES, *dict.fromkeys(_MODES.values())]
    runs: dict[str, tuple[_Run, _Run]] = {}
    with progress("counting instructions") as share:
        for index, mode in enumerate(modes):
            runs[mode] = (
                _run(*programs, mode, _COUNT_LESS),
                _run(*programs, mode, _COUNT_MORE),
            )
            share((index + 1) / len(modes))
    each = {mode: _per_operation(*pair) for mode, pair in runs.items()}
    figures = {name: each[mode] - each[_MODES[mode]] for name, mode in _SUMMARY.items()}
    allocations = max(more.allocations / _COUNT_MORE for _, more in runs.values())
    machine = topo()
    if picture is not None:
        drawn = {
            name.removeprefix("instructions_").replace("_", "\n"): Figure(value, value, value)
            for name, value in figures.items()
        }
        caption = f"{machine.cpu_model}; counted by valgrind, the device taken away"
        draw_figures(picture, "The engine's own instructions", caption, {"instructions": drawn})
    if as_json:
        print_document(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            machine=machine.document,
            results={
                "instructions_per_operation": each,
                "runs": {
                    mode: [
                        {
                            "operations": count,
                            "instructions": run.instructions,
                            "allocations": run.allocations,
                        }
                        for count, run in zip((_COUNT_LESS, _COUNT_MORE), pair, strict=True)
                    ]
                    for mode, pair in runs.items()
                },
            },
            summary={**figures, "allocations_per_op": allocations},
        )
        return
    _print_report(figures, allocations)


def _programs() -> tuple[str, str]:
    path = Path(_core.__file__ or "").parent / "_bench" / _PROGRAM
    if not path.exists():
        raise NotFoundError(_TRIED, f"'{path}' is not there", "install the package anew")
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotFoundError(_TRIED, "valgrind is not installed", "install the package valgrind")
    return valgrind, str(path)


def _run(valgrind: str, program: str, mode: str, count: int) -> _Run:
    with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
        out = f"--callgrind-out-file={directory}/out"
        try:
            # Our own program, with arguments of our own.
            done = subprocess.run(  # noqa: S603
                [valgrind, "--tool=callgrind", out, program, mode, str(count)],
                capture_output=True,
                text=True,
                timeout=_TIME_LIMIT_S,
                check=False,
            )
        except OSError as problem:
            raise Error(
                _TRIED, f"{valgrind} does not start", "install it anew", problem.errno or 0
            ) from problem
        except subprocess.TimeoutExpired as problem:
            cause = f"{program} did not end within {_TIME_LIMIT_S} s"
            raise Error(_TRIED, cause, "try again when the machine has less to do") from problem
    counted = re.search(r"Collected *: *(\d+)", done.stderr)
    if done.returncode != 0 or counted is None:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise Error(_TRIED, f"valgrind failed: {last}")
    return _Run(int(counted[1]), json.loads(done.stdout)["allocations"])


def _per_operation(less: _Run, more: _Run) -> float:
    return (more.instructions - less.instructions) / (_COUNT_MORE - _COUNT_LESS)


def _print_report(figures: dict[str, float], allocations: float) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right", no_wrap=True)
    for name, value in figures.items():
        table.add_row(_LABELS[name], f"{value:.0f} instructions")
    table.add_row("allocations for an operation", f"{allocations:g}")
    console.print(table)
    console.print(
        "Of 4 KiB each, from submission to the completion seen; without the device's own."
    )
