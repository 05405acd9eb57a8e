# SPDX-License-Identifier: Apache-2.0
"""``headrace bench``: the microbenchmarks. What they share is in ``_measure``."""

import typer

from headrace._cli._app import make_app, needs_subcommand

SUMMARIES = {
    "copy": "Measure the tuned copy beside glibc's memcpy, a folly-like and a plain one.",
    "programs": "Measure whole programs with tuned copies and without.",
    "engine": "Measure what engine operations cost, and compare each figure with its goal.",
    "cache": "Measure hits and misses of the cache beside the design that it came from.",
    "emulator": "Measure the emulated DSA: descriptors per second, and copies beside memcpy.",
    "pmem": "Compare the rings: naive, clflushopt, clwb, optimised, and on libpmem2.",
    "message": "Measure message queues between two processes, beside others and the kernel.",
    "injection": "Measure what a message in a cache saves the computation that needs it.",
}

bench = make_app("bench", __name__, SUMMARIES)


@bench.callback()
def _root(context: typer.Context) -> None:
    """Measure how fast the parts of Headrace are on this machine.

    Example: headrace bench emulator --json
    """
    needs_subcommand(context)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(bench, name="bench")
