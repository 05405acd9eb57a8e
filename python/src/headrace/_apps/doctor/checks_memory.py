# SPDX-License-Identifier: Apache-2.0
"""Checks of the firmware's memory settings: HBM, nodes, and the width of addresses.

Pure functions of the facts. None can be the root cause: a DSA works with every setting, but copies
may go to unexpected memory, or a cache has no fast node to copy to.
"""

import re
from collections import Counter

from headrace._apps.doctor.checks_platform import registers_of
from headrace._apps.doctor.finding import Finding, listed, note, ok, unknown
from headrace._facts import Facts
from headrace._words import byte_count_text, counted

_ADDRESS_BITS_LIMITED = 46
_CAP_WIDTH_SHIFT = 16
_CAP_WIDTH_MASK = 0x3F


def _sizes(sizes: list[int | None]) -> str:
    """Format the sizes, such as " of 16 GiB each"; "" if one is unknown."""
    known = sorted({size for size in sizes if size})
    if not known or None in sizes:
        return ""
    gibs = [
        f"{round(size / (1 << 30))} GiB" if size >= 1 << 30 else byte_count_text(size)
        for size in known
    ]
    each = " each" if len(sizes) > 1 else ""
    return f" of {gibs[0]}{each}" if len(set(gibs)) == 1 else f" of {gibs[0]} to {gibs[-1]}"


def check_hbm(facts: Facts) -> Finding:
    """Can data be placed in HBM?"""
    nodes = facts.memory_nodes
    if nodes is None or any(node.cpu_count is None for node in nodes):
        return unknown("the nodes of memory cannot be seen")
    cached = [node for node in nodes if node.side_cache_bytes]
    if cached:
        size = _sizes([node.side_cache_bytes for node in cached])
        return note(
            f"cache mode: a memory-side cache{size} in front of {counted(len(cached), 'node')}",
            "the fast memory has no node of its own, so nothing can be placed in it and "
            "prefetching into it gains nothing",
            "set 'Memory Hierarchy' to Flat in the BIOS",
        )
    model = facts.platform.cpu_model
    if model is None:
        return unknown("the processor's model cannot be seen")
    if not re.search(r"\bMax 9\d{3}", model, re.IGNORECASE):
        return ok("not a Xeon Max: no HBM")
    alone = [node for node in nodes if node.cpu_count == 0 and node.memory_bytes != 0]
    if alone:
        size = _sizes([node.memory_bytes for node in alone])
        names = listed([node.name for node in alone])
        return ok(f"flat mode: {counted(len(alone), 'node')} of HBM{size} ({names})")
    return note(
        "no memory-only node on a Xeon Max",
        "HBM is a cache that the kernel does not show, or the only memory",
        "set 'Memory Hierarchy' to Flat in the BIOS, where there is DDR as well",
    )


def check_clustering(facts: Facts) -> Finding:
    """How many nodes does a socket have, and does each have a device?"""
    nodes = [node for node in facts.memory_nodes or () if node.cpu_count]
    if not nodes or any(node.package is None for node in nodes) or facts.devices is None:
        return unknown("the nodes of the sockets, or the devices, cannot be seen")
    sockets = Counter(node.package for node in nodes)
    most = max(sockets.values())
    form = f"{counted(most, 'node')} a socket (SNC{most})" if most > 1 else "one node a socket"
    devices = len(facts.devices)
    if devices == 0:
        return ok(form)
    said = f"{form}, {counted(devices, 'device')} for {counted(len(nodes), 'node')}"
    if devices < len(nodes):
        return note(
            said,
            "threads of the other nodes use a device farther away",
            "enable all DSA devices of each socket in the BIOS; with one device a socket, "
            "turn SNC off (Quad)",
        )
    return ok(said)


def check_address_width(facts: Facts) -> Finding:
    """Are physical addresses as wide as processor and IOMMU support?"""
    platform = facts.platform
    bits = platform.physical_address_bits
    if bits is None or platform.cpu_flags is None:
        return unknown("the width of physical addresses cannot be seen")
    said = f"{bits} bits of physical addresses"
    widths = sorted(
        {(cap >> _CAP_WIDTH_SHIFT & _CAP_WIDTH_MASK) + 1 for cap, _ in registers_of(facts)}
    )
    if widths:
        said += f", {widths[0]} of the IOMMU's"
    if bits == _ADDRESS_BITS_LIMITED and "enqcmd" in platform.cpu_flags and not platform.hypervisor:
        return note(
            said,
            "processors with DSA have 52: the BIOS option 'Limit CPU PA to 46 bits' is on, or "
            "memory encryption (TME) takes the others for its keys",
            "set 'Limit CPU PA to 46 bits' to Disabled in the BIOS",
        )
    return ok(said)
