# SPDX-License-Identifier: Apache-2.0
"""``headrace bench``: the microbenchmarks.

A benchmark is a module of this package without leading underscore that has a function
``register(bench)``; it appears by being there. What they share is in ``_measure``.
"""

import typer

from headrace._cli._app import add_modules, make_app, needs_subcommand

bench = make_app("bench")


@bench.callback()
def _root(context: typer.Context) -> None:
    """Measure how fast the parts of Headrace are on this machine.

    Example: headrace bench emulator --json
    """
    needs_subcommand(context)


add_modules(bench, __name__, __path__)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(bench, name="bench")
