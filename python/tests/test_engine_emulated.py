# SPDX-License-Identifier: Apache-2.0
"""The engine from Python on emulated devices: the device does it, and says so."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TIME_LIMIT_S

from headrace import _core

EMULATOR = Path(_core.__file__ or "").parent / "_emulator" / "headrace-emulator"
PAGE_FAULTS = Path(__file__).parents[2] / "tests" / "data" / "page-faults.toml"

pytestmark = pytest.mark.skipif(not EMULATOR.exists(), reason="the emulator is not built")


@pytest.fixture(scope="module", autouse=True)
def _emulator_works() -> None:
    """Skip where the machine lacks what the emulator needs, which it says."""
    tried = subprocess.run(
        [EMULATOR, "--", "true"], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
    )
    if tried.returncode != 0:
        pytest.skip(tried.stderr.strip())


def emulated(*arguments: str, options: tuple[str, ...] = ()) -> str:
    """What Python prints on emulated devices."""
    done = subprocess.run(
        [EMULATOR, *options, "--", sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("queues", ["shared", "dedicated", "both"])
def test_the_example_is_done_by_devices(queues: str) -> None:
    text = emulated("-m", "headrace.examples.copy", options=("--devices", "2", "--wq", queues))
    assert "dsa0/wq0.0: " in text
    assert "dsa1/" in text
    assert " 4194304 bytes: right, 100% by a device" in text
    totals = re.search(r"(\d+) bytes in \d+ jobs, (\d+) bytes by devices", text)
    assert totals is not None
    assert totals[1] == totals[2]
    assert " 0 jobs fell back" in text


def test_page_faults_change_no_byte_and_are_all_told(tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    options = ("--faults", str(PAGE_FAULTS), "--stats", str(stats))
    text = emulated("-m", "headrace.examples.copy", options=options)
    assert text.count(": right, 100% by a device") == 7
    assert " 0 jobs fell back" in text
    told = [int(count) for count in re.findall(r"page_faults=(\d+)", text)]
    injected = json.loads(stats.read_text())["summary"]["page_faults"]
    assert sum(told) == injected > 0


def test_every_operation_is_done_by_a_device() -> None:
    text = emulated(
        "-c",
        """
import headrace

O = headrace.Operation
source, target = bytes(range(256)) * 64, bytearray(1 << 14)
with headrace.Engine(path="hardware") as engine:
    for operation in (
        O.copy(source, target), O.compare(source, target), O.crc(source),
        O.copy_crc(source, target), O.fill(target, 7), O.compare_pattern(target, 7),
    ):
        for end in (engine.run(operation), engine.submit(operation).result()):
            assert end.bytes_by_device == len(source), end
            assert not end.fell_back and not end.different and end.device_status == 0, end
    statistics = engine.statistics
    assert statistics.bytes_by_device == statistics.bytes_moved == 12 * len(source)
    assert sum(one.descriptors for one in engine.device_statistics.values()) >= 12
    # Without a handle nobody polls but who asks the engine.
    engine.submit(source, target)
    while engine.statistics.jobs_done < 13:
        pass
    assert target == source
print("well")
""",
    )
    assert text == "well\n"
