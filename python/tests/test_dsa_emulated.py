# SPDX-License-Identifier: Apache-2.0
"""The doctor and the configuring of devices against the emulated driver, with accel-config."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TIME_LIMIT_S

from headrace import _core
from headrace._apps.dsa.configuration import PRESETS, configure, queues_in, to_text
from headrace._facts import Facts
from headrace.simulator import replay

DSA_TEST = Path("/usr/libexec/accel-config/test/dsa_test")
EMULATOR = Path(_core.__file__ or "").parent / "_emulator" / "headrace-emulator"

pytestmark = [
    pytest.mark.usefixtures("emulator"),
    pytest.mark.skipif(shutil.which("accel-config") is None, reason="accel-config is missing"),
]

Emulated = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def emulated(command_path: Path, tmp_path: Path) -> Emulated:
    """Runs a shell script on emulated devices, in a folder of its own; $HEADRACE is the command."""

    def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [EMULATOR, *options, "--", "sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"HEADRACE": str(command_path)},
        )

    return run


def test_every_check_is_ok_on_an_emulated_device(emulated: Emulated) -> None:
    result = emulated("exec $HEADRACE doctor --json", "--devices", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    document = json.loads(result.stdout)
    states = {finding["check"]: finding["state"] for finding in document["results"]["findings"]}
    assert set(states.values()) == {"ok"}, states
    assert document["summary"]["submission"] == "portal"
    assert document["summary"]["queue_usable_count"] == 4


def test_each_device_is_on_its_node_everywhere(emulated: Emulated, tmp_path: Path) -> None:
    script = """
        cat /sys/bus/dsa/devices/dsa?/numa_node /sys/bus/dsa/devices/dsa?/../numa_node
        $HEADRACE topo --json >topo.json; $HEADRACE dsa list --json >list.json
        $HEADRACE doctor | grep "is -1"; exec accel-config disable-wq dsa1/wq1.0
    """
    options = ("--devices", "3", "--device-nodes", "0,5,-1", "--stats", "stats", "--trace", "trace")
    result = emulated(script, *options)
    assert result.stdout.split()[:6] == ["0", "5", "-1"] * 2, result.stdout + result.stderr
    assert "numa_node of dsa2 is -1" in result.stdout
    topo = json.loads((tmp_path / "topo.json").read_text())
    assert [device["node"] for device in topo["machine"]["dsa_devices"]] == [0, 5, None]
    listed = json.loads((tmp_path / "list.json").read_text())
    assert [device["node"] for device in listed["results"]["devices"]] == [0, 5, -1]
    stats = json.loads((tmp_path / "stats").read_text())
    assert [device["numa_node"] for device in stats["results"]["devices"]] == [0, 5, -1]
    traced = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    events = [each for each in traced if "event" in each]
    assert {(each["device"], each["numa_node"]) for each in events} == {(1, 5)}


@pytest.mark.skipif(not DSA_TEST.exists(), reason="dsa_test is not installed")
def test_a_trace_of_an_unmodified_client_is_replayed(emulated: Emulated, tmp_path: Path) -> None:
    batch = f"{DSA_TEST} -w 1 -l 4096 -o 0x1 -b 0x3 -c 16 -f 0x1 -t 2000"
    result = emulated(f"{batch} && {batch}", "--trace", "trace")
    assert result.returncode == 0, result.stdout + result.stderr
    head, (slow, fast) = replay(
        str(tmp_path / "trace"),
        [{"machine": "spr-4dsa", "compute_scale": scale} for scale in (1, 0)],
    )
    events = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    submitted = [each for each in events if each.get("event") == "submitted"]
    assert head["operations"] == len(submitted) == len(head["threads"]) == 2
    assert {each["index"] for each in events if "index" in each} == set(range(17))
    assert 0 < fast.time_s < slow.time_s, "the second process begins later"
    assert sum(each["submissions"] for each in fast.devices) == 2


def test_where_mmap_is_refused_the_doctor_finds_write(emulated: Emulated) -> None:
    result = emulated("exec $HEADRACE doctor", "--refuse-mmap")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("The DSA can be used by write(), for mmap() is not allowed")


def test_the_doctor_sees_what_accel_config_has_done(emulated: Emulated) -> None:
    result = emulated("accel-config disable-device dsa0 >&2; exec $HEADRACE doctor")
    assert result.returncode == 1
    assert "The DSA cannot be used (" in result.stdout.splitlines()[0]


@pytest.mark.parametrize("preset", ["shared", pytest.param("low-latency", marks=pytest.mark.long)])
def test_the_printed_commands_load_a_preset_and_what_they_save_goes_back(
    emulated: Emulated, tmp_path: Path, preset: str
) -> None:
    script = f"""
    $HEADRACE dsa list --json > before
    $HEADRACE dsa configure --preset {preset} --output c.json > told || exit 1
    sed -n 's/^  \\(accel-config.*\\)$/\\1/p' told > load
    sh -e ./load || exit 1
    $HEADRACE dsa list --json > after
    accel-config list > shown
    sed '/save-config/d; s/c.json/before.json/' load > back
    sh -e ./back || exit 1
    $HEADRACE dsa list --json > again
    """
    result = emulated(script, "--devices", "2")
    assert result.returncode == 0, result.stdout + result.stderr

    def read(name: str) -> Any:
        return json.loads((tmp_path / name).read_text())

    queues = {queue["dev"] for _, queue in queues_in(read("c.json"))}
    assert {queue["dev"] for _, queue in queues_in(read("shown"))} == queues
    assert read("after")["summary"]["queue_usable_count"] == len(queues)
    again, before = read("again")["results"], read("before")["results"]
    for device, old in zip(again["devices"], before["devices"], strict=True):
        for queue, former in zip(device["queues"], old["queues"], strict=True):
            # accel-config 4 leaves 2 GiB out of what it saves, and then loads 2 MiB.
            assert queue.pop("max_transfer_size") in {former.pop("max_transfer_size"), 2 << 20}
    assert again == before


def test_the_emulator_takes_what_configure_makes(emulated: Emulated, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(to_text(configure(PRESETS["8n1d1e1w"], Facts())))
    result = emulated("exec accel-config list", "--config", str(path))
    assert result.returncode == 0, result.stderr
    devices = json.loads(result.stdout)
    assert [device["dev"] for device in devices] == [f"dsa{index}" for index in range(8)]
    for _, queue in queues_in(devices):
        assert (queue["mode"], queue["size"], queue["threshold"]) == ("shared", 128, 128)
