# SPDX-License-Identifier: Apache-2.0
"""``headrace pmem ring``: make and inspect a ring in a file."""

import click

from headrace import _core
from headrace._cli._app import Group
from headrace._cli._options import FilePath, Size, json_option, option
from headrace._cli._output import print_document
from headrace._cli._report import Report
from headrace._words import counted
from headrace.machine import topo
from headrace.pmem import Ring

CAPACITY_BYTES_MIN = 4096
_EXAMPLE = "examples/ring.py has a producer and a consumer that survive kill -9"

command = Group(
    "ring",
    """Make and inspect rings in files; programs fill and empty them.

    Example: headrace pmem ring info ring.pmem
    """,
    removed={"produce": _EXAMPLE, "consume": _EXAMPLE},
)

_file_argument = click.argument("file", type=FilePath(), metavar="FILE")


@command.command("make")
@_file_argument
@option("--capacity", type=Size(CAPACITY_BYTES_MIN), default="1MiB", help="Capacity of the ring.")
def make(file: str, capacity: int) -> None:
    """Make a ring in a new file, whole or not at all.

    Example: headrace pmem ring make ring.pmem --capacity 64MiB
    """
    Ring(file, capacity=capacity)


@command.command("info")
@_file_argument
@json_option
def info(file: str, *, as_json: bool) -> None:
    """Look at a ring and change nothing.

    Example: headrace pmem ring info ring.pmem
    """
    state = Ring.open(file).state()
    fields = {name: getattr(state, name) for name in state.__slots__}
    if as_json:
        print_document(
            "pmem-ring-info",
            machine=topo().document,
            results=fields,
            summary={
                "entry_count": state.entry_count,
                "first_ordinal": state.first_ordinal,
                "next_ordinal": state.first_ordinal + state.entry_count,
            },
        )
        return
    roles = [
        role
        for role, taken in (("producer", state.has_producer), ("consumer", state.has_consumer))
        if taken
    ]
    Report().say(
        f"{counted(state.entry_count, 'entry')}, from number {state.first_ordinal:,} on\n"
        f"capacity {_core.bytes_text(state.capacity_bytes)}, entries up to "
        f"{state.entry_bytes_max:,} bytes\n"
        f"producers so far {state.generation:,}; at work now: {', '.join(roles) or 'none'}"
    )
