# SPDX-License-Identifier: Apache-2.0
"""Caches, a store and SQL on the nodes of HBM, DDR and a DIMM, while one of 8 devices fails."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace._samples import machine_path

from .conftest import COMMAND, ROOT

pytestmark = pytest.mark.more
TILES = 8
ALL = [f"dsa{number}" for number in range(TILES)]
FAULTS = """
[[fault]]
kind = "status"
device = 6
opcode = "move"
status = 0x1a
"""
HBM_NODES = range(TILES, 2 * TILES - 1)
SCRIPT = f"""
findmnt --noheadings --output OPTIONS /mnt/pmem15 >mount || exit
on_node_3() {{
  stats=$1; shift
  {COMMAND} emulate --config devices.json --faults faults.toml --stats $stats -- \\
    numactl --cpunodebind=3 --membind=3 "$@"
}}
on_node_3 movers.stats {sys.executable} {ROOT}/tests/guest/movers.py /mnt/pmem15/store \\
  >movers.json || exit
# Pages that the kernel has given from each node of HBM.
pages() {{
  for node in {" ".join(str(node) for node in HBM_NODES)}; do
    sed -n "s/^numa_hit //p" /sys/devices/system/node/node$node/numastat
  done >$1
}}
pages before
on_node_3 sql.stats {COMMAND} sql --tpch 0.01 --query 6 --data-dir data --path dsa --prefetch on \\
  --rounds 1 --json >sql.json || exit
pages after
"""


def with_a_dimm(record: str) -> dict[str, Any]:
    """The last node of HBM becomes one of persistent memory."""
    document: dict[str, Any] = json.loads(Path(record).read_text())
    hbm = f'(os_index="{2 * TILES - 1}" local_memory="[0-9]+") subtype="HBM">'
    dimm = r'\1><info name="DAXType" value="NVM"/>'
    xml, count = re.subn(hbm, dimm, document["hwloc_xml"])
    assert count == 1
    checksum = 0xCBF29CE484222325
    for byte in xml.encode():
        checksum = (checksum ^ byte) * 0x100000001B3 % (1 << 64)
    return document | {"hwloc_xml": xml, "hwloc_xml_fnv1a64": f"{checksum:016x}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what one boot has written."""
    folder = tmp_path_factory.mktemp("movers")
    shown = subprocess.run(
        [COMMAND, "machine", "show", "xeon-max-flat", "--json"], check=True, stdout=-1
    )
    devices = json.dumps(json.loads(shown.stdout)["results"]["devices"])
    (folder / "devices.json").write_text(devices)
    (folder / "faults.toml").write_text(FAULTS)
    (folder / "record.json").write_text(json.dumps(with_a_dimm(machine_path("xeon-max-flat"))))
    (folder / "script").write_text(SCRIPT)
    words = ["sql", "--tpch", "0.01", "--query", "6", "--rounds", "1", "--data-dir", "data"]
    subprocess.run([COMMAND, *words], check=True, stdout=-3, cwd=folder)
    words = ["machine", "run", "record.json", "--devices", "none", "--", "sh", "script"]
    run = subprocess.run([COMMAND, *words], cwd=folder, check=False, timeout=1500)
    assert run.returncode == 0
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "movers.json").read_text())  # type: ignore[no-any-return]


# Of columns on node 3 and 5, read on node 3: copies are on node 11.
POLICIES = {
    "by_size": (["dsa3"], ["dsa3"]),
    "all": (ALL, ALL),
    "smart_copy": (ALL[:4], ["dsa3", "dsa5"]),
    "push_pull": (["dsa3"], ["dsa3", "dsa5"]),
    "near_source": (["dsa3"], ["dsa5"]),
    "function": (["dsa7"], ["dsa7"]),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_moves_columns_by_the_devices_of_its_policy(
    found: dict[str, Any], policy: str
) -> None:
    for node, devices in zip((3, 5), POLICIES[policy], strict=True):
        step = f"{policy} from {node}"
        assert (found[step], found[f"{step}: copy"]) == (devices, 11)
        # The copy is complete all the same.
        assert found.get(f"{step}: failed") == (["dsa6"] if "dsa6" in devices else None)


def test_a_full_node_leaves_copies_to_the_next_and_then_to_the_source(
    found: dict[str, Any],
) -> None:
    assert found["full: next"] == [11, 11, 8, 8]
    assert (found["full: copy"], found["full: source"]) == (None, [])
    assert found["flush of 11"] == 2
    assert found["after the flush"] == [None, None, 8, 8]


def test_what_changes_while_devices_copy_is_moved_again(found: dict[str, Any]) -> None:
    assert found["invalidated"] == 40


def test_a_store_on_hbm_ddr_and_a_dimm_moves_by_the_near_device(
    found: dict[str, Any], folder: Path
) -> None:
    assert "dax=always" in (folder / "mount").read_text()
    assert found["store: access"] == ["memory", "memory", "mapped"]
    assert found["store: equal"] == 32
    assert found["store: blocks"] == found["store: hits"] == [8, 8, 16]
    assert found["store: puts"] == ["dsa3"]


def test_sql_copies_columns_into_the_hbm_near_its_threads(folder: Path) -> None:
    document = json.loads((folder / "sql.json").read_text())
    summary = document["summary"]
    assert summary["queries_equal"] == summary["queries"] == 1
    assert summary["share_from_copies"] > 0
    assert summary["bytes_by_device"] == summary["bytes_moved"] > 0
    assert [each["node"] for each in document["results"]["column_nodes"]] == [3]
    devices = json.loads((folder / "sql.stats").read_text())["results"]["devices"]
    wrote = {
        device["name"]
        for device in devices
        if sum(engine["bytes_written"] for engine in device["engines"])
    }
    assert wrote == {"dsa3"}
    before, after = (
        [int(line) for line in (folder / name).read_text().split()] for name in ("before", "after")
    )
    grown = {
        node
        for node, old, new in zip(HBM_NODES, before, after, strict=True)
        if (new - old) * 4096 >= summary["bytes_moved"] // 8
    }
    assert grown == {11}
