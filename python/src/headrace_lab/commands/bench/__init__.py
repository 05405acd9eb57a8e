# SPDX-License-Identifier: Apache-2.0
"""``headrace bench``: the microbenchmarks. Shared code is in ``_measure``.

Each part of Headrace has a module; the families share ``_family``.
"""

import importlib

import click

from headrace._apps.machine import guest_record, refuse_in_guest
from headrace._cli._app import Group
from headrace_lab.families import FAMILIES, SIMULATED_BY


class _Benchmarks(Group):
    """The group of benchmarks; commands of families are made when they are called."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of the command, or the module of families."""
        if cmd_name not in FAMILIES:
            return super().get_command(ctx, cmd_name)
        families = importlib.import_module(f"{self.package}._family")
        found: click.Command = families.family_command(cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; in a guest, where nothing can be timed, one that simulates the same."""
        name, found, rest = super().resolve_command(ctx, args)
        record = guest_record()
        if record is None or {"-h", "--help"} & set(rest):
            return name, found, rest
        if name not in SIMULATED_BY:
            refuse_in_guest(f"measure {name}")
        words = [SIMULATED_BY[str(name)], "--machine", record, *({"--json"} & set(rest))]
        return "run", importlib.import_module("headrace._cli.sim.run").command, words


command = _Benchmarks(
    "bench",
    """Measure this machine's movers, and how fast the parts of Headrace are on it.

    Example: headrace bench submission --json
    """,
    __name__,
    {
        "copy": "Measure tuned copies as a program gets them, and as the library makes them.",
        "engine": "Count what engine operations cost, and compare each figure with its goal.",
        "cache": "Measure hits and misses of the cache beside the design that it came from.",
        "emulator": "Measure the emulated DSA: descriptors per second, and copies beside memcpy.",
        "faults": "Measure what submissions cost on devices that fail, beside a healthy one.",
        "pmem": "Compare the rings: naive, clflushopt, clwb, optimised, and on libpmem2.",
        "message": "Measure message queues between two processes, beside a reference queue.",
        "store": "Measure the block store beside memcpy, and its blocks under faults.",
        "injection": "Measure what a message in a cache saves the computation that needs it.",
        **{name: family.summary for name, family in FAMILIES.items()},
    },
    removed={"programs": "'bench copy' measures copies in an ordinary program"},
)
