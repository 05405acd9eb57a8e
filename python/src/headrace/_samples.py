# SPDX-License-Identifier: Apache-2.0
"""Sample machines installed with the package, for --replay."""

import os
from pathlib import Path

from headrace import _core


def _directory() -> Path:
    # An editable installation has sources and build outputs in two directories.
    return Path(_core.__file__ or "").parent / "_machines"


def machine_names() -> list[str]:
    """The names of the samples."""
    return sorted(path.stem for path in _directory().glob("*.json"))


def machine_path(text: str) -> str:
    """The path of a machine's record: `text`, or a sample of that name if there is no such file."""
    return _found(text, _directory())


def doctor_path(text: str) -> str:
    """As `machine_path`, for the doctor's records."""
    return _found(text, _directory() / "doctor")


def _found(text: str, directory: Path) -> str:
    if "/" in text or os.path.lexists(text):
        return text
    sample = directory / f"{text.removesuffix('.json')}.json"
    return str(sample) if sample.is_file() else text
