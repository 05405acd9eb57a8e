# SPDX-License-Identifier: Apache-2.0
"""Rules for measuring persistent memory, checked before `headrace bench pmem` starts.

Source: the guidelines in docs/concepts/pmem.md. Nothing is changed or refused: a broken rule is
reported with its remedy; a rule that cannot be checked is unknown.
"""

import os
import re
import time
from pathlib import Path

from headrace._apps.doctor.finding import Finding, listed, note, ok, unknown
from headrace._gather import cpus_of, text_of

_BUSY_S = 0.2
_BUSY_SHARE_MAX = 0.1


def check_rules(directory: str, root: str = "/") -> list[Finding]:
    """Check the rules for this process and the directory of the files.

    Args:
        directory: Directory of the rings' files.
        root: Root of the system's directories; replaced in tests.
    """
    here = Path(root)
    cpus = sorted(os.sched_getaffinity(0))
    device = _device_of(here, directory)
    found = {
        "node": _node(here, cpus, device),
        "sibling": _sibling(here, cpus),
        "frequency": _frequency(here, cpus),
        "dax": _dax(here, directory),
        "interleaving": _interleaving(device),
    }
    return [Finding(f.state, f.finding, f.cause, f.remedy, name) for name, f in found.items()]


def _text(path: Path) -> str:
    return text_of(path) or ""


def _mount(root: Path, directory: str) -> list[str] | None:
    """The fields of the directory's mount; None if they cannot be read."""
    real = os.path.realpath(directory)
    best: list[str] | None = None
    for line in _text(root / "proc/self/mountinfo").splitlines():
        fields = line.split()
        point = fields[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # The last mount on a mount point hides the others.
        if inside and (best is None or len(point) >= len(best[4])):
            best = fields
    return best


def _device_of(root: Path, directory: str) -> Path | None:
    """The sysfs directory of the persistent memory that holds a directory."""
    mount = _mount(root, directory)
    source = mount[mount.index("-") + 2] if mount is not None and "-" in mount else ""
    found = re.fullmatch(r"/dev/(pmem[\w.]{1,32})", source)
    return root / "sys/block" / found[1] / "device" if found else None


def _node(root: Path, cpus: list[int], device: Path | None) -> Finding:
    folder = root / "sys/devices/system/node"
    nodes = {
        path.name.removeprefix("node"): cpus_of(_text(path / "cpulist"))
        for path in folder.glob("node[0-9]*")
    }
    used = sorted(name for name, of_node in nodes.items() if of_node & set(cpus))
    if not used:
        return unknown("the nodes of this process's processors cannot be seen")
    wanted = "" if device is None else _text(device / "numa_node")
    if len(used) > 1:
        return note(
            f"this process may run on nodes {listed(used)}",
            "memory of another node takes several times as long",
            f"run by numactl -N {wanted or used[0]}",
        )
    if wanted not in {"", "-1", used[0]}:
        return note(
            f"this process runs on node {used[0]}, the memory is on {wanted}",
            "memory of another node takes several times as long",
            f"run by numactl -N {wanted}",
        )
    return ok(f"node {used[0]}")


def _busy_ticks(root: Path) -> dict[int, tuple[int, int]]:
    """Busy ticks and all ticks of each processor."""
    rows = re.findall(r"^cpu(\d{1,6}) (.*)$", _text(root / "proc/stat"), re.MULTILINE)
    ticks = {int(cpu): [int(each) for each in fields.split()[:8]] for cpu, fields in rows}
    return {cpu: (sum(each) - sum(each[3:5]), sum(each)) for cpu, each in ticks.items()}


def _sibling(root: Path, cpus: list[int]) -> Finding:
    topology = root / "sys/devices/system/cpu"
    siblings = set[int]()
    for cpu in cpus:
        text = _text(topology / f"cpu{cpu}/topology/thread_siblings_list")
        if not text:
            return unknown("which processors share a core cannot be seen")
        siblings |= cpus_of(text) - {cpu}
    if not siblings:
        return ok("no processor shares its core")
    before = _busy_ticks(root)
    time.sleep(_BUSY_S)
    after = _busy_ticks(root)
    busy = [
        str(cpu)
        for cpu in sorted(siblings & before.keys() & after.keys())
        if after[cpu][0] - before[cpu][0] > _BUSY_SHARE_MAX * (after[cpu][1] - before[cpu][1])
    ]
    remedy = "turn SMT off: as root, echo off > /sys/devices/system/cpu/smt/control"
    if busy:
        cause = "they take part of the core that is measured"
        return note(f"siblings on the same cores are busy: {listed(busy)}", cause, remedy)
    if siblings & set(cpus):
        return note("this process may run on both threads of a core", "", remedy)
    return ok("the siblings on the same cores are idle")


def _frequency(root: Path, cpus: list[int]) -> Finding:
    folder = root / "sys/devices/system/cpu"
    governors = {_text(folder / f"cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus} - {""}
    if not governors:
        return unknown("the frequency cannot be seen", "look at the host, if this is a guest")
    if governors != {"performance"}:
        return note(
            f"the governor is {listed(sorted(governors))}",
            "the frequency changes while it is measured",
            "as root: cpupower frequency-set -g performance",
        )
    turbo = _text(folder / "intel_pstate/no_turbo") == "0" or _text(folder / "cpufreq/boost") == "1"
    if turbo:
        return note(
            "turbo is on",
            "the frequency follows temperature and load",
            "as root: echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or "
            "echo 0 > /sys/devices/system/cpu/cpufreq/boost",
        )
    return ok("fixed by the governor 'performance', without turbo")


def _dax(root: Path, directory: str) -> Finding:
    mount = _mount(root, directory)
    if mount is None or "-" not in mount:
        return unknown("the mounts cannot be seen")
    kind = mount[mount.index("-") + 1]
    options = ",".join((mount[5], mount[-1])).split(",")
    if {"dax", "dax=always"} & set(options):
        return ok(f"{kind} with DAX")
    return note(
        f"{kind} without DAX",
        "stores go to DRAM or the page cache; durability is pretended",
        "give a --directory on persistent memory that is mounted with -o dax",
    )


def _interleaving(device: Path | None) -> Finding:
    if device is None:
        return unknown("no persistent memory, so no interleave set", "see the rule 'dax'")
    region = next(
        (p for p in Path(os.path.realpath(device)).parents if p.name[:6] == "region"), None
    )
    mappings = "" if region is None else _text(region / "mappings")
    if region is None or not mappings.isdigit():
        return unknown("the interleave set cannot be seen", "look at 'ndctl list -R'")
    if int(mappings) > 1:
        return ok(f"{region.name}: {mappings} DIMMs interleaved")
    return note(
        f"{region.name}: one DIMM",
        "an interleave set of six has six times the bandwidth",
        "make one: ipmctl create -goal PersistentMemoryType=AppDirect",
    )
