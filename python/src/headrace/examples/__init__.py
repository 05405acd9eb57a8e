# SPDX-License-Identifier: Apache-2.0
"""Programs to try and to read: ``python -m headrace.examples.NAME``."""

import os
import sys
from collections.abc import Callable


def run(main: Callable[[], object]) -> None:
    """Run the program; the reader of its output may exit early (``| head -3``)."""
    try:
        try:
            main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is left goes nowhere: the interpreter would try again, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
