# SPDX-License-Identifier: Apache-2.0
"""The list of families, which are measured, and of the scenarios that simulate the same.

A family is a subcommand of ``headrace bench``; a scenario is an experiment of ``headrace sim``. The
points of each family are in `points`; this module imports no others, so that listing commands is
fast.
"""

from dataclasses import dataclass

__all__ = ["FAMILIES", "MEASURED_ELSEWHERE", "ONLY_SIMULATED", "SIMULATED_BY", "Family"]


@dataclass(frozen=True, slots=True)
class Family:
    """A set of related measurements of movers, and the scenarios that simulate the same."""

    name: str
    summary: str
    scenarios: tuple[str, ...] = ()


FAMILIES = {
    each.name: each
    for each in (
        Family(
            "submission",
            "Measure copies by size and way of submission: alone, in flight, in batches.",
            ("submission", "break-even", "alignment"),
        ),
        Family("threads", "Measure several threads that share one queue.", ("threads",)),
        Family(
            "movement",
            "Measure copies between nodes, by mover.",
            ("ddr-to-hbm", "remote", "cxl", "memory", "streams"),
        ),
        Family("devices", "Measure 1, 2, 4 and 8 devices at once.", ("leaky-ddio",)),
        Family("device-engines", "Measure groups by their engines.", ("engines-per-group",)),
        Family(
            "queues",
            "Measure the effect of queue size, batch size and priority.",
            ("wq-size", "batch-size", "priorities"),
        ),
        Family("operations", "Measure every operation, by device and processor.", ("operations",)),
        Family("latency", "Measure the time to prepare, submit and wait."),
        Family(
            "page-faults",
            "Measure the cost of page faults, by how they are handled.",
            ("page-faults",),
        ),
        Family("pages", "Measure pages of 4 KiB and of 2 MiB.", ("huge-pages",)),
        Family("destination", "Measure targets in the cache and in memory.", ("cache-control",)),
        Family("pollution", "Measure a thread that reads its working set beside copies."),
        Family("cycles", "Measure the processor time that devices save."),
    )
}

MEASURED_ELSEWHERE = {
    "injection": "bench injection",
    "messages": "bench message",
    "optane": "bench pmem",
    "qdp": "query",
}
"""Scenarios that another command measures, and that command."""

SIMULATED_BY = {
    command.removeprefix("bench "): name for name, command in MEASURED_ELSEWHERE.items()
}
SIMULATED_BY |= {each.name: each.scenarios[0] for each in FAMILIES.values() if each.scenarios}
"""For subcommands of `headrace bench` and others, a scenario that simulates what they measure."""

ONLY_SIMULATED = ("hbm-cache-mode", "placement")
"""Scenarios that nothing measures."""
