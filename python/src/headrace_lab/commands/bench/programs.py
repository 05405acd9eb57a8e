# SPDX-License-Identifier: Apache-2.0
"""``headrace bench programs``: whole programs with and without tuned copies."""

import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headrace import _core
from headrace._apps.figures import Figure
from headrace._apps.tune.door import alternated
from headrace._cli._options import profile_option
from headrace._cli._output import progress
from headrace._cli._report import Column, Report, figures
from headrace._cli.run import library_for
from headrace._direct import environment_given
from headrace._signals import kill_child, undone_at_signals
from headrace._temporary import temporary_folder
from headrace.errors import Error
from headrace_lab.commands.bench._measure import (
    Outcome,
    Series,
    bars,
    benchmark,
    speed_ratio,
)

TRIED = "measure programs"
_TIME_LIMIT_S = 120
_FILE_BYTES = 64 << 20
# Layout of the file of HEADRACE_COUNTERS: inject/copy/counters.hpp.
_COUNTERS_MAGIC = 0x32544E554F435248
_COUNTERS_HEADER_BYTES = 1024
_COUNTERS_STRIPES = 16
_COUNTERS_BYTES = _COUNTERS_HEADER_BYTES + _COUNTERS_STRIPES * 4 * 3 * 64 * 32
_REDIS_REQUESTS = 5000
_REDIS_BYTES = 64 << 10

_JOINS = """
parts = [bytes([i % 256]) * 65536 for i in range(256)]
for _ in range(12):
    joined = b"".join(parts)
    again = bytearray(joined)
    again[1:] = joined[:-1]
"""
_DUCKDB = """
import duckdb
duckdb.execute("SET threads = 1")
duckdb.execute("CREATE TABLE t AS SELECT i, i * 7919 % 100003 AS a, repeat('x', (i % 64)::INT)"
               " AS c FROM range(1000000) r(i)")
duckdb.execute("SELECT sum(a), max(c) FROM t GROUP BY i % 10").fetchall()
"""
_SQLITE = """
BEGIN; CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, d BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
INSERT INTO t SELECT i, i * 7919 % 100003, zeroblob(i % 3000) FROM n;
CREATE INDEX tb ON t(b); COMMIT; SELECT sum(length(d)) FROM t WHERE b % 3 = 0; VACUUM;
"""


@dataclass(frozen=True)
class Subject:
    """A measured program."""

    name: str
    run: Callable[[dict[str, str]], float]


@dataclass(frozen=True)
class Measured:
    """Measurements of one program.

    Attributes:
        without: Processor times of the unmodified program.
        again: The same once more: the error of the measurement.
        share: Share of the time in the tuned functions, counted in a separate run.
    """

    name: str
    without: Series
    again: Series
    within: Series
    share: float

    @property
    def ratio(self) -> Figure:
        """Speed relative to the unmodified program."""
        return speed_ratio(self.within, self.without)

    @property
    def null(self) -> Figure:
        """Speed of the unmodified program relative to itself."""
        return speed_ratio(self.again, self.without)

    def document(self) -> dict[str, Any]:
        """The part of the JSON document."""
        return {
            "program": self.name,
            "vs_without": self.ratio.document(),
            "again_vs_without": self.null.document(),
            "copying_share": self.share,
            "without": self.without.document(),
            "with": self.within.document(),
        }


@benchmark("programs", 9, "", profile_option)
def command(profile: str | None, rounds: int) -> Outcome:
    """Measure whole programs with tuned copies and without.

    Joins of 64 KiB in Python, a file through pipes, loads of sqlite and DuckDB, redis with values
    of 64 KiB, and the start of a program that does nothing. In a round each runs without tuned
    copies, again without (the error of the measurement) and with them, in random order; times are
    processor times of all its processes. What is not installed is left out.

    Example: headrace bench programs --profile copy.json
    """
    given = environment_given()
    given.pop("LD_PRELOAD", None)
    preloaded = given | {"LD_PRELOAD": str(library_for(profile))} | _profile_variable(profile)
    with _workplace() as place, progress("measuring programs") as share:
        outcomes = _measure(list(_subjects(place)), given, preloaded, rounds, share)
    whole = [outcome for outcome in outcomes if outcome.name != "start"]
    start = next(outcome for outcome in outcomes if outcome.name == "start")
    ratios = {outcome.name: outcome.ratio.median for outcome in whole}
    summary: dict[str, object] = {
        **{f"{name}_vs_without": ratio for name, ratio in ratios.items()},
        "worst_vs_without": min(ratios.values()),
        "startup_ms": (min(start.within.times_ns) - min(start.without.times_ns)) * 1e-6,
    }
    return Outcome(
        "programs",
        rounds,
        results={"programs": [outcome.document() for outcome in outcomes]},
        summary=summary,
        show=lambda report: _print_report(report, whole, summary, rounds),
        draw=bars(
            "Programs with tuned copies",
            rounds,
            {"speed relative to the unmodified program": {each.name: each.ratio for each in whole}},
        ),
    )


def _profile_variable(profile: str | None) -> dict[str, str]:
    if profile is None:
        return {}
    if profile == "none":
        return {"HEADRACE_PROFILE": profile}
    path = str(Path(profile).absolute())
    _core.use_copy_profile_file(path)
    _core.use_no_copy_profile()
    return {"HEADRACE_PROFILE": path}


@contextmanager
def _workplace() -> Iterator[Path]:
    """Provide a temporary directory with the file sent through pipes."""
    with temporary_folder("headrace-programs-") as place:
        block = random.Random(1).randbytes(1 << 20)  # noqa: S311 - No secret.
        (place / "file").write_bytes(block * (_FILE_BYTES >> 20))
        yield place


def _subjects(place: Path) -> Iterator[Subject]:
    def command(name: str, *words: str) -> Subject:
        return Subject(name, lambda environment: _timed(list(words), environment, place))

    yield command("start", shutil.which("true") or "true")
    yield command("python_joins", sys.executable, "-I", "-S", "-c", _JOINS)
    eight = " ".join(["file"] * 8)
    pipes = f"cat {eight} | dd bs=64k status=none | cat | tail -c 1"
    yield command("pipes", "sh", "-c", pipes)
    yield command("duckdb_load", sys.executable, "-c", _DUCKDB)
    if sqlite := shutil.which("sqlite3"):
        yield command("sqlite_load", sqlite, ":memory:", _SQLITE)
    server, benchmark = shutil.which("redis-server"), shutil.which("redis-benchmark")
    if server and benchmark:
        yield Subject(
            "redis_64k", lambda environment: _redis(server, benchmark, environment, place)
        )


def _timed(words: list[str], environment: dict[str, str], place: Path) -> float:
    """Processor time of a program and the children that it waited for, in ns."""
    process = _start(words, environment, place)
    with undone_at_signals(lambda: kill_child(process.pid)):
        return _end_of(process, words[0])


def _start(words: list[str], environment: dict[str, str], place: Path) -> subprocess.Popen[bytes]:
    try:
        # Installed programs with our arguments.
        return subprocess.Popen(  # noqa: S603
            words,
            env=environment,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError as problem:
        raise Error(TRIED, f"{words[0]} does not start", "install it", problem.errno or 0) from None


def _end_of(process: subprocess.Popen[bytes], name: str) -> float:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Error(TRIED, f"{name} ended with {process.returncode}", "run it by hand")
    return (usage.ru_utime + usage.ru_stime) * 1e9


def _redis(server: str, benchmark: str, environment: dict[str, str], place: Path) -> float:
    """Processor time of a server that answers the benchmark's requests, in ns."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place)]
    process = _start(words, environment, place)
    with undone_at_signals(lambda: kill_child(process.pid)):
        try:
            _wait_for_port(port)
            count, length = str(_REDIS_REQUESTS), str(_REDIS_BYTES)
            subprocess.run(  # noqa: S603 - An installed program with our arguments.
                [benchmark, "-p", str(port), "-q", "-n", count, "-d", length, "-t", "set,get"],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_TIME_LIMIT_S,
            )
            process.send_signal(signal.SIGTERM)
            return _end_of(process, server)
        except (subprocess.SubprocessError, OSError) as problem:
            raise Error(TRIED, f"redis does not answer ({problem})", "run it by hand") from problem
        finally:
            if process.returncode is None:
                kill_child(process.pid)


def _wait_for_port(port: int) -> None:
    end = time.monotonic() + _TIME_LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _measure(
    subjects: list[Subject],
    given: dict[str, str],
    preloaded: dict[str, str],
    round_count: int,
    share: Callable[[float], None],
) -> list[Measured]:
    outcomes = []
    for index, subject in enumerate(subjects):
        ways = {"without": given, "again": given, "with": preloaded}
        times = alternated(
            {way: partial(subject.run, environment) for way, environment in ways.items()},
            round_count,
        )
        outcomes.append(
            Measured(
                subject.name,
                Series(times["without"]),
                Series(times["again"]),
                Series(times["with"]),
                _copying_share(subject, preloaded),
            )
        )
        share((index + 1) / len(subjects))
    return outcomes


def _copying_share(subject: Subject, preloaded: dict[str, str]) -> float:
    """Share of its time that a program spends in the tuned functions."""
    descriptor = os.memfd_create("headrace-counters")
    os.ftruncate(descriptor, _COUNTERS_BYTES)
    os.pwrite(descriptor, struct.pack("=2Q", _COUNTERS_MAGIC, _COUNTERS_BYTES), 0)
    try:
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        time_ns = subject.run(preloaded | {"HEADRACE_COUNTERS": path})
        counted = os.pread(descriptor, _COUNTERS_BYTES, 0)
    finally:
        os.close(descriptor)
    # For each function and length: calls, bytes, timed calls and their nanoseconds.
    cells = np.frombuffer(counted, np.uint64, offset=_COUNTERS_HEADER_BYTES)
    sums = cells.reshape(_COUNTERS_STRIPES, -1, 4).sum(axis=0)
    calls, _, timed, timed_ns = sums[sums[:, 2] > 0].T.astype(float)
    return min(1.0, float((timed_ns / timed * calls).sum()) / time_ns)


def _print_report(
    report: Report, outcomes: list[Measured], summary: dict[str, object], round_count: int
) -> None:
    report.table(
        [
            Column("program"),
            *figures(
                "speed relative to the unmodified program",
                "that of the unmodified program again",
                "time in the functions",
            ),
        ],
        [
            [outcome.name, outcome.ratio.text, outcome.null.text, f"{outcome.share:.1%}"]
            for outcome in outcomes
        ],
    )
    report.say(
        f"Medians over {round_count} rounds of the ratios within a round, in brackets the "
        "quartiles; processor times. The start of a program takes "
        f"{summary['startup_ms']:.1f} ms longer."
    )
