# SPDX-License-Identifier: Apache-2.0
"""Commands and groups, imported when they are called, with help in plain text.

A command is the attribute `command` of a module in its group's package. The group repeats the first
sentence of its help, so that showing the group's help imports no command.
"""

import importlib
import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from headrace._cli._output import EXIT_USAGE


class Command(click.Command):
    """A command whose help is the docstring of its function."""

    def __init__(
        self,
        name: str | None,
        *,
        help: str | None = None,  # noqa: A002 - As click's.
        **others: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(name, help=unfolded(help or ""), **others)


class Group(click.Group):
    """Commands by name: modules of a package, and commands added by hand."""

    command_class = Command

    def __init__(
        self,
        name: str,
        text: str,
        package: str = "",
        summaries: Mapping[str, str] | None = None,
        *,
        laboratory: Collection[str] = (),
        removed: Mapping[str, str] | None = None,
    ) -> None:
        """Make a group; without a subcommand it shows its help.

        Args:
            name: Name of the group.
            text: Its help.
            package: Package with the modules of the commands; empty if all are added by hand.
            summaries: Names of these commands, each with the first sentence of its help.
            laboratory: Those of them whose modules are in the laboratory's package of commands.
            removed: Names that earlier versions had, each with what does the same now.
        """
        super().__init__(
            name, help=unfolded(text), invoke_without_command=True, callback=_show_help
        )
        self.package = package
        self.summaries = dict(summaries or {})
        self.laboratory = laboratory
        self.removed = removed or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names in the order of the group's help."""
        del ctx
        return [*self.summaries, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.removed:
            ctx.fail(f"'{self.name} {cmd_name}' is gone: {self.removed[cmd_name]}")
        if cmd_name not in self.summaries:
            return super().get_command(ctx, cmd_name)
        package = self.package
        if cmd_name in self.laboratory:
            package = package.replace("headrace._cli", "headrace_lab.commands", 1)
        found: click.Command = importlib.import_module(f"{package}.{cmd_name}").command
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete subcommands without importing them, and options."""
        names = [each for each in self.list_commands(ctx) if each.startswith(incomplete)]
        found = [CompletionItem(name, help=self.summaries.get(name)) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        rows = list(self.summaries.items())
        # Commands added by hand are imported already.
        rows += [(n, (each.help or "").partition("\n")[0]) for n, each in self.commands.items()]
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def walk(
    command: click.Command,
    path: tuple[str, ...] = ("headrace",),
    parent: click.Context | None = None,
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    """Yield a command and all its subcommands, each with its full name and context."""
    context = click.Context(command, parent=parent, info_name=path[-1], **command.context_settings)
    yield path, command, context
    if isinstance(command, Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from walk(below, (*path, name), context)


@click.pass_context
def _show_help(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(EXIT_USAGE)


def unfolded(text: str) -> str:
    """The help of a command, one line per paragraph, with examples verbatim."""
    lines = [" ".join(each.split()) for each in inspect.cleandoc(text).split("\n\n")]
    # The formatter does not fold a paragraph that starts with \b.
    return "\n\n".join(re.sub("^Example: ", "\b\nExample:\n  ", line) for line in lines)
