# SPDX-License-Identifier: Apache-2.0
"""``headrace tune`` and ``headrace bench copy``: as processes, and what they refuse."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import TIME_LIMIT_S, Command, Here, has_come_to_us, wait_until
from jsonschema import Draft202012Validator

from headrace import _core
from headrace._apps.memory import pool_bytes_of
from headrace._apps.tune import kernels as copy_kernels
from headrace._apps.tune import tuner
from headrace._apps.tune.search import StoppedError
from headrace._apps.tune.tuner import Settings, Tuner, Tuning, profile_of
from headrace._cli._output import schema_of
from headrace._cli.run import library_path
from headrace.errors import CapacityExceededError, CorruptDataError

QUICK = ("tune", "--bytes-min", "4KiB", "--bytes-max", "8KiB", "--time", "1s", "--threads", "1")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of this machine with a variant for 8 KiB and memmove for 16 KiB."""
    document = json.loads(_core.empty_copy_profile())
    grid = _core.copy_variants(4097)
    document["classes"] = [
        {"bytes_max": 8192, "variant": grid[0] if grid else None},
        {"bytes_max": 16384, "variant": None},
    ]
    path = tmp_path_factory.mktemp("profile") / "copy.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure as always, but less often and in less memory: what is chosen may be chance."""
    for name, rounds in (("DOOR_ROUNDS", 2), ("PROBE_ROUNDS", 1), ("CONFIRM_PASSES", 1)):
        monkeypatch.setattr(tuner, name, rounds)
    for module in (tuner, copy_kernels):  # Else two pools of four last-level caches are filled.
        monkeypatch.setattr(module, "pool_bytes_of", lambda *_: 16 << 20)


@pytest.mark.usefixtures("few_rounds")
def test_tune_saves_a_profile_that_copies_use(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "new" / "copy.json"
    done = here(*QUICK, "--output", str(path), "--json")
    assert done.code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == {"name": "headrace-tune", "version": 1}
    assert document["summary"].keys() >= {"seconds", "classes_tuned"}
    assert [choice["bytes_max"] for choice in document["results"]["choices"]] == [4096, 8192]
    for kind in ("fills", "comparisons"):
        assert [choice["bytes_max"] for choice in document["results"][kind]] == [4096, 8192]
    grid = document["results"]["grid"]
    assert "prefetches" in grid["left_out"]
    if _core.copy_variants(4096):
        assert grid["prefetch_distance_lines"] == [*range(0, 33, 2)]
        assert grid["block_lines"] == [1, 2, 4, 8]
    saved = json.loads(path.read_text())
    assert [each["bytes_max"] for each in saved["classes"]] == [4096, 8192]
    assert saved["made"]["complete"] is True
    has_wide = any(each.startswith("zmm") for each in _core.copy_variants(4096))
    assert (saved.get("wide_cost", 0) > 0) == has_wide
    _core.use_copy_profile(path.read_text())
    _core.use_no_copy_profile()
    for choice in document["results"]["choices"]:
        if choice["variant_count"]:
            assert 0 < choice["tried_count"] < choice["variant_count"]


@pytest.mark.long
def test_tune_prints_a_table_and_says_what_it_did_not_try(command: Command, tmp_path: Path) -> None:
    done = command(*QUICK, "--output", str(tmp_path / "copy.json"))
    assert done.returncode == 0, done.stderr
    assert "RT" in done.stdout
    assert "were not tried" in done.stdout
    assert "Not in the grid" in done.stdout


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("--time", "0s"), "a time from 1s to 86400s"),
        (("--time", "1week"), "with its unit: ms, s, min or h"),
        (("--bytes-min", "1"), "not a size from 64 B to 1 GiB"),
        (("--bytes-min", "64KiB", "--bytes-max", "4KiB"), "more than --bytes-max"),
        (("--threads", "999999"), "whole number from 1 to"),
        (("--output", ""), "'' is not a path"),
    ],
)
def test_wrong_use_of_tune_is_told_in_a_sentence(
    here: Here, arguments: tuple[str, ...], sentence: str
) -> None:
    done = here("tune", *arguments)
    assert done.code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("headrace: ")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


def test_tune_refuses_a_place_it_cannot_write_before_it_measures(command: Command) -> None:
    done = command("tune", "--output", "/proc/headrace/copy.json")
    assert done.returncode == 1
    assert "save the profile '/proc/headrace/copy.json'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_stopped_search_keeps_the_classes_that_were_done() -> None:
    if not _core.copy_variants(4096):
        pytest.skip("nothing is generated here")
    tuning = Tuning()
    settings = Settings(bytes_min=256, bytes_max=4096, seconds=1.0)

    def stop_after_one() -> None:
        if tuning.choices:
            raise StoppedError

    Tuner(settings, stop_after_one).run(tuning, lambda _share: None)
    assert tuning.stopped
    assert [choice.bytes_max for choice in tuning.choices] == [256]
    saved = json.loads(profile_of(tuning))
    assert saved["made"]["complete"] is False
    _core.use_copy_profile(json.dumps(saved))
    _core.use_no_copy_profile()


def test_pools_fit_the_memory_there_is_or_are_refused() -> None:
    mib = 1 << 20
    assert pool_bytes_of(64 * mib, 32 * mib, None) == 128 * mib + (64 << 10)
    assert pool_bytes_of(256, 32 * mib, 4096 * mib) == 128 * mib
    assert pool_bytes_of(256, 32 * mib, 200 * mib) == 70 * mib
    assert pool_bytes_of(256 * mib, 32 * mib, 4096 * mib) == 512 * mib + (64 << 10)
    for bytes_max, free_bytes in ((256, 180 * mib), (256 * mib, 1024 * mib)):
        with pytest.raises(CapacityExceededError, match="--bytes-max"):
            pool_bytes_of(bytes_max, 32 * mib, free_bytes)


def test_time_that_others_used_is_told_from_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stat = tmp_path / "stat"
    ours_s = [1.0, 0.5, 2.0, 0.0, 99.0]
    monkeypatch.setattr(tuner, "Path", lambda _: stat)
    monkeypatch.setattr(os, "times", lambda: tuple(ours_s))
    hertz = os.sysconf("SC_CLK_TCK")

    def passed(user_s: float, system_s: float, idle_s: float) -> None:
        ticks = [round(each * hertz) for each in (user_s, 0, system_s, idle_s, 1, 0, 0, 0, 7, 7)]
        stat.write_text(f"cpu  {' '.join(map(str, ticks))}\ncpu0 1 2 3\n")

    passed(10, 5, 85)
    others = tuner.OtherWork()
    assert others.share() is None  # No time has passed.
    ours_s[0] += 8  # Of this process and of its children.
    ours_s[2] += 2
    passed(20, 5, 175)
    assert others.share() == 0
    passed(36, 9, 255)
    assert others.share() == pytest.approx(20 / 200)
    stat.unlink()
    assert others.share() is None


@pytest.mark.usefixtures("few_rounds")
@pytest.mark.parametrize("share, is_told", [(0.2, True), (None, False)])
def test_a_busy_machine_is_told(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, share: float | None, is_told: bool
) -> None:
    monkeypatch.setattr(tuner.OtherWork, "share", lambda _self: share)
    path = tmp_path / "copy.json"
    outcome = here("tune", "--bytes-max", "64", "--time", "1s", "--output", str(path), "--json")
    assert outcome.code == 0
    assert ("other processes used 20% of the processors" in outcome.stderr) == is_told
    assert json.loads(outcome.stdout)["summary"]["others_share"] == share
    assert json.loads(path.read_text())["made"]["others_share"] == share


def test_a_home_that_cannot_be_written_is_named_before_anything_is_measured(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_PROFILE", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc")
    monkeypatch.setattr(Tuner, "run", lambda *_: pytest.fail("it was measured"))
    outcome = here("tune")
    assert outcome.code == 1
    assert "save the profile '/proc/.config/headrace/copy.json'" in outcome.stderr


@pytest.mark.long
def test_without_memory_for_fills_and_comparisons_the_copies_are_kept(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "copy.json"
    monkeypatch.setattr(copy_kernels, "available_bytes", lambda: 1 << 20)
    outcome = here("tune", "--bytes-max", "256", "--time", "1s", "--output", str(path))
    assert outcome.code == 0
    assert "fills and comparisons stay the C library's: cannot measure" in outcome.stderr
    saved = json.loads(path.read_text())
    assert saved["classes"]
    assert "fills" not in saved


def test_ctrl_c_ends_tune_with_what_is_known(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "copy.json"
    search = Tuner.run
    pressed: list[bool] = []

    def press_ctrl_c(self: Tuner, tuning: Tuning, progress: Callable[[float], None]) -> None:
        def tell(share: float) -> None:
            progress(share)
            if len(tuning.choices) == 1 and not pressed:
                pressed.append(True)
                os.kill(os.getpid(), signal.SIGINT)

        search(self, tuning, tell)

    monkeypatch.setattr(Tuner, "run", press_ctrl_c)
    outcome = here("tune", "--bytes-max", "1KiB", "--time", "3s", "--output", str(path))
    assert outcome.code == 128 + signal.SIGINT
    saved = json.loads(path.read_text())
    assert saved["made"]["complete"] is False
    assert [choice["bytes_max"] for choice in saved["classes"]] == [64]


def test_ctrl_c_ends_tune_at_any_moment(command_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.json"
    arguments = ["tune", "--bytes-max", "1KiB", "--time", "600s", "--output", str(path)]
    with subprocess.Popen(
        [command_path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # Before that the interpreter answers in its own way.
        wait_until(partial(has_come_to_us, process.pid))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 128 + signal.SIGINT
    assert list(tmp_path.iterdir()) in ([], [path])


@pytest.mark.long
def test_bench_copy_reports_the_agreed_figures(
    command: Command, profile: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "copy.svg"
    done = command(
        *("bench", "copy", "--profile", str(profile), "--rounds", "1", "--json"),
        *("--plot", str(picture), "--beside", str(library_path())),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    Draft202012Validator(schema_of("bench-copy")).validate(document)
    summary: dict[str, Any] = document["summary"]
    for name in ("geomean_vs_glibc_fixed", "geomean_vs_glibc_random", "program_hot_geomean"):
        assert 0.1 < summary[name] < 10
    for name in ("worst_vs_glibc", "program_hot_worst", "program_long_geomean"):
        low, high = summary[f"{name}_interval"]
        assert low <= summary[name] <= high
    assert summary["worst_vs_glibc"] <= summary["best_vs_glibc"]
    points = document["results"]["program"]
    assert len(points) == 4 * 23 * 4
    assert points[0]["vs_glibc"].keys() == {"glibc again", "headrace", "library", "beside"}
    assert str(profile) in document["results"]["profile"]
    assert picture.read_text().startswith("<?xml")


def test_a_profile_of_another_machine_is_refused(
    command: Command, profile: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign.json"
    document = json.loads(profile.read_text())
    document["machine"]["stepping"] += 1
    foreign.write_text(json.dumps(document))
    done = command("bench", "copy", "--profile", str(foreign))
    assert done.returncode == 3
    assert "another machine" in done.stderr
    assert str(foreign) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_broken_profile_is_refused(command: Command, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema"')
    done = command("bench", "copy", "--profile", str(broken))
    assert done.returncode == 1
    assert "not valid JSON" in done.stderr
    with pytest.raises(CorruptDataError, match=r"schema\.name' is missing"):
        _core.use_copy_profile("{}")
