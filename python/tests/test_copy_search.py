# SPDX-License-Identifier: Apache-2.0
"""The search for the best copy, on a machine whose times are made up."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace import _core, _trials
from headrace._apps.tune import search as search_module
from headrace._apps.tune.model import encode
from headrace._apps.tune.search import (
    LIBC,
    PAIR,
    SCREENED_MAX,
    WIDE_BYTES_MIN,
    WIDE_HANDICAP,
    Bench,
    Cell,
    Choice,
    StoppedError,
    choose,
    confirmed,
    final_cells,
    halve,
    screen,
    wide_handicap,
)
from headrace._apps.tune.tuner import variants_of
from headrace._trials import CANDIDATES, predict

BYTES_MAX = 16384
EXHAUSTIVE_ROUNDS = 2
CELLS = final_cells(BYTES_MAX, 2, last_level_bytes_max=1 << 20, threads_bytes_max=1 << 20)

Speed = Callable[[str, str], float]


def variants() -> list[str]:
    grid = _core.copy_variants(BYTES_MAX // 2 + 1)
    if not grid:
        pytest.skip("nothing is generated here")
    return grid


def plausible(variant: str, temperature: str) -> float:
    """Speed by memmove's, with a best variant that is not where the search begins."""
    gain = 0.0
    gain += 0.3 if variant.startswith("zmm") else 0.10 if variant.startswith("ymm") else 0.0
    gain -= 0.3 if "store=nt" in variant else 0.0
    gain -= 0.1 if "align=none" in variant else 0.0
    if temperature == "cold":
        gain += 0.1 if "+target" in variant else 0.0
        gain += 0.08 if "prefetch=t1:8@16" in variant else 0.03 if "prefetch=t" in variant else 0.0
        gain += 0.05 if "streams=2" in variant else 0.0
    else:
        gain -= 0.05 if "streams=4" in variant else 0.0
    return math.exp(gain)


class MadeUpMachine:
    """A meter whose times have noise and drift, as those of a real one do."""

    def __init__(self, speed: Speed, noise: float = 0.02) -> None:
        self._speed = speed
        self._noise = noise
        self._random = random.Random(7)  # noqa: S311 - Nothing is secret here.
        self._drift = 1.0

    def measure_round(
        self,
        subjects: Sequence[str],
        *,
        bytes_min: int,
        bytes_max: int,
        temperature: str,
        aligned: bool,
        thread_count: int,
    ) -> list[float]:
        assert 0 < bytes_min <= bytes_max == BYTES_MAX
        assert aligned == (bytes_min == bytes_max)
        assert thread_count in {1, 2}
        # Comes back to 1: a walk that only goes on falls below what counts as no time at all.
        self._drift = self._drift**0.99 * math.exp(self._random.uniform(-0.1, 0.1))
        return [
            100
            * self._drift
            / (1.0 if subject == LIBC else self._speed(subject, temperature))
            * math.exp(self._random.gauss(0, self._noise))
            for subject in subjects
        ]


def never() -> None:
    pass


def measure_all(bench: Bench, grid: list[str]) -> None:
    """What the search is compared with: every variant, in every screening cell twice."""
    for index in range(EXHAUSTIVE_ROUNDS):
        for cell in bench.screening(index):
            bench.measure(grid, cell)


def search(
    machine: MadeUpMachine, grid: list[str], *, by_model: bool, paired: bool = False
) -> Choice:
    bench = Bench(machine, BYTES_MAX, never)
    end = time.monotonic() + 600
    if by_model:
        screen(bench, grid, deadline=end, seed=1, paired=paired)
    else:
        measure_all(bench, grid)
    return choose(bench, halve(bench, CELLS, deadline=end, paired=paired), CELLS, len(grid))


def on_the_whole(variant: str | None) -> float:
    """Real speed, on the whole."""
    if variant is None:
        return 1.0
    total = sum(cell.weight for cell in CELLS)
    return math.exp(
        sum(c.weight * math.log(plausible(variant, c.temperature)) for c in CELLS) / total
    )


def test_the_model_finds_what_all_measurements_find_with_a_tenth_of_them() -> None:
    grid = variants()
    by_model = search(MadeUpMachine(plausible), grid, by_model=True)
    by_all = search(MadeUpMachine(plausible), grid, by_model=False)
    assert by_all.tried_count == len(grid)
    assert by_all.batch_count > 2 * EXHAUSTIVE_ROUNDS * len(grid)
    assert by_model.batch_count <= by_all.batch_count / 10
    assert on_the_whole(by_model.variant) >= 0.97 * on_the_whole(by_all.variant)
    assert on_the_whole(by_all.variant) >= 0.97 * max(on_the_whole(each) for each in grid)
    assert by_model.ratio == pytest.approx(on_the_whole(by_model.best), rel=0.03)
    assert by_model.confidence > 0.99


def test_memmove_stays_where_nothing_is_faster() -> None:
    choice = search(MadeUpMachine(lambda _v, _t: 0.9), variants(), by_model=True)
    assert choice.variant is None
    assert choice.best is not None
    assert "loses" in choice.reason


def test_memmove_stays_where_the_gain_is_no_more_than_noise() -> None:
    choice = search(MadeUpMachine(lambda _v, _t: 1.0, noise=0.01), variants(), by_model=True)
    assert choice.variant is None
    too_little = f"it gains less than {search_module.GAIN_MIN:.0%}"
    assert choice.reason in {too_little, "it is not sure to gain"}


def test_what_gains_when_cold_and_loses_when_hot_is_not_chosen() -> None:
    def two_faced(_variant: str, temperature: str) -> float:
        return 0.9 if temperature == "hot" else 1.5

    choice = search(MadeUpMachine(two_faced), variants(), by_model=True)
    assert choice.variant is None
    assert "when hot" in choice.reason


def two_sided(variant: str, temperature: str) -> float:
    """Past the caches: fast from memory, slow in the caches; anything else as memmove."""
    warm, _, cold = variant.partition(PAIR)
    served = cold if cold and temperature == "cold" else warm
    if "store=nt" not in served:
        return 1.0
    if temperature != "cold":
        return 0.5
    return 1.6 if served.startswith("ymm") else 1.4


def test_what_gains_when_cold_is_joined_with_what_does_not_lose_when_hot() -> None:
    choice = search(MadeUpMachine(two_sided), variants(), by_model=True, paired=True)
    assert choice.variant is not None
    warm, cold = choice.variant.split(PAIR)
    assert "store=nt" not in warm
    assert "store=nt" in cold
    assert cold.startswith("ymm")
    assert all(PAIR in each for each in choice.others)
    assert choice.ratios["hot fixed"][0] == pytest.approx(1.0, rel=0.02)
    assert choice.ratios["cold fixed"][0] == pytest.approx(1.6, rel=0.03)


def test_a_pair_begins_with_the_variant_that_serves_without_a_probe() -> None:
    def plain(variant: str, temperature: str) -> float:
        if "store=nt" in variant:
            return two_sided(variant, temperature)
        if variant.startswith("rep_movsb"):  # The fastest when hot, but too slow when cold.
            return 1.1 if temperature != "cold" else 0.9
        return 1.05 if variant.startswith("ymm") else 1.0

    def speed(variant: str, temperature: str) -> float:
        warm, _, cold = variant.partition(PAIR)
        return plain(cold if cold and temperature == "cold" else warm, temperature)

    choice = search(MadeUpMachine(speed), variants(), by_model=True, paired=True)
    assert choice.variant is not None
    warm, cold = choice.variant.split(PAIR)
    assert warm.startswith("ymm")
    assert "store=nt" in cold


def pass_of(hot: dict[str, list[float]]) -> Bench:
    """What one pass has measured of some variants, which gain when cold."""
    bench = Bench(MadeUpMachine(plausible), BYTES_MAX, never)
    for variant, logs in hot.items():
        bench.logs[variant] = {Cell("hot", True, 1, 1.0): logs, Cell("cold", True, 1, 1.0): [0.0]}
    return bench


def test_what_loses_when_it_is_measured_again_goes_to_the_next_best() -> None:
    steady = chosen_of({t: [0.3] * 12 for t in ("hot", "cold", "last_level")})
    choice = replace(steady, variant="first", others=("second", "third"))
    good, wild, bad = [0.1] * 9, [0.2, -0.2] * 6, [-0.2] * 9
    same = {"first": good, "second": good, "third": good}
    assert confirmed(choice, [pass_of(same), pass_of(same)]).variant == "first"
    once = {"first": bad, "second": good, "third": good}
    assert confirmed(choice, [pass_of(same), pass_of(once)]).variant == "second"
    # Noise that hides a loss refuses, too; that memmove is as noisy by itself does not matter.
    noisy = {"first": wild, "second": good, "third": good}
    assert confirmed(choice, [pass_of(noisy), pass_of(noisy)]).variant == "second"
    worse = {"first": bad, "second": bad, "third": bad}
    none = confirmed(choice, [pass_of(same), pass_of(worse)])
    assert none.variant is None
    assert none.reason == "it loses 18% when hot fixed in one place"
    often = {"first": [-0.03] * 9, "second": good, "third": good}
    assert confirmed(choice, [pass_of(often), pass_of(often)]).variant == "second"
    least = {"first": [0.005] * 9, "second": good, "third": good}
    assert confirmed(choice, [pass_of(least), pass_of(least)]).variant == "second"


def test_a_pair_is_two_members_of_the_profile() -> None:
    steady = chosen_of({t: [0.3] * 12 for t in ("hot", "cold", "last_level")})
    for variant, members in (
        ("a", {"variant": "a"}),
        (f"a{PAIR}b", {"variant": "a", "cold_variant": "b"}),
        (f"{LIBC}{PAIR}b", {"variant": None, "cold_variant": "b"}),
        (None, {"variant": None}),
    ):
        assert variants_of(replace(steady, variant=variant)) == members


def chosen_of(logs_by_temperature: dict[str, list[float]]) -> Choice:
    """What is chosen where one variant is left, and these are its rounds in every cell."""
    bench = Bench(MadeUpMachine(plausible), BYTES_MAX, never)
    bench.logs["ymm"] = {cell: logs_by_temperature[cell.temperature] for cell in CELLS}
    bench.times_ns = {("ymm", cell): [1.0] for cell in CELLS}
    return choose(bench, ["ymm"], CELLS, 1)


def test_what_may_lose_in_a_cell_is_not_chosen() -> None:
    gains = [0.3] * 12
    # The same on the average; only of the first can one be sure.
    steady = chosen_of({"hot": [0.005, -0.005] * 6, "cold": gains, "last_level": gains})
    assert steady.variant == "ymm"
    moody = chosen_of({"hot": [0.2, -0.2] * 6, "cold": gains, "last_level": gains})
    assert moody.variant is None
    assert "it may lose" in moody.reason
    assert "when hot" in moody.reason


def wide_by(gain: float) -> Speed:
    """Registers of 64 bytes faster than those of 32, which are faster than memmove."""
    return lambda variant, _t: 1.1 * (gain if variant.startswith("zmm ") else 1.0)


def test_wide_registers_have_to_gain_clearly_in_short_copies() -> None:
    grid = variants()
    if not any(variant.startswith("zmm ") for variant in grid):
        pytest.skip("this processor has no registers of 64 bytes")
    narrow = search(MadeUpMachine(wide_by(1.05), noise=0.005), grid, by_model=True)
    assert narrow.variant is not None
    assert not narrow.variant.startswith("zmm ")
    wide = search(MadeUpMachine(wide_by(1.3), noise=0.005), grid, by_model=True)
    assert wide.variant is not None
    assert wide.variant.startswith("zmm ")
    assert wide.ratio == pytest.approx(1.43, rel=0.02)
    for name, bytes_max, cost in (
        ("zmm t t", WIDE_BYTES_MIN, 2.0),
        ("ymm t t", 256, 2.0),
        ("zmm t t", 256, 1.02),
    ):
        bench = Bench(MadeUpMachine(plausible), bytes_max, never, wide_handicap(cost))
        assert bench.handicap(name) == 0.0
    assert wide_handicap(None) == wide_handicap(1.5) == WIDE_HANDICAP


def test_wide_registers_may_not_make_up_for_a_cell_by_others() -> None:
    def speed(variant: str, temperature: str) -> float:
        return (1.7 if temperature == "hot" else 1.02) if variant.startswith("zmm ") else 0.9

    grid = variants()
    if not any(variant.startswith("zmm ") for variant in grid):
        pytest.skip("this processor has no registers of 64 bytes")
    choice = search(MadeUpMachine(speed), grid, by_model=True)
    assert choice.variant is None
    assert "registers of 64 bytes" in choice.reason


def test_a_search_that_is_stopped_ends_at_the_next_measurement() -> None:
    calls = 0

    def stop_later() -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise StoppedError

    bench = Bench(MadeUpMachine(plausible), BYTES_MAX, stop_later)
    with pytest.raises(StoppedError):
        measure_all(bench, variants())
    assert bench.batch_count == 2 * (12 + 2)


def test_equal_variants_are_one_point_and_others_are_not() -> None:
    grid = variants()
    points = encode(grid)
    assert len({tuple(point) for point in points}) == len(grid)


def test_the_model_knows_what_was_measured_and_doubts_the_rest() -> None:
    grid = variants()
    measured = grid[:: len(grid) // 60]
    values = np.array([math.log(plausible(variant, "cold")) for variant in measured])
    points = encode(measured)
    (mean,), deviation = predict(points, points, [values], noise=1e-3)
    assert mean == pytest.approx(values, abs=0.01)
    assert deviation.max() < predict(encode(grid[:2000]), points, [values])[1].max()


def test_the_model_s_time_does_not_grow_with_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def counted(candidates: Any, *rest: Any) -> Any:
        looked_at.append(len(candidates))
        return predict(candidates, *rest)

    monkeypatch.setattr(_trials, "predict", counted)
    grid = variants()
    bench = Bench(MadeUpMachine(plausible), BYTES_MAX, never)
    screen(bench, grid, deadline=time.monotonic() + 60, seed=1)
    assert len(grid) > 20 * CANDIDATES
    assert 0 < max(looked_at) < 2 * CANDIDATES
    assert len(bench.logs) <= SCREENED_MAX


def test_the_grid_has_the_prefetches_that_were_best_on_other_processors() -> None:
    grid = set(variants())
    if not any(variant.startswith("ymm ") for variant in grid):
        pytest.skip("this processor has no registers of 32 bytes")
    for lines in (1, 10, 14, 16):
        for distance in (0, 12, 20, 28, 30, 32):
            variant = (
                f"ymm load=t store=t prefetch=t0:{lines}@{distance} block=1 align=target forward "
                "streams=1"
            )
            assert variant in grid
