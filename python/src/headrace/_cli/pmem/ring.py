# SPDX-License-Identifier: Apache-2.0
"""``headrace pmem ring``: make, fill, drain and inspect a ring; a killed end can be resumed."""

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

import click

from headrace import _core
from headrace._cli._app import Group
from headrace._cli._options import (
    Choice,
    Count,
    Decorator,
    FilePath,
    Size,
    flag,
    json_option,
    option,
    refuse,
    refuse_value,
)
from headrace._cli._output import complain, print_document
from headrace._cli._report import Report
from headrace._files import is_there
from headrace._words import counted
from headrace.errors import InvalidArgumentError, IoFailedError, NotFoundError
from headrace.machine import topo
from headrace.pmem import Granularity, Ring, RingConsumer, RingEntry, RingProducer, RingState

BATCH_MAX = 1024
COUNT_MAX = 2**53
CAPACITY_BYTES_MIN = 4096
_PAUSE_S = 0.001
_NUMBER_BYTES_MAX = 32
_ESCAPED_BYTES = 4

command = Group(
    "ring",
    """Fill and empty a ring in a file, from two terminals; kill either and start it again.

    Example: headrace pmem ring produce ring.pmem --count 1000
    """,
)

_file_argument = click.argument("file", type=FilePath(), metavar="FILE")
_capacity_option = option(
    "--capacity",
    type=Size(CAPACITY_BYTES_MIN),
    default="1MiB",
    help="Capacity of the ring, if it is created.",
)
_granularity_option = option(
    "--granularity",
    type=Choice("byte", "line", "page"),
    help="How finely the platform saves stores when power fails. Asked of the platform if not "
    "given; 'line' treats any file as persistent memory.",
)


def _count_option(help: str) -> Decorator:  # noqa: A002 - As click's.
    return option("--count", type=Count(1, COUNT_MAX), help=help)


def _refuse_layout(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        refuse_value("--layout", "every ring has checksums now; leave the option out")


@command.command("make")
@_file_argument
@_capacity_option
@click.option("--layout", hidden=True, expose_value=False, callback=_refuse_layout)
def make(file: str, capacity: int) -> None:
    """Make a ring in a new file, whole or not at all.

    Example: headrace pmem ring make ring.pmem --capacity 64MiB
    """
    Ring(file, capacity=capacity)


@command.command("produce")
@_file_argument
@_count_option("Stop once N entries have been enqueued in total.")
@flag("--resume", help="Skip as many lines of stdin as entries were enqueued before.")
@option(
    "--batch",
    type=Count(1, BATCH_MAX),
    help="Entries of --count that share a fence; 1 if not given.",
)
@_capacity_option
@_granularity_option
def produce(
    file: str,
    count: int | None,
    batch: int | None,
    capacity: int,
    granularity: Granularity | None,
    *,
    resume: bool,
) -> None:
    """Enqueue the lines of stdin, or, with --count, numbered entries until N were enqueued in all.

    Each entry is durable before the next is begun; while the ring is full, it waits. Killed at any
    moment and started again, --count and --resume go on behind the last durable entry. The ring is
    made if there is none.

    Example: headrace pmem ring produce ring.pmem --count 100000
    """
    if count is None and batch is not None:
        refuse("--batch is for --count; lines of stdin go one by one")
    if count is not None and resume:
        refuse("--resume is for lines of stdin; --count always continues")
    with _ring(file, capacity).producer(granularity=granularity) as producer:
        _warn(file, producer)
        first = producer.next_ordinal
        if count is not None:
            _enqueue_numbered(producer, count, batch or 1)
        else:
            _enqueue_lines(producer, first if resume else 0)
        number = producer.next_ordinal - first
        _say(f"enqueued {counted(number, 'entry')}, {producer.next_ordinal:,} in all")


@command.command("consume")
@_file_argument
@option(
    "--output",
    type=FilePath(),
    help="Where the entries go, instead of stdout; appended to what is there.",
)
@_count_option("Stop once N entries have been read in total, also by earlier consumers.")
@flag("--no-wait", help="End when the ring is empty.")
@_capacity_option
@_granularity_option
def consume(
    file: str,
    output: str | None,
    count: int | None,
    capacity: int,
    granularity: Granularity | None,
    *,
    no_wait: bool,
) -> None:
    """Take entries and write them out, a line each: number, tabulator, bytes.

    Entries are acknowledged after they are written. Killed at any moment and started again, it
    continues after the last whole line of the file, without duplicates; a torn line is cut off. In
    a pipe or terminal an entry may appear twice, with the same number. The ring is made if there is
    none.

    Example: headrace pmem ring consume ring.pmem --output entries.txt
    """
    if no_wait and not is_there(Path(file), f"use the ring '{file}'"):
        raise NotFoundError(
            f"consume the ring '{file}'",
            "there is no such file",
            "check the path; without --no-wait the ring is made",
        )
    with _ring(file, capacity).consumer(granularity=granularity) as consumer:
        _warn(file, consumer)
        with Sink(output, consumer.recovered) as sink:
            _drain(consumer, sink, count, wait=not no_wait)


@command.command("info")
@_file_argument
@json_option
def info(file: str, *, as_json: bool) -> None:
    """Look at a ring and change nothing.

    Example: headrace pmem ring info ring.pmem
    """
    state = Ring.open(file).state()
    fields = {name: getattr(state, name) for name in state.__slots__}
    if as_json:
        print_document(
            "pmem-ring-info",
            machine=topo().document,
            results=fields,
            summary={
                "entry_count": state.entry_count,
                "first_ordinal": state.first_ordinal,
                "next_ordinal": state.first_ordinal + state.entry_count,
            },
        )
        return
    roles = [
        role
        for role, taken in (("producer", state.has_producer), ("consumer", state.has_consumer))
        if taken
    ]
    _say(
        f"{counted(state.entry_count, 'entry')}, from number {state.first_ordinal:,} on\n"
        f"capacity {_core.bytes_text(state.capacity_bytes)}, entries up to "
        f"{state.entry_bytes_max:,} bytes\n"
        f"producers so far {state.generation:,}; at work now: {', '.join(roles) or 'none'}"
    )


class Sink:
    """Output for entries: a readable file, or a stream.

    The last line of a file must come from the ring with the state `recovered`. Entries written but
    not acknowledged are still in the ring; they are not written again.
    """

    def __init__(self, path: str | None, recovered: RingState) -> None:
        self._tried = f"write entries into '{path or 'stdout'}'"
        self._last = -1  # The number of the file's last line.
        # fd 1, because sys.stdout collects output until the end.
        self._descriptor = 1 if path is None else self._open(path)
        self._owned = path is not None
        try:
            if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                self._resume(path or f"/proc/self/fd/{self._descriptor}", recovered)
        except OSError as problem:
            self.__exit__()
            # Without reading the file, an entry could be duplicated.
            remedy = "make it readable, or write into a pipe: '| cat >>FILE'"
            raise self._failed("it cannot be read and committed", remedy, problem) from problem
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        if self._owned:
            os.close(self._descriptor)

    def _failed(self, cause: str, remedy: str, problem: OSError) -> IoFailedError:
        return IoFailedError(self._tried, cause, remedy, problem.errno or 0)

    def _open(self, path: str) -> int:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as problem:
            raise self._failed("it cannot be opened", "choose another file", problem) from problem

    def _resume(self, path: str, recovered: RingState) -> None:
        """Read the number of the last whole line, and cut off the torn line after it."""
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            longest = _NUMBER_BYTES_MAX + _ESCAPED_BYTES * recovered.entry_bytes_max
            file.seek(max(0, size - 2 * longest))
            *_, last, torn = b"\n", *file.read().split(b"\n")
        number = last.partition(b"\t")[0]
        self._last = int(number) if number.isdigit() else -1
        if self._last >= recovered.first_ordinal + min(recovered.entry_count, BATCH_MAX):
            cause = f"its last line has the number {self._last}, which is not in the ring"
            raise self._foreign(cause)
        if torn and (recovered.entry_count == 0 or not re.match(rb"[0-9]+(\t|$)", torn)):
            raise self._foreign("its last line has no end and is not of the ring")
        os.ftruncate(self._descriptor, size - len(torn))
        # Write at the end, even without O_APPEND.
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def _foreign(self, cause: str) -> InvalidArgumentError:
        return InvalidArgumentError(self._tried, cause, "name another file, or move it away")

    def write(self, entries: list[RingEntry]) -> None:
        """Write the entries that are not in the file yet; on return, a file is synced to disk."""
        text = b"".join(
            b"%d\t%s\n" % (entry.ordinal, _printable(entry.data))
            for entry in entries
            if entry.ordinal > self._last
        )
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except BrokenPipeError:
            raise
        except OSError as problem:
            raise self._failed("writing fails", "check the disk", problem) from problem
        try:
            os.fsync(self._descriptor)
        except OSError as problem:
            # Pipes and terminals cannot be synced.
            if problem.errno not in {errno.EINVAL, errno.EROFS}:
                remedy = "check the disk; nothing of it was acknowledged"
                raise self._failed("it does not reach the disk", remedy, problem) from problem


def _printable(data: bytes) -> bytes:
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable() and "\\" not in text:
        return text.encode()
    return b"".join(_escaped(byte) for byte in data)


def _escaped(byte: int) -> bytes:
    if byte == ord("\\"):
        return b"\\\\"
    return bytes([byte]) if ord(" ") <= byte <= ord("~") else b"\\x%02x" % byte


def _drain(consumer: RingConsumer, sink: Sink, total: int | None, *, wait: bool) -> None:
    passed = consumer.recovered.first_ordinal
    while total is None or passed < total:
        entries: list[RingEntry] = []
        while len(entries) < BATCH_MAX and (total is None or passed < total):
            entry = consumer.next()
            if entry is None:
                break
            entries.append(entry)
            passed = entry.ordinal + 1
        if entries:
            sink.write(entries)
            consumer.acknowledge()
        elif not wait:
            return
        else:
            time.sleep(_PAUSE_S)


def _enqueue_numbered(producer: RingProducer, total: int, batch_count: int) -> None:
    while (first := producer.next_ordinal) < total:
        numbers = range(first, min(first + batch_count, total))
        entries = [b"entry %d" % number for number in numbers]
        _until(partial(producer.enqueue_all, entries))


def _enqueue_lines(producer: RingProducer, skip_count: int) -> None:
    for number, line in enumerate(_lines()):
        if number >= skip_count:
            _until(partial(producer.enqueue, line))


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(_PAUSE_S)


def _ring(file: str, size_bytes: int) -> Ring:
    tried = f"use the ring '{file}'"
    if not is_there(Path(file), tried):
        # Another process may make it first.
        with suppress(InvalidArgumentError):
            return Ring(file, capacity=size_bytes)
        if not is_there(Path(file), tried):
            return Ring(file, capacity=size_bytes)
    return Ring.open(file)


def _warn(file: str, end: RingProducer | RingConsumer) -> None:
    if not end.is_persistent_memory:
        complain(f"'{file}' is {end.note}")


def _say(text: str) -> None:
    Report().say(text)
