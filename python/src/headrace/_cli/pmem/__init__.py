# SPDX-License-Identifier: Apache-2.0
"""``headrace pmem``: rings in persistent memory, and the check that they survive a crash.

A subcommand is a module of this package without leading underscore that has a function
``register(pmem)``; it appears by being there.
"""

import importlib
import pkgutil

import typer

from headrace._cli._output import EXIT_USAGE

pmem = typer.Typer(
    name="pmem",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@pmem.callback()
def _root(context: typer.Context) -> None:
    """Use rings in persistent memory, and check that they survive a crash at any instruction.

    Example: headrace pmem check --variant optimised
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_USAGE)


for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}").register(pmem)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(pmem, name="pmem")
