# SPDX-License-Identifier: Apache-2.0
"""Groups of subcommands that are imported when they are called, and help in plain text.

A subcommand is a module of its group's package that has a function ``register(app)``. Its group
names it with the first sentence of its help, so that the help of a group imports none of them.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import typer
import typer.core
import typer.main

from headrace._cli._output import EXIT_USAGE

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def make_app(
    name: str, package: str = "", summaries: Mapping[str, str] | None = None
) -> typer.Typer:
    """Make a command that has subcommands; alone it is not complete: see `needs_subcommand`.

    Args:
        name: Of the command.
        package: Where the modules of the subcommands are; empty if they are added by hand.
        summaries: Names of the subcommands, each with the first sentence of its help.
    """

    class Group(_Group):
        pass

    Group.package = package
    Group.summaries = summaries or {}
    return typer.Typer(
        name=name,
        cls=Group,
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=dict(_SETTINGS),
    )


def needs_subcommand(context: typer.Context) -> None:
    """Show what there is if no subcommand was named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_USAGE)


class _Commands(dict[str, Any]):
    """Commands by name; the module of one is imported when it is first asked for."""

    def __init__(self, package: str, names: Mapping[str, str]) -> None:
        super().__init__(dict.fromkeys(names))
        self._package = package

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - As that of dict.
        if name not in self:
            return default
        return self[name]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - As that of dict.
        command = super().__getitem__(name)
        if command is None:
            made = typer.Typer(add_completion=False, rich_markup_mode=None)
            importlib.import_module(f"{self._package}.{name}").register(made)
            _unfold_help(made)
            command = self[name] = typer.main.get_group(made).commands[name]
        return command


class _Group(typer.core.TyperGroup):
    package = ""
    summaries: Mapping[str, str] = {}

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - As that of the class above.
        super().__init__(**attributes)
        if self.package:
            self.commands = _Commands(self.package, self.summaries)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - As the one above.
        return list(self.commands.keys())

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - As above.
        if not self.package:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


def walk(
    command: Any,  # noqa: ANN401 - A group or a command.
    path: tuple[str, ...],
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Give a command and all below it, each with the words that call it."""
    yield path, command
    for name in getattr(command, "commands", {}):
        yield from walk(command.commands[name], (*path, name))


def _unfold_help(app: typer.Typer) -> None:
    """Let every paragraph of help be folded where the terminal ends, not where its source does."""
    infos: list[Any] = [*app.registered_commands]
    if app.registered_callback is not None:
        infos.append(app.registered_callback)
    for info in infos:
        if info.callback is not None:
            info.help = unfolded(info.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _unfold_help(group.typer_instance)


def unfolded(callback: Callable[..., Any]) -> str:
    """The help of a command: paragraphs in one line each, examples as they are typed."""
    paragraphs = (inspect.getdoc(callback) or "").split("\n\n")
    lines = [" ".join(each.split()) for each in paragraphs]
    # Behind a \b the formatter folds nothing.
    return "\n\n".join(re.sub("^Example: ", "\b\nExample:\n  ", line) for line in lines)
