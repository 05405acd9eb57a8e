# SPDX-License-Identifier: Apache-2.0
"""``headrace run`` on programs of other people: the same output as without it, and counted.

HEADRACE_RUN_BYTES is the length of the file that coreutils work on, 8 MiB unless set ('make check'
sets it to 1 GiB). What runs by `both` runs a third time on emulated devices.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import _core
from headrace._cli.run import library_path
from headrace.errors import NotFoundError

FILE_BYTES = int(os.environ.get("HEADRACE_RUN_BYTES", str(8 << 20)))
TIME_LIMIT_S = 250 + (FILE_BYTES >> 20)
"""A second for each MiB: many times what a quiet machine takes."""
SYSTEM_PYTHON = "/usr/bin/python3"
TREE = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("_library_is_there")


@pytest.fixture(scope="module")
def _library_is_there() -> None:
    try:
        library_path()
    except NotFoundError:
        pytest.skip("this build has nothing to preload")


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of this machine in which every class from 128 bytes on has some variant."""
    document = json.loads(_core.empty_copy_profile())
    some = random.Random(6)  # noqa: S311 - Not for secrets.
    for bits in range(7, 27):
        grid = _core.copy_variants((1 << (bits - 1)) + 1)
        document["classes"].append(
            {"bytes_max": 1 << bits, "variant": some.choice(grid) if grid else None}
        )
    for kind in ("fills", "comparisons"):
        kernels = _core.CopyMeter.of_kernels(1 << 16, fills=kind == "fills", seed=1).kernels()
        document[kind] = [
            {"bytes_max": 1 << bits, "kernel": some.choice(kernels) if kernels else None}
            for bits in range(7, 27)
        ]
    path = tmp_path_factory.mktemp("profile") / "copy.json"
    path.write_text(json.dumps(document))
    return path


Ending = subprocess.CompletedProcess[bytes]
Both = Callable[..., tuple[Ending, Ending]]


@pytest.fixture(params=["cpu", "dsa"])
def both(request: pytest.FixtureRequest, command_path: Path, profile: Path, tmp_path: Path) -> Both:
    """Runs a program without and with the preload; what was counted must not be nothing.

    By the processor, or on emulated devices, which get whatever has a page or more.
    """
    stats = tmp_path / "stats.json"
    command = str(command_path)
    launcher = [command, "run", "--profile", str(profile), "--stats", str(stats)]
    if request.param == "dsa":
        emulate = [command, "emulate", "--"]
        tried = subprocess.run(
            [*emulate, "true"], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
        )
        if tried.returncode != 0:
            pytest.skip(tried.stderr.strip())
        launcher = [*emulate, *launcher, "--path", "dsa", "--min-bytes", "4096"]

    def run(*words: str, copies_pages: bool = True, **more: str) -> tuple[Ending, Ending]:
        ends = [
            subprocess.run(
                [*before, *words],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=TIME_LIMIT_S,
                check=False,
                cwd=tmp_path,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"} | more,
            )
            for before in ([], [*launcher, "--"])
        ]
        document = json.loads(stats.read_text())
        counted = document["summary"]
        assert counted["calls"] > 0
        assert counted["programs_tuned"] == counted["programs"] > 0
        if request.param == "dsa" and copies_pages:
            assert document["results"]["device"]["descriptors"] > 0, document["results"]
        return ends[0], ends[1]

    return run


def expect_same(
    ends: tuple[subprocess.CompletedProcess[bytes], subprocess.CompletedProcess[bytes]],
) -> None:
    without, within = ends
    assert without.returncode == 0, without.stderr
    assert (within.returncode, within.stdout) == (0, without.stdout), within.stderr


def test_coreutils_do_what_they_do(both: Both, tmp_path: Path) -> None:
    block = random.Random(1).randbytes(1 << 20)  # noqa: S311
    with (tmp_path / "file").open("wb") as file:
        for index in range(max(1, FILE_BYTES >> 20)):
            file.write(index.to_bytes(8, "little") + block[8:])
    script = """set -e
        cat file | sha256sum; cp file copy; cmp file copy; dd if=copy of=again bs=70001 status=none
        sha256sum < again; rm again; split -n 7 copy part.; cat part.* | md5sum; rm part.*
        tac copy | sha256sum; sort copy | sha256sum; base64 file | base64 -d | cmp - file
        od -An -tx8 file | tail -1000 | sha256sum; rm copy"""
    # Between files they copy by the kernel, and within them less than a page at a time.
    expect_same(both("sh", "-c", script, copies_pages=False))


@pytest.mark.parametrize("module", ["test_bytes", "test_memoryview"])
def test_pythons_own_tests_pass(both: Both, module: str) -> None:
    if not [*Path("/usr/lib").glob(f"python3.*/test/{module}.py")]:
        pytest.skip("Debian's package of Python's tests (libpython3.*-testsuite) is not installed")
    script = (
        f"import sys, unittest; from test import {module};"
        f"result = unittest.TextTestRunner(stream=open('/dev/null', 'w')).run("
        f"unittest.defaultTestLoader.loadTestsFromModule({module}));"
        "print(result.testsRun, len(result.failures), len(result.errors))"
    )
    without, within = both(SYSTEM_PYTHON, "-c", script)
    expect_same((without, within))
    assert int(within.stdout.split()[0]) > 50


def test_a_compiler_writes_the_same_object(both: Both, tmp_path: Path) -> None:
    compiler = needs("c++")
    source = TREE / "src" / "base" / "random.cpp"
    script = (
        f"{compiler} -std=c++20 -O2 -frandom-seed=1 -I{TREE / 'include'} -c {source} -o o.o"
        " && sha256sum < o.o"
    )
    expect_same(both("sh", "-c", script))
    assert (tmp_path / "o.o").stat().st_size > 0


def test_sqlite_answers_the_same(both: Both, tmp_path: Path) -> None:
    sqlite = needs("sqlite3")
    lines = [
        "PRAGMA page_size = 4096; PRAGMA cache_size = 20000; BEGIN;",
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT, d BLOB);",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)",
        "INSERT INTO t SELECT i, (i * 7919) % 20011, hex(i * 65537), zeroblob(i % 3000) FROM n;",
        "CREATE INDEX tb ON t(b); CREATE INDEX tc ON t(c); COMMIT;",
        "SELECT count(*), sum(b), avg(length(c)), sum(length(d)) FROM t;",
        "SELECT b, c FROM t WHERE b BETWEEN 1000 AND 1100 ORDER BY c;",
        "UPDATE t SET c = c || c || c, d = d || x'0102' WHERE a % 3 = 0;",
        "DELETE FROM t WHERE b % 5 = 0; VACUUM;",
        "SELECT count(*), sum(b), max(c), sum(length(d)) FROM t; PRAGMA integrity_check;",
    ]
    (tmp_path / "speed.sql").write_text("\n".join(lines))
    script = f"rm -f db; {sqlite} db < speed.sql && sha256sum < db"
    expect_same(both("sh", "-c", script))


def test_redis_serves_its_benchmark(command_path: Path, profile: Path, tmp_path: Path) -> None:
    server, client, benchmark = map(needs, ("redis-server", "redis-cli", "redis-benchmark"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    stats = tmp_path / "stats.json"
    launcher = [str(command_path), "run", "--profile", str(profile), "--stats", str(stats), "--"]
    words = [*launcher, server, "--port", port, "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            ask = [client, "-p", port]
            end = time.monotonic() + TIME_LIMIT_S
            while subprocess.run([*ask, "ping"], capture_output=True, check=False).returncode:
                assert time.monotonic() < end, "the server did not start"
                time.sleep(0.05)
            done = subprocess.run(
                [benchmark, "-p", port, "-q", "-n", "2000", "-d", "65536", "-t", "set,get,lpush"],
                capture_output=True,
                text=True,
                check=True,
                timeout=TIME_LIMIT_S,
            )
            assert "GET: " in done.stdout
            assert "WARNING" not in done.stderr
            value = random.Random(2).randbytes(100_000).hex()  # noqa: S311
            subprocess.run([*ask, "-x", "set", "key"], input=value, text=True, check=True)
            got = subprocess.run([*ask, "get", "key"], capture_output=True, text=True, check=True)
            assert got.stdout.strip() == value
            subprocess.run([*ask, "shutdown", "nosave"], check=True)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert json.loads(stats.read_text())["summary"]["bytes_moved"] > 2000 * 65536
