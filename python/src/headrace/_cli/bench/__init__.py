# SPDX-License-Identifier: Apache-2.0
"""``headrace bench``: the microbenchmarks. What they share is in ``_measure``."""

from headrace._cli._app import Group

command = Group(
    "bench",
    """Measure how fast the parts of Headrace are on this machine.

    Example: headrace bench emulator --json
    """,
    __name__,
    {
        "copy": "Measure the tuned copy beside glibc's memcpy, a folly-like and a plain one.",
        "programs": "Measure whole programs with tuned copies and without.",
        "engine": "Measure what engine operations cost, and compare each figure with its goal.",
        "cache": "Measure hits and misses of the cache beside the design that it came from.",
        "emulator": "Measure the emulated DSA: descriptors per second, and copies beside memcpy.",
        "pmem": "Compare the rings: naive, clflushopt, clwb, optimised, and on libpmem2.",
        "message": "Measure message queues between two processes, beside others and the kernel.",
        "injection": "Measure what a message in a cache saves the computation that needs it.",
    },
)
