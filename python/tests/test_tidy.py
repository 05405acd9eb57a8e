# SPDX-License-Identifier: Apache-2.0
"""Each house rule of scripts/tidy.py is broken once, and must be noticed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
HEADER = "include/headrace/topo/a.hpp"
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


@pytest.fixture(scope="module")
def tidy() -> ModuleType:
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("tidy", ROOT / "scripts" / "tidy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tidy"] = module
    spec.loader.exec_module(module)
    return module


def write(root: Path, path: str, text: str) -> None:
    """Put one file into a small tree."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "path, text, word",
    [
        ("src/topo/a.cpp", "int a;\n", "SPDX"),
        ("src/topo/a.cpp", SPDX + "int a;", "one newline"),
        ("src/topo/a.cpp", SPDX + "int a; \n", "trailing white space"),
        ("src/topo/a.cpp", SPDX + "//" + "x" * 99 + "\n", "columns"),
        ("src/topo/a.cpp", SPDX + "int a;\n" * 700, "split it"),
        ("src/topo/a.cpp", SPDX + "std::atomic<int> a;\n", "base/atomic.hpp"),
        ("src/topo/a.cpp", SPDX + "std::mutex a;\n", "base/mutex.hpp"),
        ("src/topo/a.cpp", SPDX + "std::atomic_thread_fence(x);\n", "fences"),
        ("src/topo/a.cpp", SPDX + "#include <unistd.h>\n", "behind src/platform"),
        ("src/topo/a.cpp", SPDX + "#if defined(__x86_64__)\n", "architecture"),
        ("src/topo/a.cpp", SPDX + 'std::printf("x");\n', "prints nothing"),
        ("tests/unit/a_test.cpp", SPDX + "std::this_thread::sleep_for(x);\n", "sleeping"),
        (HEADER, SPDX + "using namespace std;\n", "name what you use"),
        (HEADER, SPDX + "void f(int src, int dst);\n", "source and target"),
        ("src/topo/a.cpp", SPDX + "// TO" + "DO later\n", "do it"),
        ("docs/a.md", "see /ho" + "me/me/x\n", "path of one machine"),
        ("docs/a.md", "[](a.md)\n", "a text"),
        ("docs/a.md", "[there](gone.md#part)\n", "leads to no file"),
        (HEADER, SPDX, "write docs/reference/cpp/topo.md"),
        (HEADER, SPDX + "class A {\n};\n", "Threading:"),
        ("src/topo/a.cpp", SPDX + "x.store_release(1);\n", "name the edge"),
        (
            "src/topo/a.cpp",
            SPDX + "x.store_release(1);  // edge: half (release)\n",
            "only a release",
        ),
        ("src/topo/a.cpp", SPDX + "x.f_acq_rel(1);  // edge: whole (acq_rel)\n", "not described"),
        ("docs/internals/memory-order.d/a.md", "### `gone`\n", "in no source"),
    ],
)
def test_a_broken_rule_is_noticed(
    tidy: ModuleType, tmp_path: Path, path: str, text: str, word: str
) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    write(tmp_path, path, text)
    found = tidy.problems(tmp_path)
    assert any(word in line for line in found), found


def test_a_tidy_tree_has_no_problems(tidy: ModuleType, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    code = '#include "headrace/base/error.hpp"\nx.f_acq_rel(1);  // edge: whole (acq_rel)\n'
    write(tmp_path, "src/topo/a.cpp", SPDX + code)
    write(tmp_path, "docs/internals/memory-order.d/a.md", "### `whole`\n")
    assert tidy.problems(tmp_path) == []
