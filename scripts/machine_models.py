# SPDX-License-Identifier: Apache-2.0
"""The field `model` of the machine records: what the simulator needs, each number with its source.

`source` is a publication, a derivation from one, or "assumed". `fitted_to` names the series of
python/src/headrace/_apps/sim/published.toml, whose use is "fit", that a number was fitted to.
"""

from typing import Any

Quantity = dict[str, str]

MAX_9462 = "Xeon Max 9462, quadrant mode (DRAMHiT, machine_spec_analysis.md)"
LIMITS = "device limits read by idxd (gist of Shamazo)"
ASSUMED = "assumed"


def quantity(value: str, source: str) -> Quantity:
    """Return a number with its unit and source."""
    return {"value": value, "source": source}


def fitted(value: str, series: str, how: str = "") -> Quantity:
    """Return a number that was fitted to a published series."""
    return {"value": value, "fitted_to": series, **({"source": how} if how else {})}


def core() -> dict[str, Quantity]:
    """Describe a core of a 4th generation Xeon."""
    return {
        "copy": fitted("10.23 GB/s", "lightdsa-cpu"),
        "call": fitted("5 ns", "lightdsa-cpu"),
        "overlapped": fitted("512 B", "lightdsa-cpu"),
        "exposed": fitted("90 ns", "lightdsa-cpu"),
        "outstanding_lines": fitted("31.4", "max9462-ddr-latency", "278 ns x 231 GB/s, 32 cores"),
        "queueing_share": fitted("0.39", "max9462-ddr-latency"),
    }


def dsa() -> dict[str, Quantity]:
    """Describe the costs of a DSA of a 4th generation Xeon."""
    return {
        "fabric": fitted("29915 MiB/s", "lightdsa-async"),
        "read_buffers": quantity("6144 B", f"{LIMITS}: 96 of a line each"),
        "shared_submit": quantity("160 ns", "doorbell in the plan of a group at stdexec"),
        "dedicated_submit": quantity("40 ns", ASSUMED),
        "alone": fitted("1120 ns", "lightdsa-sync"),
        "per_descriptor": fitted("40 ns", "lightdsa-async"),
        "engine_depth": quantity("8", ASSUMED),
        "translated": fitted("8 KiB", "lightdsa-sync"),
        "translation": fitted("620 ns", "lightdsa-sync"),
        "random": fitted("84 ns", "lightdsa-random-tuned"),
        "misaligned": fitted("650 ns", "lightdsa-alignment"),
        "half_aligned": fitted("300 ns", "lightdsa-alignment"),
        "iotlb_miss": fitted("1.4 ns", "lightdsa-page-faults"),
        "fault_retry": fitted("4.3 us", "lightdsa-page-faults"),
        "fault_block": fitted("14.66 us", "lightdsa-page-faults"),
        "fault_major": fitted("585 us", "lightdsa-page-faults"),
        "touch": fitted("1.235 us", "lightdsa-page-faults"),
        "touch_huge": fitted("142.9 us", "lightdsa-page-faults"),
        "read_back_share": fitted("0.724", "lightdsa-read-back"),
        "leak_reads": fitted("0.816", "kuper-leaky"),
    }


def socket(index: int, cores: int, *, l3: str = "105 MiB") -> dict[str, Any]:
    """Describe a socket of a 4th generation Xeon."""
    return {
        "socket": index,
        "mesh_read": fitted("429.5 GB/s", "max9462-bandwidth"),
        "cores": quantity(str(cores), "data sheet"),
        "l2": quantity("2 MiB", "data sheet"),
        "l3": quantity(l3, "data sheet"),
        "l3_ways": quantity("15", "stream-dsa"),
        "ddio_ways": quantity("2", "stream-dsa"),
    }


def nic(*, l3: str = "105 MiB") -> dict[str, Quantity]:
    """Describe a NIC that may write into caches, and the caches of a 4th generation Xeon."""
    return {
        "line": quantity("10 GB/s", ASSUMED),
        "interrupt": quantity("5 us", ASSUMED),
        "poll": quantity("100 ns", ASSUMED),
        "host": quantity("2 us", ASSUMED),
        "nic": quantity("500 ns", ASSUMED),
        "l1": quantity("48 KiB", "data sheet"),
        "l2": quantity("2 MiB", "data sheet"),
        "l3": quantity(l3, "data sheet"),
        "l1_latency": quantity("2 ns", ASSUMED),
        "l2_latency": quantity("6 ns", ASSUMED),
        "l3_latency": quantity("30 ns", ASSUMED),
        "snoop_latency": quantity("45 ns", ASSUMED),
        "memory_latency": quantity("110 ns", MAX_9462),
        "work": fitted("328 ns", "injection-gain"),
        "working_set": quantity("1 MiB", ASSUMED),
    }


def node(index: int, socket: int, kind: str, **quantities: Quantity | None) -> dict[str, Any]:
    """Describe a node; quantities that are None are left out."""
    return {
        "node": index,
        "socket": socket,
        "kind": kind,
        **{name: value for name, value in quantities.items() if value is not None},
    }


def ddr(index: int, socket: int, *, far: bool) -> dict[str, Any]:
    """Describe eight channels of DDR5-4800."""
    return node(
        index,
        socket,
        "ddr",
        peak=quantity("307.2 GB/s", "8 x 4800 MT/s x 8 B"),
        read=fitted("231 GB/s", "max9462-bandwidth"),
        mixed=fitted("186 GB/s", "max9462-mixed"),
        latency=quantity("110 ns", MAX_9462),
        remote_latency=quantity("224 ns", MAX_9462) if far else None,
    )


UPI = fitted("92 GB/s", "max9462-bandwidth")


def xeon_max_9462() -> dict[str, Any]:
    """Model the measured Xeon Max: one node of each kind per socket."""
    hbm = [
        node(
            index,
            index - 2,
            "hbm",
            peak=quantity("1638.4 GB/s", "4 stacks x 409.6 GB/s"),
            read=fitted("429.5 GB/s", "max9462-bandwidth"),
            mixed=fitted("587.5 GB/s", "max9462-mixed"),
            latency=quantity("135 ns", MAX_9462),
            remote_latency=quantity("241 ns", MAX_9462),
        )
        for index in (2, 3)
    ]
    return {
        "name": "xeon-max-9462",
        "nodes": [ddr(0, 0, far=True), ddr(1, 1, far=True), *hbm],
        "sockets": [socket(index, 32, l3="75 MiB") for index in (0, 1)],
        "links": [{"from": 0, "to": 1, "rate": UPI}],
        "core": core(),
        "dsa": dsa(),
        "injection": nic(l3="75 MiB"),
    }


def xeon_max_9468(*, cache_mode: bool) -> dict[str, Any]:
    """Model the machine of the thesis: four nodes of each kind per socket."""
    quarter = "a quarter of the Xeon Max 9462's socket; not published for SNC4"
    slower = f"{quarter}, x 4400 / 4800"
    hbm_read = fitted("107.4 GB/s", "max9462-bandwidth", quarter)
    nodes = [
        node(
            index,
            index // 4,
            "ddr",
            peak=quantity("70.4 GB/s", "2 DIMMs x 4400 MT/s x 8 B"),
            read=fitted("52.9 GB/s", "max9462-bandwidth", slower),
            mixed=fitted("42.6 GB/s", "max9462-mixed", slower),
            latency=quantity("110 ns", MAX_9462),
            remote_latency=quantity("224 ns", MAX_9462),
            side_cache=hbm_read if cache_mode else None,
        )
        for index in range(8)
    ]
    if not cache_mode:
        nodes += [
            node(
                index + 8,
                index // 4,
                "hbm",
                peak=quantity("409.6 GB/s", "one stack: 8 channels x 51.2 GB/s"),
                read=hbm_read,
                mixed=fitted("146.9 GB/s", "max9462-mixed", quarter),
                latency=quantity("135 ns", MAX_9462),
                remote_latency=quantity("241 ns", MAX_9462),
            )
            for index in range(8)
        ]
    return {
        "name": "xeon-max-9468-cache" if cache_mode else "xeon-max-9468",
        "nodes": nodes,
        "sockets": [socket(index, 48) for index in (0, 1)],
        "links": [{"from": 0, "to": 1, "rate": UPI}],
        "core": core(),
        "dsa": dsa(),
        "injection": nic(),
    }


def spr(name: str, *, sockets: int) -> dict[str, Any]:
    """Model a 4th generation Xeon with DDR."""
    return {
        "name": name,
        "nodes": [ddr(index, index, far=sockets > 1) for index in range(sockets)],
        "sockets": [socket(index, 32) for index in range(sockets)],
        "links": [{"from": 0, "to": 1, "rate": UPI}] if sockets > 1 else [],
        "core": core(),
        "dsa": dsa(),
        "injection": nic(),
    }


def spr_cxl() -> dict[str, Any]:
    """Model one socket with the three CXL devices of a MICRO'23 study as nodes 1 to 3."""
    study = "CXL-A, -B and -C of a study at MICRO'23 (a reading note)"
    devices = [
        (1, "38.4 GB/s", "17.7 GB/s", "302 ns"),
        (2, "19.2 GB/s", "9 GB/s", "448 ns"),
        (3, "25.6 GB/s", "5.1 GB/s", "672 ns"),
    ]
    model = spr("spr-cxl", sockets=1)
    model["nodes"] += [
        node(
            index,
            0,
            "cxl",
            peak=quantity(peak, study),
            read=quantity(read, f"{study}: efficiency of reads x peak"),
            mixed=quantity(read, ASSUMED),
            latency=quantity(latency, f"{study}: over the 224 ns of remote DDR"),
        )
        for index, peak, read, latency in devices
    ]
    return model


def ddr_optane() -> dict[str, Any]:
    """Model DDR beside six DIMMs of persistent memory."""
    model = spr("ddr-optane", sockets=1)
    del model["dsa"], model["injection"]
    read = fitted("39.6 GB/s", "optane-dimm", "six of them")
    model["nodes"].append(
        node(
            1,
            0,
            "optane",
            peak=read,
            read=read,
            mixed=fitted("20.5 GB/s", "optane-dimm", "six of them, reads and writes in turn"),
            latency=quantity("305 ns", "public measurements of Optane DCPMM"),
        )
    )
    model["optane"] = {
        "dimms": quantity("6", "the machine"),
        "read": fitted("6.6 GB/s", "optane-dimm"),
        "write": fitted("2.3 GB/s", "optane-dimm"),
        "grain": quantity("256 B", "Balcer, performance guidelines"),
        "entry": fitted("543 ns", "optane-ring"),
        "stream": fitted("5.565 GB/s", "optane-ring"),
        "cached_entry": fitted("4177.5 ns", "optane-ring"),
        "remote_share": fitted("3.281", "optane-ring"),
        "paged_share": fitted("2.102", "optane-ring"),
    }
    return model


def injection_node() -> dict[str, Any]:
    """Model the node of the injection study: two cores with a smaller L3."""
    model = spr("injection-node", sockets=1)
    del model["dsa"]
    model["injection"] |= {"l1": quantity("32 KiB", ASSUMED), "l3": quantity("32 MiB", ASSUMED)}
    return model
