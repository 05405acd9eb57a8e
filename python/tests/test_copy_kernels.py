# SPDX-License-Identifier: Apache-2.0
"""Which kernels are chosen to fill and compare, on machines that are made up, and on this one."""

import json

import numpy as np
import pytest

from headrace import _core
from headrace._apps.tune import kernels as copy_kernels
from headrace._apps.tune.kernels import CELLS, KINDS, PASSES, Logs, choose, tune_kernels
from headrace._apps.tune.search import Cell, StoppedError
from headrace.errors import CapacityExceededError, Error, OutOfMemoryError

NOISE = 0.01


def passes_of(gains: dict[str, dict[str, float]], seed: int = 1) -> list[Logs]:
    """What would be measured, of kernels that gain so much (as logarithms) hot and cold."""
    generator = np.random.default_rng(seed)
    return [
        {
            kernel: {
                cell: [
                    by_temperature[cell.temperature] + float(each)
                    for each in generator.normal(0, NOISE, 24)
                ]
                for cell in CELLS
            }
            for kernel, by_temperature in gains.items()
        }
        for _ in range(PASSES)
    ]


def test_what_gains_most_is_chosen() -> None:
    chosen = choose(
        4096,
        passes_of({"ymm": {"hot": 0.1, "cold": 0.1}, "rep_stosb": {"hot": 0.3, "cold": 0.0}}),
    )
    assert chosen.kernel == "rep_stosb"
    assert chosen.ratios["hot fixed"] == pytest.approx(1.35, abs=0.02)


def test_what_loses_anywhere_is_not_chosen() -> None:
    chosen = choose(
        4096, passes_of({"ymm": {"hot": 0.9, "cold": -0.1}, "ymm_prefetch": {"hot": 0, "cold": 0}})
    )
    assert chosen.kernel is None
    assert "loses" in chosen.reason


def test_what_loses_in_one_pass_is_not_chosen() -> None:
    passes = passes_of({"ymm": {"hot": 0.2, "cold": 0.2}})
    assert choose(4096, passes).kernel == "ymm"
    passes[1]["ymm"][Cell("cold", True, 1, 1.0)] = [-0.1] * 24
    chosen = choose(4096, passes)
    assert chosen.kernel is None
    assert "in one pass when cold fixed" in chosen.reason


def test_a_gain_that_may_be_luck_is_none() -> None:
    assert choose(4096, passes_of({"ymm": {"hot": 0.02, "cold": 0.02}})).kernel is None


def test_short_calls_through_wide_registers_have_to_gain_more() -> None:
    passes = passes_of({"zmm": {"hot": 0.09, "cold": 0.09}})
    assert choose(4096, passes).kernel is None
    assert choose(1 << 20, passes).kernel == "zmm"
    # What is told is what was measured.
    assert choose(4096, passes).ratio == pytest.approx(1.094, abs=0.01)


def test_without_kernels_nothing_is_chosen() -> None:
    assert choose(4096, [{}] * PASSES).kernel is None


def test_tuning_here_makes_members_that_a_profile_may_have() -> None:
    tuning = tune_kernels([1024, 4096], 1, lambda: None, lambda _: None)
    profile = json.loads(_core.empty_copy_profile())
    profile.update(tuning.document)
    assert [len(profile[kind]) for kind in KINDS] == [2, 2]
    try:
        _core.use_copy_profile(json.dumps(profile))
    finally:
        _core.use_no_copy_profile()
    profile["fills"][1]["kernel"] = "memset"
    with pytest.raises(Error, match="no such kernel"):
        _core.use_copy_profile(json.dumps(profile))


def test_pools_fit_the_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = _core.KernelMeter.make

    class Meters:
        @staticmethod
        def make(pool_bytes: int, fills: bool, seed: int) -> _core.KernelMeter:
            made.append(pool_bytes)
            return make(1 << 20, fills, seed)

    monkeypatch.setattr(_core, "KernelMeter", Meters)
    cache_bytes = json.loads(_core.empty_copy_profile())["machine"]["l3_bytes"] or 32 << 20
    cache_bytes = min(cache_bytes, copy_kernels.CACHE_BYTES_MAX)
    for share, pool in ((None, 4 * cache_bytes), (100, 4 * cache_bytes), (8, 2.8 * cache_bytes)):
        free = share and share * cache_bytes
        monkeypatch.setattr(copy_kernels, "available_bytes", lambda free=free: free)
        made.clear()
        tune_kernels([1024], 1, lambda: None, lambda _: None)
        assert all(pool - 1 <= each <= pool for each in made)
        assert len(made) == len(KINDS) * PASSES

    def make_none(*_: object) -> _core.KernelMeter:
        raise OutOfMemoryError("map pages", "the limit is reached", "raise it")

    monkeypatch.setattr(Meters, "make", make_none)
    with pytest.raises(CapacityExceededError, match="the limit is reached"):
        tune_kernels([1024], 1, lambda: None, lambda _: None)


def test_a_wish_to_stop_is_heard() -> None:
    def stop() -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        tune_kernels([1024], 1, stop, lambda _: None)


def test_a_kernel_that_is_not_there_is_refused_by_name() -> None:
    meter = _core.KernelMeter.make(1 << 20, fills=True, seed=1)
    with pytest.raises(Error, match="'xmm'"):
        meter.measure_round(
            ["xmm"],
            bytes_min=64,
            bytes_max=64,
            temperature="hot",
            aligned=True,
            thread_count=1,
        )
