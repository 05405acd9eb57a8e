# SPDX-License-Identifier: Apache-2.0
"""What every subcommand prints in the same way: complaints, JSON documents, exit codes."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from headrace._signals import show_cursor, undone_at_signals

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_HARDWARE_ABSENT = 3


class WrongUseError(typer.BadParameter):
    """The command line is at fault: one sentence that names the option and what is allowed."""

    def __init__(self, subcommand: str, sentence: str) -> None:
        super().__init__(sentence)
        self.subcommand = subcommand


def complain(problem: object) -> None:
    """Print one sentence on stderr."""
    # Where nobody listens the exit code has to do.
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"headrace: {problem}", file=sys.stderr)  # noqa: T201


def print_document(
    name: str,
    version: int,
    *,
    machine: Mapping[str, object],
    results: object,
    summary: Mapping[str, object],
) -> None:
    """Print the document of ``--json``, the same shape for every subcommand.

    Args:
        name: Schema of `results`, for example "headrace-query".
        version: Version of that schema.
        machine: Record of the machine.
        results: Everything that was found out.
        summary: The figures one would quote, flat.
    """
    document = {
        "schema": {"name": name, "version": version},
        "machine": machine,
        "results": results,
        "summary": summary,
    }
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on stderr while the block runs, if that is a terminal; else nothing.

    Yields:
        What to tell the share that is done, 0 to 1.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    with undone_at_signals(show_cursor), bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)
