# SPDX-License-Identifier: Apache-2.0
"""The command ``headrace``: what all subcommands have in common.

A subcommand is a module of this package without leading underscore that has a function
``register(app)``; it appears by being there. What the modules share is in ``_output``.

Exit codes: 0 ok, 1 failed, 2 usage, 3 hardware absent, 128 and the number of a signal.
"""

from typing import Annotated

import typer

from headrace import __version__
from headrace._cli._app import add_modules, make_app, needs_subcommand, unfold_help
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

app = make_app("headrace")


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Prefetch data into the memory where it will be wanted, by whatever moves it best.

    Example: headrace query --scale-factor 1 --prefetch auto
    """
    if version:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit
    needs_subcommand(context)


add_modules(app, __name__, __path__)
unfold_help(app)


def run() -> int:
    """Run the command line; every error of ours is one sentence on stderr.

    Returns:
        The exit code.
    """
    try:
        code = app(prog_name="headrace", standalone_mode=False)
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
    except HardwareAbsentError as error:
        complain(error)
        return EXIT_HARDWARE_ABSENT
    except Error as error:
        complain(error)
        return EXIT_FAILED
    return code if isinstance(code, int) else EXIT_OK
