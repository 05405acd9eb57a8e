# SPDX-License-Identifier: Apache-2.0
"""Results that the processes of a host share in a store, which one of them serves."""

import hashlib
import json
import logging
import os
import pickle
import secrets
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from headrace.engine import Engine
from headrace.errors import CapacityExceededError, Error, NotFoundError
from headrace.store import Store

_BLOCK_BYTES = 1 << 20
_DATA_BYTES = _BLOCK_BYTES * 7 // 8
"""The rest is for the head, the schema and padding."""
_DEADLINE_S = 5.0
_HEAD = struct.Struct("<8s8sQ40x")
"""Of a block: the process that put the result, which one, and its rows in all."""
_LENGTHS = b"headrace_lengths"
"""Of the buffers of a pickled object, in the metadata of a column of bytes that has them."""
_ALIGNMENT = 64
_log = logging.getLogger(__name__)


class SharedResults:
    """Results by name. Tables are read in place; other objects are unpickled, so each is private.

    If the server ends, the next process that asks it serves, with an empty store.

    Threading: shared.
    """

    def __init__(self, token: str, capacity: int) -> None:
        """Connect to the server of this name, or serve a store of `capacity` bytes."""
        self._path = f"{tempfile.gettempdir()}/headrace-{token}"
        self._capacity = capacity
        self._engine = Engine()
        self._process = secrets.token_bytes(8)
        self._lock = threading.Lock()
        self._server: Store | None = None
        self._serve()
        self._store = Store.connect(self._path, deadline_s=_DEADLINE_S, engine=self._engine)
        self.of_others: int = 0
        """Results returned that another process had put."""

    def result(self, name: object, compute: Callable[[], Any]) -> Any:
        """Return what was put under the text of `name`; else compute it, and put it if not None."""
        if name is None:
            return compute()
        key = hashlib.blake2b(repr(name).encode()).hexdigest()
        try:
            return self._found(key)
        except NotFoundError:
            pass
        except Exception as problem:  # noqa: BLE001 - No server, or pickle raises anything.
            _log.warning("results are not shared: %s", problem)
            with suppress(Error):
                self._serve()
        computed = compute()
        with suppress(Exception):  # What cannot be pickled or is too long.
            blocks = [memoryview(each) for each in self._packed(computed)]
            self._store.put_many(
                [f"{key} {number}" for number in range(len(blocks))], blocks
            ).wait()
        return computed

    def close(self) -> None:
        """Leave the store, and end it if served here; tables in place stay valid."""
        self._store.close()
        with self._lock:
            self._capacity = 0  # No store has this, so none is served from now on.
            if self._server is not None:
                self._server.close()
        self._engine.close()

    def _serve(self) -> None:
        with self._lock, suppress(CapacityExceededError):  # Another process serves.
            self._server = Store(
                [self._capacity],
                block_bytes=_BLOCK_BYTES,
                checksums=False,
                share=self._path,
                clients_max=min(64, 2 + (os.cpu_count() or 1)),
                engine=self._engine,
            )

    def _found(self, key: str) -> Any:
        tables: list[Any] = []
        head, row_count, rows = b"", 0, 0
        while not tables or rows < row_count:
            block = pa.py_buffer(self._store.view(f"{key} {len(tables)}"))
            if tables and block[: _HEAD.size] != head:  # Blocks of two processes.
                raise NotFoundError("read a shared result", "it is being replaced", "compute it")
            head = block[: _HEAD.size].to_pybytes()
            process, _, row_count = _HEAD.unpack(head)
            tables.append(pa.ipc.open_stream(block[_HEAD.size :]).read_all())
            rows += tables[-1].num_rows
        with self._lock:
            self.of_others += process != self._process
        found = pa.concat_tables(tables)
        lengths = (found.schema.metadata or {}).get(_LENGTHS)
        if lengths is None:
            return found
        chunks = [each for each in found[0].chunks if len(each)]
        parts = [memoryview(each.buffers()[1])[: len(each)] for each in chunks]
        joined = memoryview(bytearray().join(parts))
        buffers, begin = [], 0
        for length in json.loads(lengths):
            buffers.append(joined[begin : begin + length])
            begin += length + -length % _ALIGNMENT
        return pickle.loads(buffers[0], buffers=buffers[1:])  # noqa: S301 - Of this user.

    def _packed(self, computed: Any) -> Iterator[Any]:
        table = computed
        if not isinstance(computed, pa.Table):
            raw: list[pickle.PickleBuffer] = []
            pickled = pickle.dumps(computed, protocol=5, buffer_callback=raw.append)
            buffers = [memoryview(pickled), *(each.raw() for each in raw)]
            parts = [part for each in buffers for part in (each, bytes(-len(each) % _ALIGNMENT))]
            column = pa.chunked_array(
                pa.Array.from_buffers(pa.uint8(), len(each), [None, pa.py_buffer(each)])
                for each in parts
            )
            lengths = json.dumps([len(each) for each in buffers])
            table = pa.table({"": column}).replace_schema_metadata({_LENGTHS: lengths})
        which = secrets.token_bytes(8)
        return _blocks(_HEAD.pack(self._process, which, table.num_rows), table)


def _blocks(head: bytes, table: Any) -> Iterator[Any]:
    parts = -(-table.nbytes // _DATA_BYTES)
    if parts > 1 and table.num_rows > 1:
        rows = -(-table.num_rows // parts)
        for begin in range(0, table.num_rows, rows):
            yield from _blocks(head, table.slice(begin, rows))
        return
    sink = pa.BufferOutputStream()
    sink.write(head)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    if sink.tell() > _BLOCK_BYTES:
        raise ValueError  # A value, the dictionary of a column, or the schema is too long.
    yield sink.getvalue()
