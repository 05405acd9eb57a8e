# SPDX-License-Identifier: Apache-2.0
"""Sample machines installed with the package, for --replay."""

import os
from pathlib import Path

from headrace import _core


def _directory() -> Path:
    # An editable installation has sources and build outputs in two directories.
    return Path(_core.__file__ or "").parent / "_machines"


def samples() -> dict[str, Path]:
    """Paths of the sample machines by name, in its order."""
    return {path.stem: path for path in sorted(_directory().glob("*.json"))}


def machine_path(text: str) -> str:
    """The path of a machine's record: `text`, or a sample of that name if there is no such file."""
    if "/" in text or os.path.lexists(text):
        return text
    # Those of the second folder have what the doctor reads only.
    paths = [
        folder / f"{text.removesuffix('.json')}.json"
        for folder in (_directory(), _directory() / "doctor")
    ]
    return next((str(path) for path in paths if path.is_file()), text)
