# SPDX-License-Identifier: Apache-2.0
"""Generating lineitem: kept for the next time, whole or not at all, refused before it begins."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import headrace
from headrace_lab.tpch import table as tpch


def leftovers(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.name != "lineitem.parquet"]


def test_a_table_is_generated_once(tmp_path: Path) -> None:
    shares: list[float] = []
    path = tpch.ensure_lineitem(0.001, tmp_path, shares.append)
    assert pq.ParquetFile(path).metadata.num_rows == 6005
    assert shares[-1] == 1
    made_ns = path.stat().st_mtime_ns
    assert tpch.ensure_lineitem(0.001, tmp_path) == path
    assert path.stat().st_mtime_ns == made_ns
    assert leftovers(tmp_path) == [path.parent]


def test_a_table_that_does_not_fit_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(headrace.CapacityExceededError, match="are free"):
        tpch.ensure_lineitem(100_000, tmp_path)
    assert not leftovers(tmp_path)


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(_share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tpch.ensure_lineitem(0.01, tmp_path, interrupt)
    assert not leftovers(tmp_path)


def test_a_generator_that_fails_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "tpchgen-cli"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho it broke >&2\nexit 5\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    with pytest.raises(headrace.IoFailedError, match="it broke"):
        tpch.ensure_lineitem(0.01, tmp_path / "data")
    program.write_text("#!/bin/sh\nkill -TERM $$\n")
    with pytest.raises(headrace.IoFailedError, match=r"died with <Signals\.SIGTERM: 15>"):
        tpch.ensure_lineitem(0.01, tmp_path / "data")
    assert not leftovers(tmp_path / "data")


def test_a_missing_generator_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(headrace.NotFoundError, match="tpchgen-cli is not installed"):
        tpch.ensure_lineitem(0.01, tmp_path / "data")


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(headrace.IoFailedError, match="another folder by --data-dir"):
        tpch.ensure_lineitem(0.01, tmp_path / "file" / "below")


def test_the_directory_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DATA", "/data/here")
    assert tpch.default_directory() == Path("/data/here")
    monkeypatch.delenv("HEADRACE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/data/cache")
    assert tpch.default_directory() == Path("/data/cache/headrace/tpch")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/data/home")
    assert tpch.default_directory() == Path("/data/home/.cache/headrace/tpch")
    assert os.sep in str(tpch.table_path("lineitem", 0.01, Path("/data")))
