"""Bindings of the laboratory; use headrace_lab instead."""

from collections.abc import Callable
from typing import Any

import headrace._core
import numpy
import numpy.typing


def run_q6(machine: headrace._core.Machine, cache: headrace._core.Cache | None, ship_date: numpy.typing.NDArray[numpy.int32], discount: numpy.typing.NDArray[numpy.int64], quantity: numpy.typing.NDArray[numpy.int64], extended_price: numpy.typing.NDArray[numpy.int64], *, prefetch: str, chunk_bytes: int, thread_count: int, record_timeline: bool) -> dict[str, Any]: ...

def check_subjects() -> list[tuple[str, str, bool]]: ...

def check_subject(name: str, *, entry_count: int, states: int, seed: int, stop_at_first: bool, progress: Callable[[float], None]) -> dict[str, Any]: ...
