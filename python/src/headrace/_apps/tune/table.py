# SPDX-License-Identifier: Apache-2.0
"""The table of a profile: the variant of each length, beside Asterope's on its Xeon."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._apps.tune.search import LIBC
from headrace._files import read_file

BYTES_MIN, BYTES_MAX = 64, 64 << 20
_PROFILE_BYTES_MAX = 16 << 20
_ASTEROPE_SHORTEST = 128

# Kappes and Anastasiadis, Asterope (PLOS 2021), automatic settings of a Xeon Gold 5218: RT, LT, ST,
# PT, PS and PD, and GB/s. The unit of PS and PD is not stated; lines are assumed.
_NO_LOOP = "no loop of ours fits: it needs more than two lines"
"""Why no variant of this class is Asterope's."""
_ASTEROPE = {
    128: ("mmx load=t store=nt prefetch=t0:2@0", 1.01e9),
    8 << 10: ("ymm load=t store=t prefetch=t1:14@0", 7.17e9),
    256 << 10: ("xmm load=t store=t prefetch=t0:4@30", 7.93e9),
    1 << 20: ("mmx load=t store=t prefetch=t0:2@28", 6.9e9),
    4 << 20: ("mmx load=t store=t prefetch=t0:2@28", 6.36e9),
    32 << 20: ("mmx load=t store=t prefetch=t0:2@30", 6.18e9),
}


def load_profile(path: Path) -> dict[str, Any]:
    _core.use_copy_profile_file(str(path))  # Validates the file.
    document: dict[str, Any] = json.loads(
        read_file(path, f"read the profile '{path}'", _PROFILE_BYTES_MAX)
    )
    return document


def table_of(classes: Sequence[dict[str, Any]]) -> list[dict[str, object]]:
    """A row for each power of two of the classes of a profile; where none is faster, of memmove."""
    by_length = {each["bytes_max"]: each for each in classes}
    return [
        _row(1 << bits, by_length.get(1 << bits, {}))
        for bits in range(BYTES_MIN.bit_length() - 1, BYTES_MAX.bit_length())
    ]


def _row(bytes_max: int, found: dict[str, Any]) -> dict[str, object]:
    warm, cold = found.get("variant"), found.get("cold_variant")
    # Without a chosen variant, the figures are those of the losing one, not memmove's.
    known = found.get("measured", {}) if warm is not None or cold is not None else {}
    asterope_variant, asterope_bytes_per_s = _ASTEROPE.get(bytes_max, (None, None))
    return {
        "bytes_max": bytes_max,
        "variant": warm or LIBC,
        "cold_variant": cold,
        "bytes_per_s_hot": known.get("bytes_per_s_hot"),
        "bytes_per_s_cold": known.get("bytes_per_s_cold"),
        "gain": known.get("ratio"),
        "asterope_variant": asterope_variant,
        "asterope_bytes_per_s": asterope_bytes_per_s,
        "asterope_absent": _NO_LOOP if bytes_max == _ASTEROPE_SHORTEST else None,
    }
