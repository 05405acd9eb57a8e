# SPDX-License-Identifier: Apache-2.0
"""What is run in which guest. A scenario ends well if its own function finds nothing wrong.

To add one: write a function that boots what it needs and returns the complaints, and name it in
SCENARIOS. One that must survive a loss of power boots twice, the first time with `kill_at`, on
machines that share their DIMMs (`power_loss`).
"""

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from guest.boot import Outcome, boot, programs_in
from guest.image import make_image
from guest.kernel import Kernel
from guest.machine import FOUR_NODES, MIB, SIXTEEN_NODES, Dimms, Tiles

Scenario = Callable[[Kernel, Path], list[str]]

PROGRAMS = ["topo_guest_test", "cache_guest_test"]
METER = "headrace-bench-movement"
# A copy from each node to each node, as `headrace bench movement` asks for it, with less memory.
MOVEMENT_SCRIPT = """
nodes=$(ls -d /sys/devices/system/node/node* | sed 's/.*node//' | sort -n)
for source in $nodes; do
  for target in $nodes; do
    where="source=$source target=$target bytes=65536 span=2097152 count=8"
    echo "by=cpu $where"
    [ $target != 0 ] || echo "by=engine path=software policy=smart_copy $where"
  done
done >/tmp/points
/test/headrace-bench-movement 1 1 </tmp/points >/tmp/figures || failed=1
! grep error /tmp/figures || failed=1
[ $(grep -c time_ns /tmp/figures) = $(wc -l </tmp/points) ] || failed=1
echo "movement: $(grep -c time_ns /tmp/figures) copies between nodes"
"""


def many_nodes(machine: Tiles) -> Scenario:
    """Topology and cache on a machine of tiles."""

    def run(kernel: Kernel, build: Path) -> list[str]:
        script = f"export HEADRACE_GUEST_TILES={machine.tile_count}\n"
        script += "".join(
            f"/test/{name} --gtest_brief=1 --gtest_color=no || failed=1\n" for name in PROGRAMS
        )
        script += MOVEMENT_SCRIPT
        script += "exit $failed\n"
        programs = programs_in(build / "tests" / "guest", PROGRAMS)
        programs += programs_in(build / "bench" / "engine" / "meter", [METER])
        image = make_image(kernel, script, programs, modules=[], tools=[])
        outcome = boot(kernel, image, machine.arguments(), on_line=show)
        print(f"guest: {machine.name}: {outcome.seconds:.1f} s", flush=True)
        if outcome.exit_code is None:
            return ["the guest died, or took too long"]
        return [] if outcome.exit_code == 0 else ["a test failed"]

    return run


RINGS = {
    "ext4": "/mnt/ext4/ring",
    "xfs": "/mnt/xfs/ring",
    "device": "$device",
}
PMEM_MODULES = ["nfit", "nd_btt", "nd_pmem", "dax_pmem", "device_dax", "crc32c_generic"]
PMEM_MODULES += ["ext4", "xfs"]
PMEM_TOOLS = ["/usr/bin/ndctl", "/sbin/mkfs.ext4", "/sbin/mkfs.xfs"]
# Lines of each end of each ring before the power fails, and before an end is killed.
LINES_BEFORE_POWER_LOSS = 12
LINES_BEFORE_KILL = 6

# Regions are not numbered in the order of the DIMMs.
PMEM_SCRIPT = f"""
region() {{
  for region in /sys/bus/nd/devices/region*; do
    dimm=$(cut -d, -f1 $region/mapping0)
    if [ "$(cat /sys/bus/nd/devices/$dimm/nfit/handle)" = 0x$1 ]; then
      echo "${{region##*region}}"
    fi
  done
}}
last() {{
  number=$(sed -n "s/^$1 $2 //p" /tmp/$1.$2 | tail -n 1)
  echo "${{number:--1}}"
}}
# Lets both ends of the ring NAME FILE work, and kills both.
kill_both() {{
  touch /tmp/$1.durable /tmp/$1.acknowledged
  enough=$(($(wc -l </tmp/$1.acknowledged) + {LINES_BEFORE_KILL}))
  pmem_guest produce $2 $1 >>/tmp/$1.durable & producer=$!
  pmem_guest consume $2 $1 >>/tmp/$1.acknowledged & consumer=$!
  while [ $(wc -l </tmp/$1.acknowledged) -lt $enough ]; do
    kill -0 $producer && kill -0 $consumer || return 1
    usleep 20000
  done
  kill -9 $producer $consumer
  wait $producer $consumer
  pmem_guest recover $2 $1 $(last $1 durable) $(last $1 acknowledged)
}}
mkdir -p /mnt/ext4 /mnt/xfs
ext4=/dev/pmem$(region 1)
xfs=/dev/pmem$(region 2)
device=/dev/dax$(region 3).0
"""
MOUNT_SCRIPT = """
mount -t ext4 -o dax $ext4 /mnt/ext4 || exit 1
mount -t xfs -o dax=always $xfs /mnt/xfs || exit 1
"""
FORMAT_SCRIPT = """
for handle in 1 2; do
  ndctl create-namespace -f -e namespace$(region $handle).0 -m fsdax --map=mem >/dev/null || exit 1
done
ndctl create-namespace -f -e namespace$(region 3).0 -m devdax --map=mem -a 4096 >/dev/null || exit 1
mkfs.ext4 -q -F -b 4096 $ext4 && mkfs.xfs -q -f -m reflink=0 $xfs || exit 1
"""


def power_loss(kernel: Kernel, build: Path) -> list[str]:
    """Rings on ext4 and XFS with DAX and of a device: ends are killed, then the machine.

    Nothing that was promised may be lost. That the file of a DIMM survives the guest proves
    recovery from a crash of processes and of the system. No cache is emulated: missing flushes are
    for `headrace pmem check` to find.
    """
    programs = programs_in(build / "tests" / "guest", ["pmem_guest"])
    with tempfile.TemporaryDirectory(prefix="headrace-guest-") as folder:
        mib = {"ext4": 128, "xfs": 384, "device": 128}
        sizes = {Path(folder, name): count * MIB for name, count in mib.items()}
        machine = Dimms(sizes).arguments()

        def run(script: str, kill_at: Callable[[str], bool] | None = None) -> Outcome:
            image = make_image(kernel, PMEM_SCRIPT + script, programs, PMEM_MODULES, PMEM_TOOLS)
            outcome = boot(kernel, image, machine, kill_at=kill_at, on_line=show_but_said)
            print(f"guest: power-loss: {outcome.seconds:.1f} s", flush=True)
            return outcome

        script = FORMAT_SCRIPT + MOUNT_SCRIPT
        for name, path in RINGS.items():
            script += f"pmem_guest make {path} || exit 1\n"
            script += f"kill_both {name} {path} && kill_both {name} {path} || exit 1\n"
        for name, path in RINGS.items():
            script += f"pmem_guest produce {path} {name} & pmem_guest consume {path} {name} &\n"
        first = run(script + "wait\nexit 1\n", kill_at=_Enough(LINES_BEFORE_POWER_LOSS))
        if not first.killed:
            return ["the guest ended before its power was to fail"]
        script = MOUNT_SCRIPT
        for name, path in RINGS.items():
            durable, acknowledged = (_last(first.lines, name, what) for what in SAID)
            script += f"pmem_guest recover {path} {name} {durable} {acknowledged} || failed=1\n"
            script += f"kill_both {name} {path} || failed=1\n"
        second = run(script + "exit $failed\n")
    if second.exit_code is None:
        return ["the guest died after its power had come back, or took too long"]
    return [] if second.exit_code == 0 else ["a promise was broken"]


SAID = ("durable", "acknowledged")


def show_but_said(line: str) -> None:
    """Print what a guest says, but for the many lines of its rings."""
    if not is_said(line):
        show(line)


def is_said(line: str) -> bool:
    """Whether it is an end of a ring that reports."""
    ring, _, rest = line.partition(" ")
    return ring in RINGS and rest.partition(" ")[0] in SAID


class _Enough:
    """Says so when every end of every ring has said so many lines."""

    def __init__(self, line_count: int) -> None:
        self._line_count = line_count
        self._said: Counter[str] = Counter()

    def __call__(self, line: str) -> bool:
        if not is_said(line):
            return False
        self._said[line.rpartition(" ")[0]] += 1
        ends = (self._said[f"{name} {what}"] for name in RINGS for what in SAID)
        return min(ends) >= self._line_count


def _last(lines: list[str], name: str, what: str) -> int:
    said = [line for line in lines if is_said(line) and line.startswith(f"{name} {what} ")]
    return int(said[-1].split()[-1])


def show(line: str) -> None:
    """Print what a guest says, indented."""
    print(f"    {line}", flush=True)


SCENARIOS: dict[str, Scenario] = {
    "four-nodes": many_nodes(FOUR_NODES),
    "sixteen-nodes": many_nodes(SIXTEEN_NODES),
    "power-loss": power_loss,
}
