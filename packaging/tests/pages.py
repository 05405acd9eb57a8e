# SPDX-License-Identifier: Apache-2.0
"""Run the manual: every console line and every block of Python of pages, in their order.

Usage: pages.py [--short] TREE PAGE...

Each page gets an empty directory. Blocks of Python of a page share their names. What is not run,
and why, is in NOT_RUN; what only `--short` replaces, in SHORTER. Prints a line for each; the exit
code is 1 if one failed. Needs only Python.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TIME_LIMIT_S = 1800
# Page (part of its name), beginning of the line or block, reason.
NOT_RUN = [
    ("", "make ", "builds the tree or tests it for long"),
    ("", "sudo apt install", "installs; scripts/test_package runs README's on a bare Debian"),
    ("", "python3 -m venv", "installs; scripts/test_package runs README's on a bare Debian"),
    ("", "pip install", "installs; scripts/test_package runs README's on a bare Debian"),
    ("", "docker ", "needs Docker"),
    ("", "headrace machine run", "boots a machine in QEMU; tests/guest does"),
    ("guide/machine", "apt-get download", "loads a kernel"),
    ("guide/machine", "dpkg -x", "unpacks that kernel"),
    ("guide/machine", "HEADRACE_KERNEL=", "boots a machine in QEMU; tests/guest does"),
    ("guide/machine", "MEMKIND_HBW", "boots a machine in QEMU; tests/guest does"),
    ("guide/dask", "import dask\n", "needs pandas; test_dask.py runs it"),
    ("guide/doctor", "sudo accel-config", "configures real devices"),
    ("guide/start", "cmake ", "scripts/test_consumer builds the examples"),
    ("guide/nixl", "cmake ", "needs NIXL's headers; make integrations builds it"),
    ("guide/nixl", "export ", "only for what follows"),
    ("guide/nixl", "agent", "needs NIXL; make integrations runs it"),
    ("tutorials/dsa-in-ci", "cmake ", "tests/clients runs the action's steps"),
    ("tutorials/dsa-in-ci", "sudo ", "installs"),
    (
        "tutorials/ring-that-survives",
        "kill -9",
        "python/tests/test_pmem.py ends producers at any time",
    ),
]
# Programs of others, which need not be installed.
OTHERS = {"accel-config", "ctest", "gdb", "jq", "redis-server", "valgrind"}
OTHER_PACKAGES = {"datafusion"}
# As NOT_RUN, with `--short`.
NOT_SHORT = [
    ("guide/measure", "headrace report", "takes a minute; test_machine_report.py measures less"),
    ("guide/run", "headrace tune", "takes minutes; test_tune.py searches less"),
    ("tutorials/faster-copies", "headrace tune", "takes minutes; test_tune.py searches less"),
]
# A line that runs until it is ended.
ENDLESS = [
    r"headrace top( --prometheus 9400| --store blocks\.socket)?\s*(#|$)",
    "headrace run -- redis-server",
    "headrace store serve",
]
# Runs beside what follows: "in another terminal".
BESIDE = "python3 examples/ring.py produce"
# Exit codes other than 0: hardware that is absent here, and findings.
CODES = {
    "headrace doctor": (0, 3),
    "headrace dsa list": (0, 3),
    "headrace dsa configure --preset shared": (0, 3),
    "headrace run --path dsa": (0, 3),
    "headrace pmem check --variant gallery": (1,),
}
# What stands for something of the reader's own.
OURS = [
    (r"'SELECT \.\.\.'", "'SELECT count(*) FROM orders'"),
    (r"--data DIR\b", "--data tables/sf0.01"),
    (r"\bKEY\.\.\.", "first"),
    ("/mnt/fast/blocks", "blocks"),
]
SHORTER = [
    (r"--entries 6", "--entries 3"),
    (r"=64KiB:4MiB", "=64KiB:128KiB"),
    (r"(headrace bench [a-z-]+)", r"\1 --rounds 1"),
    (r"--tpch 1\b", "--tpch 0.01"),
    (r"--scale-factor 1\b", "--scale-factor 0.01"),
    (r"\bseconds=\d+", "seconds=2"),
]
PROGRAM = "cp /bin/true {0}; chmod +x {0}"
# What a page takes for granted, as a script.
BEFORE = {
    "guide/emulate": PROGRAM.format("my_program") + "; mkdir build"
    "; echo 'add_test(a python -m headrace.examples.copy)' >build/CTestTestfile.cmake",
    "guide/run": PROGRAM.format("my_program") + "; head -c 9M /dev/zero >big",
    "guide/top": PROGRAM.format("program")
    + "; timeout 60 headrace store serve blocks.socket --memory 8MiB >served 2>&1 &"
    " until [ -s served ]; do sleep 0.1; done",
    "guide/start": "headrace sql --tpch 0.01 --query 6 --plan --data-dir tables",
    "guide/store-files": "python -c \"import headrace\nwith headrace.Store([headrace.Tier('1MiB', "
    "path='blocks')], block_bytes='4KiB') as store: store.put('first', b'1')\"",
    "tutorials/dsa-in-ci": PROGRAM.format("your-program")
    + "; printf '[[fault]]\\nkind = \"queue_full\"\\nevery = 10\\n' >faults.toml",
    "tutorials/faster-copies": PROGRAM.format("your-program"),
    "tutorials/prefetch-a-query": "mkdir -p tables/sf0.01; ln -s sf0.01 tables/sf1",
}
NUMBERS = "import headrace, numpy\n"
# Names that a block takes for granted: page, beginning of the block, Python.
NAMES = [
    ("guide/python", "with cache.change", "cache = headrace.Cache(capacity='1GiB')"),
    ("guide/python", "with headrace.Engine", "source = numpy.ones(99); target = source.copy()"),
    (
        "guide/python",
        "import headrace\n\ntiers",
        "keys = ['one key']; arrays = [source]; targets = [target]",
    ),
    ("guide/pmem", "found =", "import shutil; shutil.copy('ring.pmem', 'copy.pmem')"),
]


@dataclass
class Piece:
    """A console line or a block of Python."""

    page: str
    line: int
    kind: str
    text: str

    def begins(self, page: str, text: str) -> bool:
        """Whether the piece is on that page and begins so."""
        return page in self.page and self.text.startswith(text)

    def why_not(self, *, short: bool = False) -> str:
        """Say why it is not run; empty if it is."""
        reasons = [*NOT_RUN, *(NOT_SHORT if short else [])]
        return next((why for page, text, why in reasons if self.begins(page, text)), "")


def pieces(page: str, text: str) -> Iterator[Piece]:
    """Yield what a page tells its reader to run."""
    language, block, begin, held = "", [], 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            if language == "python":
                yield Piece(page, begin, "python", "\n".join(block) + "\n")
            language, block, begin = ("" if language else line[3:] or "text"), [], number
            continue
        if language == "python":
            block.append(line)
        console = re.match(r" {4,}(\S.*)", line) if not language else None
        if language == "console":
            console = re.match(r"\$ (.*)", line) or (re.match(r" *(.*)", line) if held else None)
        elif language == "sh":
            console = re.match(r" *(.*)", line)
        if console and console[1]:
            held += console[1]
            if held.endswith("\\"):
                held = held[:-1]
                continue
            yield Piece(page, number, "console", held)
        held = ""


def replaced(text: str, pairs: list[tuple[str, str]]) -> str:
    """Replace each pattern."""
    for pattern, by in pairs:
        text = re.sub(pattern, by, text, flags=re.MULTILINE)
    return text


def run_line(text: str) -> None:
    """Run a console line; raise what it printed if it fails."""
    words = ["bash", "-c", text]
    if text.startswith(BESIDE):
        subprocess.Popen(words, stdin=subprocess.DEVNULL)
        return
    codes = next((codes for begin, codes in CODES.items() if text.startswith(begin)), (0,))
    if any(re.match(pattern, text) for pattern in ENDLESS):
        words, codes = ["timeout", "4", *words], (0, 124)
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode not in codes:
        raise RuntimeError(
            f"exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )


def run_python(text: str, names: dict[str, object]) -> None:
    """Run a block of Python; one that is a file becomes one."""
    if name := re.match(r"# (\S+\.py)\n", text):
        Path(name[1]).write_text(text, encoding="utf-8")
        return
    Path("your_script.py").write_text(text, encoding="utf-8")
    if "__main__" in text:
        run_line(f"{shlex.quote(sys.executable)} your_script.py")
        return
    code = compile(text, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:

        async def awaited() -> None:
            await eval(code, names)  # noqa: S307 - The manual's.

        asyncio.run(awaited())
    else:
        exec(code, names)  # noqa: S102 - The manual's.


def run(piece: Piece, names: dict[str, object], *, short: bool) -> str:
    """Run a piece, and say how it ended."""
    why = piece.why_not(short=short)
    program = re.sub(r".* -- ", "", piece.text).split()[0]
    if not why and piece.kind == "console" and program in OTHERS and not shutil.which(program):
        why = f"{program} is not installed"
    imported = re.match(r"import (\w+)", piece.text)
    if not why and imported and imported[1] in OTHER_PACKAGES:
        why = "" if importlib.util.find_spec(imported[1]) else f"{imported[1]} is not installed"
    if not why and '"cc"' in piece.text and not shutil.which("cc"):
        why = "no compiler is installed"
    if why:
        return f"not run: {why}"
    text = replaced(piece.text, [*OURS, *(SHORTER if short else [])])
    try:
        for part, begin, script in NAMES:
            if piece.begins(part, begin):
                exec(NUMBERS + script, names)  # noqa: S102 - Ours.
        if piece.kind == "python":
            run_python(text, names)
        else:
            run_line(text)
    except Exception:  # noqa: BLE001 - Whatever it is, the page is wrong.
        return "FAILED: " + traceback.format_exc(limit=-1)
    return "passed"


def run_page(tree: Path, page: str, *, short: bool) -> int:
    """Run a page in a directory of its own; return how many pieces failed."""
    failed = 0
    home = Path.cwd()
    names: dict[str, object] = {"__name__": "page"}
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for name in ("examples", "tests"):
            Path(name).symlink_to(tree / name)
        for part, script in BEFORE.items():
            if part in page:
                run_line(script)
        for piece in pieces(page, (tree / page).read_text("utf-8")):
            began = time.monotonic()
            outcome = run(piece, names, short=short)
            failed += outcome.startswith("FAILED")
            first = piece.text.splitlines()[0][:80]
            seconds = time.monotonic() - began
            print(f"{page}:{piece.line}: {first}: {outcome} ({seconds:.1f} s)", flush=True)
        os.chdir(home)
    return failed


def main() -> None:
    """Run the pages."""
    words = sys.argv[1:]
    short = "--short" in words
    tree, *pages = (word for word in words if word != "--short")
    failed = sum(run_page(Path(tree).resolve(), page, short=short) for page in pages)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
