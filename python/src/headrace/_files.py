# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole or not at all."""

import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from headrace._signals import held, undone_at_signals
from headrace.errors import IoFailedError


def write_whole(path: Path, text: str, tried: str) -> None:
    """Write a file beside its place and put it there in one step.

    A file that is there is replaced, and stays as it is if anything fails or a signal comes. What
    is no regular file, such as /dev/stdout, is written as it is.

    Args:
        path: Where to.
        text: What, as UTF-8.
        tried: For the error: what was tried, as a clause.

    Raises:
        IoFailedError: The file cannot be written.
    """
    data = text.encode()
    try:
        # Through a link, and not in its place.
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        with ExitStack() as left_behind:
            with held():
                descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
                partial = Path(name)
                left_behind.callback(partial.unlink, missing_ok=True)
                left_behind.enter_context(
                    undone_at_signals(lambda: partial.unlink(missing_ok=True))
                )
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.chmod(_mode_of(target))
            partial.replace(target)
    except (OSError, ValueError) as problem:
        number = getattr(problem, "errno", None) or 0
        cause = "it cannot be written" if number else str(problem)
        raise IoFailedError(tried, cause, "choose another place", number) from None


def _mode_of(target: Path) -> int:
    """What the file had, or what a new one gets."""
    with suppress(OSError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
