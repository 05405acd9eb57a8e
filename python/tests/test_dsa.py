# SPDX-License-Identifier: Apache-2.0
"""Listing devices, and making, comparing and applying configurations."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Here
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._apps.dsa.configuration import (
    MODES,
    PRESETS,
    Configuration,
    Limits,
    Wish,
    changes,
    configure,
    device_names,
    engines_in,
    queues_in,
)
from headrace._cli.dsa.configure import load_commands
from headrace._facts import Device, Facts, load_record
from headrace._samples import machine_path
from headrace.errors import (
    HardwareAbsentError,
    InvalidArgumentError,
)

MACHINES = Path(machine_path("healthy")).parent
NOWHERE = Facts()


def machine(name: str) -> Facts:
    return load_record(machine_path(name))[0]


def queues(configuration: Configuration) -> list[dict[str, Any]]:
    return [queue for _, queue in queues_in(configuration)]


# What the benchmarks of the prefetching cache were run with.
def test_8n1d1e1w_is_what_its_name_says() -> None:
    configuration = configure(PRESETS["8n1d1e1w"], NOWHERE)
    assert [device["dev"] for device in configuration] == [f"dsa{i}" for i in range(8)]
    for index, device in enumerate(configuration):
        assert engines_in(device) == {f"engine{index}.0": 0}
        (queue,) = queues([device])
        assert queue == {
            "dev": f"wq{index}.0",
            "mode": "shared",
            "size": 128,
            "group_id": 0,
            "priority": 10,
            "block_on_fault": 1,
            "max_batch_size": 256,
            "max_transfer_size": 1 << 31,
            "type": "user",
            "driver_name": "user",
            "name": "headrace",
            "threshold": 128,
        }


def test_the_devices_have_the_names_that_the_machine_gives_them() -> None:
    configuration = configure(PRESETS["8n1d1e1w"], machine("xeon-max-flat"))
    assert [device["dev"] for device in configuration] == [f"dsa{2 * i}" for i in range(8)]
    assert [queue["dev"] for queue in queues(configuration)] == [f"wq{2 * i}.0" for i in range(8)]
    assert engines_in(configuration[7]) == {"engine14.0": 0}


def test_shared_is_one_shared_queue_and_four_engines_on_every_device() -> None:
    configuration = configure(PRESETS["shared"], machine("healthy"))
    (queue,) = queues(configuration)
    assert (queue["dev"], queue["mode"], queue["size"]) == ("wq0.0", "shared", 128)
    assert len(engines_in(configuration[0])) == 4


def test_low_latency_gives_each_queue_an_engine_of_its_own() -> None:
    (device,) = configure(PRESETS["low-latency"], NOWHERE)
    assert len(device["groups"]) == 4
    for group in device["groups"]:
        assert len(group["grouped_workqueues"]) == len(group["grouped_engines"]) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_gives_out_no_more_than_there_is(name: str) -> None:
    for device in configure(PRESETS[name], NOWHERE):
        assert sum(queue["size"] for queue in queues([device])) <= 128


@settings(max_examples=200, deadline=None)
@given(
    wish=st.builds(
        Wish,
        device_count=st.integers(1, 3),
        group_count=st.integers(-1, 6),
        engine_count=st.integers(-1, 6),
        queue_count=st.integers(-1, 10),
        mode=st.sampled_from(MODES),
        entry_counts=st.lists(st.integers(-1, 140), max_size=3).map(tuple),
        threshold=st.none() | st.integers(-1, 140),
        priorities=st.lists(st.integers(0, 17), min_size=1, max_size=3).map(tuple),
        batch_count_max=st.integers(0, 1100) | st.sampled_from([1, 32, 1024, 2048]),
        transfer_bytes_max=st.integers(0, 1 << 32) | st.integers(0, 32).map(lambda n: 1 << n),
    )
)
def test_a_wish_is_configured_within_the_limits_or_refused_by_the_limit(wish: Wish) -> None:
    refusals = []
    configuration = []
    try:
        configuration = configure(wish, NOWHERE)
    except InvalidArgumentError as refused:
        refusals.append(refused.remedy)
    assert bool(configuration) != bool(refusals)
    assert all(refusals)
    for device in configuration:
        assert next(iter(device)) == "dev"
        mine = queues([device])
        assert len(mine) == wish.queue_count <= 8
        assert sum(queue["size"] for queue in mine) <= 128
        assert len(engines_in(device)) == wish.engine_count <= 4
        for group in device["groups"]:
            # accel-config refuses a list without members.
            assert group["grouped_workqueues"]
            assert group["grouped_engines"]
        for queue in mine:
            assert next(iter(queue)) == "dev"
            assert queue["max_batch_size"] == wish.batch_count_max <= 1024
            assert queue["max_transfer_size"] == wish.transfer_bytes_max <= 1 << 31
            if queue["mode"] == "shared":
                assert 1 <= queue["threshold"] <= queue["size"]
            # The driver takes a threshold only once size and mode are set.
            keys = list(queue)
            assert keys.index("threshold") > max(keys.index("size"), keys.index("mode"))


@pytest.mark.parametrize(
    "wish, words",
    [
        (
            Wish(queue_count=3, entry_counts=(64,)),
            "3 WQs of 64 entries are 192 and a device has 128",
        ),
        (Wish(queue_count=9), "9 WQs are asked for and 1 to 8 are possible"),
        (Wish(engine_count=5), "5 engines are asked for and 1 to 4 are possible"),
        (Wish(group_count=2), "2 groups need an engine and a WQ each"),
        (Wish(threshold=129), "threshold 129 of a WQ of 128 entries"),
        (Wish(priorities=(16,)), "16 as priority are asked for and 1 to 15"),
        (Wish(batch_count_max=1025), "1025 descriptors in a batch"),
        (Wish(transfer_bytes_max=(1 << 31) + 1), "2147483649 bytes in a transfer"),
        (
            Wish(batch_count_max=3),
            "3 descriptors in a batch .* powers of two; set --batch to 2 or 4",
        ),
        (Wish(transfer_bytes_max=3000), "3000 bytes in a transfer .* --transfer to 2048 or 4096"),
        (Wish(entry_counts=(0,)), "1 WQ of 0 entries"),
    ],
)
def test_what_is_impossible_is_told_with_its_limit(wish: Wish, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        configure(wish, NOWHERE)


def test_a_smaller_device_sets_its_own_limits() -> None:
    small = Device("dsa4", max_engines=2, max_work_queues=4, max_work_queues_size=64)
    facts = Facts(devices=(small,))
    with pytest.raises(InvalidArgumentError, match="4 engines are asked for and 1 to 2"):
        configure(Wish(), facts)
    (device,) = configure(Wish(engine_count=2), facts)
    assert queues([device])[0]["size"] == 64
    assert Limits().max_work_queues_size == 128


def test_devices_have_the_names_that_the_machine_gives_them() -> None:
    facts = Facts(devices=(Device("dsa0"), Device("dsa2"), Device("dsa4")))
    assert device_names(Wish(), facts) == ["dsa0", "dsa2", "dsa4"]
    assert device_names(Wish(device_count=2), facts) == ["dsa0", "dsa2"]
    assert device_names(Wish(device_count=2), NOWHERE) == ["dsa0", "dsa1"]
    with pytest.raises(HardwareAbsentError, match="has 3 \\(dsa0, dsa2, dsa4\\)"):
        device_names(Wish(device_count=8), facts)


def test_both_modes_alternate() -> None:
    (device,) = configure(Wish(queue_count=4, mode="both"), NOWHERE)
    modes = [(queue["mode"], queue["threshold"]) for queue in queues([device])]
    assert modes == [("shared", 32), ("dedicated", 0)] * 2


def test_changes_are_told_one_by_one() -> None:
    facts = machine("healthy")
    lines = changes(configure(Wish(engine_count=3, queue_count=2, mode="both"), facts), facts)
    assert "dsa0 is enabled: it is disabled first, which ends the use of its WQs" in lines
    assert "wq0.0: name shared -> headrace0" in lines
    assert "engine0.3 moves to no group" in lines
    assert "wq0.1 is removed" in changes(configure(Wish(), facts), facts)
    assert changes(configure(Wish(), NOWHERE, ["dsa9"]), facts) == ["dsa9 is not in this machine"]


def test_the_commands_save_what_is_there_and_disable_what_is_enabled() -> None:
    facts = machine("healthy")
    wanted = configure(Wish(), facts)
    assert load_commands(wanted, facts, "a b.json") == [
        "accel-config save-config -s before.json",
        "accel-config disable-device dsa0",
        "accel-config load-config -c 'a b.json' -e",
    ]
    idle = Facts(devices=(Device("dsa0", state="disabled"), Device("dsa1", state="enabled")))
    assert len(load_commands(wanted, idle, "c.json")) == 2


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.json")), ids=lambda path: path.stem)
def test_every_machine_is_listed_or_said_to_have_none(here: Here, path: Path) -> None:
    result = here("dsa", "list", "--replay", str(path))
    devices = load_record(str(path))[0].devices
    if devices:
        assert result.code == 0
        assert result.stdout.startswith("dsa0: ")
        assert result.stdout.isascii()
        assert "\x1b" not in result.stdout
    else:
        assert result.code in {1, 3}
        assert not result.stdout
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "name, words",
    [
        ("healthy", "wq0.0 on engine0.0"),
        ("portal-refused", "write"),
        ("queue-disabled", "off"),
        ("only-kernel-queues", "the kernel's"),
        ("dedicated-in-use", "in use"),
        ("no-permission", "not permitted"),
        ("no-files", "no file"),
        ("not-configured", "no WQ has entries"),
        ("group-without-engine", "in no group: engine0.0"),
        ("pasid-off", "PASID off"),
        ("threshold-zero", "the shared WQ has threshold 0"),
    ],
)
def test_the_list_says_what_is_wrong_with_a_queue(here: Here, name: str, words: str) -> None:
    arguments = ["dsa", "list", "--replay", name]
    stdout = here(*arguments).stdout
    assert words.split() == [word for word in words.split() if word in stdout]
    assert words in " ".join(stdout.replace("wq0.0, wq0.1 on", "wq0.0 on").split())


def test_the_json_of_the_list_has_devices_and_figures(here: Here) -> None:
    arguments = ["dsa", "list", "--json", "--replay", str(MACHINES / "healthy.json")]
    read = json.loads(here(*arguments).stdout)
    assert read["schema"] == {"name": "headrace-dsa-list", "version": 1}
    assert read["results"]["devices"][0]["queues"][0]["name"] == "wq0.0"
    assert read["summary"] == {
        "device_count": 1,
        "device_enabled_count": 1,
        "queue_count": 2,
        "queue_enabled_count": 2,
        "queue_usable_count": 2,
    }


def test_a_configuration_on_stdout_is_nothing_but_data(here: Here) -> None:
    result = here("dsa", "configure", "--devices", "dsa0,dsa2", "--queues", "2", "--size", "16")
    assert result.code == 0, result.stderr
    read = json.loads(result.stdout)
    assert [device["dev"] for device in read] == ["dsa0", "dsa2"]
    assert "accel-config load-config" in result.stderr


def test_a_configuration_goes_into_a_file(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    healthy = str(MACHINES / "healthy.json")
    arguments = ("--replay", healthy, "--preset", "throughput", "--output", str(path))
    result = here("dsa", "configure", *arguments)
    assert result.code == 0, result.stderr
    assert len(queues(json.loads(path.read_text()))) == 4
    assert not result.stderr
    assert "wq0.2 is added: dedicated, 32 entries" in result.stdout


def test_the_json_of_configure_has_configuration_and_changes(here: Here) -> None:
    healthy = str(MACHINES / "healthy.json")
    arguments = ["dsa", "configure", "--json", "--replay", healthy]
    read = json.loads(here(*arguments).stdout)
    assert read["schema"]["name"] == "headrace-dsa-configure"
    assert read["results"]["changes"]
    assert read["results"]["commands"][-1] == "accel-config load-config -c FILE -e"
    summary = {"device_count": 1, "queue_count": 1, "entry_count": 128}
    assert read["summary"] == summary


def test_sizes_and_priorities_are_dealt_out_in_turn(here: Here) -> None:
    words = ("--devices", "dsa0", "--queues", "3", "--size", "16,32", "--priority", "15,1")
    made = queues(json.loads(here("dsa", "configure", *words).stdout))
    assert [queue["size"] for queue in made] == [16, 32, 16]
    assert [queue["threshold"] for queue in made] == [16, 32, 16]
    assert [queue["priority"] for queue in made] == [15, 1, 15]


def test_options_change_a_preset(here: Here) -> None:
    arguments = ["--preset", "8n1d1e1w", "--devices", "dsa0", "--queues", "2", "--transfer", "1GiB"]
    result = here("dsa", "configure", *arguments)
    first, second = queues(json.loads(result.stdout))
    assert first["max_batch_size"] == 256
    assert first["threshold"] == first["size"] == second["size"] == 64
    assert first["max_transfer_size"] == 1 << 30


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--preset", "moon"], 2, "--preset: 'moon' is not shared, 8n1d1e1w, low-latency or"),
        (["--queues", "3", "--size", "64"], 2, "3 WQs of 64 entries are 192 and a device has 128"),
        (["--size", "16,64"], 2, "--size has 2 numbers for 1 WQ; add --queues 2"),
        (["--priority", "1,"], 2, "--priority: '1,' is not a whole number, or several"),
        (["--queues", "2", "--priority", "1,16"], 2, "16 as priority are asked for"),
        (["--queues", "x"], 2, "--queues: 'x' is not a whole number"),
        (["--queues", "-1"], 2, "--queues: '-1' is not a whole number"),
        (["--mode", "quick"], 2, "--mode: 'quick' is not shared, dedicated or both"),
        (["--block-on-fault", "maybe"], 2, "'maybe' is not on or off"),
        (["--transfer", "1 parsec"], 2, "1 parsec"),
        (["--transfer", "4GiB"], 2, "1 to 2147483648 are possible"),
        (["--devices", "0"], 2, "--devices: '0' is not a number from 1 to 64"),
        (["--devices", "dsa0,moon"], 2, "is not a number from 1 to 64, or different names"),
        (["--devices", "dsa0,dsa0"], 2, "or different names"),
        (["--name", "a b"], 2, "--name: 'a b' is not"),
        (["--output", ""], 2, "--output: '' is not a path"),
        (["--replay", ""], 2, "--replay: '' is not a path"),
        (["--apply"], 2, "--apply is gone: run the commands that it prints"),
        (["--mode", "dedicated", "--threshold", "5"], 2, "--threshold applies to shared WQs"),
        (["--preset", "low-latency", "--threshold", "5"], 2, "all are dedicated"),
        (["--batch", "3"], 2, "the driver takes powers of two; set --batch to 2 or 4"),
        (["--replay", "none.json"], 1, "there is no such file"),
        (["--output", "/none/c.json"], 1, "cannot write the configuration to '/none/c.json'"),
    ],
)
def test_wrong_use_is_one_sentence(here: Here, arguments: list[str], code: int, words: str) -> None:
    result = here("dsa", "configure", *arguments)
    assert result.code == code
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_the_subcommands_explain_themselves(here: Here) -> None:
    assert here("dsa").code == 2
    for arguments in (["dsa", "--help"], ["dsa", "list", "--help"], ["dsa", "configure", "--help"]):
        result = here(*arguments)
        assert result.code == 0
        assert "Example:\n    headrace dsa" in result.stdout
