# SPDX-License-Identifier: Apache-2.0
"""Copies as a program gets them: the program of the benchmark, without and with the preload."""

import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fabricated import tuning

from headrace._apps.tune import door
from headrace._apps.tune.kernels import KernelChoice
from headrace._apps.tune.search import LIBC, PAIR
from headrace._apps.tune.tuner import grid, judge_in_program
from headrace._cli.run import library_path
from headrace._direct import built
from headrace.errors import CapacityExceededError, Error, NotFoundError

PROGRAM = built(f"_bench/{door.PROGRAM}")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="built without the program")


def test_a_c_program_prints_the_same_with_the_preload_and_without() -> None:
    def printed(added: dict[str, str]) -> str:
        environment = dict(os.environ) | added
        return subprocess.run(
            [str(PROGRAM), "check"], env=environment, check=True, capture_output=True, text=True
        ).stdout

    without = printed({})
    assert len(without.strip()) == 16
    for profile in ("none", None):
        assert printed(door.ways_of(library_path(), profile)[door.TUNED]) == without


def test_the_program_binds_its_functions_before_it_times_any() -> None:
    environment = dict(os.environ) | {"LD_DEBUG": "bindings"}
    usage = subprocess.run(  # It calls none of them.
        [str(PROGRAM)], env=environment, check=False, capture_output=True, text=True
    )
    bound = [line for line in usage.stderr.splitlines() if door.PROGRAM + " [" in line]
    for function in door.FUNCTIONS:
        assert any(f"symbol `{function}'" in line for line in bound), usage.stderr


def test_the_ways_alternate_and_the_first_round_is_dropped() -> None:
    order: list[str] = []

    def run(name: str) -> int:
        order.append(name)
        return len(order)

    outcomes = door.alternated({"a": lambda: run("a"), "b": lambda: run("b")}, 9)
    assert all(sorted(order[i : i + 2]) == ["a", "b"] for i in range(0, 20, 2))
    assert len({tuple(order[i : i + 2]) for i in range(0, 20, 2)}) == 2, "in both orders"
    assert [len(times) for times in outcomes.values()] == [9, 9]
    assert min(*outcomes["a"], *outcomes["b"]) == 3


def test_a_program_is_measured_beside_itself_and_another_library() -> None:
    ways = door.ways_of(library_path(), "none", str(library_path()))
    measured = door.measure(ways, 2, bytes_max=64, functions=("memcpy", "memset"))
    assert measured.ways == [door.CONTROL, door.TUNED, door.BESIDE]
    assert {point.bytes_max for point in measured.points} == {16, 32, 64}
    assert {point.function for point in measured.points} == {"memcpy", "memset"}
    summary = measured.summary()
    for way in ("program", "program_null", "program_beside"):
        low, high = summary[f"{way}_hot_worst_interval"]
        assert 0 < low <= summary[f"{way}_hot_worst"] <= high
    assert "program_long_geomean" not in summary, "no point is that long"


def test_figures_are_medians_of_the_ratios_within_a_round() -> None:
    points = [
        door.Point("memcpy", bytes_max, temperature, "fixed")
        for bytes_max in (64, 16 << 20)
        for temperature in ("hot", "memory")
    ]
    draw = random.Random(1)  # noqa: S311
    slower = [draw.uniform(1, 3) for _ in range(7)]  # Other processes, in some rounds.
    times = {
        door.GLIBC: [dict.fromkeys(points, 10 * each) for each in slower],
        door.CONTROL: [dict.fromkeys(points, 10 * each) for each in slower],
        door.TUNED: [
            {point: 5 * each if point.bytes_max > 64 else 20 * each for point in points}
            for each in slower
        ],
    }
    summary = door.Door(times).summary()
    assert summary["program_hot_worst"] == pytest.approx(0.5)
    assert summary["program_hot_geomean"] == pytest.approx(1)
    assert summary["program_random_geomean"] == pytest.approx(1)
    assert summary["program_long_geomean"] == pytest.approx(2)
    assert summary["program_long_geomean_interval"] == pytest.approx((2, 2))
    assert summary["program_null_hot_worst"] == pytest.approx(1)


def test_a_library_that_is_missing_or_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFoundError, match="absent"):
        door.ways_of(library_path(), None, str(tmp_path / "absent.so"))
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(Error, match=r"text\.so.*cannot be preloaded"):
        door.measure(door.ways_of(library_path(), None, str(text)), 1, bytes_max=16)
    monkeypatch.setattr(door, "available_bytes", lambda: 1 << 20)
    with pytest.raises(CapacityExceededError, match="1 MiB are free"):
        door.measure({door.GLIBC: {}}, 1, bytes_max=16)


def _measured(ratios: dict[door.Point, float]) -> door.Door:
    times = dict.fromkeys(ratios, 10.0)
    return door.Door(
        {
            door.GLIBC: [times] * 7,
            door.CONTROL: [dict.fromkeys(times, 10 * each) for each in (1, 1.1, 0.9, 1, 1, 1.1, 1)],
            door.TUNED: [{point: 10 / ratio for point, ratio in ratios.items()}] * 7,
        }
    )


def _points(function: str, bytes_max: int, hot: float, memory: float) -> dict[door.Point, float]:
    return {
        door.Point(function, bytes_max, temperature, lengths): ratio
        for temperature, ratio in (("hot", hot), ("memory", memory))
        for lengths in ("fixed", "random")
    }


def test_classes_that_a_program_loses_by_stay_with_the_c_library() -> None:
    program = _measured(
        _points("memcpy", 256, 1.2, 0.8)
        | _points("memcpy", 512, 1.2, 0.99)
        | _points("memcpy", 1024, 1.0, 0.999)
        | _points("memcpy", 1 << 20, 0.7, 1.2)
        | _points("memset", 256, 0.7, 1.5)
        | _points("memcmp", 256, 1.1, 1.5)
    )
    search = tuning()
    given = search.choices[0]
    variant = "ymm load=t store=t prefetch=none block=2 align=target forward streams=1"
    search.choices = [
        replace(given, bytes_max=bytes_max, variant=chosen)
        for bytes_max, chosen in (
            (256, variant),
            (512, variant),
            (1024, variant),
            (1 << 20, f"{variant}{PAIR}{variant}"),
        )
    ]
    kernel = KernelChoice(256, "ymm", {"hot fixed": 1.2}, "it is the fastest")
    search.kernels = {"fills": [kernel], "comparisons": [kernel]}
    judge_in_program(search, program)
    assert [choice.variant for choice in search.choices] == [
        None,
        variant,
        None,
        f"{LIBC}{PAIR}{variant}",
    ]
    assert search.choices[0].reason == "it loses 20% in a program when memory fixed"
    assert search.choices[2].reason == "it gains nothing in a program"
    assert search.kernels["fills"][0].kernel is None
    assert search.kernels["comparisons"] == [kernel]


def test_no_kernel_is_kept_whose_function_loses_when_it_is_short() -> None:
    search = tuning()
    kept = KernelChoice(1 << 20, "ymm", {"hot fixed": 1.2}, "it is the fastest")
    search.kernels = {"fills": [kept], "comparisons": [kept]}
    judge_in_program(
        search,
        _measured(
            # A compare and a jump in front of every short memset, and of none of memcmp.
            _points("memset", 64, 0.9, 1.0)
            | _points("memcmp", 64, 1.0, 1.0)
            | _points("memset", 4096, 0.5, 1.0)
            | _points("memcmp", 4096, 0.5, 1.0)
            | _points("memset", 1 << 20, 1.5, 1.5)
            | _points("memcmp", 1 << 20, 1.5, 1.5)
        ),
    )
    (fill,) = search.kernels["fills"]
    assert fill.kernel is None
    assert fill.reason == "a short memset: it loses 10% in a program when hot fixed"
    assert search.kernels["comparisons"] == [kept]


def test_short_classes_try_only_copies_that_an_entry_inlines() -> None:
    assert grid(64) == []
    for bytes_max in (128, 256):
        assert all(f"block={bytes_max // 128} " in each for each in grid(bytes_max))
        assert len(grid(bytes_max)) <= 2
    assert len(grid(512)) >= len(grid(256))
