# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments, with one-sentence errors, before they reach the extension."""

import math
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar, get_args

from headrace import _core
from headrace.errors import InvalidArgumentError, TypeMismatchError

_T = TypeVar("_T")

Eviction = Literal["s3_fifo", "lru"]
"""Which unused entries, or blocks of a store, are dropped first."""
PrefetchMode = Literal["off", "auto", "on"]
"""Whether columns are copied ahead of a query; auto: where that is expected to pay."""
PREFETCH_MODES: tuple[PrefetchMode, ...] = get_args(PrefetchMode)


def prefetch_mode(text: str) -> PrefetchMode:
    if text not in PREFETCH_MODES:
        cause, remedy = "there is no such mode", "use off, auto or on"
        raise InvalidArgumentError(f"prefetch {text!r}", cause, remedy)
    return text


NODE_MAX = 2**32 - 2
"""The largest node number that the library accepts."""
COUNT_MAX = 2**63 - 1


def whole_number(
    value: object,
    tried: str,
    least: int = 0,
    greatest: int = COUNT_MAX,
    wanted: str = "a whole number",
) -> int:
    """Accept any integer type, including NumPy's, but not bool."""
    if isinstance(value, bool):
        raise TypeMismatchError(tried, "a bool was given", f"pass {wanted}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as problem:
        raise TypeMismatchError(
            tried, f"{_described(value)} was given", f"pass {wanted}"
        ) from problem
    if not least <= number <= greatest:
        raise InvalidArgumentError(
            tried, f"{number} was given", f"pass {wanted} from {least} to {greatest}"
        )
    return number


def seconds(value: object, tried: str) -> float:
    """Accept seconds >= 0, also infinite, of any number type, including NumPy's.

    More than 32 years are as many: no limit.
    """
    kind = type(value)
    # NumPy's bool is not a `bool`, but has both methods.
    if "bool" in kind.__name__ or not (hasattr(kind, "__index__") or hasattr(kind, "__float__")):
        raise TypeMismatchError(
            tried, f"{_described(value)} was given", "pass a number of seconds, or None"
        )
    try:
        time_s = float(value)  # type: ignore[arg-type]
    except OverflowError:  # An integer beyond the range of a float.
        time_s = math.inf if value > 0 else -math.inf  # type: ignore[operator]
    except TypeError as problem:  # An array of several elements.
        raise TypeMismatchError(
            tried, f"{_described(value)} was given", "pass a number of seconds, or None"
        ) from problem
    if not time_s >= 0:  # False for NaN, too.
        raise InvalidArgumentError(tried, f"{value} was given", "pass seconds from 0 on, or None")
    return min(time_s, 1e9)


def node_list(value: object, tried: str) -> list[int]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeMismatchError(tried, f"{_described(value)} was given", "pass a list of numbers")
    return [whole_number(node, tried, 0, NODE_MAX) for node in value]


def path_text(value: object, tried: str) -> str:
    remedy = "pass a str or a pathlib.Path"
    try:
        text = os.fspath(value)  # type: ignore[call-overload]
    except TypeError as problem:
        raise TypeMismatchError(tried, f"{_described(value)} is not a path", remedy) from problem
    if not isinstance(text, str):
        raise TypeMismatchError(tried, f"{_described(value)} is not text", remedy)
    if not text or "\0" in text:
        raise InvalidArgumentError(tried, f"{text!r} is not a valid path", "pass another")
    return text


def one_of(
    name: _T, names: tuple[str, ...], what: str, renamed: Mapping[str, str] | None = None
) -> _T:
    """Accept one of `names`, or None; `renamed` has the names of an earlier version."""
    if name is not None and name not in names:
        now = (renamed or {}).get(str(name))
        raise InvalidArgumentError(
            f"take the {what} of an engine",
            f"{name!r} is {now!r} now" if now else f"there is no {what} {name!r}",
            f"take one of {names}",
        )
    return name


def byte_count(value: object, tried: str, least: int = 1) -> int:
    """Accept a number of bytes, or a text such as "64MiB"."""
    if isinstance(value, str):
        value = _core.parse_bytes(value)
    return whole_number(value, tried, least, wanted="a text such as '64MiB' or a number of bytes")


def instance_of(value: object, kind: type[_T], tried: str) -> _T:
    if not isinstance(value, kind):
        raise TypeMismatchError(
            tried, f"{_described(value)} was given", f"pass a headrace.{kind.__name__}"
        )
    return value


def _described(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
