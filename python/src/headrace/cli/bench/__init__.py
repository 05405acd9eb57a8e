# SPDX-License-Identifier: Apache-2.0
"""``headrace bench``: the microbenchmarks.

A benchmark is a module of this package without leading underscore that has a function
``register(bench)``; it appears by being there. What they share is in ``_measure``.
"""

import importlib
import pkgutil

import typer

from headrace.cli._output import EXIT_USAGE

bench = typer.Typer(
    name="bench",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@bench.callback()
def _root(context: typer.Context) -> None:
    """Measure how fast the parts of Headrace are on this machine.

    Example: headrace bench emulator --json
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_USAGE)


for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}").register(bench)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(bench, name="bench")
