# SPDX-License-Identifier: Apache-2.0
"""The command ``headrace``: what all subcommands have in common.

Exit codes: 0 ok, 1 failed, 2 usage, 3 hardware absent, 128 and the number of a signal.
"""

import os
from typing import Annotated

import typer

from headrace._cli._app import make_app, unfolded
from headrace._cli._output import (
    EXIT_FAILED,
    EXIT_HARDWARE_ABSENT,
    EXIT_OK,
    EXIT_USAGE,
    WrongUseError,
    complain,
)
from headrace._signals import EndedBySignalError
from headrace.errors import Error, HardwareAbsentError

SUMMARIES = {
    "topo": "Show the memory nodes of this machine, their tiers and distances, and the movers.",
    "doctor": "Check whether DSA can be used here; if not, show the cause and the remedy.",
    "dsa": "Show how the DSA devices are configured, or configure them.",
    "query": "Run TPC-H query 6 with prefetching and compare it with DuckDB.",
    "emulate": "Run CMD on emulated Intel DSA devices, as root or as any user.",
    "run": "Run CMD with its copies, fills and comparisons tuned to this machine.",
    "tune": "Find the fastest copy for each length on this machine and save it as a profile.",
    "sim": "Predict times on machines described in a file, and compare with published figures.",
    "bench": "Measure how fast the parts of Headrace are on this machine.",
    "pmem": "Use rings in persistent memory, and check that they survive a crash.",
}

app = make_app("headrace", __name__, SUMMARIES)


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Prefetch data into the memory where it will be used, by the mover that suits it best.

    Example: headrace query --scale-factor 1 --prefetch auto
    """
    if version:
        from headrace import __version__  # noqa: PLC0415 - Only this needs the extension.

        typer.echo(f"headrace {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        from headrace._cli._first import show  # noqa: PLC0415 - Only this needs the machine.

        show()


if app.registered_callback is not None:
    app.registered_callback.help = unfolded(_root)


def run_command_line() -> int:
    """Run the command line; every error of ours is one sentence on stderr.

    Returns:
        The exit code.
    """
    try:
        return _called()
    except WrongUseError as error:
        complain(f"{error.message}; see 'headrace {error.subcommand} --help'")
        return EXIT_USAGE
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "headrace"
        complain(f"{error.format_message().rstrip('.')}; see '{command} --help'")
        return EXIT_USAGE
    except EndedBySignalError as ended:
        return ended.exit_code


def _called() -> int:
    try:
        code = app(prog_name="headrace", standalone_mode=False)
    except BrokenPipeError:
        return EXIT_FAILED
    except Error as error:
        complain(error)
        return EXIT_HARDWARE_ABSENT if isinstance(error, HardwareAbsentError) else EXIT_FAILED
    except OSError as problem:
        name = f" '{os.fsdecode(problem.filename)}'" if problem.filename is not None else ""
        complain(f"cannot use{name or ' a file'}: {os.strerror(problem.errno or 0)}")
        return EXIT_FAILED
    return code if isinstance(code, int) else EXIT_OK
