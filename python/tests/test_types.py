# SPDX-License-Identifier: Apache-2.0
"""What type checkers, notebooks and pickle see of the public interface."""

import asyncio
import json
import multiprocessing
import pickle
import re
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from conftest import TIME_LIMIT_S

import headrace
from headrace import sql
from headrace.errors import TypeMismatchError, from_code

SOURCES = str(Path(headrace.__file__).parents[1])
GOOD = """
import asyncio
import mmap

import numpy as np

import headrace

def work(engine: headrace.Engine, path: headrace.MoverPath, policy: headrace.Policy) -> None:
    source, target = np.zeros(4096, np.uint8), bytearray(4096)
    end: headrace.Completion = engine.copy(source=source, target=target)
    far = memoryview(bytes(4096))
    job: headrace.Job = engine.submit(source=far, target=mmap.mmap(-1, 4096), path=path)
    copy = headrace.Operation.copy(source=b"abcd", target=target)
    engine.submit(copy, after=[job], policy=policy)
    print(end.bytes_done, job.result().crc)

async def wait(engine: headrace.Engine) -> headrace.Completion:
    return await engine.submit(source=bytes(8), target=bytearray(8))

with headrace.Engine(waiting="sleep", page_faults="block") as engine:
    work(engine, "cpu", "near_target")
    asyncio.run(wait(engine))
"""
BAD = (
    'headrace.Engine(path="hardwear")',
    'headrace.Engine(policy="nope")',
    'headrace.Engine(waiting="standing")',
    "headrace.Engine().copy(source=[1, 2], target=bytearray(2))",
    "headrace.Operation.copy(source='text', target=bytearray(4))",
)
MYPY = ("-m", "mypy", "--strict", "--no-error-summary")
# Of the group 'check' of scripts/bootstrap: it brings a JavaScript engine of 300 MB.
PYRIGHT = ("-m", "basedpyright")
PYRIGHT_CONFIG = {"typeCheckingMode": "strict", "extraPaths": [SOURCES], "pythonVersion": "3.11"}
CHECKERS = [(MYPY, "arg-type")] + [(PYRIGHT, "reportArgumentType")] * (
    find_spec("basedpyright") is not None
)


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in headrace.__all__:
        value = getattr(headrace, name)
        if isinstance(value, type) or type(value).__name__ == "function":
            assert value.__doc__, name
    assert set(dir(headrace)) >= set(headrace.__all__)


def test_the_literals_are_what_the_library_takes() -> None:
    assert get_args(headrace.Policy) == headrace.POLICIES
    for path in get_args(headrace.MoverPath):
        with headrace.Engine(path=path):
            pass
    for waiting in get_args(headrace.Waiting):
        with headrace.Engine(waiting=waiting):
            pass


def check(*words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    (directory / "pyrightconfig.json").write_text(json.dumps(PYRIGHT_CONFIG))
    return subprocess.run(
        [sys.executable, *words],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
        env={"MYPYPATH": SOURCES, "PYTHONPATH": SOURCES, "PATH": str(Path(sys.executable).parent)},
    )


@pytest.mark.long
@pytest.mark.parametrize("checker,code", CHECKERS, ids=["mypy", "pyright"][: len(CHECKERS)])
def test_a_script_that_is_right_checks_and_one_that_is_wrong_does_not(
    checker: tuple[str, ...], code: str, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    names = "".join(f"print(headrace.{name})\n" for name in headrace.__all__)
    right.write_text(GOOD + names)
    wrong.write_text("import headrace\n" + "\n".join(BAD) + "\n")
    done = check(*checker, "right.py", "wrong.py", directory=tmp_path)
    found = re.findall(r"(\w+\.py):(\d+):.* error: ", done.stdout)
    assert found == [("wrong.py", str(2 + at)) for at in range(len(BAD))], done.stdout + done.stderr
    assert len(re.findall(rf"[\[(]{code}[\])]$", done.stdout, re.MULTILINE)) == len(BAD)
    if checker is PYRIGHT:
        # It also says which public names other checkers may infer differently because an annotation
        # is missing, here and in what they refer to. What derives from a class of pyarrow, which
        # publishes no types, has an unknown one.
        done = check(*PYRIGHT, "--verifytypes", "headrace", "--ignoreexternal", directory=tmp_path)
        assert done.stdout.count("With ambiguous type: 0\n") == 2, done.stdout + done.stderr


def test_a_copy_names_its_source_and_target(engine: headrace.Engine) -> None:
    here, there = bytes(8), bytearray(8)
    for call in (engine.copy, engine.submit, headrace.Operation.copy):
        with pytest.raises(TypeError):
            call(here, there)  # type: ignore[call-arg, call-overload]
    with pytest.raises(TypeMismatchError, match="pass source= and target="):
        engine.submit(here)  # type: ignore[call-overload]


def test_what_belongs_to_a_process_says_so_when_it_is_pickled(engine: headrace.Engine) -> None:
    job = engine.submit(source=bytes(8), target=bytearray(8))
    for value in (engine, job, engine.machine):
        with pytest.raises(TypeMismatchError, match="make one in each process"):
            pickle.dumps(value)
    job.wait()


def test_what_works_on_memory_of_a_process_is_not_pickled(
    engine: headrace.Engine, tmp_path: Path
) -> None:
    operation = headrace.Operation.copy(source=bytes(8), target=bytearray(8))
    ring = headrace.pmem.Ring(tmp_path / "ring", capacity=1 << 20)
    with (
        headrace.Cache(engine) as cache,
        headrace.Queue() as queue,
        queue.producer() as sender,
        queue.consumer() as receiver,
        ring.producer() as producer,
        ring.consumer() as consumer,
        sql.connect() as connection,
    ):
        assert repr(connection) == "<headrace.sql.Connection: prefetch auto>"
        change = cache.change(bytearray(8192))
        entry = cache.access(bytearray(8192))
        ends = (sender, receiver, producer, consumer)
        for value in (operation, cache, entry, change, connection, *ends):
            with pytest.raises(TypeMismatchError, match="make one in each process"):
                pickle.dumps(value)


def test_a_cache_and_its_entries_are_shown_in_short(engine: headrace.Engine) -> None:
    with headrace.Cache(engine, placement=engine.machine.nodes[0].id) as cache:
        assert repr(cache) == f"<headrace.Cache: 0 B in copies, by {engine!r}>"
        entry = cache.access(bytearray(8192))
        entry.wait()
        assert repr(entry) == f"<headrace.Entry: a copy on node {entry.node}>"
        assert repr(cache.access(bytearray(4096), weak=True)) == "<headrace.Entry: the source>"


def test_values_survive_pickle(engine: headrace.Engine) -> None:
    completion = engine.copy(source=bytes(8), target=bytearray(8))
    values = [completion, engine.statistics, headrace.Thresholds(), headrace.DifTags(1, 2, 3)]
    assert pickle.loads(pickle.dumps(values)) == values  # noqa: S301 - It is ours.
    table = headrace.Table(pa.table({"a": range(100)}), chunk_rows=10)
    again = pickle.loads(pickle.dumps(table))  # noqa: S301
    assert again.arrow == table.arrow
    assert repr(again) == repr(table) == "<headrace.Table: 100 rows, 1 column, 13 chunks>"


def test_what_is_shown_is_short(engine: headrace.Engine) -> None:
    completion = engine.copy(source=bytes(8), target=bytearray(8))
    assert repr(completion) == "Completion('done', bytes_done=8)"
    assert repr(engine) == f"<headrace.Engine: {', '.join(engine.movers)}>"
    job = engine.submit(source=bytes(8), target=bytearray(8))
    job.wait()
    assert repr(job) == "<headrace.Job: done>"


def test_names_of_the_library_are_those_of_python() -> None:
    error = from_code("unsupported", "try", "Engine::notes tell why", "call Engine::submit()", 0)
    assert str(error) == "cannot try: Engine.notes tell why; call Engine.submit()"


def _checksum(count: int) -> int:
    with headrace.Engine(threads_per_node=1) as engine:
        return engine.run(headrace.Operation.crc(bytes(range(count)))).crc


def test_it_works_in_threads_in_coroutines_and_in_spawned_processes() -> None:
    expected = _checksum(100)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(_checksum(100))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [expected] * 4

    async def work() -> int:
        with headrace.Engine(threads_per_node=1) as engine:
            end = await engine.submit(headrace.Operation.crc(bytes(range(100))))
            return end.crc

    assert asyncio.run(work()) == expected
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_checksum, [100] * 4) == [expected] * 4


def test_an_array_of_the_wrong_kind_is_refused_at_run_time_too(engine: headrace.Engine) -> None:
    with pytest.raises(headrace.InvalidArgumentError):
        engine.copy(source=[1, 2], target=np.zeros(2))  # type: ignore[arg-type]
