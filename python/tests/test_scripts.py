# SPDX-License-Identifier: Apache-2.0
"""What the scripts and the build refuse, what they recover from, and in which folders they work."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

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
    assert "'abc' is no number of seconds" in result.stderr


def test_check_names_its_parts() -> None:
    result = run(ROOT / "scripts" / "check", "asam")
    assert result.returncode == 2
    assert "no part 'asam': there are test guests long run soak" in result.stderr


def test_check_tells_a_part_that_cannot_run_from_one_that_fails(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    script = Path(shutil.copy(ROOT / "scripts" / "check", scripts))
    codes = {
        "bootstrap": 0,
        "setup": 0,
        "package": 0,
        "test_package": 77,
        "root": 0,
        "docs": 1,
        "fuzz": 0,
    }
    for name, code in codes.items():
        (scripts / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (scripts / name).chmod(0o755)
    # What a part starts is not told that it is one: 'test' starts this test.
    (scripts / "fuzz").write_text("#!/bin/sh\n! env | grep HEADRACE_CHECK_PART\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    git = ("git", "-C", tmp_path, *author)
    run(*git, "init", "-q")
    assert run(*git, "commit", "-q", "--allow-empty", "-m", "a").returncode == 0
    result = run(script, "package", "docs", "fuzz")
    assert result.returncode == 1
    states = [line.split()[:2] for line in result.stdout.splitlines()[-3:]]
    assert states == [["package", "skipped"], ["docs", "FAILED"], ["fuzz", "passed"]]
    assert run(script, "package").returncode == 0


def put_environment(tree: Path) -> None:
    """As bootstrap makes it, but without pip, which takes seconds."""
    venv.create(tree / ".venv")


def test_an_environment_copied_with_its_checkout_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "bootstrap", tmp_path / "scripts")
    # With nothing to install.
    tables = "[project]\ndependencies = []\noptional-dependencies = {dev = []}\n"
    (tmp_path / "pyproject.toml").write_text(tables + "[build-system]\nrequires = []\n")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    for name in ("scripts", "pyproject.toml"):
        (tmp_path / name).rename(first / name)
    words = ("env", "HEADRACE_PACKAGES=skip", "PIP_NO_INDEX=1")
    put_environment(first)  # The second one is bootstrap's.
    (first / ".venv" / "headrace-environment-dev").write_text(
        hashlib.sha256((first / "pyproject.toml").read_bytes()).hexdigest()
    )
    assert "is up to date" in run(*words, first / "scripts" / "bootstrap").stdout
    shutil.copytree(first, second, symlinks=True)
    result = run(*words, second / "scripts" / "bootstrap")
    assert ".venv was made for another directory" in result.stdout, result.stderr
    assert "making the Python environment" in result.stdout
    assert "is up to date" in run(*words, second / "scripts" / "bootstrap").stdout
    python = second / ".venv" / "bin" / "python"
    assert run(python, "-c", "import sys; print(sys.prefix)").stdout.strip() == str(
        second / ".venv"
    )
    assert (first / ".venv" / "bin" / "python").exists()


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


def put_bootstrap(tree: Path, *packages: str) -> Path:
    (tree / "scripts").mkdir(parents=True)
    (tree / "pyproject.toml").write_text(
        f"[project]\ndependencies = {list(packages)}\noptional-dependencies = {{dev = []}}\n"
        "[build-system]\nrequires = []\n"
    )
    return Path(shutil.copy(ROOT / "scripts" / "bootstrap", tree / "scripts"))


def put_program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_a_tree_whose_path_is_not_utf8_is_refused_before_anything_is_installed(
    tmp_path: Path,
) -> None:
    script = put_bootstrap(Path(os.fsdecode(os.fsencode(tmp_path) + b"/a \xff")))
    result = run(script)
    assert result.returncode == 1
    assert "the path of this tree is not UTF-8" in result.stderr
    assert "move the tree" in result.stderr
    assert not result.stdout


def test_without_a_network_or_sudo_it_says_what_is_missing(tmp_path: Path) -> None:
    script = put_bootstrap(tmp_path / "a tree", "headrace-nowhere==1")
    put_environment(script.parents[1])
    ours = Path(sysconfig.get_path("purelib"))  # For its pip.
    result = run("env", "HEADRACE_PACKAGES=skip", "PIP_NO_INDEX=1", f"PYTHONPATH={ours}", script)
    assert result.returncode == 1
    assert "pip cannot install them" in result.stderr
    programs = tmp_path / "programs"
    put_program(programs, "dpkg-query", "echo absent")
    put_program(programs, "apt-get", "exit 100")
    put_program(programs, "id", "echo 0")
    result = run(script, path=programs)
    assert result.returncode == 1
    assert "system packages" in result.stdout
    assert "apt cannot install them" in result.stderr
    put_program(programs, "id", "echo 1000")
    for name in ("bash", "dirname", "env", "iconv"):
        (programs / name).symlink_to(shutil.which(name) or "")
    result = run("env", f"PATH={programs}", script)
    assert result.returncode == 1
    assert "neither root nor sudo is at hand to install these packages: g++ cmake" in result.stderr


def test_without_the_emulator_it_is_built_below_a_path_with_spaces(tmp_path: Path) -> None:
    tree, build = tmp_path / "a tree", tmp_path / "without emulator"
    tree.symlink_to(ROOT)
    options = ("-DHEADRACE_BUILD_EMULATOR=OFF", "-DHEADRACE_UNITY=ON")
    result = run("cmake", "-S", tree, "-B", build, "-G", "Ninja", *options)
    assert result.returncode == 0, result.stderr
    result = run("cmake", "--build", build, "--target", "headrace_base")
    assert result.returncode == 0, result.stdout


@pytest.mark.skipif(not shutil.which("dh_python3"), reason="dh-python is not installed")
def test_libraries_of_the_debian_package_keep_their_names(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "packaging" / "debian", tmp_path / "debian")
    private = tmp_path / "debian" / "headrace" / "usr" / "lib" / "headrace" / "headrace"
    private.mkdir(parents=True)
    for name in ("__init__.py", "libheadrace-preload.so"):
        (private / name).touch()
    result = run(
        "env", "-C", tmp_path, "DEB_HOST_ARCH=amd64", "debian/rules", "override_dh_python3"
    )
    assert result.returncode == 0, result.stderr
    assert (private / "libheadrace-preload.so").exists()
