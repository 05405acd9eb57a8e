# SPDX-License-Identifier: Apache-2.0
"""``headrace pmem``: rings in persistent memory, and the check that they survive a crash."""

import typer

from headrace._cli._app import make_app, needs_subcommand

SUMMARIES = {
    "check": "Check that a ring recovers from the states that a crash can leave.",
    "ring": "Fill and empty a ring in a file, from two terminals; kill either and start it again.",
}

pmem = make_app("pmem", __name__, SUMMARIES)


@pmem.callback()
def _root(context: typer.Context) -> None:
    """Use rings in persistent memory, and check that they survive a crash.

    Example: headrace pmem check --variant optimised
    """
    needs_subcommand(context)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(pmem, name="pmem")
