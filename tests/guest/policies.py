# SPDX-License-Identifier: Apache-2.0
"""Runs in a guest: copies between nodes of all kinds and both packages by each policy.

Prints as JSON: for each policy and pair of nodes the devices that accepted descriptors; for each
device the descriptors that it says it has done, and those that the engine counted.
"""

import json
import subprocess
import sys

import headrace
from headrace import _core
from headrace._cli.emulate import program_path

BYTES = 512 << 10  # A part for each of eight devices.
POLICIES = ("all", "smart_copy", "push_pull", "near_source", "near_target")


def done_by_devices() -> list[int]:
    command = [program_path(), "--statistics-of", "/dev/dsa-emulator/registers"]
    document = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
    return [
        sum(engine["descriptors"] for engine in device["engines"])
        for device in document["results"]["devices"]
    ]


def main() -> None:
    machine = headrace.topo()
    # DDR and HBM: the same tile, another one of the package, and the other package.
    nodes = [0, 3, 5, 8, 11, 13]
    sources, targets = ({node: _core.node_memory(BYTES, node) for node in nodes} for _ in range(2))
    for node in nodes:
        for buffer in (sources[node], targets[node]):
            if _core.node_of_address(buffer.ctypes.data) != node:
                raise SystemExit(f"a buffer for node {node} is elsewhere")
    before = done_by_devices()
    found = {}
    counted = [0] * len(before)
    for policy in POLICIES:
        with headrace.Engine(machine, path="dsa", policy=policy) as engine:
            seen = [0] * len(before)
            for source in nodes:
                for target in nodes:
                    # Shorter than what the engine looks up the nodes of.
                    nodes_of = {"source_node": source, "target_node": target}
                    engine.submit(
                        source=sources[source], target=targets[target], **nodes_of
                    ).result()
                    now = [each.descriptors for each in engine.device_statistics.values()]
                    used = [device for device, count in enumerate(now) if count > seen[device]]
                    found[f"{policy} {source} {target}"] = used
                    seen = now
            counted = [a + b for a, b in zip(counted, seen, strict=True)]
    grown = [b - a for a, b in zip(before, done_by_devices(), strict=True)]
    json.dump({"used": found, "counted": counted, "done": grown}, sys.stdout)


main()
