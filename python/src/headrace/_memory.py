# SPDX-License-Identifier: Apache-2.0
"""How much memory there is to be had."""

from pathlib import Path


def available_bytes() -> int | None:
    """Memory that can be had without swapping, as the kernel estimates it; None if it does not."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
