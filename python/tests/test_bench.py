# SPDX-License-Identifier: Apache-2.0
"""The figures of the benchmarks, and what their command line refuses."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Here
from fabricated import fabricated
from jsonschema import Draft202012Validator

from headrace._apps.figures import median_interval
from headrace._cli._output import schema_of
from headrace._cli._report import Report
from headrace_lab.commands import bench
from headrace_lab.commands.bench import _measure, copy, engine, injection
from headrace_lab.commands.bench._measure import (
    find_program,
    measure_curves,
    rate_per_s,
    run_program,
    speed_ratio,
)
from headrace_lab.families import FAMILIES

__all__ = ["fabricated"]


@pytest.mark.usefixtures("fabricated")
@pytest.mark.parametrize("name", bench.command.summaries)
def test_every_benchmark_takes_rounds_and_those_of_curves_draw_a_picture(
    here: Here, name: str, tmp_path: Path
) -> None:
    picture = tmp_path / "figures.svg"
    result = here("bench", name, "--rounds", "3", "--plot", str(picture))
    if name not in {"copy", "injection", *FAMILIES}:
        assert (result.code, "--plot drew what the table has" in result.stderr) == (2, True)
        assert here("bench", name, "--rounds", "3").code == 0
        return
    assert result.code == 0, result.stderr
    assert result.stdout.endswith(f"The picture is in {picture}.\n")
    assert "<svg" in picture.read_text()


@pytest.mark.usefixtures("fabricated")
@pytest.mark.parametrize("name", ["cache", "emulator", "injection", "message", "pmem", "store"])
def test_every_figure_has_its_confidence_interval(here: Here, name: str) -> None:
    document = json.loads(here("bench", name, "--json").stdout)
    found = list(figures_in(document["results"]))
    assert found
    for each in found:
        assert each["interval_low"] <= each["median"] <= each["interval_high"]


def figures_in(value: object) -> Iterator[dict[str, float]]:
    if isinstance(value, dict):
        if "median" in value:
            yield value
        for below in value.values():
            yield from figures_in(below)
    elif isinstance(value, list):
        for below in value:
            yield from figures_in(below)


def test_a_rate_is_that_of_the_median_and_its_spread_that_of_the_quartiles() -> None:
    figure = rate_per_s([100.0, 200.0, 400.0, 800.0, 1000.0])
    assert figure.median == pytest.approx(2.5e6)
    assert figure.low == pytest.approx(1e9 / 800)
    assert figure.high == pytest.approx(1e9 / 200)


def test_a_ratio_is_above_one_if_the_subject_is_faster() -> None:
    figure = speed_ratio(subject=[50.0, 50.0, 50.0], baseline=[100.0, 90.0, 110.0])
    assert figure.median == pytest.approx(2.0)
    assert figure.low == pytest.approx(1.9)
    assert figure.high == pytest.approx(2.1)


def test_one_round_has_no_spread() -> None:
    figure = rate_per_s([100.0])
    assert figure.low == figure.median == figure.high


@pytest.mark.parametrize("rounds", ["0", "-1", "many", "1e3", "10001", ""])
def test_rounds_that_are_none_are_refused(here: Here, rounds: str) -> None:
    result = here("bench", "emulator", "--rounds", rounds)
    assert result.code == 2
    assert "--rounds" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("name", ["cache", "engine", "message", "store"])
@pytest.mark.parametrize("threads", ["0", "-1", "two", "1,100000", "1,1", "2", "1,", ""])
def test_threads_that_this_process_does_not_have_are_refused(
    here: Here, name: str, threads: str
) -> None:
    result = here("bench", name, "--threads", threads)
    assert result.code == 2
    assert "--threads" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(each, marks=pytest.mark.long) for each in ("cache", "store")),
        "engine",
        "message",
    ],
)
def test_a_curve_is_the_throughput_by_that_of_one_thread(name: str) -> None:
    measured = measure_curves(name, (1, 2), 1)
    of_results = schema_of(f"bench-{name}")["properties"]["results"]["properties"]
    Draft202012Validator(of_results["threads"]).validate(measured)
    assert measured["rounds"] == 1
    for curve in measured["curves"].values():
        one, two = curve["curve"]
        assert (one["threads"], two["threads"]) == (1, 2)
        assert one["speedup"] == 1
        ratio = two["operations_per_s"] / one["operations_per_s"]
        assert two["speedup"] == pytest.approx(ratio, rel=0.01, abs=0.001)  # Three digits.
        # Null: the two processors shared a core, or were far from each other, in the only round.
        assert two["speedup_near"] in (two["speedup"], None)
        assert one["line_ns"] == [0]
        assert all(ns is None or ns > 1 for ns in two["line_ns"])
        assert 0 <= two["kernel_share"] <= 1
        assert curve["instructions"] > curve["locked"]


def test_a_curve_says_where_the_processors_were(capsys: pytest.CaptureFixture[str]) -> None:
    def point(threads: int, near: float | None, *line_ns: float | None) -> dict[str, object]:
        of_all = {"operations_per_s": 2e6, "speedup": 1.5, "kernel_share": 0}
        return {"threads": threads, "speedup_near": near, "line_ns": line_ns, **of_all}

    counts = {"instructions": 9, "locked": 0}
    for points, expected in (
        ([point(1, 1, 0, 0), point(2, 1.9, 50, None)], ("50 to 50 ns", "1 of 2", "(1.50, 1.90)")),
        ([point(1, 1, 0), point(2, None, None)], ("none was measured", "1 of 1", "(1.50, -)")),
        ([point(1, 1, 0)], ("none was measured", "0 of 1", "(1.50, 1.00)")),
    ):
        _measure.print_curves(Report(width=400), {"hit": {"curve": points, **counts}})
        printed = capsys.readouterr().out
        assert all(each in printed for each in expected)


def test_a_device_that_fails_follows_its_script_and_the_caller_copies_nothing() -> None:
    program = find_program("headrace-bench-faults", "test")
    scripts = run_program([program, "64"], "test")["scripts"]
    assert all(each["caller_bytes"] == 0 for each in scripts.values())
    healthy = scripts["healthy"]["instructions"]
    # A silent device gets a probe now and then: on a busy machine with more of the submissions.
    most = {name: 4 if name == "silent" else 2 for name in scripts}
    assert all(0 < each["instructions"] <= most[name] * healthy for name, each in scripts.items())
    accepted = scripts["healthy"]["descriptors"]
    assert scripts["page_faults"]["page_faults"] == accepted
    assert 0 < scripts["lost"]["lost"] < scripts["lost"]["descriptors"]
    assert 0 < scripts["silent"]["descriptors"] < accepted
    for refused in ("refusing", "closed"):
        assert scripts[refused]["descriptors"] == 0
        assert scripts[refused]["retries"] > 0


def test_a_picture_of_no_known_kind_is_refused_before_anything_is_measured(
    here: Here,
) -> None:
    result = here("bench", "copy", "--plot", "figures.txt")
    assert result.code == 2
    assert ".svg or .png" in result.stderr


def test_a_ratio_of_pairs_is_not_moved_by_rounds_that_were_disturbed() -> None:
    ours, theirs = [100.0, 900.0, 100.0], [90.0, 810.0, 180.0]
    assert speed_ratio(ours, theirs).median == pytest.approx(0.9)


@pytest.mark.parametrize("count, rank", [(1, 0), (5, 0), (6, 0), (9, 1), (25, 7), (100, 39)])
def test_the_interval_of_a_median_is_that_of_the_tables(count: int, rank: int) -> None:
    values = [float(i) for i in range(count)]
    assert median_interval(values[::-1]) == (values[rank], values[-1 - rank])
    assert median_interval([1.0] * 10_000) == (1.0, 1.0)


def test_a_goal_is_missed_by_more_than_it() -> None:
    missed = [engine.Counted("mutexes", 1.0, goal).is_missed for goal in (None, 0.0, 1.0)]
    assert missed == [False, True, False]


def test_the_engine_counts_its_instructions_allocates_nothing_and_locks_nothing(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_COUNT", 64)
    result = here("bench", "engine", "--rounds", "1", "--json")
    assert result.code == 0, result.stderr
    document = json.loads(result.stdout)
    summary = document["summary"]
    assert summary["allocations_per_op"] == 0
    assert summary["locked_instructions_per_op_channel"] == 0
    assert summary["locked_per_job"] <= 4
    assert summary["mutexes_per_op_channel"] == 0
    # Instructions are the same on every machine, but not from every compiler.
    assert 20 < summary["instructions_submit_copy"] < 225
    assert 20 < summary["instructions_per_op_batch32"] < 60
    assert summary["instructions_submit_copy"] < summary["instructions_submit_copy_job"]
    assert summary["instructions_per_op_batch32"] < summary["instructions_per_op_batch32_job"]
    figures = document["results"]["figures"]
    judged = [each for each in figures if each["goal"] is not None]
    assert summary["goals"] == len(judged) == summary["goals_met"] + summary["goals_missed"] == 11
    (by_job,) = [each for each in figures if each["name"] == "locked_submit_copy_job"]
    assert by_job["value"] > 0, "what counts locked instructions finds those that are there"


def test_copies_without_a_profile_are_chosen_by_the_same_word_as_in_run() -> None:
    assert copy._use("none") == "copies use no profile"  # noqa: SLF001 - The rest takes minutes.


def test_a_gain_is_the_share_of_the_time_that_the_cache_saves() -> None:
    cells = [
        {
            "working_set_bytes": working_set,
            "message_bytes": size,
            "placement": placement,
            "computation_ns": [time_ns] * 6 + [time_ns * 2],
        }
        for working_set in injection.WORKING_SET_BYTES
        for size in injection.MESSAGE_BYTES
        for placement, time_ns in (("memory", 200.0), ("cache", 150.0))
    ]
    gains = injection.gains_of({"cells": cells}, "computation_ns")
    assert all(gain.median == pytest.approx(0.25) for gain in gains.values())
    assert all(gain.interval == pytest.approx((0.25, 0.25)) for gain in gains.values())


def test_injection_is_drawn_beside_what_the_simulator_predicts(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    placements = (("memory", 200.0), ("cache", 150.0))
    measured = {
        "sender_cpu": 1,
        "receiver_cpu": 0,
        "same_core": False,
        "counters": "not counted",
        "cells": [
            {
                "working_set_bytes": working_set,
                "message_bytes": size,
                "placement": placement,
                "computation_ns": [time_ns] * 7,
                "total_ns": [time_ns] * 7,
            }
            for working_set in injection.WORKING_SET_BYTES
            for size in injection.MESSAGE_BYTES
            for placement, time_ns in placements
        ],
    }
    monkeypatch.setattr(_measure, "run_program", lambda *_, **__: measured)
    picture = tmp_path / "i.svg"
    result = here("bench", "injection", "--json", "--plot", str(picture))
    assert result.code == 0, result.stderr
    document = json.loads(result.stdout)
    summary = document["summary"]
    assert summary["gain_best"] == pytest.approx(0.25)
    assert {"gain_best_bytes", "gain_worst", "peak_inside", "gain_best_low"} <= summary.keys()
    curve = [
        each["gain"] for each in document["results"]["simulated"] if each["where"] == "receiver-l2"
    ]
    assert summary["gain_best_simulated"] == max(curve)
    # Small messages save little, large ones are pushed out before they are read.
    assert max(curve) > max(curve[0], curve[-1])
    assert max(curve) > 0
    assert "simulated, injected into receiver-l2" in picture.read_text()
    assert "León's value, 30%" in picture.read_text()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processors are needed")
@pytest.mark.parametrize(
    "name, keys",
    [
        ("message", {"messages_per_s_64b", "vs_reference_64b", "round_trip_ns"}),
        (
            "injection",
            {
                *("gain_best", "gain_best_low", "gain_best_high", "gain_best_bytes"),
                *("gain_worst", "gain_worst_low", "gain_worst_high", "peak_inside"),
            },
        ),
    ],
)
def test_two_processes_are_measured_and_the_figures_named(
    here: Here, monkeypatch: pytest.MonkeyPatch, name: str, keys: set[str]
) -> None:
    monkeypatch.setattr(injection, "MESSAGE_BYTES", (64, 4096, 1 << 18))
    monkeypatch.setattr(injection, "WORKING_SET_BYTES", (0, 512 << 10))
    result = here("bench", name, "--rounds", "1", "--json")
    assert result.code == 0, result.stderr
    summary = json.loads(result.stdout)["summary"]
    assert keys <= summary.keys()
    assert all(math.isfinite(summary[key]) for key in keys)
    if name == "message":
        assert summary["messages_per_s_64b"] > 0
    else:
        assert summary["gain_worst"] <= summary["gain_best"] < 1


def test_the_store_is_measured_and_every_block_compared(here: Here) -> None:
    result = here("bench", "store", "--rounds", "1", "--cycles", "2000", "--json")
    assert result.code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["summary"]["cycles_bad"] == 0
    assert document["summary"]["submit_us_64"] > 0
    assert document["results"]["cycles"]["got"] > 100
