# SPDX-License-Identifier: Apache-2.0
"""Write the man pages and shell completions of the command, by click-man and click.

Usage: command_files.py DIRECTORY

Writes DIRECTORY/share/man/man1/*.1 and the completions of `headrace` for bash, zsh and fish.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class
from click_man.man import ManPage

from headrace import __version__, _cli
from headrace._cli._app import walk

PLACES = {
    "bash": "bash-completion/completions/headrace",
    "zsh": "zsh/vendor-completions/_headrace",
    "fish": "fish/vendor_completions.d/headrace.fish",
}
EXIT_STATUS = r""".SH EXIT STATUS
0 success; 1 failed, one sentence on stderr says why; 2 wrong use of the command; 3 hardware that
was asked for is absent; 126 or 127 a program that was to be run cannot be executed or does not
exist; 128+N ended by signal N.
"""


def man_page(path: tuple[str, ...]) -> str:
    """Make the man page of one command."""
    command, context = COMMANDS[path]
    page = ManPage(" ".join(path))
    page.version = f"Headrace {__version__}"
    text, _, example = (command.help or "").replace("\b\n", "").partition("Example:")
    page.description = text.strip()
    page.short_help = re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]
    page.synopsis = " ".join(command.collect_usage_pieces(context))
    options = (each for each in command.get_params(context) if isinstance(each, click.Option))
    page.options = [record for each in options if (record := each.get_help_record(context))]
    page.commands = [
        (below[-1], (COMMANDS[below][0].help or "").partition(".")[0])
        for below in COMMANDS
        if below[:-1] == path
    ]
    return f"{page}{EXIT_STATUS}" + (
        f".SH EXAMPLE\n.nf\n{example.strip()}\n.fi\n" if example else ""
    )


COMMANDS = {path: (command, context) for path, command, context in walk(_cli.app)}


def write(path: Path, text: str) -> None:
    """Write a file, creating its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the files."""
    share = Path(sys.argv[1]) / "share"
    for shell, place in PLACES.items():
        completion = get_completion_class(shell)
        if completion is not None:
            source = completion(_cli.app, {}, "headrace", "_HEADRACE_COMPLETE").source()
            write(share / place, source)
    for path in COMMANDS:
        write(share / "man" / "man1" / f"{'-'.join(path)}.1", man_page(path))
    # The emulator's program takes the options of 'headrace emulate'.
    emulator = man_page(("headrace", "emulate")).replace("headrace emulate", "headrace-emulator")
    write(share / "man" / "man1" / "headrace-emulator.1", emulator)


if __name__ == "__main__":
    main()
