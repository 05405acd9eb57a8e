# SPDX-License-Identifier: Apache-2.0
"""What every subcommand prints in the same way: complaints, JSON documents, exit codes."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import typer

from headrace._files import Output
from headrace._signals import show_cursor, undone_at_signals
from headrace.errors import Error, InvalidArgumentError

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
    # Without stderr the exit code is all there is.
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"headrace: {problem}", file=sys.stderr)  # noqa: T201


def check_path(subcommand: str, option: str, text: str | None) -> None:
    """Refuse what is no path."""
    if text is not None and (not text or "\0" in text):
        message = f"{option}: {text!r} is no path; give one, or leave the option out"
        raise WrongUseError(subcommand, message)


def open_output(subcommand: str, option: str, text: str, tried: str) -> Output:
    """Open the file of an option before the work whose result it takes.

    Raises:
        WrongUseError: It is no file.
        Error: It cannot be written.
    """
    check_path(subcommand, option, text)
    try:
        return Output(text, tried)
    except InvalidArgumentError as error:
        raise WrongUseError(subcommand, _about(option, text, error)) from error


def parse_picture(subcommand: str, text: str, subject: str) -> Output:
    """Open what --plot names, before anything is measured.

    Raises:
        WrongUseError: It is no picture, or it cannot be written.
    """
    from headrace._apps.picture import open_picture  # noqa: PLC0415 - Few commands draw.

    check_path(subcommand, "--plot", text)
    try:
        return open_picture(text, subject)
    except Error as error:
        raise WrongUseError(subcommand, _about("--plot", text, error)) from error


def refuse_two_on_stdout(subcommand: str, option: str, output: Output, *, as_json: bool) -> None:
    """Refuse a file that is stdout beside --json: what comes out would be no document."""
    if output.is_stdout and as_json:
        message = f"{option}: '{output.path}' is stdout, and so is --json; name a file"
        raise WrongUseError(subcommand, message)


def _about(option: str, text: str, error: Error) -> str:
    system = f" ({os.strerror(error.os_errno)})" if error.os_errno else ""
    return f"{option}: '{text}': {error.cause}{system}; {error.remedy}"


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
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _share: None
        return
    # Loading it takes as long as all that a short command does.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    with undone_at_signals(show_cursor), bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)
