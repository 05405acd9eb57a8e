# SPDX-License-Identifier: Apache-2.0
"""Parses sweeps into the points to run."""

import itertools
import math
from collections.abc import Iterable

from headrace import _core
from headrace._scenarios import Parameter, Scenario
from headrace.errors import Error, InvalidArgumentError, NotFoundError

POINTS_MAX = 100_000


def points_of(scenario: Scenario, texts: Iterable[str]) -> list[dict[str, str]]:
    """Make the points of sweeps such as "bytes=64:1MiB" or "devices=1,2,4".

    A range doubles. Without a sweep all values of all parameters are combined; with one, each other
    parameter takes its first value.
    """
    sweeps: dict[str, list[str]] = {}
    known = {each.name: each for each in scenario.parameters}
    for text in texts:
        key, equals, values = text.partition("=")
        tried = f"sweep by '{text}'"
        if not equals or not values:
            raise InvalidArgumentError(
                tried, "it has no '=' with values behind it", "write it like bytes=64:1MiB"
            )
        if key not in known:
            raise NotFoundError(
                tried,
                f"'{scenario.name}' has no parameter '{key}'",
                f"use one of {', '.join(known)}",
            )
        if key in sweeps:
            raise InvalidArgumentError(
                tried, f"'{key}' is swept twice", "separate its values by ','"
            )
        sweeps[key] = _values(known[key], values, tried)
    if not sweeps:
        sweeps = {each.name: list(each.values) for each in scenario.parameters}
    count = math.prod(map(len, sweeps.values()))
    if count > POINTS_MAX:
        raise InvalidArgumentError(
            "sweep", f"that is {count} points, more than {POINTS_MAX}", "sweep fewer values"
        )
    return [
        dict(zip(sweeps, values, strict=True)) for values in itertools.product(*sweeps.values())
    ]


def _values(parameter: Parameter, text: str, tried: str) -> list[str]:
    values: list[str] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        if not colon:
            values.append(part)
            continue
        if parameter.kind not in {"size", "count"}:
            raise InvalidArgumentError(
                tried, f"'{parameter.name}' has no order", "separate its values by ','"
            )
        try:
            low, high = _core.parse_bytes(first), _core.parse_bytes(last)
        except Error as error:
            raise InvalidArgumentError(tried, error.cause, error.remedy) from error
        if low < 1 or high < low:
            raise InvalidArgumentError(
                tried, "it does not go from 1 or more upwards", "write the smaller value first"
            )
        while low <= high:
            values.append(str(low))
            low *= 2
    return values
