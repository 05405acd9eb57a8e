# SPDX-License-Identifier: Apache-2.0
"""Machine: the memory, processors and devices of a machine, as a value.

None stands for a figure that neither firmware nor measurement gives.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from headrace import _core
from headrace._arguments import path_text
from headrace._closing import OfOneProcess
from headrace._files import Output

_PATH_TRIED = "take the path of a record"


@dataclass(frozen=True, slots=True)
class HugePages:
    """A pool of huge pages of one size on one node."""

    page_bytes: int
    total_count: int
    free_count: int


@dataclass(frozen=True, slots=True)
class Node:
    """One NUMA node.

    Attributes:
        id: The operating system's number.
        tier: "hbm", "ddr", "cxl", "persistent" or "unknown".
        tier_evidence: Source of `tier`: "firmware", "declared", "measured", "inferred" or
            "unknown".
        capacity_bytes: Memory of the node, 0 if unknown.
        memory_side_cache_bytes: Cache in front of this node, 0 if none is known.
        cpus: Processors of this node that this process may use.
        package: Physical package; None if unknown.
        huge_pages: Pools of huge pages of this node.
    """

    id: int
    tier: str
    tier_evidence: str
    capacity_bytes: int
    memory_side_cache_bytes: int
    cpus: tuple[int, ...]
    package: int | None
    huge_pages: tuple[HugePages, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """How processors of one node access the memory of another, or their own.

    Attributes:
        initiator: A node with processors.
        target: The node with the memory.
        bandwidth_bytes_per_s: Read bandwidth; higher is better.
        latency_ns: Idle load latency; lower is better.
        evidence: Source of the figures, as for `Node.tier_evidence`.
        distance: SLIT distance, 10 is local; 0 if unknown.
    """

    initiator: int
    target: int
    bandwidth_bytes_per_s: float | None
    latency_ns: int | None
    evidence: str
    distance: int


@dataclass(frozen=True, slots=True)
class CpuCache:
    """One level of processor cache."""

    level: int
    capacity_bytes: int
    line_bytes: int
    instance_count: int


@dataclass(frozen=True, slots=True)
class DsaQueue:
    """One work queue of a DSA device, as configured."""

    id: int
    mode: str
    state: str
    type: str
    device_name: str
    entry_count: int
    transfer_bytes_max: int
    batch_max: int = 0
    block_on_fault: int = 0


@dataclass(frozen=True, slots=True)
class DsaDevice:
    """One DSA device."""

    id: int
    node: int | None
    state: str
    engine_count: int
    queues: tuple[DsaQueue, ...]


@dataclass(frozen=True, slots=True)
class Machine(OfOneProcess):
    """A machine as seen by one process: with a restricted cpuset, what the process may use.

    Threading: immutable.

    Attributes:
        origin: "discovered", or the origin that its record states.
        nodes: Ascending by id, never empty.
        accesses: By initiator, then target; pairs without known figures are absent.
        mover_discovery: Outcome of the search for devices: "not_tried", "library_absent",
            "library_failed" or "done".
        notes: What discovery had to guess or leave out, one sentence each.
        document: The same machine as its JSON document.
    """

    origin: str
    cpu_model: str
    page_bytes: int
    nodes: tuple[Node, ...]
    accesses: tuple[Access, ...]
    cpu_caches: tuple[CpuCache, ...]
    mover_discovery: str
    dsa_devices: tuple[DsaDevice, ...]
    notes: tuple[str, ...]
    document: dict[str, Any] = field(repr=False, compare=False)
    _native: _core.Machine = field(repr=False, compare=False)

    def node(self, node_id: int) -> Node | None:
        """The node with this number; None if there is none."""
        return next((node for node in self.nodes if node.id == node_id), None)

    def has_faster_tier(self) -> bool:
        """Whether some node has a faster tier than others: something to prefetch into."""
        return self._native.has_faster_tier()

    def has_faster_node(self) -> bool:
        """Whether some node is faster for the processors of another than their local memory."""
        return any(self.faster_nodes(node.id) for node in self.nodes)

    def faster_nodes(self, initiator: int) -> list[int]:
        """Nodes faster for the processors of `initiator` than their local memory, best first."""
        return self._native.faster_nodes(initiator)

    def native(self) -> _core.Machine:
        """The machine of the extension module."""
        return self._native

    @classmethod
    def from_native(cls, native: _core.Machine) -> Self:
        """Convert a machine of the extension module, through its JSON document."""
        document = json.loads(native.to_json())
        return cls(
            origin=document["origin"],
            cpu_model=document["cpu_model"],
            page_bytes=document["page_bytes"],
            nodes=tuple(_node(node) for node in document["nodes"]),
            accesses=tuple(Access(**access) for access in document["accesses"]),
            cpu_caches=tuple(CpuCache(**cache) for cache in document["cpu_caches"]),
            mover_discovery=document["mover_discovery"],
            dsa_devices=tuple(_device(device) for device in document["dsa_devices"]),
            notes=tuple(document["notes"]),
            document=document,
            _native=native,
        )


def topo() -> Machine:
    """Describe this machine.

    Machines without firmware tables, restricted cpusets and containers give fewer facts and a note,
    not an error.

    Raises:
        UnsupportedError: The topology library cannot start.
    """
    return Machine.from_native(_core.Machine.discover())


def record(path: str | os.PathLike[str]) -> Machine:
    """Describe this machine and write the record; the file is replaced atomically.

    Follows symbolic links and keeps the mode of an existing file; "-" is stdout.

    Raises:
        InvalidArgumentError: The path is a directory.
        NotFoundError: Its directory does not exist.
        PermissionDeniedError: Writing it is not permitted.
        IoFailedError: It cannot be written.
    """
    text = path_text(path, _PATH_TRIED)
    with Output(text, f"record the machine in '{text}'") as output:
        return record_into(output)


def record_into(output: Output, **others: object) -> Machine:
    """Describe this machine and write the record, with other fields, into an open output."""
    if "facts" not in others:
        from headrace._gather import gather  # noqa: PLC0415 - Few programs record.

        others["facts"] = asdict(gather())
    native, text = _core.Machine.make_record()
    output.write(json.dumps(json.loads(text) | others, indent=2) + "\n")
    return Machine.from_native(native)


def replay(path: str | os.PathLike[str]) -> Machine:
    """Read the record of a machine, this one or another.

    Raises:
        NotFoundError: There is no such file.
        IoFailedError: The file cannot be read.
        CorruptDataError: It is not a record; the message names the field.
        VersionMismatchError: The record has another version.
    """
    return Machine.from_native(_core.Machine.replay(path_text(path, _PATH_TRIED)))


def _node(node: dict[str, Any]) -> Node:
    pools = tuple(HugePages(**pool) for pool in node["huge_pages"])
    return Node(**_with_id(node, "node") | {"cpus": tuple(node["cpus"]), "huge_pages": pools})


def _device(device: dict[str, Any]) -> DsaDevice:
    queues = tuple(DsaQueue(**_with_id(queue, "queue")) for queue in device["queues"])
    return DsaDevice(**_with_id(device, "device") | {"queues": queues})


def _with_id(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {"id" if key == name else key: value for key, value in fields.items()}
