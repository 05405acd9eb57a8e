# SPDX-License-Identifier: Apache-2.0
"""What every picture needs: a path judged early, matplotlib settled, a file written whole."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace._signals import held, undone_at_signals
from headrace.errors import InvalidArgumentError, IoFailedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE_SUFFIXES = (".png", ".svg")


def check_picture_path(path: Path, subject: str) -> None:
    """Refuse what no picture can be written to, before anything is measured.

    Args:
        path: Where the picture is to go.
        subject: What it shows, for the message: "the timeline".

    Raises:
        InvalidArgumentError: It does not end in .png or .svg.
        IoFailedError: It is a directory, or its own does not exist or cannot be written.
    """
    tried = f"draw {subject} into '{path}'"
    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise InvalidArgumentError(
            tried, f"'{path.suffix}' is no kind of picture known here", "use .svg or .png"
        )
    if not path.parent.is_dir():
        raise IoFailedError(tried, "its directory does not exist", "make it, or choose another")
    if path.is_dir():
        raise IoFailedError(tried, "it is a directory", "name a file in it")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise IoFailedError(tried, "its directory cannot be written", "choose another")


@contextmanager
def matplotlib_settled() -> Iterator[None]:
    """Give matplotlib a directory of its own for the block if it cannot keep its caches."""
    with ExitStack() as left_behind:
        if "MPLCONFIGDIR" not in os.environ and not all(
            _can_be_made(Path(os.environ.get(variable) or Path.home() / usual) / "matplotlib")
            for variable, usual in (("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"))
        ):
            with held():
                name = tempfile.mkdtemp(prefix="headrace-matplotlib-")
                remove = partial(shutil.rmtree, name, ignore_errors=True)
                left_behind.enter_context(undone_at_signals(remove))
                left_behind.callback(remove)
            os.environ["MPLCONFIGDIR"] = name
            left_behind.callback(os.environ.pop, "MPLCONFIGDIR")
        yield


def _can_be_made(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def save_picture(figure: "Figure", path: Path, subject: str) -> None:
    """Write the picture whole or not at all.

    Raises:
        IoFailedError: The file cannot be written.
    """
    partial_path = path.with_name(f".{path.name}.partial")
    try:
        with undone_at_signals(lambda: partial_path.unlink(missing_ok=True)):
            figure.savefig(partial_path, format=path.suffix[1:].lower(), dpi=150)
            partial_path.replace(path)
    except OSError as problem:
        raise IoFailedError(
            f"draw {subject} into '{path}'",
            "the file cannot be written",
            "choose another",
            problem.errno or 0,
        ) from problem
    finally:
        # Whatever keeps it from being removed has been told above.
        with suppress(OSError):
            partial_path.unlink(missing_ok=True)
