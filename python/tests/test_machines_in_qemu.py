# SPDX-License-Identifier: Apache-2.0
"""``headrace machine`` without a boot: records as machines of QEMU, and what it refuses.

Boots are in tests/guest.
"""

import dataclasses
import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TIME_LIMIT_S, Here

from headrace import CapacityExceededError, InvalidArgumentError, UnsupportedError
from headrace._apps.machine import kernel
from headrace._apps.machine.hardware import Hardware, hardware_of
from headrace._samples import machine_path, samples
from headrace.machine import Machine, replay

Command = Callable[..., subprocess.CompletedProcess[str]]
GIB = 1 << 30


def values(hardware: Hardware, option: str, start: str = "") -> list[str]:
    pairs = zip(hardware.arguments, hardware.arguments[1:], strict=False)
    return [value for name, value in pairs if name == option and value.startswith(start)]


def sample(name: str) -> Machine:
    return replay(machine_path(name))


@pytest.mark.parametrize("name", samples())
def test_every_sample_is_a_machine_of_qemu(name: str) -> None:
    machine = sample(name)
    hardware = hardware_of(machine, name)
    assert len(values(hardware, "-numa", "node,")) == len(machine.nodes)
    assert len(values(hardware, "-device", "nvdimm")) == len(hardware.dimms)
    assert len(hardware.devices) == len(machine.dsa_devices)
    sizes = [
        int(text.split("size=")[1][:-1])
        for text in values(hardware, "-object", "memory-backend-ram")
    ]
    assert sum(sizes) == int(values(hardware, "-m")[0].split("B")[0]) <= 4 * GIB
    assert min(sizes) >= 64 << 20


def test_memory_is_shared_in_proportion_and_said_so() -> None:
    hardware = hardware_of(sample("xeon-max-flat"), "xeon-max-flat", 2560 << 20)
    sizes = [text.split("size=")[1] for text in values(hardware, "-object")]
    assert sizes == [f"{256 << 20}B"] * 8 + [f"{64 << 20}B"] * 8
    assert "Memory: 2.5 GiB instead of 640 GiB." in hardware.scaled


def test_that_nothing_tells_what_a_node_is_is_said() -> None:
    said = "Nodes without processors: of unknown kind"
    for name, expected in (("spr-cxl", 1), ("spr-4dsa", 0), ("ddr-cxl", 0)):
        hardware = hardware_of(sample(name), name)
        assert sum(each.startswith(said) for each in hardware.scaled) == expected, name


def test_a_device_is_on_the_node_of_the_record() -> None:
    hardware = hardware_of(sample("xeon-max-flat"), "xeon-max-flat")
    assert [device["numa_node"] for device in hardware.devices] == list(range(8))
    assert "Devices: numbered from dsa0 to dsa7." in hardware.scaled


def with_nodes(machine: Machine, **changes: Any) -> Machine:
    nodes = [dataclasses.replace(node, **changes) for node in machine.nodes]
    return dataclasses.replace(machine, nodes=tuple(nodes))


def with_distance(machine: Machine, distance: int, *, local: bool) -> Machine:
    accesses = [
        dataclasses.replace(each, distance=distance)
        if (each.initiator == each.target) == local
        else each
        for each in machine.accesses
    ]
    return dataclasses.replace(machine, accesses=tuple(accesses))


def many(machine: Machine, count: int) -> Machine:
    nodes = [dataclasses.replace(machine.nodes[0], id=number) for number in range(count)]
    return dataclasses.replace(machine, nodes=tuple(nodes))


@pytest.mark.parametrize(
    "change, cause",
    [
        (lambda machine: with_nodes(machine, capacity_bytes=0), "node 0 has no memory"),
        (lambda machine: with_nodes(machine, cpus=()), "no node has processors"),
        (lambda machine: many(machine, 129), "129 nodes"),
        (
            lambda machine: dataclasses.replace(machine, nodes=machine.nodes[1:]),
            "the numbers of its nodes have gaps",
        ),
        (lambda machine: with_distance(machine, 11, local=True), "distance 11 from node 0 to 0"),
        (lambda machine: with_distance(machine, 10, local=False), "distance 10 from node 0 to 1"),
        (lambda machine: with_distance(machine, 255, local=False), "distance 255 from node 0 to 1"),
    ],
)
def test_a_machine_that_cannot_be_booted_is_refused(
    change: Callable[[Machine], Machine], cause: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        hardware_of(change(sample("xeon-max-flat")), "it")
    assert cause in str(caught.value)
    assert caught.value.remedy


def test_too_little_and_too_much_memory_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"--memory 1\.188 GiB or more"):
        hardware_of(sample("xeon-max-flat"), "it", 1 << 30)
    with pytest.raises(InvalidArgumentError, match="this machine has less than"):
        hardware_of(sample("xeon-max-flat"), "it", 1 << 50)


def test_a_full_disk_is_told_before_a_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "boot").mkdir()
    (tmp_path / "boot" / "vmlinuz-6").touch()
    (tmp_path / "lib/modules/6").mkdir(parents=True)
    (tmp_path / "lib/modules/6/modules.dep").touch()
    monkeypatch.setenv("HEADRACE_KERNEL", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel, "_uncompressed", lambda _: b"ELF")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CapacityExceededError, match=r"cannot keep a kernel in .*no space left"):
        kernel.find_kernel()
    assert list((tmp_path / "cache" / "headrace").iterdir()) == []
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CapacityExceededError, match="cannot keep persistent memory in"):
        hardware_of(sample("ddr-optane"), "it", folder=tmp_path)


def test_a_kernel_that_cannot_be_uncompressed_names_the_tool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnsupportedError, match="the kernel needs zstd to be read; install zstd"):
        kernel.uncompressed(b"\x28\xb5\x2f\xfd and the rest")


def test_list_and_show(command: Command) -> None:
    listed = json.loads(command("machine", "list", "--json").stdout)
    assert [each["name"] for each in listed["results"]["machines"]] == list(samples())
    assert "xeon-max-flat" in command("machine", "list").stdout
    shown = json.loads(command("machine", "show", "xeon-max-flat", "--json").stdout)
    assert shown["summary"] == {"node_count": 16, "dsa_device_count": 8, "nvdimm_count": 0}
    text = command("machine", "show", "ddr-optane").stdout
    assert "Persistent memory: an NVDIMM of 384 MiB" in text


def test_what_cannot_run_is_refused_before_a_boot(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*words: str) -> tuple[int, str]:
        result = command("machine", "run", *words)
        return result.returncode, result.stderr

    assert told("spr-1dsa")[0] == 2
    code, text = told("spr-1dsa", "--", "no-such-program")
    assert (code, "there is no such program" in text) == (127, True)
    code, text = told("spr-1dsa", "--", str(tmp_path / ".."))
    assert (code, "cannot be executed" in text) == (126, True)
    code, text = told("no-such-machine", "--", "true")
    assert (code, "no-such-machine" in text) == (1, True)
    code, text = told("spr-1dsa", "--write", "/no/such", "--", "true")
    assert (code, "make it first" in text) == (2, True)
    monkeypatch.setenv("HEADRACE_KERNEL", str(tmp_path))
    code, text = told("spr-1dsa", "--", "true")
    # Of a kernel, or of QEMU where that is missing, too.
    assert (code, "apt-get install" in text) == (3, True)


@pytest.fixture
def in_guest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The mark of a machine in QEMU."""
    (tmp_path / "machine").write_text("xeon-max-flat")
    monkeypatch.setattr("headrace._apps.machine.STATE", tmp_path)
    return tmp_path / "machine"


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "cache"),
        ("bench", "latency"),
        ("tune", "--output", "-"),
        ("report", "--output", "report.html"),
        ("topo", "--measure"),
        ("sim", "validate", "--here"),
    ],
)
@pytest.mark.usefixtures("in_guest")
def test_nothing_is_measured_in_a_machine_in_qemu(here: Here, words: tuple[str, ...]) -> None:
    result = here(*words)
    assert (result.code, result.stdout) == (3, "")
    assert "'xeon-max-flat' in QEMU, whose times mean nothing" in result.stderr
    assert "'headrace sim run SCENARIO --machine xeon-max-flat' predicts times" in result.stderr


@pytest.mark.usefixtures("in_guest")
def test_a_family_is_simulated_in_a_machine_in_qemu(here: Here) -> None:
    result = here("bench", "movement", "--rounds", "1")
    assert "QEMU, whose times mean nothing" in result.stderr
    assert result.stdout.startswith("ddr-to-hbm on xeon-max-flat (simulated")
    document = json.loads(here("bench", "movement", "--json").stdout)
    assert document["summary"]["kind"].startswith("simulated")
    assert here("bench", "movement", "--help").stdout.startswith("Usage: headrace bench movement")


def test_a_query_is_predicted_for_a_machine_in_qemu(here: Here, in_guest: Path) -> None:
    words = ("query", "--scale-factor", "0.01", "--rounds", "1", "--json")
    result = here(*words)
    assert "what is called simulated is predicted for it" in result.stderr
    assert json.loads(result.stdout)["results"]["simulated"]["machine"] == "xeon-max-flat"
    in_guest.write_text("ddr-cxl")  # Has no model.
    assert "simulated" not in json.loads(here(*words).stdout)["results"]


def test_without_qemu_its_package_is_named(command_path: Path) -> None:
    result = subprocess.run(
        [command_path, "machine", "run", "spr-1dsa", "--", "/bin/true"],
        env={"PATH": "/nowhere"} | {"HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert result.returncode == 3
