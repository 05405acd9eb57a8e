# SPDX-License-Identifier: Apache-2.0
"""Sample machines, which are installed so that the examples of the help work anywhere."""

from pathlib import Path

import pytest
from conftest import Here

SAMPLES = [
    ("topo", "xeon-max-flat", "hbm"),
    ("doctor", "scalable-mode-off", "scalable mode"),
    ("dsa list", "healthy", "wq0.0"),
]


@pytest.mark.parametrize("command, name, word", SAMPLES)
def test_a_sample_is_found_by_its_name(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told = here(*command.split(), "--replay", name)
    assert word in told.stdout.lower(), told


@pytest.mark.parametrize("command, name, word", SAMPLES)
def test_the_help_names_a_sample_that_is_there(
    here: Here, command: str, name: str, word: str
) -> None:
    del word
    assert f"headrace {command} --replay {name}" in " ".join(
        here(*command.split(), "--help").stdout.split()
    )


@pytest.mark.parametrize("command, name, word", SAMPLES)
def test_a_file_of_that_name_goes_before_the_sample(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, word: str
) -> None:
    del word
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("no record")
    assert here(*command.split(), "--replay", name).code == 1
