# SPDX-License-Identifier: Apache-2.0
"""What prefetching would bring on another machine: simulated, never measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace._apps.sim.advice import predict_scans
from headrace._apps.sim.plan import Scan
from headrace._plan import PlannedScan
from headrace.machine import replay
from headrace.table import Table

LIMIT = (
    "Simulated is the reading of the columns, each once, from node 0 or from copies. Joins, sorts "
    "and the rest of a query come on top, so a query gains less. The repeated run finds the copies "
    "of the run before"
)
_TIMES = ("off_ms", "on_ms", "repeated_ms")


@dataclass(frozen=True, slots=True)
class Simulated:
    """A machine that queries are predicted for.

    Attributes:
        name: As the user wrote it.
        path: Its record.
        thread_count: Cores that read.
    """

    name: str
    path: Path
    thread_count: int

    def predict(
        self, plans: Mapping[str, Sequence[PlannedScan]], tables: Mapping[str, Table]
    ) -> dict[str, dict[str, Any]]:
        """Predict queries, by their names; see `predict_scans`.

        A query that reads no column that can be moved is left out.
        """
        scans = {name: list(_scans_of(plan, tables)) for name, plan in plans.items()}
        return {
            name: predict_scans(self.path, each, threads=self.thread_count)
            for name, each in scans.items()
            if each
        }


def thread_count_of(machine: Path) -> int:
    """Processors of the node where the tables lie, which read them."""
    return max(1, len(replay(machine).nodes[0].cpus))


def total_of(predicted: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Times of all queries together, and the gains in throughput."""
    off, on, repeated = (sum(each[key] for each in predicted.values()) for key in _TIMES)
    return {
        "off_ms": off,
        "on_ms": on,
        "gain": off / on - 1 if on > 0 else 0.0,
        "repeated_ms": repeated,
        "repeated_gain": off / repeated - 1 if repeated > 0 else 0.0,
    }


def _scans_of(plan: Iterable[PlannedScan], tables: Mapping[str, Table]) -> Iterable[Scan]:
    for planned in plan:
        table = tables[planned.table]
        filters, others = (
            {
                name: byte_count / table.num_rows
                for name in names
                if (byte_count := table.movable_bytes([name])) > 0
            }
            for names in (planned.filter_columns, planned.other_columns)
        )
        if not others:
            # The prefetcher moves these as well.
            filters, others = {}, filters
        if others:
            yield Scan(planned.table, table.num_rows, filters, others)
