# SPDX-License-Identifier: Apache-2.0
"""What is run in which guest. A scenario ends well if its own function finds nothing wrong.

To add one: write a function that boots what it needs and returns the complaints, and name it in
SCENARIOS. One that must survive a loss of power boots twice, the first time with `kill_at`, on
machines that share a file (`-object memory-backend-file,share=on ...`).
"""

from collections.abc import Callable
from pathlib import Path

from guest.boot import boot, programs_in
from guest.image import make_image
from guest.kernel import Kernel
from guest.machine import FOUR_NODES, SIXTEEN_NODES, Tiles

Scenario = Callable[[Kernel, Path], list[str]]

PROGRAMS = ["topo_guest_test", "cache_guest_test"]


def many_nodes(machine: Tiles) -> Scenario:
    """Topology and cache on a machine of tiles."""

    def run(kernel: Kernel, build: Path) -> list[str]:
        script = f"export HEADRACE_GUEST_TILES={machine.tile_count}\n"
        script += "".join(
            f"/test/{name} --gtest_brief=1 --gtest_color=no || failed=1\n" for name in PROGRAMS
        )
        script += "exit $failed\n"
        programs = programs_in(build / "tests" / "guest", PROGRAMS)
        image = make_image(kernel, script, programs, modules=[], tools=[])
        outcome = boot(kernel, image, machine.arguments(), on_line=show)
        print(f"guest: {machine.name}: {outcome.seconds:.1f} s", flush=True)
        if outcome.exit_code is None:
            return ["the guest died, or took too long"]
        return [] if outcome.exit_code == 0 else ["a test failed"]

    return run


def show(line: str) -> None:
    """Print what a guest says, indented."""
    print(f"    {line}", flush=True)


SCENARIOS: dict[str, Scenario] = {
    "four-nodes": many_nodes(FOUR_NODES),
    "sixteen-nodes": many_nodes(SIXTEEN_NODES),
}
