# SPDX-License-Identifier: Apache-2.0
"""Families of points: one list with the simulator, what is left out, what is marked."""

import json
import signal
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import TIME_LIMIT_S, Here, wait_until
from fabricated import FACTS, fabricated
from jsonschema import Draft202012Validator

from headrace._apps import sim
from headrace._apps.families import FAMILIES, MEASURED_ELSEWHERE, ONLY_SIMULATED
from headrace._apps.families.measure import UNITS, Stop, measure_family
from headrace._apps.families.points import plan_of
from headrace._cli import bench
from headrace._cli._output import schema_of

__all__ = ["fabricated"]

HEADRACE = Path(sysconfig.get_path("scripts")) / "headrace"
ALONE = replace(FACTS, queues=(), no_queue="there is none", dax_folders=(), nodes=FACTS.nodes[:1])


def test_the_simulator_and_the_benchmarks_share_one_list() -> None:
    simulated = {each.name for each in sim.scenarios()}
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


def test_what_does_not_fit_memory_is_left_out() -> None:
    plan = plan_of("submission", replace(FACTS, available_bytes=1 << 30))
    assert "one processor at 1 GiB" in {each.what for each in plan.left_out}
    assert not [point for point in plan.points if point.words["bytes"] == 1 << 30]


@pytest.mark.usefixtures("fabricated")
@pytest.mark.parametrize("emulated", [False, True])
def test_figures_of_emulated_devices_say_so_everywhere(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, emulated: bool
) -> None:
    queues = tuple(replace(queue, emulated=emulated) for queue in FACTS.queues)
    facts = replace(FACTS, queues=queues)
    monkeypatch.setattr("headrace._cli.bench._family.gather_facts", lambda: facts)
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
        "headrace._apps.families.measure._records",
        lambda points, *_: iter([{**record, "point": number} for number in range(len(points))]),
    )
    outcome = measure_family("devices", FACTS, "", 1, Stop())
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


def test_what_was_measured_before_an_interrupt_is_kept_and_marked_partial() -> None:
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
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=TIME_LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 130
    document = json.loads(output)
    Draft202012Validator(schema_of("bench-family")).validate(document)
    assert document["summary"]["partial"] is True
