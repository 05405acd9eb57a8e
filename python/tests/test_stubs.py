# SPDX-License-Identifier: Apache-2.0
"""The committed stub of the extension is the one that the extension has: changes are seen."""

import subprocess
import sys
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "src" / "headrace" / "_core.pyi"


def test_the_stub_is_that_of_the_extension(tmp_path: Path) -> None:
    made = tmp_path / "_core.pyi"
    arguments = ["-m", "nanobind.stubgen", "--quiet", "-m", "headrace._core", "-o", str(made)]
    subprocess.run([sys.executable, *arguments], check=True, timeout=60)
    assert made.read_text() == GOLDEN.read_text(), (
        f"run: python {' '.join(arguments[:-1])} {GOLDEN}"
    )
