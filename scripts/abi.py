#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the symbols that libheadrace.so exports with tests/abi/exports.txt, or write that file.

    scripts/abi.py [--write] [LIBRARY]

The list holds every strong symbol of the library, demangled and sorted. An accidentally exported
symbol becomes part of the interface; a removed one breaks linked programs.
LIBRARY defaults to build/release/src/libheadrace.so.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "abi" / "exports.txt"
LIBRARY = ROOT / "build" / "release" / "src" / "libheadrace.so"
# Template instances, inline functions and vtables are weak: their presence depends on optimisation.
STRONG = "TDBR"
OURS = re.compile(r"\bheadrace(::|_)")
# Symbols of lab/ and bench/, never of the library.
LAB = re.compile(r"::(?:lab|bench)::|q6", re.IGNORECASE)


def exported(library: Path) -> list[str]:
    """Return the names of the symbols that programs can link to."""
    command = ["nm", "--dynamic", "--demangle", "--defined-only", str(library)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = set()
    for line in listed.splitlines():
        _, kind, name = line.split(" ", 2)
        if kind in STRONG:
            names.add(name)
    return sorted(names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared_object", nargs="?", type=Path, default=LIBRARY, metavar="LIBRARY")
    parser.add_argument("--write", action="store_true", help="write tests/abi/exports.txt")
    arguments = parser.parse_args()
    names = exported(arguments.shared_object)
    strangers = [name for name in names if not OURS.search(name) or LAB.search(name)]
    if strangers:
        sys.stderr.write("libheadrace.so exports what is no part of the product:\n  ")
        sys.stderr.write("\n  ".join(strangers) + "\n")
        return 1
    text = "".join(f"{name}\n" for name in names)
    if arguments.write:
        LIST.write_text(text, encoding="utf-8")
        return 0
    listed = LIST.read_text(encoding="utf-8")
    if text == listed:
        return 0
    difference = difflib.unified_diff(
        listed.splitlines(),
        names,
        str(LIST.relative_to(ROOT)),
        str(arguments.shared_object),
        n=0,
    )
    sys.stderr.write("\n".join(line for line in difference if line[:2] != "@@") + "\n")
    sys.stderr.write(
        "The exported symbols of libheadrace.so differ from tests/abi/exports.txt. If that is "
        f"intended, run: scripts/abi.py --write {arguments.shared_object}\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
