# SPDX-License-Identifier: Apache-2.0
"""Files of traces: blocks and their copies, ends in the middle, and damage."""

import struct
from pathlib import Path
from typing import Any

import pytest
from traces import (
    HEAD_BYTES,
    RUN,
    Entry,
    block,
    blocks,
    head_of,
    mark,
    packed,
    record,
    write,
)

from headrace.errors import (
    CapacityExceededError,
    CorruptDataError,
    Error,
    InvalidArgumentError,
    VersionMismatchError,
)
from headrace.simulator import replay

RECORDS = [record(RUN, 100 * i, 100 * i + 50, size=64) for i in range(1, 11)]


def test_of_a_file_that_was_cut_off_what_is_whole_is_used(tmp_path: Path) -> None:
    whole, but_one = (packed([mark(1), *each]) for each in (RECORDS, RECORDS[:-1]))
    (tmp_path / "t").write_bytes(blocks(head_of(), []) + block(0, whole)[:-3])
    head, _ = replay(str(tmp_path / "t"), [{"machine": "spr-4dsa"}])
    assert head["operations"] == 9
    assert head["cut_off_bytes"] == len(whole) - len(but_one) - 3


def test_records_that_are_in_a_block_and_in_its_copy_count_once(tmp_path: Path) -> None:
    old, new = (packed([mark(1), *each]) for each in (RECORDS[:6], RECORDS[6:]))

    def count(*parts: bytes) -> int:
        (tmp_path / "t").write_bytes(blocks(head_of(), parts))
        return int(replay(str(tmp_path / "t"), [{"machine": "spr-4dsa"}])[0]["operations"])

    # A kill before the copy has its head, after that, and when the block has begun again.
    assert count(block(0, old), bytes(96) + old) == 6
    assert count(block(0, old), block(0, old)) == 6
    assert count(block(0, b"", 1), block(0, old)) == 6
    assert count(block(0, new, 1), block(0, old)) == 10
    # A process was killed after it had a number and before it wrote.
    assert count(block(0, new, 1), bytes(96), block(0, old)) == 10


@pytest.mark.parametrize(
    "damaged, cause",
    [
        (block(0, packed([mark(1)]) + b"\x09\0\0\0" + bytes(9)), "ends outside its block"),
        (block(0, packed([mark(1)]) + b"\x08\0\0\0"), "ends outside its block"),
        (struct.pack("<QQ80x", 1 << 16, HEAD_BYTES), "impossible length"),
        (block(0, packed([record(RUN, 10, 20)])), "unknown kind 3"),
    ],
)
def test_a_damaged_block_is_refused_by_name(tmp_path: Path, damaged: bytes, cause: str) -> None:
    (tmp_path / "t").write_bytes(blocks(head_of(), [damaged]))
    with pytest.raises(CorruptDataError, match=cause):
        replay(str(tmp_path / "t"), [{"machine": "spr-4dsa"}])


@pytest.mark.parametrize(
    "records, head, error, cause",
    [
        ([], {}, InvalidArgumentError, "no operation"),
        ([record(RUN, 10, 20, size=1)], {"version": 1}, VersionMismatchError, "version 1"),
        ([record(RUN, 10, 20, size=1)], {"format": "else"}, InvalidArgumentError, "no trace"),
        ([record(RUN, 10, 20)], {"ticks_per_second": 0}, CorruptDataError, "impossible"),
        ([record(RUN, 10, 20)], {"ticks_per_second": "1"}, CorruptDataError, "wrong type"),
        ([record(RUN, 20, 10)], {}, CorruptDataError, "ends before it begins"),
        ([record(RUN, 10, 20), record(RUN, 5, 6)], {}, CorruptDataError, "goes back"),
        ([record(99, 10, 20)], {}, CorruptDataError, "unknown kind 99"),
        ([record(RUN, 10, 20, count=1 << 31)], {}, CapacityExceededError, "more than 67108864"),
        ([record(RUN, 10, 20, target=63)], {}, InvalidArgumentError, "stands for '63'"),
    ],
)
def test_a_wrong_trace_is_refused_by_name(
    tmp_path: Path, records: list[Entry], head: dict[str, Any], error: type[Error], cause: str
) -> None:
    with pytest.raises(error, match=cause):
        replay(write(tmp_path / "t", records, **head), [{"machine": "spr-4dsa"}])
