# SPDX-License-Identifier: Apache-2.0
"""Common steps of all pictures: configure matplotlib, write atomically."""

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace._files import Output
from headrace._temporary import temporary_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def matplotlib_defaults() -> Iterator[None]:
    """Give matplotlib a temporary directory for the block if it cannot write its caches."""
    with ExitStack() as left_behind:
        if "MPLCONFIGDIR" not in os.environ and not all(
            _can_be_made(Path(os.environ.get(variable) or Path.home() / usual) / "matplotlib")
            for variable, usual in (("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"))
        ):
            folder = left_behind.enter_context(temporary_folder("headrace-matplotlib-"))
            os.environ["MPLCONFIGDIR"] = str(folder)
            left_behind.callback(os.environ.pop, "MPLCONFIGDIR")
        yield


def _can_be_made(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


@contextmanager
def drawing(
    picture: Output, title: str, caption: str, size: tuple[float, float]
) -> Iterator["Figure"]:
    """Draw a picture in the block, which is then written, with title and caption."""
    with matplotlib_defaults():
        # Loading it is slow: only for pictures.
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415

        # Make the file deterministic.
        with mpl.rc_context({"svg.hashsalt": "headrace"}):
            figure = Figure(figsize=size, layout="constrained")
            yield figure
            figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
            figure.supxlabel(caption, fontsize=8, color="#555555", x=0.01, ha="left")
            save_picture(figure, picture)


def save_picture(figure: "Figure", picture: Output) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(picture.path).suffix.lower()[1:], dpi=150)
    picture.write(drawn.getvalue())
