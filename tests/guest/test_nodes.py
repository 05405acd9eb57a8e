# SPDX-License-Identifier: Apache-2.0
"""A machine of 16 nodes and 8 devices: topology, cache, query, policies; all samples."""

import json
import math
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from headrace._samples import machine_path, samples
from headrace.machine import replay

from .conftest import BUILT, COMMAND, ROOT, Guest

NODES = 16
TILES = 8
POLICY_NODES = 6
# The thread's node of each query; columns are there, copies are to be on the HBM beside it.
QUERY_NODES = (3, 6)


def package(node: int) -> int:
    return node % TILES // 4


def one_of(first: int, second: int) -> set[int] | None:
    return {first} if first < TILES else {second} if second < TILES else None


NEAR = {
    "all": lambda *_: set(range(TILES)),
    "push_pull": lambda source, target: {source % TILES, target % TILES},
    "smart_copy": lambda source, target: (
        {node for node in range(TILES) if package(node) == package(source)}
        if package(source) == package(target)
        else {source % TILES, target % TILES}
    ),
    # HBM has no devices of its own: those of the other end; without either, each in turn.
    "near_source": one_of,
    "near_target": lambda source, target: one_of(target, source),
}


def query(node: int, lineitem: str) -> str:
    """Again if every chunk was read before its copy had arrived, as happens on a busy machine."""
    return (
        "for again in 1 2 3 4 5 6 7 8; do\n"
        f"numactl --cpunodebind={node} --membind={node} {COMMAND} query --path dsa --prefetch on"
        f" --data {lineitem} --rounds 1 --chunk-bytes 64KiB --no-compare --json"
        f" >query{node}.json || exit\n"
        f"""grep -q '"copies_by_node": {{$' query{node}.json && break; done\n"""
    )


# From each node to itself, to the next one, and to the other kind of memory in both packages.
SOME_STEPS = (0, 1, TILES, TILES + TILES // 2)


def points(steps: Iterable[int]) -> str:
    """The CPU moves from each node to those so many further, the engine's software to the first."""
    software = {"by": "engine", "path": "software", "policy": "smart_copy"}
    lines = []
    for source in range(NODES):
        for target in {(source + step) % NODES for step in steps} | {0}:
            where = {"source": source, "target": target, "bytes": 16384, "span": 65536, "count": 4}
            lines += [{"by": "cpu"} | where] + [software | where] * (target == 0)
    return "\n".join(json.dumps(line) for line in lines)


def movement_script(steps: Iterable[int]) -> str:
    return f"""
cat >points <<'END'
{points(steps)}
END
{BUILT}/bench/engine/meter/headrace-bench-movement 1 1 <points >figures || exit
"""


NODES_SCRIPT = f"""
{COMMAND} topo --json >topo.json || exit
export HEADRACE_GUEST_TILES={TILES}
{BUILT}/tests/guest/cache_guest_test --gtest_brief=1 >cache 2>&1 || exit
{movement_script(SOME_STEPS)}"""


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of the query on this system."""
    words = [COMMAND, "query", "--scale-factor", "0.01", "--rounds", "1", "--json"]
    words += ["--data-dir", tmp_path_factory.mktemp("data")]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def boot(script: str, folder: Path) -> None:
    (folder / "script").write_text(script)
    command = [COMMAND, "machine", "run", "xeon-max-flat", "--memory", "2560MiB"]
    run = subprocess.run([*command, "--", "sh", "script"], cwd=folder, check=False, timeout=1500)
    assert run.returncode == 0


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what one boot has written."""
    folder = tmp_path_factory.mktemp("guest")
    try:
        boot(NODES_SCRIPT, folder)
    finally:
        if (folder / "cache").exists():
            print((folder / "cache").read_text())
    return folder


def read(path: Path) -> Any:  # noqa: ANN401 - JSON.
    return json.loads(path.read_text())


def compared(machine: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    """What must be equal: all that is recorded, but for what `headrace machine show` lists."""
    persistent = {each["node"] for each in recorded["nodes"] if each["tier"] == "persistent"}
    pairs = {
        (each["initiator"], each["target"]) for each in recorded["accesses"] if each["distance"]
    }
    packages = {each["node"]: each["package"] for each in recorded["nodes"]}
    devices = [
        {
            "node": device["node"],
            "queues": [
                (queue["mode"], queue["state"], queue["type"], queue["entry_count"])
                for queue in device["queues"]
                if queue["entry_count"]
            ],
        }
        for device in machine["dsa_devices"]
    ]
    # Without bandwidths nothing tells what a node without processors is.
    told = any(each["bandwidth_bytes_per_s"] for each in recorded["accesses"])
    nodes = [
        (
            *(node["node"], bool(node["cpus"])),
            node["tier"] if told or node["cpus"] else None,
            node["package"]
            if (told or node["cpus"]) and packages[node["node"]] is not None
            else None,
        )
        for node in machine["nodes"]
        if node["node"] not in persistent
    ]
    distances = {
        pair: each["distance"]
        for each in machine["accesses"]
        if (pair := (each["initiator"], each["target"])) in pairs and pair[1] not in persistent
    }
    return {
        "model": machine["cpu_model"][:47] if recorded["cpu_model"] else "",
        "page_bytes": machine["page_bytes"],
        "nodes": nodes,
        "distances": distances,
        "devices": devices,
    }


def expect_same(booted: dict[str, Any], recorded: dict[str, Any]) -> None:
    assert compared(booted, recorded) == compared(recorded, recorded)
    accesses = {(each["initiator"], each["target"]): each for each in recorded["accesses"]}
    for each in booted["accesses"]:
        told = accesses.get((each["initiator"], each["target"]), {})
        if each["bandwidth_bytes_per_s"] is not None:
            expected = told["bandwidth_bytes_per_s"]
            assert math.isclose(each["bandwidth_bytes_per_s"], expected, rel_tol=0.01), each
        if each["latency_ns"] is not None:
            assert each["latency_ns"] == told["latency_ns"], each


def test_the_topology_is_that_of_the_record(results: Path) -> None:
    booted = read(results / "topo.json")["machine"]
    expect_same(booted, replay(machine_path("xeon-max-flat")).document)
    known = [each for each in booted["accesses"] if each["bandwidth_bytes_per_s"] is not None]
    assert len(known) == NODES


def test_the_cache_places_and_frees_on_every_node(results: Path) -> None:
    assert "FAILED" not in (results / "cache").read_text()


def expect_moved(folder: Path, pairs_min: int) -> None:
    figures = (folder / "figures").read_text()
    points = (folder / "points").read_text().splitlines()
    assert "error" not in figures
    assert figures.count("time_ns") == len(points) >= pairs_min


def test_every_node_reaches_nodes_of_every_kind(results: Path) -> None:
    expect_moved(results, NODES * len(SOME_STEPS) + NODES)


def expect_thesis(node: int, document: dict[str, Any], host: dict[str, Any]) -> None:
    """Columns of the thread's node are copied into the HBM beside it by that node's device."""
    summary = document["summary"]
    # DuckDB takes a third of the time in a guest: it is asked on this system.
    assert summary["answer"] == host["summary"]["answer"] == host["summary"]["answer_duckdb"]
    assert [each["node"] for each in document["results"]["column_nodes"]] == [node]
    assert set(summary["copies_by_node"]) == {str(node + TILES)}
    assert set(document["results"]["bytes_by_device"]) == {f"dsa{node}"}
    assert summary["bytes_by_device"] == summary["bytes_moved"] > 0
    assert summary["fallbacks"] == 0
    # How much arrives before it is read depends on time, which means nothing in a guest.
    assert summary["hit_rate"] > 0
    assert document["results"]["simulated"]["machine"] == "xeon-max-flat"


@pytest.mark.more
def test_queries_move_columns_into_the_hbm_near_their_thread(
    tmp_path: Path, host: dict[str, Any]
) -> None:
    boot("".join(query(node, host["results"]["file"]) for node in QUERY_NODES), tmp_path)
    for node in QUERY_NODES:
        expect_thesis(node, read(tmp_path / f"query{node}.json"), host)


@pytest.mark.more
def test_every_node_reaches_every_node_and_each_policy_uses_the_devices_of_its_nodes(
    tmp_path: Path,
) -> None:
    policies = f"{sys.executable} {ROOT}/tests/guest/policies.py >policies.json || exit\n"
    boot(movement_script(range(NODES)) + policies, tmp_path)
    expect_moved(tmp_path, NODES * NODES + NODES)
    found = read(tmp_path / "policies.json")
    for policy, expected in NEAR.items():
        pairs = [key.split() for key in found["used"] if key.startswith(f"{policy} ")]
        assert len(pairs) == POLICY_NODES**2
        for _, source, target in pairs:
            used = set(found["used"][f"{policy} {source} {target}"])
            wanted = expected(int(source), int(target))
            where = f"{policy} from {source} to {target}"
            assert used == wanted if wanted else len(used) == 1, where
    assert found["counted"] == found["done"]


@pytest.mark.more
@pytest.mark.parametrize("name", [each for each in samples() if each != "xeon-max-flat"])
def test_every_sample_boots_as_it_is_recorded(name: str, guest: Guest) -> None:
    machine = replay(machine_path(name))
    run = guest(name, "--", COMMAND, "topo", "--json")
    assert run.returncode == 0, run.stderr
    booted = json.loads(run.stdout)["machine"]
    expect_same(booted, machine.document)
