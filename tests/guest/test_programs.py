# SPDX-License-Identifier: Apache-2.0
"""Other people's programs in a machine, and the tutorial."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from .conftest import COMMAND, ROOT, Guest

pytestmark = pytest.mark.more
DSA_TEST = "/usr/libexec/accel-config/test/dsa_test"
TUTORIAL = ROOT / "docs/tutorials/a-xeon-max-on-your-desk.md"


def test_numactl_and_hwloc_show_the_nodes_and_accel_config_the_devices(
    guest: Guest, tmp_path: Path
) -> None:
    script = f"""
numactl --hardware >numactl || exit
lstopo-no-graphics --of xml >lstopo || exit
accel-config list >devices || exit
# Copies of 4 KiB by the queue of dsa5, verified.
numactl --membind=13 {DSA_TEST} -w 1 -d dsa5/wq5.0 -l 4096 -o 3 -t 60000 || exit
"""
    run = guest("xeon-max-flat", "--", "sh", "-c", script)
    assert run.returncode == 0, run.stdout + run.stderr
    text = (tmp_path / "numactl").read_text()
    assert "available: 16 nodes (0-15)" in text
    # Of node 3 to all: DDR, then HBM, of the tiles of both sockets.
    row = re.search(r"^ *3: +(.*)$", text, re.MULTILINE)
    assert row is not None
    assert row[1].split() == ["12"] * 3 + ["10"] + ["21"] * 4 + ["14"] * 3 + ["13"] + ["23"] * 4
    assert len(re.findall('<object type="NUMANode"', (tmp_path / "lstopo").read_text())) == 16
    devices = json.loads((tmp_path / "devices").read_text())
    assert [(each["dev"], each["numa_node"]) for each in devices] == [
        (f"dsa{number}", number) for number in range(8)
    ]


def test_ndctl_and_daxctl_show_persistent_memory(guest: Guest, tmp_path: Path) -> None:
    script = """
ndctl list -N >namespaces && findmnt --noheadings --output FSTYPE,OPTIONS /mnt/pmem1 >mount || exit
umount /mnt/pmem1 && ndctl create-namespace -f -e namespace0.0 -m devdax >/dev/null || exit
daxctl list >devdax
"""
    run = guest("ddr-optane", "--devices", "none", "--", "sh", "-c", script)
    assert run.returncode == 0, run.stdout + run.stderr
    (namespace,) = json.loads((tmp_path / "namespaces").read_text())
    assert namespace["mode"] == "fsdax"
    assert re.match(r"ext4 .*\bdax=always\b", (tmp_path / "mount").read_text())
    (device,) = json.loads((tmp_path / "devdax").read_text())
    assert device["mode"] == "devdax"


def test_the_commands_of_the_tutorial_run(guest: Guest) -> None:
    """A fence holds commands; some of what each must print is here."""
    expected = ["available: 16 nodes", "16 nodes", "in the HBM of node 2", "dsa3"]
    blocks = re.findall(r"^```sh\n(.*?)^```", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    commands = "".join(blocks).splitlines()
    assert len(commands) == len(expected)
    for command, words in zip(commands, expected, strict=True):
        start = "headrace machine run xeon-max-flat -- "
        assert command.startswith(start)
        script = command.removeprefix(start).replace("headrace", str(COMMAND))
        run = guest("xeon-max-flat", "--", "sh", "-c", script)
        assert run.returncode == 0, f"{command}: {run.stderr}"
        assert words in run.stdout, command


@pytest.mark.skipif(not shutil.which("memkind-hbw-nodes"), reason="memkind is not installed")
def test_dpdk_uses_a_device_and_memkind_the_hbm(guest: Guest, tmp_path: Path) -> None:
    script = f"""
on_node_3() {{ numactl --cpunodebind=3 --membind=3 "$@"; }}
# A quarter of a package has less than what memkind takes for HBM, in MiB/s.
export MEMKIND_HBW_THRESHOLD=100000
on_node_3 memkind-hbw-nodes >nodes || exit
# What memkind allocates, told by the kernel.
on_node_3 {sys.executable} -c '
import ctypes
from headrace import _core
memkind = ctypes.CDLL("libmemkind.so.0")
memkind.hbw_malloc.restype = ctypes.c_void_p
address = memkind.hbw_malloc(ctypes.c_size_t(1 << 20))
ctypes.memset(address, 1, 1 << 20)
print({{_core.node_of_address(address + at) for at in range(0, 1 << 20, 4096)}})
' >hbw || exit
DPDK_TEST=dmadev_autotest {COMMAND} emulate --device-nodes 3 --wq dedicated \\
  --wq-name dpdk_app --stats stats -- \\
  dpdk-test --no-huge -m 512 --no-pci -l 3,4 --file-prefix=dpdk >dpdk 2>&1
"""
    run = guest("xeon-max-flat", "--devices", "none", "--", "sh", "-c", script)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "nodes").read_text() == "8,9,10,11,12,13,14,15\n"
    assert (tmp_path / "hbw").read_text() == "{11}\n"
    text = (tmp_path / "dpdk").read_text()
    assert "Test OK" in text
    assert "Test Failed" not in text
    (device,) = json.loads((tmp_path / "stats").read_text())["results"]["devices"]
    assert device["numa_node"] == 3
    assert sum(engine["descriptors"] for engine in device["engines"]) > 0
