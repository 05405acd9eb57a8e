# SPDX-License-Identifier: Apache-2.0
"""A machine as arguments of QEMU: its nodes, distances, HMAT, NVDIMMs, and what is scaled down."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from headrace._core import bytes_text
from headrace._files import file_error
from headrace._words import counted
from headrace.errors import InvalidArgumentError
from headrace.machine import DsaDevice, Machine

MEMORY_BYTES = 4 << 30
"""Memory of a guest, unless the machine has less."""
_NODES_MAX = 128  # QEMU's MAX_NODES.
_PROCESSORS_MAX = 64
_MIB = 1 << 20
_STEP_BYTES = 16 * _MIB
_NODE_BYTES_MIN = 64 * _MIB
_FIRST_BYTES_MIN = 256 * _MIB  # Of the node that the kernel boots on.
# XFS needs 300 MiB, ext4 128.
_DIMM_BYTES = 384 * _MIB
_HMAT_MAX = 65534
# The processor is emulated, so that guests are the same on every machine. vendor: the kernel asks
# for it before it believes in packages. pmu, la57: not needed, and they take time. level: without
# leaf 0x1f, at whose reading QEMU 10 ends.
_PROCESSOR = "max,vendor=GenuineIntel,la57=off,pmu=off,level=0x1e"
_ENGINES = 4  # Of an emulated device.
_LOCAL = 10
_DISTANCE_MAX = 254


@dataclass(frozen=True)
class Hardware:
    """What a guest has.

    Attributes:
        arguments: Of QEMU. The files of its NVDIMMs are in `folder`.
        devices: Configuration of the emulated DSAs, as of accel-config; empty without devices.
        dimms: Node of each NVDIMM, in the order of their handles, which count from 1.
        scaled: What differs from the machine, one sentence each.
    """

    arguments: list[str]
    devices: list[dict[str, object]]
    dimms: list[int]
    scaled: list[str]


def hardware_of(
    machine: Machine, name: str, memory_bytes: int | None = None, folder: Path | None = None
) -> Hardware:
    """Convert the machine of a record; `name` is for errors.

    `memory_bytes` is of all nodes but persistent ones. `folder` keeps the NVDIMMs' contents as one
    file each; if it is None, they are lost with the guest.

    Raises:
        InvalidArgumentError: QEMU or the kernel cannot have such a machine.
    """
    return _Converter(machine, name).convert(memory_bytes, folder)


class _Converter:
    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name
        self.nodes = machine.nodes
        self.dimms = [node.id for node in self.nodes if node.tier == "persistent"]
        self.with_memory = [node for node in self.nodes if node.id not in self.dimms]
        self.with_processors = [node for node in self.with_memory if node.cpus]
        self.access = {(each.initiator, each.target): each for each in machine.accesses}
        self.scaled: list[str] = []

    def refuse(self, cause: str, remedy: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"boot '{self.name}'", cause, remedy)

    def convert(self, memory_bytes: int | None, folder: Path | None) -> Hardware:
        self.check()
        self.scaled = ["Processors: of QEMU, with other caches; all memory is equally fast."]
        shares = self.shares(memory_bytes)
        per_node = self.processors_per_node()
        accelerated = any(each.bandwidth_bytes_per_s for each in self.machine.accesses)
        if not accelerated and len(self.with_memory) > len(self.with_processors):
            self.scaled.append(
                "Nodes without processors: of unknown kind and package, as the record has no "
                "bandwidths."
            )
        options = ["q35"] + ["hmat=on"] * accelerated
        options += ["nvdimm=on", "nvdimm-persistence=mem-ctrl"] if self.dimms else []
        total = sum(shares.values())
        room = f",slots={len(self.dimms)},maxmem={total + 2 * len(self.dimms) * _DIMM_BYTES}B"
        model = f",model-id={self.machine.cpu_model[:47].replace(',', ',,')}"
        words = ["-accel", "tcg,thread=multi"]
        words += ["-cpu", _PROCESSOR + model * bool(self.machine.cpu_model)]
        words += ["-machine", ",".join(options), "-m", f"{total}B" + room * bool(self.dimms)]
        sockets, dies = self.sockets()
        words += ["-smp", f"sockets={sockets},dies={dies},cores={per_node},threads=1"]
        for node in self.nodes:
            text = f"node,nodeid={node.id}"
            if node.id in shares:
                words += ["-object", f"memory-backend-ram,id=m{node.id},size={shares[node.id]}B"]
                text += f",memdev=m{node.id}"
                text += f",initiator={self.near(node.id)}" * accelerated
            words += ["-numa", text]
        words += self.processor_nodes(per_node, dies)
        words += self.distances()
        if accelerated:
            words += self.attributes(shares)
        words += self.nvdimms(folder)
        return Hardware(words, self.devices(), self.dimms, self.scaled)

    def check(self) -> None:
        if len(self.nodes) > _NODES_MAX:
            raise self.refuse(
                f"it has {len(self.nodes)} nodes", f"QEMU can have {_NODES_MAX}: leave some out"
            )
        if [node.id for node in self.nodes] != list(range(len(self.nodes))):
            raise self.refuse("the numbers of its nodes have gaps", "number them 0, 1, 2, ...")
        if not self.with_processors:
            raise self.refuse("no node has processors and memory", "name another machine")
        if empty := [node.id for node in self.with_memory if node.capacity_bytes == 0]:
            raise self.refuse(f"node {empty[0]} has no memory", "give its capacity in the record")
        for each in self.machine.accesses:
            pair = f"distance {each.distance} from node {each.initiator} to {each.target}"
            if each.initiator == each.target and each.distance not in {0, _LOCAL}:
                raise self.refuse(pair, f"a node is {_LOCAL} from itself")
            if each.initiator != each.target and each.distance not in {
                0,
                *range(_LOCAL + 1, _DISTANCE_MAX + 1),
            }:
                raise self.refuse(pair, f"the kernel takes {_LOCAL + 1} to {_DISTANCE_MAX}")

    def shares(self, memory_bytes: int | None) -> dict[int, int]:
        """Bytes of each node, in proportion where that leaves each enough."""
        capacity = sum(node.capacity_bytes for node in self.with_memory)
        wanted = memory_bytes or min(MEMORY_BYTES, capacity)
        first = self.with_processors[0].id
        least = {node.id: _NODE_BYTES_MIN for node in self.with_memory} | {first: _FIRST_BYTES_MIN}
        if wanted < sum(least.values()):
            raise self.refuse(
                f"{counted(len(self.with_memory), 'node')} in {bytes_text(wanted)} of memory",
                f"give --memory {bytes_text(sum(least.values()))} or more",
            )
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if wanted > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise self.refuse(
                f"this machine has less than {bytes_text(wanted)} of memory",
                f"give less with --memory; {bytes_text(available)} are free",
            )
        # Nodes below their minimum take from the others, in proportion.
        shares = dict(least)
        rest = list(self.with_memory)
        while rest:
            left = wanted - sum(shares[node.id] for node in self.with_memory if node not in rest)
            scale = left / sum(node.capacity_bytes for node in rest)
            small = [node for node in rest if node.capacity_bytes * scale < least[node.id]]
            if not small:
                for node in rest:
                    shares[node.id] = int(node.capacity_bytes * scale) // _STEP_BYTES * _STEP_BYTES
                break
            rest = [node for node in rest if node not in small]
        if sum(shares.values()) != capacity:
            self.scaled.append(
                f"Memory: {bytes_text(sum(shares.values()))} instead of {bytes_text(capacity)}."
            )
        return shares

    def processors_per_node(self) -> int:
        room = min(_PROCESSORS_MAX, max(2, os.cpu_count() or 1)) // len(self.with_processors)
        per_node = max(1, min(room, *(len(node.cpus) for node in self.with_processors)))
        if any(len(node.cpus) != per_node for node in self.with_processors):
            self.scaled.append(f"Processors: {per_node} for each node that has any.")
        return per_node

    def sockets(self) -> tuple[int, int]:
        """Sockets, and nodes of each; QEMU's sockets are equal."""
        packages = [node.package for node in self.with_processors]
        counts = {packages.count(package) for package in packages}
        if None in packages or len(counts) != 1 or packages != sorted(packages, key=str):
            return len(packages), 1
        return len(set(packages)), counts.pop()

    def processor_nodes(self, per_node: int, dies: int) -> list[str]:
        words = []
        for place, node in enumerate(self.with_processors):
            socket, die = divmod(place, dies)
            place_text = f"socket-id={socket}" + f",die-id={die}" * (dies > 1)
            for core in range(per_node):
                words += ["-numa", f"cpu,node-id={node.id},{place_text},core-id={core}"]
        return words

    def near(self, node: int) -> int:
        """The node with processors that is nearest."""
        return min(
            (each.id for each in self.with_processors),
            key=lambda each: (each != node, self.distance(each, node) or _DISTANCE_MAX, each),
        )

    def distance(self, source: int, target: int) -> int:
        """SLIT distance; of a node without processors, by symmetry or of its nearest processors."""
        for pair in ((source, target), (target, source)):
            if pair in self.access:
                return self.access[pair].distance
        if source in {each.id for each in self.with_processors}:
            return 0
        return self.distance(self.near(source), target) if source != target else _LOCAL

    def distances(self) -> list[str]:
        words = []
        for source, target in itertools.permutations((node.id for node in self.nodes), 2):
            if (distance := self.distance(source, target)) > _LOCAL:
                words += ["-numa", f"dist,src={source},dst={target},val={distance}"]
        return words

    def attributes(self, shares: dict[int, int]) -> list[str]:
        """HMAT: bandwidth in MiB/s and latency in ns, and caches of memory sides."""
        words = []
        self.scaled.append(
            "Bandwidth and latency: Linux shows only those from a node's nearest processors."
        )
        # The table has 16 bits for each bandwidth, in a common unit.
        rates = [each.bandwidth_bytes_per_s or 0 for each in self.access.values()]
        unit = 1
        while max(rates) / _MIB / unit >= _HMAT_MAX:
            unit *= 2
        for (initiator, target), each in sorted(self.access.items()):
            if target not in shares:
                continue
            pair = (
                f"hmat-lb,initiator={initiator},target={target},hierarchy=memory,data-type=access"
            )
            if each.latency_ns:
                words += ["-numa", f"{pair}-latency,latency={each.latency_ns}"]
            if each.bandwidth_bytes_per_s:
                mib_per_s = unit * max(1, round(each.bandwidth_bytes_per_s / _MIB / unit))
                words += ["-numa", f"{pair}-bandwidth,bandwidth={mib_per_s}M"]
        for node in self.with_memory:
            if node.memory_side_cache_bytes:
                scale = shares[node.id] / node.capacity_bytes
                cache_bytes = max(_MIB, int(node.memory_side_cache_bytes * scale) // _MIB * _MIB)
                text = f"hmat-cache,node-id={node.id},size={cache_bytes}B,level=1"
                words += ["-numa", f"{text},associativity=direct,policy=write-back,line=64"]
        return words

    def nvdimms(self, folder: Path | None) -> list[str]:
        words = []
        for number, node in enumerate(self.dimms, start=1):
            text = f"id=nv{number},share=on,size={_DIMM_BYTES}B"
            if folder is None:
                words += ["-object", f"memory-backend-memfd,{text}"]
            else:
                path = folder / f"pmem{node}"
                with path.open("ab") as file:
                    try:  # All of it: a guest would die when the disk fills up later.
                        os.posix_fallocate(file.fileno(), 0, _DIMM_BYTES)
                    except OSError as problem:
                        raise file_error(problem, f"keep persistent memory in '{folder}'") from None
                words += ["-object", f"memory-backend-file,{text},mem-path={path}"]
            words += ["-device", f"nvdimm,id=d{number},memdev=nv{number},node={node}"]
        if self.dimms:
            text = ", ".join(str(node) for node in self.dimms)
            self.scaled.append(
                f"Persistent memory: an NVDIMM of {bytes_text(_DIMM_BYTES)} instead of the memory "
                f"of node {text}, with ext4 and DAX at /mnt/pmemN for node N."
            )
        return words

    def devices(self) -> list[dict[str, object]]:
        devices = list(self.machine.dsa_devices)
        if [device.id for device in devices] != list(range(len(devices))):
            self.scaled.append(f"Devices: numbered from dsa0 to dsa{len(devices) - 1}.")
        if any(device.engine_count != _ENGINES for device in devices):
            self.scaled.append(f"Devices: of {_ENGINES} engines, some of them in no group.")
        return [_device(number, device) for number, device in enumerate(devices)]


def _device(number: int, device: DsaDevice) -> dict[str, object]:
    """One group with the queues of type user, in the format of 'accel-config save-config'."""
    queues = [
        {
            "dev": f"wq{number}.{queue.id}",
            "mode": queue.mode,
            "size": queue.entry_count,
            "threshold": queue.entry_count if queue.mode == "shared" else 0,
            "group_id": 0,
            "priority": 10,
            "block_on_fault": queue.block_on_fault,
            "max_batch_size": queue.batch_max or 32,
            "max_transfer_size": queue.transfer_bytes_max,
            "type": "user",
            "driver_name": "user",
            "name": f"headrace{queue.id}",
        }
        for queue in device.queues
        if queue.type == "user" and queue.state == "enabled" and queue.entry_count
    ]
    engines = [
        {"dev": f"engine{number}.{engine}", "group_id": 0}
        for engine in range(min(_ENGINES, max(1, device.engine_count)))
    ]
    group = {"dev": f"group{number}.0", "grouped_workqueues": queues, "grouped_engines": engines}
    return {"dev": f"dsa{number}", "numa_node": device.node or 0, "groups": [group]}
