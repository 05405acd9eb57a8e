# SPDX-License-Identifier: Apache-2.0
"""python3 -m guest BUILD_FOLDER [SCENARIO...]: run scenarios, by default all of them."""

import sys
from pathlib import Path

from guest.kernel import GuestError, KernelAbsentError, fetch_kernel
from guest.scenarios import SCENARIOS

SKIPPED = 77


def main(arguments: list[str]) -> int:
    """Run, print, count what failed."""
    build, *names = arguments
    if unknown := [name for name in names if name not in SCENARIOS]:
        print(f"guest: no scenario {unknown[0]}: there are {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    root = Path(__file__).resolve().parents[2]
    failed = []
    try:
        kernel = fetch_kernel(root / "build" / "guest" / "kernel")
        for name in names or SCENARIOS:
            print(f"guest: {name}, Linux {kernel.version}", flush=True)
            for complaint in SCENARIOS[name](kernel, Path(build)):
                failed.append(name)
                print(f"guest: {name}: {complaint}", flush=True)
    except KernelAbsentError as error:
        print(f"guest: skipped: {error}", file=sys.stderr)
        return SKIPPED
    except GuestError as error:
        print(f"guest: {error}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
