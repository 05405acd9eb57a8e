# SPDX-License-Identifier: Apache-2.0
"""Output common to all subcommands: errors, JSON documents, exit codes."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click

from headrace._signals import show_cursor, undone_at_signals

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_HARDWARE_ABSENT = 3
_STEPS = 1000
"""Of a progress bar."""


def complain(problem: object) -> None:
    # Without stderr only the exit code reports the error.
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"headrace: {problem}", file=sys.stderr)  # noqa: T201


def schema_of(name: str) -> dict[str, Any]:
    """The installed JSON schema of a command's document, such as "query" or "bench-cache"."""
    path = Path(__file__).parent.parent / "schemas" / f"{name}.json"
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


def print_document(
    name: str, *, machine: Mapping[str, object], results: object, summary: Mapping[str, object]
) -> None:
    """Print the document of ``--json``, which has the same structure for every subcommand."""
    named = schema_of(name)["properties"]["schema"]["properties"]
    document = {
        "schema": {key: value["const"] for key, value in named.items()},
        "machine": machine,
        "results": results,
        "summary": summary,
    }
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def live_stdout() -> TextIO:
    """Return the output of a command that runs until it is interrupted.

    `sys.stdout` may collect output until the end, which such a command never reaches.
    """
    return sys.__stdout__ or sys.stdout


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """Show progress on a terminal while the block runs; call the result with the share done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _share: None
        return
    bar = click.progressbar(length=_STEPS, label=what, file=sys.stderr)
    with undone_at_signals(show_cursor), bar:
        yield lambda share: bar.update(round(share * _STEPS) - bar.pos)
    # click leaves the bar behind.
    sys.stderr.write("\x1b[A\x1b[2K")
