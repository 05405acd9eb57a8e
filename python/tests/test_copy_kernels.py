# SPDX-License-Identifier: Apache-2.0
"""Which kernels are chosen to fill and compare, on machines that are made up, and on this one."""

import json
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from headrace import _core
from headrace._apps.tune import kernels as copy_kernels
from headrace._apps.tune.kernels import KINDS, PASSES, KernelChoice, documents_of, tune_kernels
from headrace._apps.tune.search import LIBC, StoppedError
from headrace.errors import CapacityExceededError, Error, OutOfMemoryError

NOISE = 0.01

Gains = dict[str, dict[str, float]]
Chosen = Callable[..., KernelChoice]


class Meter:
    """Measures kernels that gain so much (as logarithms) hot and cold."""

    def __init__(self, gains: Gains, seed: int) -> None:
        self.gains = gains | {LIBC: {"hot": 0.0, "cold": 0.0}}
        self.generator = np.random.default_rng(seed)

    def kernels(self) -> list[str]:
        return [each for each in self.gains if each != LIBC]

    def measure_round(
        self, subjects: Sequence[str], *, temperature: str, aligned: bool, **_: int
    ) -> list[float]:
        condition = f"{temperature} {'fixed' if aligned else 'random'}"
        return [
            100 * math.exp(float(self.generator.normal(0, NOISE)) - by.get(condition, by["cold"]))
            if temperature == "cold"
            else 100 * math.exp(float(self.generator.normal(0, NOISE)) - by["hot"])
            for by in map(self.gains.__getitem__, subjects)
        ]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Chosen:
    """What is chosen for lengths up to `bytes_max`; the last pass may gain less."""

    def choose(gains: Gains, bytes_max: int = 4096, last: Gains | None = None) -> KernelChoice:
        def make(_bytes_max: int, _kind: str, seed: int) -> Meter:
            return Meter(last if last and seed == PASSES else gains, seed)

        monkeypatch.setattr(copy_kernels, "_make_meter", make)
        return tune_kernels([bytes_max], 1, lambda: None, lambda _: None)["fills"][0]

    return choose


def test_what_gains_most_is_chosen(chosen: Chosen) -> None:
    found = chosen({"ymm": {"hot": 0.1, "cold": 0.1}, "rep_stosb": {"hot": 0.3, "cold": 0.0}})
    assert found.kernel == "rep_stosb"
    assert found.ratios["hot fixed"] == pytest.approx(1.35, abs=0.03)


def test_what_loses_anywhere_is_not_chosen(chosen: Chosen) -> None:
    found = chosen({"ymm": {"hot": 0.9, "cold": -0.05}, "ymm_touch": {"hot": 0, "cold": 0}})
    assert found.kernel is None
    assert "loses" in found.reason


def test_what_loses_in_one_pass_is_not_chosen(chosen: Chosen) -> None:
    gains = {"ymm": {"hot": 0.2, "cold": 0.2}}
    assert chosen(gains).kernel == "ymm"
    last = {"ymm": {"hot": 0.2, "cold": 0.2, "cold fixed": -0.1}}
    found = chosen(gains, last=last)
    assert found.kernel is None
    assert "when cold fixed" in found.reason


def test_a_gain_that_may_be_luck_is_none(chosen: Chosen) -> None:
    assert chosen({"ymm": {"hot": 0.02, "cold": 0.02}}).kernel is None


def test_short_calls_through_wide_registers_have_to_gain_more(chosen: Chosen) -> None:
    gains = {"zmm": {"hot": 0.09, "cold": 0.09}}
    assert chosen(gains).kernel is None
    assert chosen(gains, 1 << 20).kernel == "zmm"
    # The ratio in the profile is as measured, without the handicap.
    assert chosen(gains).ratio == pytest.approx(1.094, abs=0.01)


def test_without_kernels_nothing_is_chosen(chosen: Chosen) -> None:
    assert chosen({}).kernel is None


def test_tuning_here_makes_members_that_a_profile_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace._apps.tune.kernels.pool_bytes_of", lambda *_: 16 << 20)
    tuning = tune_kernels([1024, 4096], 1, lambda: None, lambda _: None)
    profile = json.loads(_core.empty_copy_profile())
    profile.update(documents_of(tuning))
    assert [len(profile[kind]) for kind in KINDS] == [2, 2]
    try:
        _core.use_copy_profile(json.dumps(profile))
    finally:
        _core.use_no_copy_profile()
    profile["fills"][1]["kernel"] = "memset"
    with pytest.raises(Error, match="not one of rep_stosb"):
        _core.use_copy_profile(json.dumps(profile))


def test_pools_fit_the_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = _core.CopyMeter.of_kernels

    class Meters:
        @staticmethod
        def of_kernels(pool_bytes: int, fills: bool, seed: int) -> _core.CopyMeter:
            made.append(pool_bytes)
            return make(1 << 20, fills, seed)

    monkeypatch.setattr(_core, "CopyMeter", Meters)
    cache_bytes = json.loads(_core.empty_copy_profile())["machine"]["l3_bytes"] or 32 << 20
    cache_bytes = min(cache_bytes, copy_kernels.CACHE_BYTES_MAX)
    for share, pool in ((None, 4 * cache_bytes), (100, 4 * cache_bytes), (8, 2.8 * cache_bytes)):
        free = share and share * cache_bytes
        monkeypatch.setattr(copy_kernels, "available_bytes", lambda free=free: free)
        made.clear()
        tune_kernels([1024], 1, lambda: None, lambda _: None)
        assert all(pool - 1 <= each <= pool for each in made)
        assert len(made) == len(KINDS) * PASSES

    def make_none(*_: object) -> _core.CopyMeter:
        raise OutOfMemoryError("map pages", "the limit is reached", "raise it")

    monkeypatch.setattr(Meters, "of_kernels", make_none)
    with pytest.raises(CapacityExceededError, match="the limit is reached"):
        tune_kernels([1024], 1, lambda: None, lambda _: None)


def test_a_wish_to_stop_is_heard() -> None:
    def stop() -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        tune_kernels([1024], 1, stop, lambda _: None)


def test_a_kernel_that_is_not_there_is_refused_by_name() -> None:
    meter = _core.CopyMeter.of_kernels(1 << 20, fills=True, seed=1)
    with pytest.raises(Error, match="'xmm'"):
        meter.measure_round(
            ["xmm"],
            bytes_min=64,
            bytes_max=64,
            temperature="hot",
            aligned=True,
            thread_count=1,
        )
