# SPDX-License-Identifier: Apache-2.0
"""Entry point of the command ``headrace``: handles signals first, writes output last and whole.

Output to a file or pipe is collected and written at the end, so that writing can fail in one place
only, and a reader that exits early never cuts a report.
"""

from headrace import _signals

# Before the slow imports.
_signals.end_at_signals()

import io  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from contextlib import suppress  # noqa: E402

from headrace._direct import run_directly  # noqa: E402

_EXIT_FAILED = 1


def main() -> None:
    run_directly(sys.argv[1:])
    stdout = sys.stdout
    # click writes bytes if a shell asks for completions.
    live = stdout is not None and (stdout.isatty() or "_HEADRACE_COMPLETE" in os.environ)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="replace")  # Paths need not be UTF-8.
    collected = None if live else io.StringIO()
    if collected is not None:
        sys.stdout = collected
    code = _run()
    if stdout is None:
        # A command that prints nothing needs no stdout.
        if collected is not None and collected.getvalue():
            _complain("stdout is closed", "direct it to a file")
            code = code or _EXIT_FAILED
        os._exit(code)
    try:
        if collected is not None:
            stdout.buffer.write(collected.getvalue().encode(stdout.encoding, "replace"))
        stdout.flush()
    except BrokenPipeError:
        code = code or _EXIT_FAILED
    except OSError as problem:
        _complain(
            f"writing to stdout failed ({os.strerror(problem.errno or 0)})", "direct it elsewhere"
        )
        code = _EXIT_FAILED
    # Nothing is left to do, and a signal during finalization of the interpreter would be lost.
    os._exit(code)


def _run() -> int:
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        # Without the command line parser, whose import takes longer than all the rest.
        from headrace._core import version  # noqa: PLC0415

        sys.stdout.write(f"headrace {version()}\n")
        return 0
    from headrace._cli import run_command_line  # noqa: PLC0415 - After signals are handled.

    return run_command_line()


def _complain(cause: str, remedy: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"headrace: cannot write the output: {cause}; {remedy}\n")
            sys.stderr.flush()
