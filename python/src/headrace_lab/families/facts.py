# SPDX-License-Identifier: Apache-2.0
"""The facts of a machine that decide which points can be measured."""

import os
from dataclasses import dataclass
from pathlib import Path

from headrace._apps.memory import available_bytes
from headrace._facts import Queue as ConfiguredQueue
from headrace._gather import gather
from headrace.engine import Engine
from headrace.machine import Node, topo


@dataclass(frozen=True, slots=True)
class Queue:
    """A work queue that this process can use; `block_on_fault`: its engines may wait for pages."""

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
class Facts:
    """Facts of the machine.

    A process may count its cycles (`perf_allowed`); resctrl reports their occupancy of caches
    (`monitors_cache`).
    """

    queues: tuple[Queue, ...]
    no_queue: str
    nodes: tuple[Node, ...]
    available_bytes: int
    cpus: int
    last_cache_bytes: int
    perf_allowed: bool
    monitors_cache: bool

    @property
    def emulated(self) -> bool:
        """Whether devices are emulated; their figures say nothing about real ones."""
        return any(queue.emulated for queue in self.queues)

    def queue(self, mode: str = "") -> Queue | None:
        """The first queue of a mode, or of any mode; None if there is none."""
        return next((each for each in self.queues if mode in ("", each.mode)), None)

    @property
    def devices(self) -> list[Queue]:
        """The first queue of each device."""
        return list({queue.device: queue for queue in reversed(self.queues)}.values())[::-1]

    @property
    def home(self) -> Node:
        """The first node with processors."""
        return next((node for node in self.nodes if node.cpus), self.nodes[0])


def gather_facts() -> Facts:
    machine = topo()
    configured = _configured()
    with Engine(threads_per_node=1) as engine:
        movers, notes = engine.mover_infos, engine.notes
    queues = []
    for mover in movers:
        if not mover.hardware:
            continue
        device, _, name = mover.name.partition("/")
        found, engines = configured.get(name) or (ConfiguredQueue(name), 1)
        entries = found.size or 16
        queues.append(
            Queue(
                mover.name,
                device,
                found.mode or "shared",
                mover.node,
                entries,
                # An engine uses at most 63 entries of a queue, one of them for jobs.
                max(1, min(entries, 63) - 1),
                found.max_batch_size or 1,
                bool(found.block_on_fault),
                found.priority or 0,
                engines,
                found.group_id or 0,
                mover.emulated,
            )
        )
    return Facts(
        queues=tuple(queues),
        no_queue=" ".join(notes) or "no DSA work queue was found: 'headrace doctor' shows why",
        nodes=machine.nodes,
        available_bytes=available_bytes() or 0,
        cpus=len(os.sched_getaffinity(0)),
        last_cache_bytes=max((each.capacity_bytes for each in machine.cpu_caches), default=0),
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


def _perf_allowed() -> bool:
    try:
        level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    # Up to 2 a process may count its own events in user mode.
    return level <= 2 or os.geteuid() == 0  # noqa: PLR2004
