# SPDX-License-Identifier: Apache-2.0
"""Arguments of the wrong kind, told in one sentence each before they reach the extension."""

import math
import operator
import os
from collections.abc import Iterable
from typing import TypeVar

from headrace import _core
from headrace.errors import InvalidArgumentError, TypeMismatchError

_T = TypeVar("_T")

NODE_MAX = 2**32 - 2
"""The largest number that the library takes for a node."""
COUNT_MAX = 2**63 - 1


def whole_number(
    value: object,
    tried: str,
    least: int = 0,
    greatest: int = COUNT_MAX,
    wanted: str = "a whole number",
) -> int:
    """Take an integer of any kind, NumPy's included, but no truth value.

    Raises:
        TypeMismatchError: It is of another type.
        InvalidArgumentError: It is not from `least` to `greatest`.
    """
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
    """Take a time from 0 on in seconds, endless ones included: a number of any kind, NumPy's too.

    Raises:
        TypeMismatchError: It is of another type.
        InvalidArgumentError: It is negative or no number.
    """
    kind = type(value)
    # Truth values of NumPy are no `bool` but have both.
    if "bool" in kind.__name__ or not (hasattr(kind, "__index__") or hasattr(kind, "__float__")):
        raise TypeMismatchError(
            tried, f"{_described(value)} was given", "pass a number of seconds, or None"
        )
    try:
        time_s = float(value)  # type: ignore[arg-type]
    except OverflowError:  # Of a whole number that is longer than any that a float has.
        time_s = math.inf if value > 0 else -math.inf  # type: ignore[operator]
    except TypeError as problem:  # An array of several.
        raise TypeMismatchError(
            tried, f"{_described(value)} was given", "pass a number of seconds, or None"
        ) from problem
    if not time_s >= 0:  # NaN is neither.
        raise InvalidArgumentError(tried, f"{value} was given", "pass seconds from 0 on, or None")
    return time_s


def node_list(value: object, tried: str) -> list[int]:
    """Take a list of nodes.

    Raises:
        TypeMismatchError: It is no list, or something in it is no number.
        InvalidArgumentError: A number is none that a node can have.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeMismatchError(tried, f"{_described(value)} was given", "pass a list of numbers")
    return [whole_number(node, tried, 0, NODE_MAX) for node in value]


def path_text(value: object, tried: str) -> str:
    """Take a path of text.

    Raises:
        TypeMismatchError: It is of another type, bytes included.
        InvalidArgumentError: It is empty, or has a zero byte in it.
    """
    remedy = "pass a str or a pathlib.Path"
    try:
        text = os.fspath(value)  # type: ignore[call-overload]
    except TypeError as problem:
        raise TypeMismatchError(tried, f"{_described(value)} is not a path", remedy) from problem
    if not isinstance(text, str):
        raise TypeMismatchError(tried, f"{_described(value)} is not text", remedy)
    if not text or "\0" in text:
        raise InvalidArgumentError(tried, f"{text!r} names no file", "pass another")
    return text


def one_of(name: _T, names: tuple[str, ...], what: str) -> _T:
    """Give back a name that an engine knows, or None."""
    if name is not None and name not in names:
        raise InvalidArgumentError(
            f"take the {what} of an engine", f"there is no {what} {name!r}", f"take one of {names}"
        )
    return name


def not_picklable(what: str, why: str) -> TypeMismatchError:
    """What `pickle` and `multiprocessing` are refused with."""
    return TypeMismatchError(f"pickle {what}", why, "make one in each process")


def byte_count(value: object, tried: str, least: int = 1) -> int:
    """Take a number of bytes, or a text such as "64MiB".

    Raises:
        TypeMismatchError: It is neither.
        InvalidArgumentError: It is no size, or less than `least`.
    """
    if isinstance(value, str):
        value = _core.parse_bytes(value)
    return whole_number(value, tried, least, wanted="a text such as '64MiB' or a number of bytes")


def instance_of(value: object, kind: type[_T], tried: str) -> _T:
    """Take an object of a class.

    Raises:
        TypeMismatchError: It is of another type.
    """
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
