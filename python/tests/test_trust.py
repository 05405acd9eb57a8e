# SPDX-License-Identifier: Apache-2.0
"""headrace bench store --faults: faults are made, and what stores lose or falsify is counted."""

import json
import os
import shutil
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
from conftest import Here
from jsonschema import Draft202012Validator

from headrace._cli._output import schema_of
from headrace.store import Store
from headrace_lab.trust.cycles import run_cycles
from headrace_lab.trust.faults import ALL_FAULTS, COUNTS, FAULTS, Trial


def test_ours_loses_nothing_under_any_fault(here: Here) -> None:
    result = here("bench", "store", "--faults", "--rounds", "1", "--json")
    assert result.code == 0, result.stderr
    document = json.loads(result.stdout)
    Draft202012Validator(schema_of("bench-store")).validate(document)
    assert document["summary"] == dict.fromkeys(COUNTS, 0)
    stores = document["results"]["stores"]
    assert list(stores["headrace"]["faults"]) == list(ALL_FAULTS)
    faults = stores["headrace"]["faults"]
    assert not {fault: each for fault, each in faults.items() if "tries" not in each}
    assert stores["headrace"]["faults"]["bit of data flipped"]["unavailable"] == 1
    assert all("absent" in each or "version" in each for each in stores.values())
    assert stores["files"]["faults"]["bit of data flipped"]["wrong_bytes"] == 1


@pytest.mark.parametrize("fault", ["bit of data flipped", "file cut off", "another file in place"])
def test_damage_that_plain_files_serve_is_wrong(fault: str, tmp_path: Path) -> None:
    trial = Trial("files", tmp_path, "seed")
    FAULTS[fault](trial)
    assert trial.counts == {"wrong_bytes": 1}


def test_what_is_not_there_or_old_is_lost(tmp_path: Path) -> None:
    trial = Trial("files", tmp_path, "seed")
    with trial.opened():
        assert trial.put([1, 2, 3, 4])
    older = (tmp_path / "key-2").read_bytes()
    with trial.opened():
        assert trial.put([2])
        (tmp_path / "key-1").unlink()
        (tmp_path / "key-2").write_bytes(older)
        (tmp_path / "key-3").write_bytes(older)  # Of another key.
        trial.judge()
    assert trial.counts == {"acknowledged_lost": 2, "wrong_bytes": 1}


@pytest.mark.parametrize("signal,counted", [("KILL", "crashes"), ("STOP", "hangs")])
def test_a_process_that_ends_or_does_not_answer_is_counted(
    signal: str, counted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_lab.trust.faults._ANSWER_S", 1.0)
    trial = Trial("files", tmp_path, "seed")
    with trial.opened():
        assert trial.put([1])
        os.kill(trial.process_id, getattr(Signals, f"SIG{signal}"))
        assert not trial.put([1])
    assert trial.counts == {counted: 1}


class _Forgetful(Store):
    def put_many(self, keys: Any, sources: Any, **named: Any) -> Any:  # type: ignore[override]
        transfer = super().put_many(keys, sources, **named)
        assert transfer.wait()
        self.remove(keys[0])
        return transfer


def test_a_lost_block_is_told_from_a_dropped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_cycles(2000, 1, tmp_path, None)["bad"] == 0
    monkeypatch.setattr("headrace_lab.trust.cycles.Store", _Forgetful)
    assert run_cycles(2000, 1, tmp_path, None)["bad"] > 0


def test_stores_in_files_are_measured_beside_fio(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_lab.commands.bench._store_file.FILE_BYTES", {65536: 64 << 20})
    monkeypatch.setattr("headrace_lab.commands.bench._store_file._SECONDS", 1)
    command = ["bench", "store", "--rounds", "1", "--cycles", "1000", "--json"]
    result = here(*command, "--folder", str(tmp_path))
    if shutil.which("fio") is None:
        assert "apt install fio" in result.stderr
        return
    assert result.code == 0, result.stderr
    document = json.loads(result.stdout)
    Draft202012Validator(schema_of("bench-store")).validate(document)
    assert document["summary"]["cold_get_vs_fio"] > 0
    assert document["summary"]["durable_put_vs_fio"] > 0
    assert document["summary"]["single_get_time_vs_fio"] > 0
    assert list(tmp_path.iterdir()) == []
