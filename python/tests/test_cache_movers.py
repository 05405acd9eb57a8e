# SPDX-License-Identifier: Apache-2.0
"""Who moves the copies of a cache: policies by name, and functions of the caller's own."""

import gc
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from conftest import TIME_LIMIT_S

import headrace


def ready(cache: headrace.Cache, source: object) -> headrace.Entry:
    entry = cache.access(source)
    entry.wait()
    return entry


def test_a_function_of_the_callers_own_chooses_the_movers(engine: headrace.Engine) -> None:
    seen: list[headrace.MoveContext] = []

    def first(context: headrace.MoveContext) -> int:
        seen.append(context)
        return 0

    source = np.arange(10_000)
    with headrace.Cache(engine, "64MiB", "local", mover=first) as cache:
        entry = ready(cache, source)
        assert entry.cached
        ready(cache, source)
        assert cache.statistics.policy_errors == 0
    (context,) = seen
    assert [mover.name for mover in context.movers] == engine.movers
    assert len(context.loads) == len(context.movers)
    assert context.byte_count == source.nbytes
    assert context.target_node == entry.node
    assert context.caller_node is not None


def test_a_named_policy_chooses_the_movers(engine: headrace.Engine) -> None:
    for name in headrace.POLICIES:
        with headrace.Cache(engine, "64MiB", "local", mover=name) as cache:
            assert ready(cache, np.arange(1000)).cached
    with pytest.raises(headrace.InvalidArgumentError, match="there is no policy 'nope'"):
        headrace.Cache(engine, "64MiB", "local", mover="nope")  # type: ignore[arg-type]
    with pytest.raises(headrace.TypeMismatchError, match="it is a int"):
        headrace.Cache(engine, "64MiB", "local", mover=3)  # type: ignore[arg-type]


def fails(_context: headrace.MoveContext) -> int:
    message = "no idea"
    raise RuntimeError(message)


@pytest.mark.parametrize(
    "choose, said",
    [
        (fails, "no idea"),
        (lambda _context: [], "it is empty"),
        (lambda _context: 99, "99"),
        (lambda _context: "x", "a str was given"),
    ],
)
def test_a_mover_function_that_fails_is_reported_and_leaves_the_source(
    engine: headrace.Engine,
    monkeypatch: pytest.MonkeyPatch,
    choose: Callable[[headrace.MoveContext], int],
    said: str,
) -> None:
    errors: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: errors.append(str(told.exc_value)))
    source = np.arange(10_000)
    with headrace.Cache(engine, "64MiB", "local", mover=choose) as cache:
        entry = ready(cache, source)
        assert not entry.cached
        np.testing.assert_array_equal(entry.view(), source)
        assert cache.statistics.policy_errors == 1
        assert cache.statistics.moves_failed == 1
    assert len(errors) == 1
    assert said in errors[0]


def test_a_mover_function_may_neither_access_nor_wait_for_a_cache(
    engine: headrace.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: errors.append(str(told.exc_value)))
    source, other = np.arange(10_000), np.arange(500)
    calls: list[Callable[[headrace.Cache], object]] = [
        lambda cache: cache.access(source),
        lambda cache: cache.access_many([other]),
        lambda cache: cache.change(other),
        lambda cache: cache.flush(),
        lambda cache: cache.clear(),
    ]
    for call in calls:
        made: list[headrace.Cache] = []

        def choose(
            _context: headrace.MoveContext,
            call: Callable[[headrace.Cache], object] = call,
            made: list[headrace.Cache] = made,
        ) -> int:
            call(made[0])
            return 0

        with headrace.Cache(engine, "64MiB", "local", mover=choose) as cache:
            made.append(cache)
            assert not ready(cache, source).cached
        made.clear()
    assert len(errors) == len(calls)
    assert all("may not" in error for error in errors)


def test_arrays_that_end_while_a_mover_is_chosen_stop_nothing(engine: headrace.Engine) -> None:
    """Threads access, change and let go of arrays; the function gives the processor away."""

    def choose(context: headrace.MoveContext) -> int:
        time.sleep(0)
        gc.collect(0)
        return context.sequence % len(context.movers)

    column = np.zeros(70_000, np.uint8)
    with headrace.Cache(engine, "64MiB", "local", mover=choose) as cache:

        def work(step: int) -> None:
            for i in range(30):
                with (
                    suppress(headrace.CapacityExceededError),
                    cache.change(column[step * 100 : step * 100 + 50]) as view,
                ):
                    view[:] = i % 251
                cache.access(column)
                ready(cache, np.full(5000, i))  # Ends at once: the cache forgets it.
                if i % 10 == 0:
                    cache.clear()

        threads = [threading.Thread(target=work, args=(step,), daemon=True) for step in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIME_LIMIT_S)
        assert not any(thread.is_alive() for thread in threads)
        assert cache.statistics.policy_errors == 0


def test_a_function_of_the_callers_own_places_copies(engine: headrace.Engine) -> None:
    node = headrace.topo().nodes[0].id
    seen: list[headrace.PlacementContext] = []

    def long_ones(context: headrace.PlacementContext) -> int | None:
        seen.append(context)
        return node if context.byte_count > 1000 else None

    long, short = np.arange(10_000), np.arange(10)
    with headrace.Cache(engine, "64MiB", long_ones) as cache:
        assert ready(cache, long).node == node
        assert not ready(cache, short).cached
        assert cache.statistics.not_placed == 1
        assert cache.statistics.policy_errors == 0
    assert [context.byte_count for context in seen] == [long.nbytes, short.nbytes]
    assert [context.address for context in seen] == [long.ctypes.data, short.ctypes.data]
    assert seen[0].caller_node is not None


@pytest.mark.parametrize(
    "chosen, said",
    [("x", "a str was given"), (-1, "-1"), ([1 << 40], str(1 << 40)), (999, "")],
)
def test_a_placement_function_that_fails_leaves_the_source(
    engine: headrace.Engine, monkeypatch: pytest.MonkeyPatch, chosen: object, said: str
) -> None:
    errors: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: errors.append(str(told.exc_value)))
    placement: Any = lambda _: chosen  # noqa: E731
    with headrace.Cache(engine, "64MiB", placement) as cache:
        assert not ready(cache, np.arange(1000)).cached
        assert cache.statistics.policy_errors == 1
    assert len(errors) == bool(said)  # That this machine has no node 999 is only counted.
    assert all(said in error for error in errors)
