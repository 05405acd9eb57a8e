#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the records of tests/machines for machines that were not available for recording.

Each is derived from published figures, as described in its ``origin``; the hwloc XML is what
hwloc would export on such a machine. `headrace topo --record` records real machines.

    scripts/make_machines.py [FOLDER]     (tests/machines by default)
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import machine_models

MIB = 1 << 20
GIB = 1 << 30


@dataclass
class Node:
    """One NUMA node; ``local_cpus`` are the nearest processors, also for a memory-only node."""

    index: int
    capacity_bytes: int
    local_cpus: range
    package: int | None = None
    cpus: range = range(0)
    subtype: str | None = None
    memory_side_cache_bytes: int = 0


@dataclass
class Figure:
    """Performance of node ``target`` from processors of node ``initiator``; None if unknown."""

    initiator: int
    target: int
    bandwidth_gb_per_s: float | None = None
    latency_ns: int | None = None


@dataclass
class Machine:
    """A machine as the record describes it."""

    name: str
    origin: str
    nodes: list[Node]
    cpu_model: str | None = None
    l2_bytes: int = 0
    l3_bytes: int = 0
    figures: list[Figure] = field(default_factory=list)
    distances: list[list[int]] = field(default_factory=list)
    dsa_devices: list[dict] | None = None
    huge_pages: bool = True
    model: dict[str, Any] | None = None


def bitmap(bits: range | list[int]) -> str:
    """Writes bits as hwloc does: words of 32 bits, highest first."""
    value = sum(1 << bit for bit in bits)
    words = []
    while value or not words:
        words.append(f"0x{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(words))


class Writer:
    """Writes nested XML elements, and numbers the objects."""

    def __init__(self) -> None:
        self.lines = [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
        ]
        self.depth = 0
        self.object_count = 0

    def open(self, tag: str, /, **attributes: object) -> None:
        """Begins an element and indents what follows."""
        self.lines.append("  " * self.depth + f"<{tag}{self._text(attributes)}>")
        self.depth += 1

    def close(self, tag: str) -> None:
        """Ends the innermost element."""
        self.depth -= 1
        self.lines.append("  " * self.depth + f"</{tag}>")

    def leaf(self, tag: str, /, **attributes: object) -> None:
        """Writes an element without content."""
        self.lines.append("  " * self.depth + f"<{tag}{self._text(attributes)}/>")

    def open_object(
        self, kind: str, cpus: range | list[int], nodes: list[int], /, **attributes: object
    ) -> int:
        """Begins an hwloc object and returns its number."""
        self.object_count += 1
        sets = {}
        for name, bits in (("cpuset", cpus), ("nodeset", nodes)):
            sets[name] = sets[f"complete_{name}"] = bitmap(bits)
            if kind == "Machine":
                sets[f"allowed_{name}"] = bitmap(bits)
        self.open("object", type=kind, **sets, gp_index=self.object_count, **attributes)
        return self.object_count

    @staticmethod
    def _text(attributes: dict[str, object]) -> str:
        return "".join(f" {name}={quoteattr(str(value))}" for name, value in attributes.items())


def cache_attributes(cache_bytes: int, *, level: int, way_count: int) -> dict[str, int]:
    """Return hwloc's attributes of a cache."""
    return {
        "cache_size": cache_bytes,
        "depth": level,
        "cache_linesize": 64,
        "cache_associativity": way_count,
        "cache_type": 0,
    }


def write_node(xml: Writer, node: Node) -> int:
    """Writes one node within its memory-side cache, and returns its object number."""
    if node.memory_side_cache_bytes:
        xml.open_object(
            "MemCache",
            node.local_cpus,
            [node.index],
            **cache_attributes(node.memory_side_cache_bytes, level=1, way_count=1),
        )
    subtype = {"subtype": node.subtype} if node.subtype else {}
    number = xml.open_object(
        "NUMANode",
        node.local_cpus,
        [node.index],
        os_index=node.index,
        local_memory=node.capacity_bytes,
        **subtype,
    )
    xml.close("object")
    if node.memory_side_cache_bytes:
        xml.close("object")
    return number


def write_cores(xml: Writer, machine: Machine, cpus: range, nodes: list[int]) -> None:
    """Writes each processor with its core and second-level cache."""
    for cpu in cpus:
        if machine.l2_bytes:
            xml.open_object(
                "L2Cache",
                [cpu],
                nodes,
                **cache_attributes(machine.l2_bytes, level=2, way_count=16),
            )
        xml.open_object("Core", [cpu], nodes, os_index=cpu)
        xml.open_object("PU", [cpu], nodes, os_index=cpu)
        xml.close("object")
        xml.close("object")
        if machine.l2_bytes:
            xml.close("object")


def write_attribute(
    xml: Writer, machine: Machine, name: str, flags: int, values: list[tuple[Figure, int, int]]
) -> None:
    """Writes one memory attribute from (figure, number of the target object, value)."""
    if not values:
        return
    cpus = {node.index: node.cpus for node in machine.nodes}
    xml.open("memattr", name=name, flags=flags)
    for figure, target, value in values:
        xml.leaf(
            "memattr_value",
            target_obj_gp_index=target,
            target_obj_type="NUMANode",
            value=value,
            initiator_cpuset=bitmap(cpus[figure.initiator]),
        )
    xml.close("memattr")


def write_package(xml: Writer, machine: Machine, package: int | None) -> dict[int, int]:
    """Writes a package (or nodes outside packages) and returns the object number of each node."""
    numbers: dict[int, int] = {}
    members = [node for node in machine.nodes if node.package == package]
    hosts = [node for node in members if node.cpus]
    cpus = [cpu for node in members for cpu in node.cpus]
    indexes = [node.index for node in members]
    open_count = 0
    if package is not None:
        xml.open_object("Package", cpus, indexes, os_index=package)
        open_count += 1
        if machine.cpu_model:
            xml.leaf("info", name="CPUModel", value=machine.cpu_model)
    if machine.l3_bytes:
        attributes = cache_attributes(machine.l3_bytes, level=3, way_count=15)
        xml.open_object("L3Cache", cpus, indexes, **attributes)
        open_count += 1
    for host in hosts:
        local = [node for node in members if node.local_cpus == host.cpus]
        if len(hosts) > 1:
            xml.open_object("Group", host.cpus, [n.index for n in local], kind=0, subkind=0)
        numbers |= {node.index: write_node(xml, node) for node in local}
        write_cores(xml, machine, host.cpus, [node.index for node in local])
        if len(hosts) > 1:
            xml.close("object")
    for _ in range(open_count):
        xml.close("object")
    return numbers


def write_distances(xml: Writer, machine: Machine) -> None:
    """Writes the SLIT."""
    if not machine.distances:
        return
    indexes = [node.index for node in machine.nodes]
    xml.open(
        "distances2",
        type="NUMANode",
        nbobjs=len(indexes),
        kind=5,
        name="NUMALatency",
        indexing="os",
    )
    values = [distance for row in machine.distances for distance in row]
    for tag, numbers in (("indexes", indexes), ("u64values", values)):
        text = "".join(f"{number} " for number in numbers)
        xml.lines.append("  " * xml.depth + f'<{tag} length="{len(text)}">{text}</{tag}>')
    xml.close("distances2")


def to_xml(machine: Machine) -> str:
    """Writes hwloc's export: packages, with their nodes grouped by processors."""
    xml = Writer()
    numbers: dict[int, int] = {}
    all_cpus = [cpu for node in machine.nodes for cpu in node.cpus]
    xml.open("topology", version="2.0")
    xml.open_object("Machine", all_cpus, [node.index for node in machine.nodes], os_index=0)
    for package in sorted({node.package for node in machine.nodes}, key=lambda index: index or 0):
        numbers |= write_package(xml, machine, package)
    xml.close("object")
    write_distances(xml, machine)
    bandwidths = [
        (figure, numbers[figure.target], round(figure.bandwidth_gb_per_s * 1e9 / MIB))
        for figure in machine.figures
        if figure.bandwidth_gb_per_s
    ]
    latencies = [
        (figure, numbers[figure.target], figure.latency_ns)
        for figure in machine.figures
        if figure.latency_ns
    ]
    write_attribute(xml, machine, "ReadBandwidth", 5, bandwidths)
    write_attribute(xml, machine, "ReadLatency", 6, latencies)
    xml.close("topology")
    return "\n".join(xml.lines) + "\n"


def to_list(cpus: range) -> str:
    """Formats processors as the kernel does."""
    return f"{cpus[0]}-{cpus[-1]}" if cpus else ""


def checksum(text: str) -> str:
    """FNV-1a, 64 bits, in hexadecimal."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


def to_record(machine: Machine) -> dict:
    """Converts the machine to the record's schema."""
    xml = to_xml(machine)
    pools = [{"page_bytes": size, "total_count": 0, "free_count": 0} for size in (2 * MIB, GIB)]
    return {
        "schema": {"name": "headrace-machine-record", "version": 1},
        "origin": machine.origin,
        "evidence": "declared",
        "page_bytes": 4096,
        "nodes": [
            {
                "node": node.index,
                "cpus": to_list(node.cpus),
                "huge_pages": pools if machine.huge_pages else [],
            }
            for node in machine.nodes
        ],
        "movers": {
            "discovery": "not_tried" if machine.dsa_devices is None else "done",
            "dsa_devices": machine.dsa_devices or [],
        },
        **({"model": machine.model} if machine.model else {}),
        "hwloc_xml_fnv1a64": checksum(xml),
        "hwloc_xml": xml,
    }


XEON_MAX_ORIGIN = (
    "Declared, not recorded: 2 x Xeon Max 9468, SNC4, {mode} (12 cores, 64 GiB DDR5-4400 and 16 "
    "GiB HBM per node; one DSA per node with one shared queue of 128 entries). Read bandwidth is "
    "each node's even share of what a socket reads when all its cores do: DDR 230 GB/s of 307 on "
    "a Max 9462 at 4800 MT/s, scaled to 70.4 GB/s per node: 52.9 GB/s{hbm}; through UPI 92 GB/s "
    "of DDR{upi}. Idle latency is that of the Max 9462 in quadrant mode, which cannot tell the "
    "nodes of one socket apart; distances do."
)
DDR_GB_PER_S = 52.9  # 70.4 GB/s peak per node x 231 / 307.2 read on one socket.
HBM_GB_PER_S = 107.4  # (427 + 432) / 2 read on one socket, a quarter of it.
DDR_FAR_GB_PER_S = 23.0  # 92 read from the other socket, a quarter of it.
HBM_FAR_GB_PER_S = 20.9  # (81 + 86) / 2 read from the other socket, a quarter of it.
DDR_LATENCY_NS, DDR_FAR_LATENCY_NS = 110, 224  # Middle of 109-112 and 208-239.
HBM_LATENCY_NS, HBM_FAR_LATENCY_NS = 135, 241  # Middle of 132-138 and 239-243.
DOMAIN_COUNT = 8
DOMAIN_COUNT_PER_SOCKET = 4
CORE_COUNT_PER_DOMAIN = 12


def xeon_max_distance(first: int, second: int) -> int:
    """SLIT distance on these machines: 12 within a socket, local HBM 3 farther, other HBM 2."""
    if first == second:
        return 10
    one, other = first % DOMAIN_COUNT, second % DOMAIN_COUNT
    through_hbm = first >= DOMAIN_COUNT or second >= DOMAIN_COUNT
    if one == other:
        return 13
    near = one // DOMAIN_COUNT_PER_SOCKET == other // DOMAIN_COUNT_PER_SOCKET
    return (12 if near else 21) + (2 if through_hbm else 0)


def dsa_device(device: int, node: int, *, engine_count: int = 1) -> dict[str, Any]:
    """One device with a shared queue. The driver numbers DSA and IAA together; DSAs are even."""
    return {
        "device": device,
        "node": node,
        "state": "enabled",
        "engine_count": engine_count,
        "queues": [
            {
                "queue": 0,
                "mode": "shared",
                "state": "enabled",
                "type": "user",
                "device_name": f"wq{device}.0",
                "entry_count": 128,
                "transfer_bytes_max": 2 * GIB,
            }
        ],
    }


def xeon_max(*, cache_mode: bool) -> Machine:
    """Declares the machine of the thesis, with HBM as nodes or as a cache of the DDR nodes."""
    nodes = []
    for domain in range(DOMAIN_COUNT):
        cpus = range(domain * CORE_COUNT_PER_DOMAIN, (domain + 1) * CORE_COUNT_PER_DOMAIN)
        package = domain // DOMAIN_COUNT_PER_SOCKET
        nodes.append(
            Node(
                domain,
                64 * GIB,
                cpus,
                package,
                cpus=cpus,
                subtype=None if cache_mode else "DRAM",
                memory_side_cache_bytes=16 * GIB if cache_mode else 0,
            )
        )
        if not cache_mode:
            nodes.append(Node(domain + DOMAIN_COUNT, 16 * GIB, cpus, package, subtype="HBM"))
    nodes.sort(key=lambda node: node.index)
    figures = []
    for initiator in range(DOMAIN_COUNT):
        for target in (node.index for node in nodes):
            near = (
                initiator // DOMAIN_COUNT_PER_SOCKET
                == target % DOMAIN_COUNT // DOMAIN_COUNT_PER_SOCKET
            )
            if target < DOMAIN_COUNT:
                pair = (
                    (DDR_GB_PER_S, DDR_LATENCY_NS)
                    if near
                    else (DDR_FAR_GB_PER_S, DDR_FAR_LATENCY_NS)
                )
            else:
                pair = (
                    (HBM_GB_PER_S, HBM_LATENCY_NS)
                    if near
                    else (HBM_FAR_GB_PER_S, HBM_FAR_LATENCY_NS)
                )
            figures.append(Figure(initiator, target, *pair))
    return Machine(
        name="xeon-max-cache" if cache_mode else "xeon-max-flat",
        origin=XEON_MAX_ORIGIN.format(
            mode="HBM as memory-side cache" if cache_mode else "HBM in flat mode",
            hbm=" (behind the cache)" if cache_mode else ", HBM 430 GB/s: 107.4 GB/s",
            upi="" if cache_mode else " and 84 GB/s of HBM",
        ),
        nodes=nodes,
        cpu_model="Intel(R) Xeon(R) CPU Max 9468",
        l2_bytes=2 * MIB,
        l3_bytes=105 * MIB,
        figures=figures,
        distances=[[xeon_max_distance(a.index, b.index) for b in nodes] for a in nodes],
        dsa_devices=[dsa_device(2 * domain, domain) for domain in range(DOMAIN_COUNT)],
        model=machine_models.xeon_max_9468(cache_mode=cache_mode),
    )


def ddr_cxl() -> Machine:
    """Declares a socket with a memory expander."""
    cpus = range(32)
    return Machine(
        name="ddr-cxl",
        origin=(
            "Declared, not recorded: one socket with eight channels of DDR5-4800 (231 GB/s "
            "read, 112 ns) and one CXL memory expander as a node of its own (38.4 GB/s peak of "
            "which 46 % read: 17.7 GB/s; 300 ns), from published measurements of several such "
            "devices. The tier of the expander is stated nowhere, as on many real machines."
        ),
        nodes=[Node(0, 256 * GIB, cpus, 0, cpus=cpus), Node(1, 64 * GIB, cpus, 0)],
        cpu_model="Intel(R) Xeon(R) Platinum 8462Y+",
        l2_bytes=2 * MIB,
        l3_bytes=60 * MIB,
        figures=[Figure(0, 0, 231, 112), Figure(0, 1, 17.7, 300)],
        distances=[[10, 20], [20, 10]],
        dsa_devices=[],
    )


MODEL_ORIGIN = (
    "Declared, not recorded: {what}. For the simulator; each number of the field 'model' has its "
    "source beside it."
)


def sockets_of(count: int, cores: int, *, hbm: bool = False) -> list[Node]:
    """One DDR node per socket, followed by one HBM node each if requested."""
    nodes = []
    for index in range(count):
        cpus = range(index * cores, (index + 1) * cores)
        nodes.append(Node(index, 256 * GIB, cpus, index, cpus=cpus, subtype="DRAM"))
        if hbm:
            nodes.append(Node(index + count, 64 * GIB, cpus, index, subtype="HBM"))
    return sorted(nodes, key=lambda node: node.index)


def simulated(
    name: str, what: str, nodes: list[Node], model: dict[str, Any], devices: list[dict[str, Any]]
) -> Machine:
    """Declare a machine for simulation."""
    return Machine(
        name=name,
        origin=MODEL_ORIGIN.format(what=what),
        nodes=nodes,
        l2_bytes=2 * MIB,
        l3_bytes=105 * MIB,
        dsa_devices=devices,
        model=model,
    )


def simulated_machines() -> list[Machine]:
    """Declare all machines for simulation."""
    expanders = [Node(index, 64 * GIB, range(32), 0, subtype="CXLMem") for index in (1, 2, 3)]
    persistent = Node(1, 6 * 128 * GIB, range(32), 0, subtype="NVM")
    return [
        simulated(
            "xeon-max-9462",
            "2 x Xeon Max 9462, quadrant and flat mode, as measured by DRAMHiT",
            sockets_of(2, 32, hbm=True),
            machine_models.xeon_max_9462(),
            [dsa_device(0, 0, engine_count=4), dsa_device(2, 1, engine_count=4)],
        ),
        simulated(
            "spr-1dsa",
            "one 4th generation Xeon with one DSA of four engines",
            sockets_of(1, 32),
            machine_models.spr("spr-1dsa", sockets=1),
            [dsa_device(0, 0, engine_count=4)],
        ),
        simulated(
            "spr-4dsa",
            "two 4th generation Xeons, the first with four DSAs",
            sockets_of(2, 32),
            machine_models.spr("spr-4dsa", sockets=2),
            [dsa_device(2 * index, 0, engine_count=4) for index in range(4)],
        ),
        simulated(
            "spr-cxl",
            "one 4th generation Xeon with one DSA and three CXL expanders",
            sockets_of(1, 32) + expanders,
            machine_models.spr_cxl(),
            [dsa_device(0, 0, engine_count=4)],
        ),
        simulated(
            "ddr-optane",
            "one socket with six DIMMs of persistent memory as node 1",
            [*sockets_of(1, 32), persistent],
            machine_models.ddr_optane(),
            [],
        ),
        simulated(
            "injection-node",
            "two cores with a NIC that may write into their caches",
            sockets_of(1, 2),
            machine_models.injection_node(),
            [],
        ),
    ]


def bare_node() -> Machine:
    """Declares a node without any further facts."""
    return Machine(
        name="bare-node",
        origin="Declared, not recorded: one node with four processors, and nothing else is known.",
        nodes=[Node(0, 4 * GIB, range(4), cpus=range(4))],
        huge_pages=False,
    )


def main() -> None:
    """Writes the records into the folder."""
    default = Path(__file__).resolve().parent.parent / "tests" / "machines"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    for machine in (
        xeon_max(cache_mode=False),
        xeon_max(cache_mode=True),
        ddr_cxl(),
        bare_node(),
        *simulated_machines(),
    ):
        path = folder / f"{machine.name}.json"
        path.write_text(json.dumps(to_record(machine), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
