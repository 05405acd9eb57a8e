# SPDX-License-Identifier: Apache-2.0
"""headrace store: what it shows of a file, what it finds, and what it copies."""

import json
from pathlib import Path

import pytest
from conftest import Here

import headrace

BLOCK = 4096
COUNT = 10
DATA = 2 * 4096 + 2 * 131072
"""Where the data of a file with up to 16 slots begins."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "blocks"
    with headrace.Store([headrace.Tier(16 * BLOCK, path=path)], block_bytes=BLOCK) as store:
        for number in range(COUNT):
            store.put(f"key {number}", bytes([number]) * (100 + number))
    return path


def _blocks(path: Path) -> dict[bytes, bytes]:
    with headrace.Store([headrace.Tier(0, path=path)], block_bytes=BLOCK) as store:
        return {key: store.get(key) for key in store.keys()}  # noqa: SIM118 - Not a mapping.


def test_a_good_file_is_good_and_listed(file: Path, here: Here) -> None:
    assert f"{COUNT} whole" in here("store", "check", str(file)).stdout
    assert f"{COUNT} blocks of 16" in here("store", "stat", str(file)).stdout
    summary = json.loads(here("store", "check", str(file), "--json").stdout)["summary"]
    assert summary["blocks"] == summary["with_checksum"] == COUNT
    assert summary["capacity_blocks"] == 16
    listed = here("store", "ls", str(file)).stdout.splitlines()
    assert listed[0].split() == ["100", "key", "0"]
    assert len(listed) == COUNT


def test_a_flipped_bit_is_found_and_the_file_not_changed(file: Path, here: Here) -> None:
    flipped = bytearray(file.read_bytes())
    flipped[DATA + 10] ^= 1
    file.write_bytes(flipped)
    found = here("store", "check", str(file))
    assert found.code == 1
    assert "corrupt" in found.stdout
    assert file.read_bytes() == flipped
    document = here("store", "check", str(file), "--json")
    assert document.code == 1
    assert [each["state"] for each in json.loads(document.stdout)["results"]["bad"]] == ["corrupt"]


def test_keys_are_removed(file: Path, here: Here) -> None:
    assert here("store", "rm", str(file), "key 1", "key 2").code == 0
    assert set(_blocks(file)) == {b"key %d" % each for each in (0, *range(3, COUNT))}
    refused = here("store", "rm", str(file), "key 1")
    assert refused.code == 1
    assert "no block has this key" in refused.stderr


def test_a_copy_has_the_same_blocks(file: Path, here: Here, tmp_path: Path) -> None:
    to = tmp_path / "copy"
    assert here("store", "copy", str(file), str(to)).code == 0
    assert _blocks(to) == _blocks(file)
    assert "exists" in here("store", "copy", str(file), str(to)).stderr


@pytest.mark.parametrize("slots,kept", [(40, range(COUNT)), (4, range(COUNT - 4, COUNT))])
def test_a_resized_file_has_the_latest_blocks(
    file: Path, here: Here, slots: int, kept: range
) -> None:
    before = _blocks(file)
    assert here("store", "resize", str(file), str(slots * BLOCK)).code == 0
    assert _blocks(file) == {b"key %d" % each: before[b"key %d" % each] for each in kept}
    summary = json.loads(here("store", "check", str(file), "--json").stdout)["summary"]
    assert summary["capacity_blocks"] == slots
    assert [each.name for each in file.parent.iterdir()] == ["blocks"]


def test_a_resize_that_cannot_be_done_changes_no_file(file: Path, here: Here) -> None:
    mine = file.with_name("blocks.resized")
    mine.write_text("mine")
    assert "exists" in here("store", "resize", str(file), "1MiB").stderr
    assert mine.read_text() == "mine"
    mine.unlink()
    flipped = bytearray(file.read_bytes())
    flipped[DATA + 10] ^= 1
    file.write_bytes(flipped)
    refused = here("store", "resize", str(file), "1MiB")
    assert "1 block could not be read" in refused.stderr
    assert file.read_bytes()[DATA:] == flipped[DATA:]
    assert [each.name for each in file.parent.iterdir()] == ["blocks"]


def test_what_is_no_store_is_refused(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("not a store" * 1000)
    for words in (["check"], ["stat"], ["ls"], ["resize"]):
        more = ["1MiB"] if words == ["resize"] else []
        refused = here("store", *words, str(path), *more)
        assert refused.code == 1
        assert "it is not a store" in refused.stderr
    assert here("store", "check", str(tmp_path / "absent")).code == 1
    with headrace.Store([headrace.Tier("1MiB", path=tmp_path / "open")]):
        assert "a store has it open" in here("store", "stat", str(tmp_path / "open")).stderr
