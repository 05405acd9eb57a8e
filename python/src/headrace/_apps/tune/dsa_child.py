# SPDX-License-Identifier: Apache-2.0
"""Times copies in a separate process, with the preload library of its environment.

Runs as a program, in an interpreter that loads only this file. Prints the nanoseconds of a copy as
JSON: [hot, cold] for each given length.
"""

import json
import sys
import time

_PAGE_BYTES = 4096
_LEAST_NS = 5_000_000
_COPIES_MIN = 3


def time_copies(source: memoryview, target: memoryview, length: int, step: int) -> float:
    """Nanoseconds of one copy; consecutive copies start `step` bytes apart."""
    room = len(source) - length + 1
    count = offset = 0
    begin_ns = now_ns = time.perf_counter_ns()
    while count < _COPIES_MIN or now_ns - begin_ns < _LEAST_NS:
        target[offset : offset + length] = source[offset : offset + length]
        offset = (offset + step) % room
        count += 1
        now_ns = time.perf_counter_ns()
    return (now_ns - begin_ns) / count


def main() -> None:
    """Measure; the arguments are the size of a pool, then lengths."""
    pool_bytes, *lengths = map(int, sys.argv[1:])
    source, target = bytearray(pool_bytes), bytearray(pool_bytes)
    for offset in range(0, pool_bytes, _PAGE_BYTES):
        source[offset] = target[offset] = 1
    views = memoryview(source), memoryview(target)
    times_ns = [[time_copies(*views, length, step) for step in (0, length)] for length in lengths]
    sys.stdout.write(json.dumps(times_ns))


if __name__ == "__main__":
    main()
