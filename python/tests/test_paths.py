# SPDX-License-Identifier: Apache-2.0
"""Paths with spaces and with bytes that are not UTF-8: of files, and of the home directory."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import Command, Here

import headrace
from headrace.pmem import Ring

MACHINES = Path(__file__).resolve().parents[2] / "tests" / "machines"


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a b\xff"))
    folder.mkdir()
    return folder


def test_files_of_the_library_may_have_any_path(odd: Path) -> None:
    record = odd / "machine.json"
    record.write_bytes((MACHINES / "bare-node.json").read_bytes())
    assert headrace.replay(record).nodes
    file = str(odd / "blocks")
    with headrace.Store([headrace.Tier("1MiB", path=file)], block_bytes="4KiB") as store:
        store.put("key", b"value")
        assert bytes(store.get("key")) == b"value"
    ring = Ring(odd / "ring", capacity="64KiB")
    assert ring.state().capacity_bytes == 64 << 10
    headrace.start_trace(odd / "trace")
    headrace.stop_trace()
    assert (odd / "trace").exists()


def test_an_error_names_the_path_with_all_its_bytes(odd: Path) -> None:
    with pytest.raises(headrace.NotFoundError) as caught:
        headrace.replay(odd / "absent.json")
    assert os.fsencode(odd) in os.fsencode(str(caught.value))


def test_the_command_takes_any_path(here: Here, odd: Path) -> None:
    record = str(odd / "machine.json")
    for words in (
        ["topo", "--record", record],
        ["topo", "--replay", record],
        ["pmem", "ring", "make", str(odd / "ring")],
        ["pmem", "ring", "info", str(odd / "ring")],
    ):
        outcome = here(*words)
        assert outcome.code == 0, (words, outcome.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ["query", "--scale-factor", "0.01", "--rounds", "1", "--data-dir"],
        ["sql", "--tpch", "0.01", "--query", "6", "--rounds", "1", "--data-dir"],
        ["sim", "run", "qdp", "--machine"],
    ],
)
def test_what_pyarrow_duckdb_and_json_refuse_is_named(
    command: Command, odd: Path, words: list[str]
) -> None:
    result = command(*words, str(odd))
    assert result.returncode == 1
    assert "it is not UTF-8, which is needed here; rename it" in result.stderr
    assert "a b\\udcff" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_home_directory_may_have_any_path(command_path: Path, odd: Path) -> None:
    profile = odd / ".config" / "headrace" / "copy.json"
    profile.parent.mkdir(parents=True)
    profile.write_text(json.dumps({"schema": "nothing"}))
    done = subprocess.run(
        [command_path],
        capture_output=True,
        check=False,
        env=os.environ | {"HOME": str(odd), "TMPDIR": str(odd)},
        cwd=odd,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
