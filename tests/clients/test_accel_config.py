# SPDX-License-Identifier: Apache-2.0
"""accel-config from its package: list, disable, enable and load, as root and as a user."""

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Emulator, needs

pytestmark = needs("accel-config")

CONFIG = [
    {
        "dev": "dsa0",
        "read_buffer_limit": 0,
        "groups": [
            {
                "dev": "group0.0",
                "read_buffers_reserved": 0,
                "use_read_buffer_limit": 0,
                "read_buffers_allowed": 8,
                "grouped_workqueues": [
                    {
                        "dev": "wq0.0",
                        "mode": "shared",
                        "size": 16,
                        "group_id": 0,
                        "priority": 10,
                        "block_on_fault": 1,
                        "type": "user",
                        "driver_name": "user",
                        "name": "app1",
                        "threshold": 15,
                    },
                ],
                "grouped_engines": [{"dev": "engine0.0", "group_id": 0}],
            },
            {
                "dev": "group0.1",
                "grouped_workqueues": [
                    {
                        "dev": "wq0.1",
                        "mode": "dedicated",
                        "size": 32,
                        "group_id": 1,
                        "priority": 5,
                        "type": "user",
                        "driver_name": "user",
                        "name": "app2",
                        "max_batch_size": 64,
                        "max_transfer_size": 1048576,
                    },
                ],
                "grouped_engines": [{"dev": "engine0.1", "group_id": 1}],
            },
        ],
    }
]
QUEUE = "/sys/bus/dsa/devices/wq0.0"


@pytest.fixture
def config(shared_path: Path) -> Path:
    path = shared_path / "C.json"
    path.write_text(json.dumps(CONFIG))
    return path


def queues_of(listed: bytes) -> dict[str, dict[str, Any]]:
    devices = json.loads(listed)
    return {
        queue["dev"]: queue
        for device in devices
        for group in device["groups"]
        for queue in group.get("grouped_workqueues", [])
    }


def test_it_lists_what_the_configuration_says(anybody: Emulator, config: Path) -> None:
    queues = queues_of(anybody.shell("accel-config list", "--config", config).stdout)
    assert queues.keys() == {"wq0.0", "wq0.1"}
    assert queues["wq0.0"]["state"] == queues["wq0.1"]["state"] == "enabled"
    for group in CONFIG[0]["groups"]:  # type: ignore[attr-defined]
        for wanted in group["grouped_workqueues"]:
            listed = queues[wanted["dev"]]
            assert {key: listed[key] for key in wanted} == wanted


def test_a_wq_is_disabled_and_enabled_again(anybody: Emulator, config: Path) -> None:
    result = anybody.shell(
        f"""
        accel-config disable-wq dsa0/wq0.0
        cat {QUEUE}/state; ls /dev/dsa
        accel-config list -i >/dev/null
        accel-config enable-wq dsa0/wq0.0
        cat {QUEUE}/state; ls /dev/dsa
        """,
        "--config",
        config,
    )
    assert result.stdout.split() == [b"disabled", b"wq0.1", b"enabled", b"wq0.0", b"wq0.1"]
    assert b"disabled 1 wq(s) out of 1" in result.stderr
    assert b"enabled 1 wq(s) out of 1" in result.stderr


def test_a_device_is_disabled_and_loaded_anew(anybody: Emulator, config: Path) -> None:
    result = anybody.shell(
        f"""
        accel-config disable-device dsa0 2>/dev/null
        cat {QUEUE}/size {QUEUE}/state
        accel-config load-config -c {config} -e >/dev/null 2>&1
        accel-config list
        """
    )
    size, state, listed = result.stdout.split(b"\n", 2)
    assert (size, state) == (b"0", b"disabled"), "idxd forgets the configuration"
    queues = queues_of(listed)
    assert queues["wq0.0"]["name"] == "app1"
    assert queues["wq0.1"]["max_batch_size"] == 64
    assert all(queue["state"] == "enabled" for queue in queues.values())


def test_what_it_saves_can_be_given_to_the_emulator(
    anybody: Emulator, config: Path, shared_path: Path
) -> None:
    saved = shared_path / "saved.json"
    script = f"accel-config save-config -s {saved}; accel-config list"
    first = anybody.shell(script, "--config", config)
    again = anybody.shell("accel-config list", "--config", saved)
    assert first.stdout == again.stdout


def test_a_wq_is_configured_from_nothing(anybody: Emulator) -> None:
    result = anybody.shell(
        """
        accel-config disable-device dsa0
        accel-config config-wq dsa0/wq0.3 -s 5 -g 2 -m dedicated -y user -n foo -p 3 -d user
        accel-config config-engine dsa0/engine0.1 -g 2
        accel-config enable-device dsa0
        accel-config enable-wq dsa0/wq0.3
        accel-config list
        """
    )
    queues = queues_of(result.stdout)
    assert queues.keys() == {"wq0.3"}
    assert queues["wq0.3"]["state"] == "enabled"
    assert queues["wq0.3"]["group_id"] == 2


def test_what_the_driver_refuses_fails(anybody: Emulator) -> None:
    result = anybody.run(
        "--",
        "sh",
        "-c",
        "accel-config config-wq dsa0/wq0.0 -s 5 || echo size; "
        "accel-config enable-wq dsa0/wq0.5 || echo enable; "
        "echo wq0.0 > /sys/bus/dsa/drivers/user/bind || echo twice; "
        "cat /sys/bus/dsa/devices/wq0.0/size",
    )
    assert result.stdout.split() == [b"size", b"enable", b"twice", b"64"]


def test_clients_are_counted_and_a_killed_one_is_forgotten(anybody: Emulator) -> None:
    result = anybody.shell(
        f"""
        cat {QUEUE}/clients
        sleep 100 <>/dev/dsa/wq0.0 &
        child=$!
        while [ "$(cat {QUEUE}/clients)" != 1 ]; do :; done
        cat /sys/bus/dsa/devices/dsa0/clients
        kill -9 $child
        while [ "$(cat {QUEUE}/clients)" != 0 ]; do :; done
        cat {QUEUE}/occupancy
        """
    )
    assert result.stdout.split() == [b"0", b"1", b"0"]


def test_a_dedicated_wq_has_one_client(anybody: Emulator) -> None:
    result = anybody.run(
        "--wq", "dedicated", "--", "sh", "-c", "exec 3<>/dev/dsa/wq0.0; (exec 4<>/dev/dsa/wq0.0)"
    )
    assert result.returncode != 0
    assert b"busy" in result.stderr.lower()


def test_the_tree_can_be_walked(anybody: Emulator) -> None:
    result = anybody.shell(
        "ls -lR /sys/bus/dsa /dev/dsa /sys/module/idxd/ >/dev/null;"
        "find -L /sys/bus/dsa/devices -maxdepth 1 -type l;"  # Links that lead nowhere.
        "realpath /sys/bus/dsa/devices/wq0.1 /sys/bus/dsa/devices/wq0.1/driver"
    )
    assert result.stdout.split() == [
        b"/sys/devices/pcid5a0:00/d5a0:00:01.0/dsa0/wq0.1",
        b"/sys/bus/dsa/drivers/user",
    ]


def test_what_a_file_has_beyond_wqs_for_programs_is_left_out(
    anybody: Emulator, shared_path: Path
) -> None:
    kernels = {"dev": "wq0.2", "mode": "dedicated", "size": 16, "group_id": 1, "priority": 10}
    kernels |= {"type": "kernel", "driver_name": "dmaengine", "name": "dmaengine"}
    devices = json.loads(json.dumps(CONFIG))
    devices[0]["groups"][1]["grouped_workqueues"].append(kernels)
    devices.append({"dev": "iax1", "groups": [{"dev": "group1.0"}]})
    path = shared_path / "C.json"
    path.write_text(json.dumps(devices))
    result = anybody.shell("accel-config list", "--config", path)
    assert queues_of(result.stdout).keys() == {"wq0.0", "wq0.1"}
    kernels_line, iax_line = result.stderr.decode().splitlines()
    assert kernels_line.startswith(f"headrace: '{path}', [0].groups[1].grouped_workqueues[1]: ")
    assert "wq0.2 of type kernel ignored" in kernels_line
    assert iax_line.startswith(f"headrace: '{path}', [1]: iax1 ignored: only DSAs")
