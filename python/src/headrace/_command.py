# SPDX-License-Identifier: Apache-2.0
"""Where the command ``headrace`` begins: signals first, so that Ctrl-C is answered at any time."""

import os
import sys

from headrace._signals import raise_once

_EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit."""
    try:
        raise_once()
        from headrace.cli import run  # noqa: PLC0415 - Takes long enough to be interrupted.

        code = run()
    except KeyboardInterrupt:
        code = _EXIT_INTERRUPTED
    except BrokenPipeError:
        code = 1
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or 1
        # What is left in the buffer has no reader; it must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
