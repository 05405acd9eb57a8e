# SPDX-License-Identifier: Apache-2.0
"""Persistent memory survives its machine: rings and a store on DAX, killed in mid-work.

Ends of rings are killed, then QEMU, while devices copy. That the file of a DIMM survives a guest
proves recovery from a crash of processes and of the system: QEMU keeps every retired store. Missing
flushes are for `headrace pmem check` to find.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import BUILT, COMMAND, TIME_LIMIT_S

PROGRAM = BUILT / "tests" / "guest" / "pmem_guest"
RINGS = {"ext4": "/mnt/pmem1/ring", "xfs": "/mnt/pmem2/ring", "device": "$device"}
SAID = ("durable", "acknowledged")
ENDS = [f"{ring} {what}" for ring in RINGS for what in SAID] + ["store put"]
# Lines of each end before the power fails, and before an end is killed.
LINES_BEFORE_POWER_LOSS = 12
LINES_BEFORE_KILL = 6

STORE_COMMAND = f"{COMMAND} emulate --config devices.json -- {sys.executable} store.py"
FUNCTIONS = f"""
export PATH={PROGRAM.parent}:$PATH
last() {{
  number=$(sed -n "s/^$1 $2 //p" /tmp/$1.$2 | tail -n 1)
  echo "${{number:--1}}"
}}
mkfifo /tmp/said
ulimit -t 300  # An end that waits for one that has died takes processor time.
# Lets both ends of the ring NAME FILE work, and kills both. Starts no program while they do: each
# takes long beside two that never sleep.
kill_both() {{
  pmem_guest produce $2 $1 >>/tmp/$1.durable & producer=$!
  pmem_guest consume $2 $1 >/tmp/said & consumer=$!
  exec 3</tmp/said
  lines=0
  while [ $lines -lt {LINES_BEFORE_KILL} ]; do
    read -r line <&3 || return 1
    echo "$line" >>/tmp/$1.acknowledged
    lines=$((lines + 1))
  done
  kill -9 $producer $consumer || return 1
  wait $producer $consumer
  cat <&3 >>/tmp/$1.acknowledged
  pmem_guest recover $2 $1 $(last $1 durable) $(last $1 acknowledged)
}}
device=/dev/$(cd /dev && ls -d dax* 2>/dev/null)
region() {{ sed -n "s|^/dev/pmem\\([0-9]*\\) /mnt/pmem$1 .*|\\1|p" /proc/mounts; }}
"""
FORMATS = {
    "ext4": "",
    "xfs": """
region=$(region 2) && umount /mnt/pmem2 && mkfs.xfs -q -f -m reflink=0 /dev/pmem$region &&
  mount -o dax=always /dev/pmem$region /mnt/pmem2 || exit 1
""",
    "device": """
region=$(region 3) && umount /mnt/pmem3 && head -c 64M /dev/zero >/dev/pmem$region &&
  ndctl create-namespace -f -e namespace$region.0 -m devdax --map=mem -a 4096 >/dev/null || exit 1
device=/dev/$(cd /dev && ls -d dax*)
""",
}
STORE = """
import itertools, os, sys
import headrace

def block(number):
    pattern = bytes((number * 31 + i * 7) % 251 for i in range(997))
    return number.to_bytes(8, "little") + pattern * 99

engine = headrace.Engine(path="dsa")
tier = headrace.Tier("32MiB", path="/mnt/pmem1/store")
with headrace.Store([tier], block_bytes="100KiB", inline_max=0, engine=engine) as store:
    if len(sys.argv) > 1:
        last = int(sys.argv[1])
        for number in range(max(0, last - 99), last + 1):
            found = store.get(f"{number % 100}")
            later = int.from_bytes(found[:8], "little")
            assert later >= number and later % 100 == number % 100, (number, later)
            assert found == block(later), number
        print("store: the last block of", last + 1, "is kept")
    for number in itertools.count() if len(sys.argv) == 1 else ():
        store.put(f"{number % 100}", block(number))
        os.write(1, b"store put %d\\n" % number)
"""


@pytest.fixture
def record(tmp_path: Path, names: list[str]) -> Path:
    """A record of one node of DDR and one of persistent memory for each ring.

    By hwloc's synthetic machines; two processors only for three rings, because they cost time.
    """
    nodes = "[numa(memory=1073741824)] " * (1 + len(names))
    synthetic = f"pack:1 {nodes} core:{min(len(names), 2)} pu:1"
    lstopo = shutil.which("lstopo-no-graphics") or "lstopo"
    xml = tmp_path / "machine.xml"
    subprocess.run([lstopo, "-i", synthetic, "--of", "xml", xml], check=True)
    numbers = itertools.count()

    def persistent(found: re.Match[str]) -> str:
        return found[0] + ('<info name="DAXType" value="NVM"/>' if next(numbers) else "")

    text = re.sub(r'<object type="NUMANode"[^>]*>', persistent, xml.read_text())
    xml.write_text(text)
    path = tmp_path / "dimms.json"
    env = os.environ | {"HWLOC_XMLFILE": str(xml), "HWLOC_THISSYSTEM": "0"}
    subprocess.run([COMMAND, "topo", "--record", path], check=True, env=env, stdout=-3)
    return path


class Run:
    """A run of a script on the machine; what is said is collected, the rest printed."""

    def __init__(self, record: Path, folder: Path, script: str) -> None:
        devices = folder / "devices.json"
        shown = subprocess.run(
            [COMMAND, "machine", "show", "spr-1dsa", "--json"], check=True, stdout=-1
        )
        devices.write_text(json.dumps(json.loads(shown.stdout)["results"]["devices"]))
        (folder / "pmem").mkdir(exist_ok=True)
        (folder / "script").write_text(FUNCTIONS + script)
        (folder / "store.py").write_text(STORE)
        self.said: dict[str, list[int]] = {end: [] for end in ENDS}
        self.process = subprocess.Popen(
            [
                *(COMMAND, "machine", "run", record, "--pmem", folder / "pmem"),
                # The emulator's namespace would keep file systems mounted that the script formats.
                *("--devices", "none", "--timeout", f"{TIME_LIMIT_S}s", "--", "sh", "script"),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )

    def lines(self) -> Iterator[None]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            end, _, number = line.strip().rpartition(" ")
            if end in self.said and number.isdigit():
                self.said[end].append(int(number))
                yield
            else:
                print("   ", line, end="")

    def end(self) -> int:
        """Read the rest; the exit code."""
        for _ in self.lines():
            pass
        with self.process:
            return self.process.wait()


# A file system of DAX; another one, a device and a store with 'make check'.
SOME = (["ext4"], False)
ALL = (list(RINGS), True)


@pytest.mark.parametrize("names, with_store", [SOME, pytest.param(*ALL, marks=pytest.mark.more)])
def test_what_was_acknowledged_is_there_after_a_crash(
    record: Path, tmp_path: Path, names: list[str], *, with_store: bool
) -> None:
    rings = {name: RINGS[name] for name in names}
    script = "".join(FORMATS[name] for name in rings)
    for name, path in rings.items():
        script += f"pmem_guest make {path} || exit 1\n"
        script += f"kill_both {name} {path} || exit 1\n"
    for name, path in rings.items():
        script += f"pmem_guest produce {path} {name} & pmem_guest consume {path} {name} &\n"
    script += f"{STORE_COMMAND} &\n" * with_store + "wait\nexit 1\n"
    first = Run(record, tmp_path, script)
    ends = [f"{ring} {what}" for ring in rings for what in SAID] + ["store put"] * with_store
    for _ in first.lines():
        if min(len(first.said[end]) for end in ends) >= LINES_BEFORE_POWER_LOSS:
            first.process.kill()
            break
    said = first.said
    assert first.end() == -9, "the guest ended before its power was to fail"
    script = "failed=0\n"
    for name, path in rings.items():
        durable, acknowledged = (said[f"{name} {what}"][-1] for what in SAID)
        script += f"pmem_guest recover {path} {name} {durable} {acknowledged} || failed=1\n"
        script += f"kill_both {name} {path} || failed=1\n"
    if with_store:
        script += f"{STORE_COMMAND} {said['store put'][-1]} || failed=1\n"
    second = Run(record, tmp_path, script + "exit $failed\n")
    assert second.end() == 0, "a promise was broken"
