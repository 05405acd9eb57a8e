# SPDX-License-Identifier: Apache-2.0
"""dpdk-test from its package: the self-test of DMA devices on the driver of DPDK."""

import json
from pathlib import Path

import pytest

from .conftest import Emulator, needs

pytestmark = needs("dpdk-test")


def test_the_dma_self_test_passes(emulator: Emulator, shared_path: Path) -> None:
    stats = shared_path / "stats.json"
    for _ in range(10):
        result = emulator.run(
            *("--wq", "both", "--wq-name", "dpdk_app", "--stats", stats, "--"),
            *("dpdk-test", "--no-huge", "-m", "512", "--no-pci", "-l", "0,1", "--file-prefix=dpdk"),
            env={"DPDK_TEST": "dmadev_autotest", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        # Before the devices it tests DPDK's software driver, whose thread has little time for it.
        if b"Error performing API tests" not in result.stderr:
            break
    if b"not enough CPUs" in result.stderr or b"lcore 1 unavailable" in result.stderr:
        pytest.skip("DPDK wants two processors")
    output = (result.stdout + result.stderr).decode()
    assert "Test OK" in output, output
    assert "Test Failed" not in output
    assert result.returncode == 0
    assert json.loads(stats.read_text())["summary"]["operations"] > 0
