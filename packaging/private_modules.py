# SPDX-License-Identifier: Apache-2.0
"""Copy the Python modules that the command needs, with their dependencies, into a directory.

The Debian package `headrace` uses it: Debian's click is too old for the command. The modules come
from the environment that runs this script, in which the tests ran. numpy and pygments come from the
distribution.

Usage: private_modules.py DIRECTORY [NAME...], by default click and rich.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

ROOTS = ("click", "rich")
LEFT_OUT = {"pygments"}


def closure(roots: tuple[str, ...]) -> list[str]:
    """The names of the distributions and their required dependencies."""
    found: list[str] = []
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in found or name in LEFT_OUT:
            continue
        found.append(name)
        for requirement in distribution(name).requires or []:
            # All markers of these modules are for extras or other platforms.
            if ";" in requirement:
                continue
            waiting.append(re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0].lower())
    return sorted(found)


def copy_distribution(name: str, target: Path) -> None:
    """Copy modules, types and licences, but no commands and no compiled files."""
    of = distribution(name)
    for file in of.files or []:
        is_module = not str(file).startswith("..") and "__pycache__" not in file.parts
        if not is_module or file.name in {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}:
            continue
        place = target / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(of.locate_file(file)), place)


def main() -> None:
    """Copy the named modules, and print them."""
    target = Path(sys.argv[1])
    for name in closure(tuple(sys.argv[2:]) or ROOTS):
        copy_distribution(name, target)
        sys.stdout.write(f"private module: {name} {distribution(name).version}\n")


if __name__ == "__main__":
    main()
