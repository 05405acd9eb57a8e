# SPDX-License-Identifier: Apache-2.0
"""Every line and every block of Python of README, guides and tutorials runs.

`packaging/tests/pages.py` says what is not run, and why; scripts/test_package runs the same on a
bare Debian.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace._direct import built

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "packaging/tests/pages.py"
PAGES = [
    "README.md",
    *(f"docs/guide/{path.name}" for path in sorted((ROOT / "docs/guide").glob("*.md"))),
    *(f"docs/tutorials/{path.name}" for path in sorted((ROOT / "docs/tutorials").glob("*.md"))),
]
SPEC = importlib.util.spec_from_file_location("pages", RUNNER)
assert SPEC is not None
assert SPEC.loader is not None
runner = importlib.util.module_from_spec(SPEC)
sys.modules["pages"] = runner  # Its dataclass asks for the module.
SPEC.loader.exec_module(runner)


def pieces_of(page: str) -> list[Any]:
    return list(runner.pieces(page, (ROOT / page).read_text()))


# scripts/test_package runs them, too.
LONG = (
    "docs/guide/measure.md",
    "docs/guide/start.md",
    "docs/tutorials/prefetch-a-query.md",
    "docs/tutorials/ring-that-survives.md",  # test_pmem.py and guide/pmem.md, too.
    "docs/tutorials/tune-your-own.md",  # test_tune_search.py, too.
)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long) if page in LONG else page
        for page in PAGES
        if any(not each.why_not() for each in pieces_of(page))
    ],
)
def test_a_page_runs_as_it_is_written(
    page: str, tmp_path: Path, command_path: Path, data_directory: Path
) -> None:
    emulator = built("_emulator/headrace-emulator")
    assert emulator is not None
    (tmp_path / "headrace-emulator").symlink_to(emulator)  # As the Debian package.
    path = f"{command_path.parent}:{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, RUNNER, "--short", ROOT, page],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": path, "HEADRACE_DATA": str(data_directory)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout


def test_what_is_not_run_is_on_a_page() -> None:
    pieces = [piece for page in PAGES for piece in pieces_of(page)]
    for page, begin, why in [*runner.NOT_RUN, *runner.NOT_SHORT]:
        assert why
        assert any(piece.begins(page, begin) for piece in pieces), (page, begin)
    for page, begin, _ in runner.NAMES:
        assert any(piece.begins(page, begin) for piece in pieces), (page, begin)
    run = [piece for piece in pieces if not piece.why_not()]
    assert len(run) > 80  # Of some 130.
    assert {piece.kind for piece in run} == {"console", "python"}
