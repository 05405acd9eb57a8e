# SPDX-License-Identifier: Apache-2.0
"""Directories and child processes that end with their block, or by a signal with this process.

Not `tempfile.TemporaryDirectory` and `subprocess.run`: `_signals` ends the process without the
cleanups of Python.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from headrace._signals import held, kill_child, undone_at_signals
from headrace.errors import Error


@contextmanager
def temporary_folder(prefix: str, parent: str | Path | None = None) -> Iterator[Path]:
    """Make a directory for the block."""
    with ExitStack() as ending:
        with held():
            name = tempfile.mkdtemp(prefix=prefix, dir=parent)
            remove = partial(shutil.rmtree, name, ignore_errors=True)
            ending.enter_context(undone_at_signals(remove))
            ending.callback(remove)
        yield Path(name)


@contextmanager
def child_process(
    command: Sequence[str],
    **options: Any,  # noqa: ANN401 - As of Popen.
) -> Iterator["subprocess.Popen[Any]"]:
    """Start a program, which is killed at the end of the block."""
    with ExitStack() as ending:
        with held():
            child = subprocess.Popen(command, **options)  # noqa: S603 - Programs of the package.
            ending.enter_context(undone_at_signals(partial(kill_child, child.pid)))
            ending.enter_context(child)
            ending.callback(child.kill)
        yield child


def run_child(
    command: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program and capture its output."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with child_process(command, **pipes, text=True, errors="replace", env=env) as child:
        out, err = child.communicate(timeout=timeout_s)
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def run_to_end(
    command: Sequence[str],
    tried: str,
    late: str,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed; `tried`, and `late`, a remedy, are for errors."""
    try:
        done = run_child(command, timeout_s=timeout_s, env=env)
    except OSError as problem:
        cause = f"{command[0]} does not start"
        raise Error(tried, cause, "reinstall the package", problem.errno or 0) from problem
    except subprocess.TimeoutExpired as problem:
        raise Error(tried, f"{command[0]} did not end within {timeout_s} s", late) from problem
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise Error(tried, last.removeprefix("headrace: "))
    return done
