# SPDX-License-Identifier: Apache-2.0
"""What of a machine decides which points can be measured."""

import os
import shutil
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
        entries: Of the queue, as it is configured.
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
    entries: int
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
class Folder:
    """Where files of persistent memory can lie.

    Attributes:
        path: Of the folder.
        dax: Whether its file system is mounted with DAX; else the page cache answers.
        free_bytes: For new files.
    """

    path: str
    dax: bool
    free_bytes: int

    @property
    def label(self) -> str:
        """For people: what is no persistent memory says so."""
        return self.path if self.dax else f"{self.path} without DAX"


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
        folders: Of persistent memory.
        perf_allowed: Whether a process may count its cycles.
        monitors_cache: Whether resctrl tells what lies in caches.
        transfer_bytes: What is written to persistent memory at a time.
    """

    queues: tuple[Queue, ...]
    no_queue: str
    nodes: tuple[MemoryNode, ...]
    available_bytes: int
    cpus: int
    last_cache_bytes: int
    folders: tuple[Folder, ...]
    perf_allowed: bool
    monitors_cache: bool
    transfer_bytes: int = 8 << 30

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
        entries = (found and found.size) or 16
        queues.append(
            Queue(
                mover.name,
                device,
                (found and found.mode) or "shared",
                mover.node,
                entries,
                # One entry is for jobs, and an engine uses 63 of a queue.
                max(1, min(entries, 63) - 1),
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
        folders=tuple(folder_at(path) for path, dax in _mounts() if dax),
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


def folder_at(path: str) -> Folder:
    """Look at a folder for files of persistent memory."""
    real = os.path.realpath(path)
    dax = {
        point: has_dax for point, has_dax in _mounts() if os.path.commonpath([point, real]) == point
    }
    return Folder(path, dax[max(dax, key=len)], shutil.disk_usage(real).free)


def _mounts() -> Iterator[tuple[str, bool]]:
    """Where file systems are mounted, each whether with DAX; a later one hides earlier ones."""
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, folder, _, options, *_ = line.split(" ")
        yield folder.replace("\\040", " "), bool({"dax", "dax=always"} & set(options.split(",")))


def _perf_allowed() -> bool:
    try:
        level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    # Up to 2 a process may count what it does in user mode.
    return level <= 2 or os.geteuid() == 0  # noqa: PLR2004
