# SPDX-License-Identifier: Apache-2.0
"""The stores that are compared, each in a process of its own.

``python -m headrace_lab.trust.stores NAME FOLDER`` carries out commands, one line of JSON each, and
answers each by one line. Every block tells its key and version, so a block that is served as good
can be judged without knowing what was put.
"""

import json
import os
import random
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

BLOCK = 64 << 10
DEADLINE_S = 1.0
_HEAD = struct.Struct("<QQ")


def block(key: int, version: int) -> bytes:
    bytes_of = random.Random(f"{key} {version}").randbytes  # noqa: S311 - Not for secrets.
    return _HEAD.pack(key, version) + bytes_of(BLOCK - _HEAD.size)


def version_of(key: int, found: bytes) -> int | str:
    """The version of the block, or "wrong"."""
    if len(found) != BLOCK or _HEAD.unpack_from(found)[0] != key:
        return "wrong"
    version = int(_HEAD.unpack_from(found)[1])
    return version if found == block(key, version) else "wrong"


class Subject(ABC):
    """A store: a batch is acknowledged when `put` returns, and shall survive."""

    settings = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store: Any = None

    @abstractmethod
    def put(self, blocks: Mapping[bytes, bytes]) -> None:
        """Put a batch."""

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


class _Headrace(Subject):
    settings = f"defaults (power, checksums), deadline {DEADLINE_S:g} s"

    def __init__(self, folder: Path) -> None:
        headrace: Any = import_module("headrace")
        self._absent = headrace.NotFoundError
        self._engine = headrace.Engine(threads_per_node=1, path="cpu")
        tier = headrace.Tier(96 * BLOCK, path=folder / "blocks", deadline_s=DEADLINE_S)
        self._store = headrace.Store([tier], block_bytes=BLOCK, engine=self._engine)

    def put(self, blocks: Mapping[bytes, bytes]) -> None:
        self._store.put_many(list(blocks), list(blocks.values())).check()

    def get(self, key: bytes) -> bytes | None:
        with suppress(self._absent):
            return bytes(self._store.get(key))
        return None


class _Files(Subject):
    settings = "a file a block: write, fsync, rename, fsync of the folder"

    def put(self, blocks: Mapping[bytes, bytes]) -> None:
        for key, data in blocks.items():
            new = self._folder / f"{key.decode()}.new"
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._folder / key.decode())
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def get(self, key: bytes) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._folder / key.decode()).read_bytes()
        return None


class _Lmdb(Subject):
    settings = "defaults (sync)"

    def __init__(self, folder: Path) -> None:
        self._store = import_module("lmdb").open(str(folder), map_size=64 << 20)

    def put(self, blocks: Mapping[bytes, bytes]) -> None:
        with self._store.begin(write=True) as transaction:
            for key, data in blocks.items():
                transaction.put(key, data)

    def get(self, key: bytes) -> bytes | None:
        with self._store.begin() as transaction:
            return transaction.get(key)  # type: ignore[no-any-return]


class _RocksDb(Subject):
    settings = "defaults, WriteOptions.sync"

    def __init__(self, folder: Path) -> None:
        self._rocks: Any = import_module("rocksdict")
        self._store = self._rocks.Rdict(str(folder), self._rocks.Options(raw_mode=True))
        synced = self._rocks.WriteOptions()
        synced.sync = True
        self._store.set_write_options(synced)

    def put(self, blocks: Mapping[bytes, bytes]) -> None:
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key, data in blocks.items():
            batch.put(key, data)
        self._store.write(batch)


class _DiskCache(Subject):
    settings = "no eviction, sqlite_synchronous FULL"

    def __init__(self, folder: Path) -> None:
        cache: Any = import_module("diskcache").Cache
        self._store = cache(str(folder), eviction_policy="none", sqlite_synchronous=2)

    def put(self, blocks: Mapping[bytes, bytes]) -> None:
        with self._store.transact() if len(blocks) > 1 else nullcontext():
            for key, data in blocks.items():
                self._store.set(key, data)


SUBJECTS: dict[str, type[Subject]] = {
    "headrace": _Headrace,
    "files": _Files,
    "lmdb": _Lmdb,
    "rocksdict": _RocksDb,
    "diskcache": _DiskCache,
}
"""By the name of the package."""


def _answer(store: Subject, what: str, argument: Sequence[Any]) -> object:
    if what == "get":
        return [_found(store, key) for key in argument]
    if what == "put":
        store.put({b"key-%d" % key: block(key, version) for key, version in argument})
    else:
        store.close()
    return None


def _found(store: Subject, key: int) -> int | str | None:
    """The version, None if there is no such block, "wrong", or "failed"."""
    try:
        found = store.get(b"key-%d" % key)
    except Exception:  # noqa: BLE001 - Each store has its own; the block is not served as good.
        return "failed"
    return None if found is None else version_of(key, found)


def main() -> None:
    store: Subject | None = None
    for line in sys.stdin:
        what, argument = json.loads(line)
        try:
            if store is None:
                store = SUBJECTS[sys.argv[1]](Path(sys.argv[2]))
            answer = _answer(store, what, argument)
        except Exception as problem:  # noqa: BLE001 - As above.
            answer = f"{type(problem).__name__}: {problem}"
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
