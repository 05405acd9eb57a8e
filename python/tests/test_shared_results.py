# SPDX-License-Identifier: Apache-2.0
"""Results that processes share come back equal; what cannot be shared is computed."""

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headrace._shared_results import SharedResults

UNEVEN = pa.table({"text": ["x" * (200_000 if number < 20 else 1) for number in range(2000)]})
TABLES = {
    "empty": pa.table({"n": pa.array([], pa.int64())}),
    "no column": pa.table({}),
    "many blocks": pa.table({"n": range(600_000), "text": ["a", None, "b"] * 200_000}),
    "slice": pa.table({"n": range(600_000)}).slice(7, 300_000),
    "uneven": UNEVEN,
    "dictionary": pa.table({"kind": UNEVEN["text"].slice(20).dictionary_encode()}),
}


@pytest.fixture
def pair() -> Iterator[tuple[SharedResults, SharedResults]]:
    token = secrets.token_hex(8)
    first, second = (SharedResults(token, 64 << 20) for _ in range(2))
    yield first, second
    second.close()
    first.close()
    assert not list(Path(tempfile.gettempdir()).glob(f"headrace-{token}*"))


def never() -> Any:
    raise AssertionError


@pytest.mark.parametrize("name", TABLES)
def test_tables_come_back_equal(pair: tuple[SharedResults, SharedResults], name: str) -> None:
    table = TABLES[name]
    for number, each in enumerate(pair):
        assert each.result(name, never if number else lambda: table).equals(table)
    assert [each.of_others for each in pair] == [0, 1]
    assert pair[0].result(name, never).equals(table)
    assert pair[0].of_others == 0


def test_other_objects_come_back_private(pair: tuple[SharedResults, SharedResults]) -> None:
    frame = pd.DataFrame({"n": np.arange(600_002), "kind": pd.Categorical(["a", "b"] * 300_001)})
    found = [each.result("frame", frame.copy) for each in pair]
    assert pair[1].of_others == 1
    found[1].loc[:, "n"] = 0
    pd.testing.assert_frame_equal(pair[0].result("frame", never), frame)
    assert pair[1].result("nothing", lambda: None) is None


@pytest.mark.parametrize("computed", [lambda: 7, pa.table({"text": ["x" * (2 << 20)]})])
def test_what_cannot_be_shared_is_computed(
    pair: tuple[SharedResults, SharedResults], computed: Any
) -> None:
    assert [each.result("key", lambda: computed) for each in pair] == [computed] * 2
    assert pair[0].result(None, lambda: 7) == 7
    assert [each.of_others for each in pair] == [0, 0]


def test_results_that_two_processes_put_are_not_mixed(
    pair: tuple[SharedResults, SharedResults],
) -> None:
    long, short = TABLES["many blocks"], pa.table({"n": [1]})
    pair[0].result("key", lambda: long)
    store = pair[1]._store  # noqa: SLF001
    (key,) = {each for each in store.keys() if each.endswith(b" 0")}  # noqa: SIM118
    pair[1].result("other", lambda: long)
    (other,) = {each for each in store.keys() if each.endswith(b" 0")} - {key}  # noqa: SIM118
    store.put(key, store.get(other))
    assert pair[0].result("key", lambda: short) == short


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("not a number",)


def test_what_cannot_be_unpickled_is_computed(pair: tuple[SharedResults, SharedResults]) -> None:
    for each in pair:
        assert isinstance(each.result("key", Unreadable), Unreadable)


def test_a_result_after_the_end_serves_nothing_again(
    pair: tuple[SharedResults, SharedResults],
) -> None:
    for each in reversed(pair):
        each.close()
        assert each.result("key", lambda: 7) == 7
    assert not Path(pair[0]._path).exists()  # noqa: SLF001
