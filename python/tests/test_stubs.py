# SPDX-License-Identifier: Apache-2.0
"""The extension of the laboratory: its committed stub, and what it shares with the package's."""

import subprocess
import sys
from pathlib import Path

from headrace_lab import _lab

SOURCES = Path(__file__).parent.parent / "src"


def test_the_stub_is_that_of_the_extension(tmp_path: Path) -> None:
    made = tmp_path / "made.pyi"
    golden = SOURCES / "headrace_lab" / "_lab.pyi"
    arguments = ["-m", "nanobind.stubgen", "--quiet", "-m", "headrace_lab._lab", "-o", str(made)]
    subprocess.run([sys.executable, *arguments], check=True, timeout=600)
    assert made.read_text() == golden.read_text(), (
        f"run: python {' '.join(arguments[:-1])} {golden}"
    )


def test_the_laboratory_uses_the_caches_and_engines_of_the_package() -> None:
    """Leases on copies are registered with a process: a second cache in it would not see them."""
    command = ["nm", "--dynamic", "--demangle", "--defined-only", _lab.__file__ or ""]
    defined = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "PyInit__lab" in defined
    for layer in ("cache", "engine", "copy"):
        assert f" headrace::{layer}::" not in defined
