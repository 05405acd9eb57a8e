# SPDX-License-Identifier: Apache-2.0
"""Variants as points, for the model of the search."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray


def encode(variants: Sequence[str]) -> NDArray[np.float64]:
    """Encode variants as points; their distance measures how much two variants differ."""
    return np.array([_point(variant) for variant in variants])


_WEIGHTS = {
    **dict.fromkeys(("rep_movsb", "rep_movsq", "word", "mmx", "xmm", "ymm", "zmm"), 0.8),
    "store=t": 1.0,
    "store=nt": 1.0,
    **dict.fromkeys(("align=none", "align=target"), 0.4),
    "block": 0.25,
    "streams": 0.5,
    **dict.fromkeys(("none", "t0", "t1", "t2", "nta"), 0.4),
    "prefetches": 0.5,
    "lines": 0.2,
    "distance": 0.2,
    "+target": 0.8,
    "touches": 0.8,
    "touch=target": 0.3,
    "touch=both": 0.3,
    "touch=source": 0.3,
}
"""Scale of each coordinate: one per category, and the logarithm of each number."""
_COLUMNS = {name: column for column, name in enumerate(_WEIGHTS)}


@cache
def _point(variant: str) -> NDArray[np.float64]:
    through, _, store, prefetch, block, align, _, streams, *touch = variant.split(" ")
    row = np.zeros(len(_COLUMNS))

    def put(name: str, value: float = 1.0) -> None:
        row[_COLUMNS[name]] = value * _WEIGHTS[name]

    for kind in (through, store, align, *touch):
        put(kind)
    put("block", math.log2(int(block.removeprefix("block="))))
    put("streams", math.log2(int(streams.removeprefix("streams="))))
    put("touches", float(bool(touch)))
    kind, _, rest = prefetch.removeprefix("prefetch=").partition(":")
    if rest:
        numbers, plus, target = rest.partition("+")
        lines, _, distance = numbers.partition("@")
        put("prefetches")
        put(kind)
        put("lines", math.log2(int(lines)))
        put("distance", math.log2(int(distance) + 4))
        put("+target", float(bool(plus + target)))
    return row
