# SPDX-License-Identifier: Apache-2.0
"""Families of points: one list with the simulator, what is left out, what is marked."""

import json
import os
import signal
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import TIME_LIMIT_S, Here, wait_until
from fabricated import FACTS, fabricated
from jsonschema import Draft202012Validator

from headrace import _scenarios
from headrace._cli._output import schema_of
from headrace_lab.commands import bench
from headrace_lab.commands.bench._family import find_measuring_program
from headrace_lab.families import FAMILIES, MEASURED_ELSEWHERE, ONLY_SIMULATED
from headrace_lab.families.measure import UNITS, measure_family
from headrace_lab.families.points import plan_of

__all__ = ["fabricated"]

HEADRACE = Path(sysconfig.get_path("scripts")) / "headrace"
ALONE = replace(FACTS, queues=(), no_queue="there is none", nodes=FACTS.nodes[:1])


def test_the_simulator_and_the_benchmarks_share_one_list() -> None:
    simulated = {each.name for each in _scenarios.scenarios()}
    of_families = {name for family in FAMILIES.values() for name in family.scenarios}
    assert simulated == of_families | MEASURED_ELSEWHERE.keys() | set(ONLY_SIMULATED)
    for family in FAMILIES.values():
        # What has one name is one thing.
        assert family.name not in simulated or family.name in family.scenarios
    assert FAMILIES.keys() <= bench.command.summaries.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_points_on_a_machine_that_has_everything(family: str) -> None:
    plan = plan_of(family, FACTS)
    assert plan.points
    for point in plan.points:
        assert all(place.metric in UNITS for place in point.places)
        assert "\n" not in point.request


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_machine_lacks_is_left_out_and_named(family: str) -> None:
    plan = plan_of(family, ALONE)
    assert plan.left_out
    assert all(each.what and each.why for each in plan.left_out)
    assert not [point for point in plan.points if point.words["by"] == "channel"]


def test_threads_share_120_copies_of_the_stated_size_or_none() -> None:
    plan = plan_of("threads", replace(FACTS, available_bytes=20 << 30))
    assert {point.words["count"] for point in plan.points} == {120}
    assert {point.words["bytes"] for point in plan.points} == {1 << 20, 1 << 30}
    left_out = [each.what for each in plan.left_out if "1 GiB" in each.what]
    assert left_out == ["one shared queue, 1 GiB at 8", "one shared queue, 1 GiB at 12"]


def test_what_does_not_fit_memory_is_left_out() -> None:
    plan = plan_of("submission", replace(FACTS, available_bytes=1 << 30))
    assert "one processor at 1 GiB" in {each.what for each in plan.left_out}
    assert not [point for point in plan.points if point.words["bytes"] == 1 << 30]


def test_every_pair_of_nodes_is_a_source_and_a_target() -> None:
    pairs = {
        (point.words["source"], point.words["target"])
        for point in plan_of("movement", FACTS).points
    }
    assert pairs == {(source, target) for source in range(3) for target in range(3)}


def test_a_node_that_is_not_there_is_named(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"by": "cpu", "source": 0, "target": target}) + "\n" for target in (0, 63)
    )
    done = subprocess.run(
        [find_measuring_program(), "1", "1"],
        input=lines,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=True,
    )
    records = {each["point"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert records[0]["operations"] > 0
    assert "node 63" in records[1]["error"]


def test_queues_of_different_sizes_and_priorities_are_compared() -> None:
    plan = plan_of("queues", FACTS)
    panels = {(place.panel, place.line, place.x) for point in plan.points for place in point.places}
    sizes = {x for panel, _, x in panels if panel == "by entries of the queue"}
    assert sizes == {"16", "64"}
    beside = {(line, x) for panel, line, x in panels if panel.startswith("share of a queue")}
    assert beside == {("beside priority 9", "10")}
    assert not [each for each in plan.left_out if "in flight" not in each.what]


@pytest.mark.parametrize("emulated", [False, True])
def test_queues_that_are_all_alike_are_named_with_the_command_for_others(*, emulated: bool) -> None:
    alike = replace(FACTS.queues[0], emulated=emulated)
    plan = plan_of("queues", replace(FACTS, queues=(alike,)))
    why = {each.what: each.why for each in plan.left_out}
    for what in ("sizes of work queues", "priorities"):
        assert "headrace dsa configure --queues 2 --size 16,64 --priority 15,1" in why[what]
        assert ("headrace emulate --config" in why[what]) is emulated
        assert ("the commands that it prints" in why[what]) is not emulated


def test_emulated_queues_of_two_sizes_and_priorities_are_compared(
    emulator: Path, tmp_path: Path
) -> None:
    configuration = tmp_path / "two.json"
    words = "--replay healthy --devices dsa0 --queues 2 --size 16,64 --priority 15,1 --output"
    subprocess.run(
        [HEADRACE, "dsa", "configure", *words.split(), configuration],
        check=True,
        capture_output=True,
        timeout=TIME_LIMIT_S,
    )
    bench_queues = [str(HEADRACE), "bench", "queues", "--rounds", "1", "--json"]
    done = subprocess.run(
        [emulator, "--config", configuration, "--", *bench_queues],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    figures = json.loads(done.stdout)["results"]["figures"]
    sizes = {each["x"] for each in figures if each["panel"] == "by entries of the queue"}
    assert sizes == {"16", "64"}
    (share,) = [each["median"] for each in figures if each["metric"] == "share"]
    assert 0 < share < 1


def test_memory_that_may_not_be_locked_is_measured_and_said_once() -> None:
    """With a small limit and without the privilege to exceed it."""
    program = ["prlimit", "--memlock=65536", str(HEADRACE), "bench", "latency", "--rounds", "1"]
    if os.geteuid() == 0:
        program = ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", *program]

    def printed(*words: str) -> str:
        done = subprocess.run(
            [*program, *words], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=True
        )
        return done.stdout

    document = json.loads(printed("--json"))
    assert document["summary"]["memory_pinned"] is False
    assert document["results"]["not_pinned"] == (
        "this process may lock 64 KiB of memory (RLIMIT_MEMLOCK)"
    )
    assert document["results"]["figures"]
    text = " ".join(printed().split())
    assert text.count("Memory is not locked") == 1
    assert "ulimit -l unlimited" in text


@pytest.mark.usefixtures("fabricated")
@pytest.mark.parametrize("emulated", [False, True])
def test_figures_of_emulated_devices_say_so_everywhere(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, emulated: bool
) -> None:
    queues = tuple(replace(queue, emulated=emulated) for queue in FACTS.queues)
    facts = replace(FACTS, queues=queues)
    monkeypatch.setattr("headrace_lab.commands.bench._family.gather_facts", lambda: facts)
    document = json.loads(here("bench", "operations", "--json").stdout)
    assert document["results"]["emulated"] is document["summary"]["emulated"] is emulated
    for each in document["results"]["figures"]:
        assert each["emulated"] is (emulated and each["line"] == "device")
    picture = tmp_path / "figures.svg"
    printed = here("bench", "operations", "--plot", str(picture)).stdout
    assert ("(emulated)" in printed) is emulated
    assert ("The devices are emulated" in printed) is emulated


def test_a_copy_that_a_processor_did_is_no_figure_of_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = {"time_ns": 1, "operations": 1, "bytes": 1, "by_processor": 1}
    monkeypatch.setattr(
        "headrace_lab.families.measure._records",
        lambda points, *_: iter([{**record, "point": number} for number in range(len(points))]),
    )
    outcome = measure_family("devices", FACTS, "", 1, lambda: False)
    assert not outcome.shown
    assert "a processor did 1 of 1 operations" in outcome.left_out[-1].why


def test_without_devices_the_rest_is_measured_and_marked_by_nothing(here: Here) -> None:
    if Path("/dev/dsa").exists():
        pytest.skip("this machine has devices")
    document = json.loads(here("bench", "latency", "--rounds", "1", "--json").stdout)
    assert document["summary"]["emulated"] is False
    assert document["summary"]["figures"] == 5
    assert "DSA" in document["results"]["left_out"][0]["why"]


def test_emulated_devices_are_measured_and_marked(emulator: Path) -> None:
    done = subprocess.run(
        [emulator, "--", HEADRACE, "bench", "latency", "--rounds", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    Draft202012Validator(schema_of("bench-family")).validate(document)
    assert document["summary"]["emulated"] is True
    by_device = [each for each in document["results"]["figures"] if each["emulated"]]
    assert {each["line"] for each in by_device} == {"prepare", "submit", "wait"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_measured_before_a_signal_is_kept_and_marked_partial(
    number: signal.Signals,
) -> None:
    with subprocess.Popen(
        [HEADRACE, "bench", "submission", "--rounds", "10000", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def is_measuring() -> bool:
            for child in children.read_text().split():
                # What it holds of memory it has prepared a point with.
                status = Path(f"/proc/{child}/statm").read_text().split()
                name = Path(f"/proc/{child}/comm").read_text()
                if name.startswith("headrace-bench") and int(status[1]) > 1 << 13:
                    return True
            return False

        try:
            wait_until(is_measuring)
            process.send_signal(number)
            output, _ = process.communicate(timeout=TIME_LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    document = json.loads(output)
    Draft202012Validator(schema_of("bench-family")).validate(document)
    assert document["summary"]["partial"] is True
