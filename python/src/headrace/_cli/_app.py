# SPDX-License-Identifier: Apache-2.0
"""What the command and its groups of subcommands have in common as Typer applications."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any

import typer

from headrace._cli._output import EXIT_USAGE


def make_app(name: str) -> typer.Typer:
    """Make the command of that name; alone it is not complete: see `needs_subcommand`."""
    return typer.Typer(
        name=name,
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )


def needs_subcommand(context: typer.Context) -> None:
    """Show what there is to somebody who named no subcommand."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_USAGE)


def add_modules(app: typer.Typer, package: str, path: Iterable[str]) -> None:
    """Call ``register(app)`` of every module of a package without leading underscore."""
    for module in pkgutil.iter_modules(path):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package}.{module.name}").register(app)


def unfold_help(app: typer.Typer) -> None:
    """Let every paragraph of help be folded where the terminal ends, not where its source does."""
    infos: list[Any] = [*app.registered_commands]
    if app.registered_callback is not None:
        infos.append(app.registered_callback)
    for info in infos:
        if info.callback is not None:
            info.help = _unfolded(info.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            unfold_help(group.typer_instance)


def _unfolded(callback: Callable[..., Any]) -> str:
    paragraphs = (inspect.getdoc(callback) or "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)
