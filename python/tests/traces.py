# SPDX-License-Identifier: Apache-2.0
"""Binary traces as lists of records (docs/reference/trace.md)."""

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

THREAD, JOB, RUN, WAIT, CACHED, SEND, RECEIVE, ARRIVAL, RAN = 1, 2, 3, 5, 6, 9, 10, 11, 13
HEAD_BYTES, BLOCK_BYTES, BLOCK_HEAD_BYTES = 4096, 1 << 16, 96
ENTRY = struct.Struct("<QQQQQQQBBBBI")
WORDS = 8
RECORD_BYTES_MAX = 4 + WORDS * 8

HEAD = {
    "format": "headrace-trace",
    "version": 2,
    "records": "binary",
    "ticks_per_second": 1e9,
}


class Entry(NamedTuple):
    """One record."""

    begin: int
    end: int
    id: int
    other: int
    source: int
    target: int
    size: int
    kind: int
    operation: int = 0
    source_node: int = 0
    target_node: int = 0
    members: int = 1


def _words(entry: Entry) -> list[int]:
    whole = ENTRY.pack(*entry)
    return [int.from_bytes(whole[at : at + 8], "little") for at in range(0, 64, 8)]


def packed(entries: Iterable[Entry]) -> bytes:
    """Return the records as they follow each other in a block."""
    before, parts = [0] * WORDS, []
    for words in map(_words, entries):
        changed = [one ^ other for one, other in zip(words, before, strict=True)]
        lengths = [(each.bit_length() + 7) // 8 for each in changed]
        parts.append(sum(each << 4 * i for i, each in enumerate(lengths)).to_bytes(4, "little"))
        parts += [
            each.to_bytes(length, "little") for each, length in zip(changed, lengths, strict=True)
        ]
        before = words
    return b"".join(parts)


def block(number: int, records: bytes, generation: int = 0) -> bytes:
    """Return a block, without its rest; `number` is its own or that of what it is a copy of."""
    origin = HEAD_BYTES + number * BLOCK_BYTES
    return struct.pack("<QQ80x", generation << 32 | len(records), origin) + records


def blocks(head: bytes, parts: Iterable[bytes]) -> bytes:
    """Return a file."""
    return head.ljust(HEAD_BYTES, b"\0") + b"".join(
        each.ljust(BLOCK_BYTES, b"\0") for each in parts
    )


def _unpacked(records: bytes) -> Iterator[Entry]:
    at, words = 0, [0] * WORDS
    while at + 4 <= len(records):
        lengths = int.from_bytes(records[at : at + 4], "little")
        at += 4
        for i in range(WORDS):
            length = lengths >> 4 * i & 15
            words[i] ^= int.from_bytes(records[at : at + length], "little")
            at += length
        if at > len(records):
            return
        yield Entry(*ENTRY.unpack(b"".join(each.to_bytes(8, "little") for each in words)))


def entries(file: bytes) -> list[Entry]:
    """Return all records of a file, in its order."""
    found = []
    for begin in range(HEAD_BYTES, len(file) - BLOCK_HEAD_BYTES + 1, BLOCK_BYTES):
        state, origin = struct.unpack_from("<QQ", file, begin)
        records = file[begin + BLOCK_HEAD_BYTES :][: state & 0xFFFF_FFFF]
        found.append((begin != origin, (origin, state >> 32), records))
    copied = {name for is_copy, name, records in found if is_copy and records}
    return [
        entry
        for is_copy, name, records in found
        if is_copy or name not in copied
        for entry in _unpacked(records)
    ]


def record(kind: int, begin: int, end: int, **fields: int) -> Entry:
    """One record; by default a copy on the path automatic, of fresh memory on node 0."""
    name = fields.get("name", 1)
    place = name << 32
    return Entry(
        *(begin, end, name, fields.get("other", 0), place, place + (1 << 31)),
        *(fields.get("size", 0), kind, 2, 0, fields.get("target", 0), fields.get("count", 1)),
    )


def mark(number: int) -> Entry:
    """Return the record at the begin of a block of this thread."""
    return Entry(1, 1, 77, number, 0, 0, 0, THREAD)


def head_of(**head: object) -> bytes:
    """Return the first line of a file."""
    return json.dumps(HEAD | head).encode() + b"\n"


def write(path: Path, *threads: Iterable[Entry], **head: object) -> str:
    """Write a trace with one block per 900 records of a thread."""
    parts = [
        [mark(number), *each]
        for number, records in enumerate(threads, 1)
        for each in batched(list(records), 900)
    ]
    made = [block(number, packed(each)) for number, each in enumerate(parts)]
    path.write_bytes(blocks(head_of(**head), made))
    return str(path)


def batched(records: list[Entry], count: int) -> list[list[Entry]]:
    """Return the records in groups."""
    return [records[at : at + count] for at in range(0, len(records), count)]
