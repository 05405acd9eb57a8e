# SPDX-License-Identifier: Apache-2.0
"""``headrace sim``: predictions for machines described in a file."""

import typer

from headrace._cli._app import make_app, needs_subcommand

SUMMARIES = {
    "advise": "Say which memory to read from, who moves the data there, and the gain to expect.",
    "list": "List the scenarios with their parameters, and the machines.",
    "run": "Simulate a scenario.",
    "validate": "Compare simulated figures with published ones.",
}

sim = make_app("sim", __name__, SUMMARIES)


@sim.callback()
def _root(context: typer.Context) -> None:
    """Predict times on machines described in a file, and compare with published figures.

    Example: headrace sim run submission --machine spr-1dsa
    """
    needs_subcommand(context)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(sim, name="sim")
