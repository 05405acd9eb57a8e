# SPDX-License-Identifier: Apache-2.0
"""``headrace sim``: predictions for machines described in a file.

A subcommand is a module of this package without leading underscore that has a function
``register(sim)``; it appears by being there.
"""

import typer

from headrace._cli._app import add_modules, make_app, needs_subcommand

sim = make_app("sim")


@sim.callback()
def _root(context: typer.Context) -> None:
    """Predict times on machines described in a file, and compare with published figures.

    Example: headrace sim run submission --machine spr-1dsa
    """
    needs_subcommand(context)


add_modules(sim, __name__, __path__)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(sim, name="sim")
