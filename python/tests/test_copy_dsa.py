# SPDX-License-Identifier: Apache-2.0
"""From which length on DSA pays, on a machine whose times are made up, and on an emulated one."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TIME_LIMIT_S

from headrace._apps.tune.door import GLIBC, TUNED, Door, Point
from headrace._apps.tune.dsa import ROUNDS, finding_of, measure_paths
from headrace._apps.tune.search import StoppedError
from headrace._cli.run import library_path
from headrace.errors import NotFoundError

LENGTHS = [16384 << shift for shift in range(7)]
PLACES = ("hot", "memory")


def threshold(speed: Callable[[int, int], float]) -> int | None:
    """Of a machine on which the shared copy has this speed by the other's; 0 is hot, 1 is cold."""
    noise = random.Random(3)  # noqa: S311 - Nothing is secret here.

    def times(way: str) -> dict[Point, float]:
        return {
            Point("memcpy", length, place, "fixed"): length
            / (speed(length, number) if way == TUNED and length >= LENGTHS[0] else 1.0)
            * noise.uniform(0.99, 1.01)
            for length in (64, 8192, *LENGTHS)
            for number, place in enumerate(PLACES)
        }

    found = finding_of(Door({way: [times(way) for _ in range(ROUNDS)] for way in (GLIBC, TUNED)}))
    assert list(found.ratios) == LENGTHS
    return found.bytes_min


def test_the_least_length_from_which_on_it_pays_is_found() -> None:
    assert threshold(lambda length, _: 1.5 if length >= 100_000 else 0.7) == 131_072
    assert threshold(lambda _length, _: 1.5) == LENGTHS[0]
    assert threshold(lambda _length, _: 0.9) is None
    # Too little to be sure of.
    assert threshold(lambda _length, _: 1.01) is None


def test_what_pays_at_one_temperature_alone_does_not_pay() -> None:
    assert threshold(lambda _length, place: 0.9 if place == 0 else 2.0) is None
    assert threshold(lambda _length, place: 0.9 if place == 1 else 2.0) is None


def test_what_does_not_pay_at_a_longer_length_does_not_pay() -> None:
    assert threshold(lambda length, _: 0.9 if length == 262_144 else 2.0) == 524_288
    assert threshold(lambda length, _: 0.9 if length == LENGTHS[-1] else 2.0) is None


def library() -> Path:
    try:
        return library_path()
    except NotFoundError:
        pytest.skip("this build has nothing to preload")


def test_a_process_measures_hot_and_cold_until_somebody_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace._apps.tune.dsa.ROUNDS", 2)
    shares: list[float] = []
    found = finding_of(measure_paths(library(), tmp_path / "none.json", 32768, shares.append))
    assert list(found.ratios) == LENGTHS[:2]
    assert all(len(each) == 2 and min(each) > 0 for each in found.ratios.values())
    assert shares == sorted(shares)
    assert shares[-1] == 1

    def stop(_share: float) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        measure_paths(library(), tmp_path / "none.json", 32768, stop)


@pytest.mark.long
def test_tune_finds_it_where_there_is_a_device_and_engines_take_it(
    command_path: Path, emulator: Path, tmp_path: Path
) -> None:
    library()
    stats, path = tmp_path / "stats.json", tmp_path / "copy.json"
    done = subprocess.run(
        [
            *(command_path, "emulate", "--wq", "shared", "--stats", stats, "--"),
            *(command_path, "tune", "--bytes-min", "16KiB", "--bytes-max", "16KiB"),
            *("--time", "1s", "--threads", "1", "--output", path, "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [each["bytes"] for each in results["dsa"]] == [16384]
    assert all(each["hot"] > 0 and each["cold"] > 0 for each in results["dsa"])
    # Whether an emulated device pays is not for this test to say.
    assert results["dsa_bytes_min"] in {None, 16384}
    assert json.loads(path.read_text()).get("dsa_bytes_min") == results["dsa_bytes_min"]
    assert json.loads(stats.read_text())["summary"]["operations"] > 0
    # An engine takes what was found, or says that nothing was.
    if results["dsa_bytes_min"] is None:
        assert engine_with(emulator, path) == "published 24576"
    else:
        assert engine_with(emulator, path) == "profile 16384"
    # On a machine where it pays from 64 KiB on.
    profile = json.loads(path.read_text())
    path.write_text(json.dumps(profile | {"dsa_bytes_min": 65536}))
    assert engine_with(emulator, path) == "profile 65536"


def engine_with(emulator: Path, profile: Path) -> str:
    """What gives an engine the length from which on it takes the device, and that length."""
    script = (
        "import headrace\n"
        "with headrace.Engine() as engine:\n"
        "    told = engine.thresholds\n"
        "    asked = told.synchronous_bytes\n"
        "    buffers = bytes(asked), bytearray(asked)\n"
        "    below = headrace.Operation.copy(\n"
        "        source=buffers[0][1:], target=memoryview(buffers[1])[1:])\n"
        "    assert engine.run(below).path == 'cpu'\n"
        "    above = headrace.Operation.copy(source=buffers[0], target=buffers[1])\n"
        "    assert engine.run(above).path == 'dsa'\n"
        "    why = {'published': 'published figures', 'profile': 'measured by'}[told.source]\n"
        "    assert any(why in note for note in engine.notes), engine.notes\n"
        "    print(told.source, asked)\n"
    )
    done = subprocess.run(
        [emulator, "--wq", "shared", "--", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
        env=os.environ | {"HEADRACE_PROFILE": str(profile)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
