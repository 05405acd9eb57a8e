# SPDX-License-Identifier: Apache-2.0
"""Programs to try and to read: ``python -m headrace.examples.NAME``."""

import os
import sys
from collections.abc import Callable

import headrace


def run(main: Callable[[], object]) -> None:
    """Run the program; the reader of its output may exit early (``| head -3``)."""
    try:
        try:
            main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Discard buffered output: the interpreter would flush it at exit and report the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def device_line(engine: headrace.Engine) -> str:
    """The devices of the engine, and their share of the bytes moved."""
    infos = [each for each in engine.mover_infos if each.hardware]
    devices = [each.name + " (emulated)" * each.emulated for each in infos]
    moved = engine.statistics
    share = moved.bytes_by_device / max(1, moved.bytes_moved)
    return f"devices: {', '.join(devices) or 'none'}; {100 * share:.0f} % of the bytes by them"
