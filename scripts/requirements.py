# SPDX-License-Identifier: Apache-2.0
"""Print pyproject.toml's requirements, one per line: build backend, run time, given extras.

Usage: requirements.py EXTRA[,EXTRA...]. Excludes the package itself: it is built later.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> None:
    """Read the pyproject.toml above this script and print its requirements."""
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    project = document["project"]
    requirements = [*document["build-system"]["requires"], *project["dependencies"]]
    for extra in sys.argv[1].split(","):
        requirements += project["optional-dependencies"][extra]
    sys.stdout.write("\n".join(requirements) + "\n")


if __name__ == "__main__":
    main()
