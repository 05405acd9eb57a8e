# SPDX-License-Identifier: Apache-2.0
"""Clients in Python and C++ and their server, of which one after the other is killed.

No block that a client gets has wrong bytes or is older than what was acknowledged before, and every
block that the file has acknowledged is there. tests/stress/store has the short form in C++.
"""

import mmap
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import TIME_LIMIT_S, wait_until

import headrace

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / "build" / "install"
KEYS = 24
BLOCK = 8192
CLIENT = """
import sys
from test_store_shared_kills import use
use(*sys.argv[1:3], *map(int, sys.argv[3:]))
"""


def block_of(key: int, version: int) -> bytes:
    filler = bytes([(key * 31 + version * 7) % 251])
    head = key.to_bytes(8, "little") + version.to_bytes(8, "little")
    return head + filler * (version * 97 % 8000)


def version_of(key: int, block: bytes) -> int:
    """0 if it is not the key's."""
    version = int.from_bytes(block[8:16], "little")
    return version if block == block_of(key, version) else 0


def use(path: str, file: str, me: int, clients: int, keys: int) -> None:
    """Put and get until killed; end with an error if something is wrong."""
    with Path(file).open("r+b") as opened:
        notes = np.frombuffer(mmap.mmap(opened.fileno(), 0), np.uint64)
    begun, acknowledged, calls = notes[:keys], notes[keys : 2 * keys], notes[2 * keys :]
    store = None
    while store is None:
        try:
            store = headrace.Store.connect(path)
        except (headrace.NotFoundError, headrace.CapacityExceededError):
            continue
    random = np.random.default_rng()
    while True:
        key = int(random.integers(keys))
        begin = time.monotonic()
        try:
            if key % clients == me and random.integers(2):
                version = int(begun[key]) + 1
                begun[key] = version
                store.put(str(key), block_of(key, version), tier=1)
                acknowledged[key] = version
            else:
                least = int(acknowledged[key])
                try:
                    seen = version_of(key, store.get(str(key)))
                    assert least <= seen <= int(begun[key]), (key, least, seen, begun[key])
                    assert seen
                except headrace.NotFoundError:
                    assert least == 0, (key, least)
        except headrace.ClosedError:
            pass
        calls[me] += 1
        calls[clients + me] += time.monotonic() - begin > 1


@contextmanager
def ended(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.wait()


def kill_in_turn(folder: Path, command_path: Path, others: list[list[str]], kills: int) -> None:
    socket, notes, file = (str(folder / name) for name in ("socket", "notes", "blocks"))
    programs = [[sys.executable, "-c", CLIENT], [sys.executable, "-c", CLIENT], *others]
    clients = len(programs)
    Path(notes).write_bytes(bytes(8 * (2 * KEYS + 2 * clients)))
    with Path(notes).open("r+b") as opened:
        words = np.frombuffer(mmap.mmap(opened.fileno(), 0), np.uint64)
    sizes = ["--memory", "512KiB", "--file", file, "--capacity", "4MiB", "--block", str(BLOCK)]
    lines = [[str(command_path), "store", "serve", socket, *sizes]]
    lines += [
        [*program, socket, notes, str(me), str(clients), str(KEYS)]
        for me, program in enumerate(programs)
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}

    def start(line: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)

    processes = [start(line) for line in lines]
    with ended(processes):
        for number in range(kills * len(lines) + 1):
            before = words[2 * KEYS : 2 * KEYS + clients].copy()

            def has_progress(before: np.ndarray = before) -> bool:
                assert [each.poll() for each in processes] == [None] * len(lines)
                return bool((words[2 * KEYS : 2 * KEYS + clients] > before + 2).all())

            wait_until(has_progress)
            which = number % len(lines)
            if number == kills * len(lines):
                break
            time.sleep(number % 7 / 150)
            processes[which].kill()
            processes[which].wait()
            processes[which] = start(lines[which])
    calls, slow = words[2 * KEYS :].reshape(2, -1).sum(axis=1)
    sys.stdout.write(f"{kills} kills of each of {len(lines)}: {calls} calls, {slow} above 1 s\n")
    with headrace.Store([headrace.Tier(0, path=file)], block_bytes=BLOCK) as store:
        for key in range(KEYS):
            if words[KEYS + key]:
                assert words[KEYS + key] <= version_of(key, store.get(str(key))) <= words[key]


def test_clients_and_their_server_are_killed_in_turn(tmp_path: Path, command_path: Path) -> None:
    kill_in_turn(tmp_path, command_path, [], 2)


@pytest.mark.long
def test_clients_also_in_cpp_are_killed_fifty_times_each(
    tmp_path: Path, command_path: Path
) -> None:
    compiler = shutil.which("c++")
    if compiler is None or not (INSTALLED / "include").exists():
        pytest.skip("no compiler, or no library in build/install")
    program = tmp_path / "client"
    libraries = next(INSTALLED.rglob("libheadrace.so")).parent
    source = Path(__file__).with_name("shared_client.cpp")
    options = ["-std=c++20", "-O1", f"-I{INSTALLED}/include", f"-L{libraries}", "-lheadrace"]
    subprocess.run(
        [compiler, source, "-o", program, *options, f"-Wl,-rpath,{libraries}", "-lfmt"],
        check=True,
        timeout=TIME_LIMIT_S,
    )
    kill_in_turn(tmp_path, command_path, [[str(program)]], 50)
