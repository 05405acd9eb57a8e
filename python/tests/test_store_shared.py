# SPDX-License-Identifier: Apache-2.0
"""Shared stores in Python: a server in another process, several clients, the command."""

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from conftest import TIME_LIMIT_S, Here
from jsonschema import Draft202012Validator

import headrace
from headrace._cli._output import schema_of

BLOCK = 4096
CLIENT = """
import sys, headrace
store = headrace.Store.connect(sys.argv[1])
for line in sys.stdin:
    store.put(line.strip(), line.strip().encode() * 9)
    print(len(store), flush=True)
"""


@contextmanager
def served(command: list[str | Path], path: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Serve by the command; yields when clients can connect."""
    words = ["store", "serve", str(path), "--memory", "256KiB", "--block", str(BLOCK), *more]
    with subprocess.Popen([*command, *words], text=True, stdout=subprocess.PIPE) as server:
        try:
            while True:
                assert server.poll() is None
                try:
                    headrace.Store.connect(path).close()
                except headrace.NotFoundError:
                    continue
                break
            yield server
        finally:
            server.kill()


def test_processes_use_one_store(tmp_path: Path, command_path: Path, here: Here) -> None:
    path = tmp_path / "socket"
    with served([command_path], path) as server, headrace.Store.connect(path) as store:
        assert path.stat().st_mode & 0o777 == 0o600
        store.put("mine", b"x" * 100)
        with subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdin.write("theirs\n")
            other.stdin.flush()
            assert other.stdout.readline() == "2\n"
            assert {each.process for each in store.statistics.clients} >= {other.pid}
            assert f"process {other.pid}: " in here("store", "stat", str(path)).stdout
            other.stdin.close()
        assert store.get("theirs") == b"theirs" * 9
        assert sorted(store.keys()) == [b"mine", b"theirs"]
        assert store.remove("mine")
        assert not store.remove("mine")
        assert "mine" not in store
        with pytest.raises(headrace.NotFoundError):
            store.view("mine")
        server.send_signal(signal.SIGINT)
        assert server.wait(TIME_LIMIT_S) == 128 + signal.SIGINT
        assert server.stdout is not None
        assert "2 put" in server.stdout.read()
        assert not path.exists()


def test_a_view_is_the_block_and_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with headrace.Store(["1MiB"], block_bytes=BLOCK, share=path, clients_max=2) as served_here:
        store = headrace.Store.connect(path)
        block = np.arange(BLOCK, dtype=np.uint8)
        store.put("key", block)
        view = store.view("key")
        assert not view.flags.writeable
        store.put("key", block[::-1].copy())
        assert (view == block).all()
        assert store.statistics.clients[0].leases == 1
        assert (served_here.view("key") == block[::-1]).all()
        child = os.fork()
        if child == 0:
            del view
            gc.collect()
            try:
                store.put("forked", block)
            except headrace.ClosedError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert store.statistics.clients[0].leases == 1
        store.close()
        for number in range(600):
            served_here.put(str(number), block)
        assert (view == block).all()
        with pytest.raises(headrace.ClosedError):
            store.get("key")


def test_a_view_of_ones_own_store_is_a_copy() -> None:
    with headrace.Store(["64KiB"], block_bytes=BLOCK) as store:
        store.put("key", b"one")
        view = store.view("key")
        store.put("key", b"two")
    assert bytes(view) == b"one"


def test_tasks_await_transfers(tmp_path: Path) -> None:
    path = tmp_path / "socket"

    async def use(store: headrace.Store, name: str) -> int:
        targets = [bytearray(BLOCK) for _ in range(8)]
        keys = [f"{name} {number}" for number in range(8)]
        await store.put_many(keys, [name.encode() * 3] * 8)
        return sum((await store.get_many(keys, targets)).byte_counts)

    async def run(store: headrace.Store) -> list[int]:
        return await asyncio.gather(*(use(store, name) for name in "abc"))

    with (
        headrace.Store(["1MiB"], block_bytes=BLOCK, share=path),
        headrace.Store.connect(path) as store,
    ):
        assert asyncio.run(run(store)) == [24, 24, 24]


def test_what_is_durable_survives_the_server(tmp_path: Path, command_path: Path) -> None:
    path = tmp_path / "socket"
    more = ("--file", str(tmp_path / "blocks"), "--capacity", "1MiB")
    with served([command_path], path, *more) as first:
        store = headrace.Store.connect(path)
        store.put("durable", b"1" * 99, tier=1)
        store.put("only in memory", b"2" * 99)
        first.kill()
        first.wait()
        with pytest.raises(headrace.ClosedError, match="server"):
            store.put("lost", b"3")
        with pytest.raises(headrace.ClosedError, match="server"):
            store.remove("durable")
        assert "durable" not in store
    with served([command_path], path, *more, "--json") as second:
        assert store.get("durable") == b"1" * 99
        assert "only in memory" not in store
        store.put("in memory", b"4" * 99)
        store.close()
        second.terminate()
        assert second.wait(TIME_LIMIT_S) == 128 + signal.SIGTERM
        assert second.stdout is not None
        document = json.loads(second.stdout.read())
        Draft202012Validator(schema_of("store-serve")).validate(document)
        assert document["summary"]["blocks"] == 2
    with headrace.Store([headrace.Tier(0, path=more[1])], block_bytes=BLOCK) as own:
        assert own.get("in memory") == b"4" * 99


def test_a_server_takes_over_from_a_running_one(tmp_path: Path, command_path: Path) -> None:
    path = tmp_path / "socket"
    more = ("--file", str(tmp_path / "blocks"), "--capacity", "1MiB")
    acknowledged = 0

    def put_on() -> None:
        """Put until the second server is there and has acknowledged a block."""
        nonlocal acknowledged
        for number in range(1, 10**9):
            is_last = second.poll() is None and first.poll() is not None
            with suppress(headrace.ClosedError):
                store.put("key", number.to_bytes(8), tier=1)
                acknowledged = number
                if is_last:
                    return

    with served([command_path], path, *more) as first, headrace.Store.connect(path) as store:
        store.put("in memory", b"0" * 99)
        second_line = [
            str(command_path),
            "store",
            "serve",
            str(path),
            "--memory",
            "256KiB",
            "--block",
        ]
        with subprocess.Popen([*second_line, str(BLOCK), *more, "--replace", "1h"]) as second:
            put_on()
            assert first.wait(TIME_LIMIT_S) == 128 + signal.SIGTERM
            assert store.get("in memory") == b"0" * 99  # The first has written it to the file.
            assert store.get("key") == acknowledged.to_bytes(8)
            second.send_signal(signal.SIGSTOP)
            os.waitpid(second.pid, os.WUNTRACED)
            with pytest.raises(headrace.CapacityExceededError, match="kill -KILL"):
                headrace.Store(["1MiB"], share=path, replace_within_s=0.01)
            second.send_signal(signal.SIGCONT)
            second.terminate()


def test_errors_name_the_cause(tmp_path: Path, here: Here) -> None:
    path = tmp_path / "socket"
    with pytest.raises(headrace.NotFoundError, match="no server answers"):
        headrace.Store.connect(path)
    with headrace.Store(["1MiB"], share=path, block_bytes=BLOCK, clients_max=1):
        with pytest.raises(headrace.CapacityExceededError, match="another process"):
            headrace.Store(["1MiB"], block_bytes=BLOCK, share=path)
        with (
            headrace.Store.connect(path),
            pytest.raises(headrace.CapacityExceededError, match="clients_max"),
        ):
            headrace.Store.connect(path)
    with pytest.raises(headrace.InvalidArgumentError, match="memory"):
        headrace.Store([headrace.Tier("1MiB", path=tmp_path / "blocks")], share=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        path.unlink(missing_ok=True)
        other.bind(str(path))
        other.listen()
        with pytest.raises(headrace.NotFoundError, match="stopped"):
            headrace.Store.connect(path, deadline_s=0.05)
    refused = here("store", "serve", str(path), "--memory", "1MiB", "--group", "no such")
    assert refused.code != 0
    assert "getent" in refused.stderr


def test_a_container_with_another_dev_shm_which_is_full(tmp_path: Path, command_path: Path) -> None:
    path, inner_path = tmp_path / "socket", tmp_path / "inner"
    mount = "mount -t tmpfs -o size=4k none /dev/shm && echo full >/dev/shm/full && exec"
    container = ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    container += ["sh", "-c", f'{mount} "$@"', "-"]
    try:
        subprocess.run([*container, "true"], check=True, timeout=TIME_LIMIT_S)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no container: {error}")

    def use_in_container(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*container, *words],
            check=False,
            input="theirs\n",
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
        )

    with served([command_path], path), headrace.Store.connect(path) as store:
        assert use_in_container(sys.executable, "-c", CLIENT, str(path)).stdout == "1\n"
        assert bytes(store.view("theirs")) == b"theirs" * 9
        serve = [str(command_path), "store", "serve", str(path), "--memory", "1MiB"]
        refused = use_in_container(*serve, "--replace", "1s")
        assert refused.returncode != 0
        assert "it is in another container" in refused.stderr
    with (
        served([*container, command_path], inner_path),
        headrace.Store.connect(inner_path) as store,
    ):
        store.put("ours", b"9")
        assert bytes(store.view("ours")) == b"9"


def test_a_stopped_server_times_out(tmp_path: Path, command_path: Path) -> None:
    path = tmp_path / "socket"
    with (
        served([command_path], path) as server,
        headrace.Store.connect(path, deadline_s=0.1) as store,
    ):
        store.put("key", b"block")
        server.send_signal(signal.SIGSTOP)
        os.waitpid(server.pid, os.WUNTRACED)
        assert bytes(store.view("key")) == b"block"
        with pytest.raises(headrace.IoFailedError, match="timed_out"):
            store.put("other", b"block")
        server.send_signal(signal.SIGCONT)


def test_ctrl_c_ends_the_wait_for_a_server(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    handled: list[int] = []

    def handle(number: int, _frame: object) -> None:
        handled.append(number)
        if len(handled) > 1:
            raise KeyboardInterrupt

    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent,
        headrace.Engine() as engine,
    ):
        silent.bind(path)
        silent.listen()
        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        try:
            with pytest.raises(KeyboardInterrupt):
                headrace.Store.connect(path, deadline_s=60, engine=engine)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert handled == [signal.SIGALRM] * 2


def test_json_of_the_benchmark_has_its_ratios(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "headrace_lab.commands.bench._store_shared"
    for name in ("_WORK_S", "_CHUNK_S"):
        monkeypatch.setattr(f"{module}.{name}", 0.02)
    # Of its 16 processes none imports the package again.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    monkeypatch.setattr(f"{module}._FOREIGN", context)
    made = json.loads(here("bench", "store", "--processes", "2", "--rounds", "1", "--json").stdout)
    Draft202012Validator(schema_of("bench-store")).validate(made)
    assert made["summary"]["shared_vs_split"] > 0
