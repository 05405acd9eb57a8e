# SPDX-License-Identifier: Apache-2.0
"""What of a machine decides which points can be measured."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace._apps.dsa.facts import Queue as ConfiguredQueue
from headrace._apps.dsa.gather import gather
from headrace.engine import Engine
from headrace.machine import topo


@dataclass(frozen=True, slots=True)
class Queue:
    """A work queue that this process can use.

    Attributes:
        name: As the engine has it: "dsa0/wq0.0".
        device: "dsa0".
        mode: "shared" or "dedicated".
        node: Of its device.
        depth_max: Entries that one channel can have.
        batch_max: Descriptors of a batch.
        block_on_fault: Whether its engines may wait for pages.
        priority: Of the arbiter, 1 to 15.
        engines: Of its group.
        group: Of its device.
        emulated: Whether its device is emulated.
    """

    name: str
    device: str
    mode: str
    node: int | None
    depth_max: int
    batch_max: int
    block_on_fault: bool
    priority: int
    engines: int
    group: int
    emulated: bool


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """A NUMA node."""

    id: int
    tier: str
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """The machine, as far as points are about it.

    Attributes:
        queues: That can be used.
        no_queue: Why there is none.
        nodes: Of memory, ascending.
        available_bytes: Of memory that is free.
        cpus: That this process may use.
        last_cache_bytes: Of the last-level cache.
        dax_folders: Where file systems are mounted with DAX.
        perf_allowed: Whether a process may count its cycles.
        monitors_cache: Whether resctrl tells what lies in caches.
    """

    queues: tuple[Queue, ...]
    no_queue: str
    nodes: tuple[MemoryNode, ...]
    available_bytes: int
    cpus: int
    last_cache_bytes: int
    dax_folders: tuple[str, ...]
    perf_allowed: bool
    monitors_cache: bool

    @property
    def emulated(self) -> bool:
        """Whether devices are emulated: figures of them say nothing of real ones."""
        return any(queue.emulated for queue in self.queues)

    def queue(self, mode: str = "") -> Queue | None:
        """Give the first queue of a mode, or of any."""
        return next((each for each in self.queues if mode in ("", each.mode)), None)

    @property
    def devices(self) -> list[Queue]:
        """Give the first queue of each device."""
        return list({queue.device: queue for queue in reversed(self.queues)}.values())[::-1]

    @property
    def home(self) -> MemoryNode:
        """Give the first node with processors."""
        return next((node for node in self.nodes if node.cpus), self.nodes[0])


def gather_facts() -> Facts:
    """Ask the machine.

    Raises:
        Error: An engine cannot be made.
    """
    machine = topo()
    configured = _configured()
    with Engine(threads_per_node=1) as engine:
        movers, notes = engine.mover_infos, engine.notes
    queues = []
    for mover in movers:
        if not mover.hardware:
            continue
        device, _, name = mover.name.partition("/")
        found, engines = configured.get(name, (None, 1))
        queues.append(
            Queue(
                mover.name,
                device,
                (found and found.mode) or "shared",
                mover.node,
                # One entry is for jobs, and an engine uses 63 of a queue.
                max(1, min((found and found.size) or 16, 63) - 1),
                (found and found.max_batch_size) or 1,
                bool(found and found.block_on_fault),
                (found and found.priority) or 0,
                engines,
                (found.group_id if found and found.group_id is not None else 0),
                mover.emulated,
            )
        )
    return Facts(
        queues=tuple(queues),
        no_queue=" ".join(notes) or "no DSA work queue was found: 'headrace doctor' tells why",
        nodes=tuple(MemoryNode(node.id, node.tier, node.cpus) for node in machine.nodes),
        available_bytes=_available_bytes(),
        cpus=len(os.sched_getaffinity(0)),
        last_cache_bytes=max((each.capacity_bytes for each in machine.cpu_caches), default=0),
        dax_folders=tuple(_dax_folders()),
        perf_allowed=_perf_allowed(),
        monitors_cache=Path("/sys/fs/resctrl/mon_data").is_dir(),
    )


def _configured() -> dict[str, tuple[ConfiguredQueue, int]]:
    """Queues by name, each with the number of engines of its group."""
    found = {}
    for device in gather().devices or ():
        groups = [engine.group_id for engine in device.engines or ()]
        for queue in device.queues or ():
            found[queue.name] = (queue, groups.count(queue.group_id))
    return found


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def _dax_folders() -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, folder, _, options, *_ = line.split(" ")
        if {"dax", "dax=always"} & set(options.split(",")):
            yield folder.replace("\\040", " ")


def _perf_allowed() -> bool:
    try:
        level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    # Up to 2 a process may count what it does in user mode.
    return level <= 2 or os.geteuid() == 0  # noqa: PLR2004
