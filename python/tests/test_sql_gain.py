# SPDX-License-Identifier: Apache-2.0
"""Mode "auto": the expected and measured gain of copies, and the reasons that it gives."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace
import headrace.sql
from headrace import _core, _sql_state
from headrace._gain import GAIN_MIN, Learned, Reading
from headrace._prefetched import ColumnRead, Prefetched, ScanRead
from headrace._samples import machine_path, samples
from headrace.machine import Access
from headrace_lab.sim.advice import Scan, predict_scans

ROWS = 100_000
FACTS = pa.table({"id": range(ROWS), "kind": [row % 7 for row in range(ROWS)]})
QUERY = "SELECT sum(id) FROM facts WHERE kind < 3"
NEVER_COUNTED = 0.02
"""Cases in which the simulated gain is so near the limit decide nothing."""


def machine_of(path: Path) -> tuple[headrace.Machine, list[tuple[int, str]]]:
    """A machine with the read bandwidths and latencies of its model, and nodes of one socket."""
    nodes = json.loads(path.read_text())["model"]["nodes"]
    nodes = [each for each in nodes if each["socket"] == nodes[0]["socket"]]
    accesses = tuple(
        Access(
            initiator=nodes[0]["node"],
            target=each["node"],
            bandwidth_bytes_per_s=float(each["read"]["value"].removesuffix(" GB/s")) * 1e9,
            latency_ns=int(float(each["latency"]["value"].removesuffix(" ns"))),
            evidence="declared",
            distance=0,
        )
        for each in nodes
    )
    one_of_each = {each["kind"]: each["node"] for each in reversed(nodes)}
    return (
        replace(headrace.replay(path), accesses=accesses),
        [(node, kind) for kind, node in one_of_each.items()],
    )


def cases() -> Iterator[tuple[float, float, object]]:
    """Gains by the model that decides and by the simulator, of reading columns from copies.

    The simulator shares bandwidth among flows and has the processor's time; this is its replay, no
    measurement.
    """
    for name in ("xeon-max-flat", "xeon-max-9462", "spr-cxl", "ddr-optane"):
        path = samples()[name]
        machine, places = machine_of(path)
        worker = machine.accesses[0].initiator
        for (home, kind), threads, width in (
            (place, threads, width)
            for place in places
            for threads in (1, 2, 4, 8, 16, 32)
            for width in (4.0, 16.0)
        ):
            scan = Scan(1_000_000, {"filter": 4.0}, {"one": width, "other": 8.0})
            simulated = predict_scans(path, [scan], threads=threads, home=home)
            nearer = [each for each in machine.faster_nodes(worker) if each != home]
            reading = Reading(
                machine,
                worker,
                threads,
                nearer[0] if nearer else worker if worker != home else None,
                {home: int(1_000_000 * (12 + width))},
            )
            expected = reading.gain(simulated["off_ms"] * 1e6)
            yield expected or 0.0, simulated["repeated_gain"], (name, kind, threads, width)


def test_the_model_decides_as_the_simulator() -> None:
    counted = [each for each in cases() if abs(each[1] - GAIN_MIN) >= NEVER_COUNTED]
    paying = [each for each in counted if each[1] >= GAIN_MIN]
    assert len(counted) / 5 < len(paying) < len(counted) * 4 / 5
    differing = [each for each in counted if (each[0] >= GAIN_MIN) != (each[1] >= GAIN_MIN)]
    assert len(differing) <= len(counted) * 0.05, differing


def run_of(from_copies: int, from_source: int) -> Prefetched:
    column = ColumnRead("a", from_copies, from_source, None)
    return Prefetched(0, (ScanRead("t", 1, 1, 0, 1, (column,)),), {})


def reading_of(threads: int = 32, home: int = 0) -> Reading:
    machine = headrace.replay(machine_path("xeon-max-flat"))
    return Reading(machine, 0, threads, machine.faster_nodes(0)[0], {home: 10**9})


def test_measured_runs_decide_over_the_model() -> None:
    for on_ns, pays in ((30, True), (50, False)):
        learned = Learned()
        learned.add(60, None)  # Cold.
        for _ in range(3):
            assert learned.pays(reading_of())
            assert learned.observed is None
            learned.add(on_ns, run_of(1, 0))
        assert not learned.pays(reading_of())  # To compare with.
        learned.add(50, None)
        assert learned.observed == 50 / on_ns - 1
        assert learned.pays(reading_of()) is pays
        assert learned.outcome() == f"gained {50 / on_ns - 1:.1%}"


def test_the_share_that_comes_in_time_lowers_the_gain() -> None:
    learned = Learned()
    learned.add(20_000_000, None)
    assert learned.pays(reading_of())
    before = learned.expected
    for _ in range(3):
        assert learned.share == 1
        learned.add(20_000_000, run_of(1, 9))
    assert learned.share == 0.1
    learned.pays(reading_of())
    assert before is not None
    assert learned.expected is not None
    assert 0 < learned.expected < before / 5


def test_what_is_not_known_or_not_slower_gains_nothing() -> None:
    assert reading_of().gain(10**6) == pytest.approx(1.03, abs=0.1)
    assert reading_of(threads=1).gain() == pytest.approx(-0.19, abs=0.05)  # HBM answers later.
    assert reading_of(home=8).gain() == 0
    assert reading_of().gain(10**12) == pytest.approx(0.01, abs=0.01)  # It hardly reads.
    assert replace(reading_of(), bytes_by_node={}).gain() == 0
    assert replace(reading_of(), target=None).gain() is None
    unknown = headrace.replay(machine_path("spr-cxl"))
    assert replace(reading_of(), machine=unknown).gain() is None


def slow(access: Access) -> Access:
    """So slow that a statement does nothing but read."""
    assert access.bandwidth_bytes_per_s is not None
    return replace(access, bandwidth_bytes_per_s=access.bandwidth_bytes_per_s / 1e4)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A connection that decides for 32 threads of a slow Xeon Max; copies are on node 0 here."""
    machine = headrace.replay(machine_path("xeon-max-flat"))
    monkeypatch.setattr(_sql_state, "_PLAN_SHARE", 0)
    with (
        headrace.Engine() as engine,
        headrace.Cache(engine, capacity="256MiB", placement=0, machine=machine) as cache,
        headrace.sql.connect(prefetch="auto", cache=cache) as opened,
    ):
        shared = opened._shared  # noqa: SLF001 - Of another machine.
        shared.threads = 32
        shared.machine = replace(machine, accesses=tuple(map(slow, machine.accesses)))
        yield opened.register("facts", FACTS)


def test_the_first_run_is_measured_and_the_next_ones_follow_the_gain(connection: Any) -> None:
    answer = connection.explain_prefetch(QUERY)
    assert answer.answer == "no: the first run is measured without copies"
    assert answer.expected_gain > GAIN_MIN
    runs = []
    for _ in range(5):
        connection.execute(QUERY).fetchall()
        runs.append(connection.prefetched is not None)
    assert runs == [False, True, True, True, False]
    connection.execute("SELECT 1").fetchall()
    explained = connection.explain_prefetch(QUERY)
    assert explained.observed_gain is not None
    assert (explained.answer == "yes") is (explained.observed_gain >= GAIN_MIN)
    assert len(connection.notes) == 1
    note = connection.notes[0]
    assert note.startswith(f"{QUERY}: copies should gain ")
    assert f"gained {explained.observed_gain:.1%}" in note
    connection.register("facts", FACTS.slice(1))
    assert connection.notes == []


def test_fewer_threads_than_use_the_bandwidth_move_nothing(connection: Any) -> None:
    shared = connection._shared  # noqa: SLF001
    shared.machine, shared.threads = shared.cache.machine, 2
    for _ in range(3):
        connection.execute(QUERY).fetchall()
        assert connection.prefetched is None
    assert connection.explain_prefetch(QUERY).answer == "no: copies gain less than 5%"


def test_a_user_is_told_why_a_column_is_not_moved() -> None:
    with headrace.sql.connect(prefetch="on") as connection:
        connection.register(
            "t", pa.table({"a": range(5000), "n": [[1]] * 5000, "b": [True, False] * 2500})
        )
        explained = connection.explain_prefetch(
            "SELECT sum(len(n)), count(b) FROM t WHERE a > ?", [1]
        )
        assert explained.answer == "yes"
        assert explained.observed_gain is None
        assert {each.name: (each.is_filter, each.reason) for each in explained.columns} == {
            "a": (True, "can be moved"),
            "n": (False, "nested columns are read in place"),
            "b": (False, "its parts are shorter than 4 KiB"),
        }
        nothing = connection.explain_prefetch("SELECT 1")
        assert nothing.answer.startswith("no: it reads no column that can")
        assert nothing.columns == ()
    with headrace.sql.connect(prefetch="off") as connection:
        connection.register("facts", FACTS)
        assert connection.explain_prefetch(QUERY).answer == "no: prefetching is off"


def test_copies_that_cannot_gain_are_made_in_a_tenth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, connection: Any
) -> None:
    paces, make = [], _core.Prefetcher

    def started(cache: Any, scans: Any, is_spare: bool) -> Any:
        paces.append(is_spare)
        return make(cache, scans, is_spare)

    monkeypatch.setattr(_core, "Prefetcher", started)
    for _ in range(2):  # From node 0 to node 8, by the record of the fixture.
        connection.execute(QUERY).fetchall()
    with (
        headrace.Cache(placement="local") as cache,
        headrace.sql.connect(prefetch="on", cache=cache) as here,
    ):
        here.register("facts", FACTS)
        here.execute(QUERY).fetchall()
        here.begin_prefetch(QUERY)
        here.wait_for_prefetch()
    assert paces == [False, len(headrace.topo().nodes) == 1, False]


def test_a_machine_with_one_node_is_asked_for_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace.sql, "read_plan", None)
    with (
        headrace.Cache(placement="local") as cache,
        headrace.sql.connect(prefetch="on", cache=cache) as connection,
    ):
        connection._shared.is_spare = True  # noqa: SLF001 - Whatever this machine has.
        connection.register("facts", FACTS)
        connection.execute("CREATE TEMP TABLE own AS SELECT 7::BIGINT AS id")
        assert connection.prefetched is None
        recursive = (
            "WITH RECURSIVE t(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t "
            "WHERE n < 3 AND EXISTS (FROM facts WHERE id > n)) SELECT count(*) FROM t"
        )
        for query, answer, columns in (
            ("SELECT kind FROM facts JOIN own USING (id)", 0, {"id", "kind"}),
            ("SELECT count(*) FROM facts WHERE id < ?", 5, {"id"}),
            (recursive, 4, {"id"}),
        ):
            values = [5] if "?" in query else None
            assert connection.execute(query, values).fetchall() == [(answer,)]
            assert connection.prefetched is not None
            (scan,) = connection.prefetched.scans
            assert (scan.table, {each.name for each in scan.columns}) == ("facts", columns)
            assert scan.chunks_read > 0
        assert connection.notes == []


def test_connecting_imports_and_starts_nothing_slow() -> None:
    code = (
        "import sys, pathlib, headrace.sql\n"
        "connection = headrace.sql.connect()\n"
        "tasks = pathlib.Path('/proc/self/task').iterdir()\n"
        "print(connection.notes, *(each.joinpath('comm').read_text() for each in tasks))\n"
        "print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *started, imported = found.stdout.splitlines()
    assert started[0].startswith("[]")
    assert not {"pandas", "pyarrow.compute", "pyarrow.parquet"}.intersection(imported.split())
    if not headrace.topo().has_faster_node():
        assert not [each for each in started if each.strip().startswith("hr-")]
