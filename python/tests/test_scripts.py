# SPDX-License-Identifier: Apache-2.0
"""What the scripts refuse, and what they recover from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run(*words: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script, with programs of our own before the system's."""
    environment = os.environ | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})
    return subprocess.run(
        [str(word) for word in words], env=environment, capture_output=True, text=True, check=False
    )


def test_fuzz_takes_only_a_number_of_seconds() -> None:
    result = run(ROOT / "scripts" / "fuzz", "abc")
    assert result.returncode == 2
    assert "'abc' is neither a number of seconds nor 'merge'" in result.stderr


def test_check_names_its_parts() -> None:
    result = run(ROOT / "scripts" / "check", "asam")
    assert result.returncode == 2
    assert "no part 'asam': there are test run asan" in result.stderr


def test_a_build_directory_copied_with_its_checkout_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = Path(shutil.copy(ROOT / "scripts" / "configure", tmp_path / "scripts"))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "cmake").write_text("#!/bin/sh\n")
    (programs / "cmake").chmod(0o755)
    build = tmp_path / "build" / "dev"
    for home, is_kept in ((tmp_path, True), (ROOT, False)):
        build.mkdir(parents=True, exist_ok=True)
        (build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={home}\n")
        result = run(script, "dev", path=programs)
        assert result.returncode == 0
        assert build.exists() == is_kept
        assert ("made for another directory" in result.stdout) != is_kept
