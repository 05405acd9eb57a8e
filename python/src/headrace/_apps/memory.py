# SPDX-License-Identifier: Apache-2.0
"""Available memory, and the share of it that a measurement uses."""

from pathlib import Path

from headrace import _core
from headrace.errors import CapacityExceededError

_CACHES, _CACHES_MIN = 4, 2
"""Size of a pool in last-level caches, and its minimum where memory is short."""
_MEMORY_SHARE = 0.7
"""Share of the available memory to use; the rest is for other processes."""


def available_bytes() -> int | None:
    """Memory available without swapping, by the kernel's estimate; None if unknown."""
    return _bytes_in("/proc/meminfo", "MemAvailable:")


def pool_bytes_of(bytes_max: int, l3_bytes: int, free_bytes: int | None) -> int:
    """The size of each of two pools that, used in turn, are never in a cache.

    `bytes_max` is the longest call; `free_bytes` the available memory, None if unknown.
    """
    # Room for two places of the longest call at any offset.
    room_bytes = 2 * bytes_max + (64 << 10)
    wanted = max(_CACHES * l3_bytes, room_bytes)
    if free_bytes is None:
        return wanted
    least = max(_CACHES_MIN * l3_bytes, room_bytes)
    at_most = int(free_bytes * _MEMORY_SHARE) // 2
    if least > at_most:
        raise too_little(2 * least, f"{_core.bytes_text(free_bytes)} are free")
    return min(wanted, at_most)


def too_little(needed_bytes: int, cause: str) -> CapacityExceededError:
    return CapacityExceededError(
        "measure with bytes that are in no cache",
        f"that takes {_core.bytes_text(needed_bytes)} of memory: {cause}",
        "free some, or measure shorter calls by --bytes-max",
    )


def resident_bytes() -> int | None:
    """Resident memory of this process; None if unknown."""
    return _bytes_in("/proc/self/status", "VmRSS:")


def peak_bytes() -> int | None:
    """Peak resident memory of this process since `begin_peak`, or since its start."""
    return _bytes_in("/proc/self/status", "VmHWM:")


def begin_peak() -> bool:
    """Reset the peak that `peak_bytes` reads. Returns whether the kernel allows that."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _bytes_in(path: str, field: str) -> int | None:
    try:
        for line in Path(path).read_text(encoding="ascii").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
