# SPDX-License-Identifier: Apache-2.0
"""Query 6 on columns: the answer of every mode, its refusals, the study and its timeline."""

import sys
import threading
import time
import weakref
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from conftest import TIME_LIMIT_S
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace._arguments import PREFETCH_MODES
from headrace._cli import _options
from headrace._files import Output
from headrace_lab.tpch.baseline import Baseline
from headrace_lab.tpch.lineitem import Columns, read_lineitem
from headrace_lab.tpch.q6 import run_q6
from headrace_lab.tpch.study import (
    ROUNDS_MAX,
    ROUNDS_MIN,
    Settings,
    _rounds_that_fit,
    run_study,
)
from headrace_lab.tpch.timeline import draw_timelines


@pytest.fixture(scope="module")
def columns(lineitem: Path) -> Columns:
    return read_lineitem(lineitem)


@pytest.fixture(scope="module")
def baseline(lineitem: Path) -> Iterator[Baseline]:
    with Baseline(lineitem, 1) as made:
        yield made


@pytest.fixture
def cache(engine: headrace.Engine) -> Iterator[headrace.Cache]:
    with headrace.Cache(engine, "64MiB", "local") as made:
        yield made


def expected(columns: Columns) -> int:
    chosen = (
        (columns.ship_date >= 8766)
        & (columns.ship_date < 9131)
        & (columns.discount >= 5)
        & (columns.discount <= 7)
        & (columns.quantity < 2400)
    )
    return int((columns.extended_price[chosen] * columns.discount[chosen]).sum())


@pytest.mark.parametrize("mode", PREFETCH_MODES)
def test_every_mode_has_the_answer_of_numpy_and_duckdb(
    columns: Columns, cache: headrace.Cache, baseline: Baseline, mode: str
) -> None:
    run = run_q6(columns, cache, prefetch=mode, chunk_bytes=4096)
    assert run.revenue == expected(columns)
    assert run.answer == baseline.run()[0]
    assert run.prefetched == (mode == "on" or (mode == "auto" and cache.machine.has_faster_tier()))
    assert run.chunks_from_cache + run.chunks_from_source > 0


@settings(max_examples=40, deadline=None)
@given(
    row_count=st.integers(1, 5000),
    seed=st.integers(0, 2**32 - 1),
    chunk_bytes=st.integers(4096, 20000),
    thread_count=st.sampled_from([None, 1]),
)
def test_any_columns_have_the_answer_of_numpy(
    row_count: int, seed: int, chunk_bytes: int, thread_count: int | None
) -> None:
    random = np.random.default_rng(seed)
    columns = Columns(
        ship_date=random.integers(8700, 9200, row_count, dtype=np.int32),
        discount=random.integers(0, 11, row_count),
        quantity=random.integers(100, 5001, row_count),
        extended_price=random.integers(-(10**9), 10**9, row_count),
    )
    run = run_q6(columns, prefetch="off", chunk_bytes=chunk_bytes, thread_count=thread_count)
    assert run.revenue == expected(columns)


def test_what_cannot_be_run_is_refused_in_one_sentence(
    columns: Columns, cache: headrace.Cache
) -> None:
    shorter = Columns(
        columns.ship_date, columns.discount[1:], columns.quantity, columns.extended_price
    )
    with pytest.raises(headrace.InvalidArgumentError, match="differ in length"):
        run_q6(shorter, prefetch="off")
    with pytest.raises(headrace.InvalidArgumentError, match="too small"):
        run_q6(columns, chunk_bytes=100)
    with pytest.raises(headrace.InvalidArgumentError, match="no cache"):
        run_q6(columns, prefetch="on")
    with pytest.raises(headrace.InvalidArgumentError, match="sometimes"):
        run_q6(columns, prefetch="sometimes")
    cache.close()
    with pytest.raises(headrace.ClosedError):
        run_q6(columns, cache, prefetch="on")


def test_a_sum_that_does_not_fit_64_bits_is_refused() -> None:
    row_count = 1000
    columns = Columns(
        ship_date=np.full(row_count, 8800, np.int32),
        discount=np.full(row_count, 7),
        quantity=np.full(row_count, 100),
        extended_price=np.full(row_count, 2**60),
    )
    with pytest.raises(headrace.OutOfRangeError, match="64 bits"):
        run_q6(columns, prefetch="off")


def test_a_query_lets_other_threads_run() -> None:
    row_count = 4_000_000
    wide = np.zeros(row_count, np.int64)
    columns = Columns(np.zeros(row_count, np.int32), wide, wide, wide)
    machine = headrace.topo()
    begin, ran = threading.Event(), threading.Event()

    def query() -> None:
        run_q6(columns, machine=machine, prefetch="off", thread_count=1)

    def run() -> None:
        begin.wait(TIME_LIMIT_S)
        ran.set()

    query()  # The first one imports modules, which lets other threads run, too.
    thread = threading.Thread(target=run)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(TIME_LIMIT_S)
    end = time.monotonic() + TIME_LIMIT_S
    try:
        begin.set()
        # Its turn may come late on a busy machine; if the query kept the lock, it would never.
        while not ran.is_set():
            assert time.monotonic() < end
            query()
    finally:
        sys.setswitchinterval(interval)
    thread.join(TIME_LIMIT_S)


def test_the_cache_keeps_columns_that_were_prefetched_until_it_is_cleared(
    lineitem: Path, cache: headrace.Cache
) -> None:
    for _ in range(3):
        columns = read_lineitem(lineitem)
        run = run_q6(columns, cache, prefetch="on", chunk_bytes=4096)
        assert run.revenue == expected(columns)
        reference = weakref.ref(columns.discount)
        del columns
        assert reference() is not None
        cache.clear()
        assert reference() is None
        assert cache.statistics.bytes_cached == 0


def test_a_study_measures_every_mode(columns: Columns, lineitem: Path) -> None:
    machine = headrace.topo()
    shares: list[float] = []
    settings_ = Settings(prefetch="on", chunk_bytes=65536, thread_count=1, round_count=3)
    study = run_study(lineitem, columns, machine, settings_, shares.append)
    assert set(study.series) == {*PREFETCH_MODES, "duckdb"}
    assert all(len(series.times_ns) == 3 for series in study.series.values())
    assert study.agrees
    assert study.answer == study.answer_baseline
    assert study.chosen.prefetched
    assert not study.series["off"].prefetched
    assert 0 <= (study.chosen.hit_rate or 0) <= 1
    assert study.series["off"].bytes_moved == 0
    assert sum(study.column_nodes.values()) <= sum(
        each.nbytes for each in columns.arrays().values()
    )
    assert shares[-1] == 1


def test_a_study_without_baseline_agrees_with_nobody(columns: Columns, lineitem: Path) -> None:
    settings_ = Settings(
        prefetch="off", chunk_bytes=65536, thread_count=1, round_count=1, compare=False
    )
    study = run_study(lineitem, columns, headrace.topo(), settings_)
    assert study.answer_baseline is None
    assert study.agrees
    assert study.time_ratio("off", "duckdb") is None


def test_a_timeline_is_drawn_as_pictures(
    columns: Columns, cache: headrace.Cache, tmp_path: Path
) -> None:
    runs = {
        mode: run_q6(columns, cache, prefetch=mode, chunk_bytes=16384, record_timeline=True)
        for mode in ("off", "on")
    }
    for suffix, beginning in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / f"picture{suffix}"
        draw_timelines(Output(path, "draw"), runs, "title", "caption")
        assert path.read_bytes().startswith(beginning)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_picture_that_cannot_be_written_is_one_sentence(columns: Columns, tmp_path: Path) -> None:
    run = run_q6(columns, prefetch="off", record_timeline=True)
    (tmp_path / "picture.svg").symlink_to("/dev/full")
    with pytest.raises(headrace.CapacityExceededError, match="no space left"):
        draw_timelines(Output(tmp_path / "picture.svg", "draw it"), {"off": run}, "", "")


def test_a_picture_is_refused_before_the_work_where_matplotlib_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_options, "find_spec", lambda _name: None)
    with pytest.raises(headrace.UnsupportedError, match=r"pip install \"headrace\["):
        _options.Picture("it").read(str(tmp_path / "picture.svg"))
    assert not list(tmp_path.iterdir())


def test_a_baseline_that_cannot_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(headrace.UnsupportedError, match="--no-compare") as caught:
        Baseline(tmp_path / "none.parquet", 1)
    assert "\n" not in str(caught.value)


def test_a_baseline_that_is_closed_refuses(lineitem: Path) -> None:
    with Baseline(lineitem, 1) as closed:
        assert closed.run()[0] > Decimal(0)
    closed.close()
    with pytest.raises(headrace.UnsupportedError, match="compare with DuckDB"):
        closed.run()


def test_short_rounds_are_many_and_long_ones_few() -> None:
    assert _rounds_that_fit(0.08) == 100
    assert _rounds_that_fit(0) == ROUNDS_MAX
    assert _rounds_that_fit(60) == ROUNDS_MIN
