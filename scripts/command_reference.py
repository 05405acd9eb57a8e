# SPDX-License-Identifier: Apache-2.0
"""Write the generated parts of docs/reference/command.md: usage, options, fields of `--json`.

Options come from the command itself, fields from the schemas of its documents. Replaces the text
between `<!-- generated: COMMAND -->` and `<!-- end -->`; the rest is written by hand. Run in the
package's environment: .venv/bin/python scripts/command_reference.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace import _cli
from headrace._cli._app import Group, walk
from headrace._cli._options import Value
from headrace._cli._output import schema_of
from headrace_lab.families import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "command.md"
BLOCK = re.compile(r"<!-- generated: ([^\n]*) -->\n.*?<!-- end -->\n", re.DOTALL)


def commands() -> dict[str, tuple[click.Command, click.Context]]:
    """Return every command that is not a group, by its command line; families share one block."""
    return {
        " ".join((*path[:-1], "FAMILY") if path[-1] in FAMILIES else path): (found, context)
        for path, found, context in walk(_cli.app)
        if not isinstance(found, Group)
    }


def cell(text: str) -> str:
    """Escape a text for a table cell."""
    return text.replace("|", "\\|")


def option_row(option: click.Option, context: click.Context) -> str:
    metavar = "" if option.is_flag else f" {option.make_metavar(context)}"
    text = option.help or ""
    if isinstance(option.type, Value) and option.type.documented:
        text = f"{text} Takes {option.type.documented}."
    default = option.default if not option.is_flag and isinstance(option.default, str) else ""
    if default:
        text = f"{text} Default: `{default}`."
    return f"| `{option.opts[0]}{cell(metavar)}` | {cell(text)} |"


def field_rows(schema: dict[str, Any]) -> Iterator[str]:
    """Yield rows of the summary table; fields with the same description share a row."""
    by_text: dict[str, list[str]] = {}
    for name, field in schema["properties"]["summary"]["properties"].items():
        by_text.setdefault(field["description"], []).append(name)
    for text, names in by_text.items():
        yield f"| {', '.join(f'`{name}`' for name in names)} | {cell(text)} |"


def generated(name: str, command: click.Command, context: click.Context) -> str:
    usage = command.get_usage(context).removeprefix("Usage: ")
    if name.endswith("FAMILY"):
        usage = usage.replace(str(context.info_name), "FAMILY")
    lines = ["```", usage, "```"]
    options = [
        each
        for each in command.get_params(context)
        if isinstance(each, click.Option) and "--help" not in each.opts and not each.hidden
    ]
    if options:
        lines += ["", "| option | meaning |", "| --- | --- |"]
        lines += [option_row(each, context) for each in options]
    if any(each.name == "as_json" for each in options):
        file = name.removeprefix("headrace ").replace(" ", "-").lower()
        lines += ["", f"Schema of `--json`: `headrace/schemas/{file}.json`."]
        lines += ["", "| `summary` | meaning |", "| --- | --- |", *field_rows(schema_of(file))]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with up-to-date blocks."""
    known = commands()

    def block(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- generated: {name} -->\n{generated(name, *known[name])}<!-- end -->\n"

    return BLOCK.sub(block, text)


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    missing = commands().keys() - set(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    if missing:
        sys.exit(f"docs/reference/command.md has no block for: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
