# SPDX-License-Identifier: Apache-2.0
"""Arguments of the wrong kind: one sentence from us, never a dump of the extension's signatures."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Here

import headrace


def refused(call: Callable[[], object]) -> headrace.Error:
    """What a call is refused with, which must be ours and a standard exception too."""
    with pytest.raises((headrace.InvalidArgumentError, headrace.TypeMismatchError)) as caught:
        call()
    text = str(caught.value)
    assert text.startswith("cannot ")
    assert "\n" not in text
    assert "_core" not in text
    assert isinstance(caught.value, TypeError | ValueError)
    return caught.value


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 1.5},
        {"capacity": None},
        {"capacity": True},
        {"capacity": 0},
        {"capacity": -1},
        {"capacity": 2**70},
        {"capacity": "much"},
        {"placement": None},
        {"placement": 1.0},
        {"placement": True},
        {"placement": -1},
        {"placement": 2**40},
        {"placement": "moon"},
        {"engine": "cpu"},
        {"machine": 1},
    ],
)
def test_an_argument_of_a_cache_of_another_kind_is_refused(options: dict[str, Any]) -> None:
    refused(lambda: headrace.Cache(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": [-1]},
        {"nodes": ["x"]},
        {"nodes": [2**40]},
        {"nodes": "0"},
        {"nodes": 0},
        {"threads_per_node": 1.5},
        {"threads_per_node": "2"},
        {"threads_per_node": 0},
        {"threads_per_node": 2**70},
        {"machine": "x"},
    ],
)
def test_an_argument_of_an_engine_of_another_kind_is_refused(options: dict[str, Any]) -> None:
    refused(lambda: headrace.Engine(**options))


@pytest.mark.parametrize("path", ["a\0b", "", 3, None, b"bytes"])
@pytest.mark.parametrize("function", [headrace.record, headrace.replay])
def test_what_is_no_path_of_a_record_is_refused(
    function: Callable[[Any], object], path: object
) -> None:
    refused(lambda: function(path))


def test_a_masked_array_is_refused() -> None:
    masked = np.ma.masked_array(np.arange(4), mask=np.arange(4) == 1)
    with headrace.Cache(capacity="1MiB", placement="local") as cache:
        assert "masked" in str(refused(lambda: cache.access(masked)))


def test_numbers_of_numpy_are_numbers() -> None:
    number: Any = np.int64(1)
    nodes: Any = np.array([0])
    with (
        headrace.Engine(threads_per_node=number, nodes=nodes) as engine,
        headrace.Cache(engine, capacity=number * 4096, placement=number * 0) as cache,
    ):
        assert cache.capacity_bytes == 4096


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint64, np.array])
def test_operations_and_jobs_take_numbers_of_numpy(kind: Callable[[int], Any]) -> None:
    one = kind(1)
    op = headrace.Operation
    blocks = headrace.DifFormat(np.int64(512))  # type: ignore[arg-type]
    made = headrace.DifTarget(headrace.DifTags(one, one, one))
    with headrace.Engine(
        device_timeout=np.float32(1),  # type: ignore[arg-type]
        thresholds=headrace.Thresholds(one, one, one),
        piece=np.int64(4096),  # type: ignore[arg-type]
        queue_depth_max=one,
        threads_per_node=one,
    ) as engine:
        assert engine.run(op.crc(b"abc", seed=one), source_node=kind(0)).crc != 0
        target = bytearray(520)
        end = engine.run(op.dif_insert(bytes(512), target, blocks, made), target_node=kind(0))
        assert end.bytes_done == 512
        assert target[514:] == b"\0\0\0\0\0\1"
        engine.run(op.fill_16(target, one, one))
        engine.run(op.fill(target, one), source_node=kind(0), target_node=kind(0))
        assert engine.run(op.compare_pattern(target, one)).different is False


def test_old_names_are_refused_with_the_new_one() -> None:
    for old, new in (("automatic", "auto"), ("hardware", "dsa"), ("software", "cpu")):
        with pytest.raises(headrace.InvalidArgumentError, match=f"'{old}' is '{new}' now"):
            headrace.Engine(path=old)  # type: ignore[arg-type]
    with headrace.Queue() as queue, queue.producer() as producer:
        with pytest.raises(AttributeError, match="'put_all': it is 'put_some' now"):
            producer.put_all([])  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"'QueueProducer' has no 'nothing'$"):
            producer.nothing()  # type: ignore[attr-defined]
    with pytest.raises(headrace.InvalidArgumentError, match=r"Ring\.open opens a ring"):
        headrace.pmem.Ring("ring")
    with pytest.raises(headrace.InvalidArgumentError, match=r"'Ring\.make' is 'Ring' now"):
        headrace.pmem.Ring.make("ring", capacity=4096)  # type: ignore[attr-defined]
    with pytest.raises(headrace.InvalidArgumentError, match="is 'device_timeout' now"):
        headrace.Engine(answer_ns_max=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "words, now",
    [
        (("query", "--engine", "cpu"), "--engine is --path now"),
        (("sql", "--repeat", "3", "SELECT 1"), "--repeat is --rounds now"),
        (("report", "--out", "page.html"), "--out is --output now"),
        (("tune", "--seconds", "3"), "--seconds is --time now"),
        (("sim", "advise", "--sql", "file", "--data", "folder"), "--plan --simulate MACHINE' now"),
        (("tune", "--time", "90"), "with its unit: ms, s, min or h"),
    ],
)
def test_an_old_option_is_refused_with_the_new_one(
    here: Here, words: tuple[str, ...], now: str
) -> None:
    result = here(*words)
    assert (result.code, result.stdout) == (2, "")
    assert now in result.stderr
    assert result.stderr.count("\n") == 1
