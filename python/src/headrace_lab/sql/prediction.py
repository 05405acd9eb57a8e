# SPDX-License-Identifier: Apache-2.0
"""Predicts the gain of prefetching on another machine; simulated, never measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace._plan import PlannedScan
from headrace.errors import InvalidArgumentError
from headrace.machine import replay
from headrace.table import Table
from headrace_lab.sim.advice import Scan, node_of, places_of, predict_scans

LIMIT = (
    "Simulated is the reading of the columns, each once, where they lie or from copies. Joins, "
    "sorts and the rest of a query come on top, so a query gains less. The repeated run finds the "
    "copies of the run before"
)
_TIMES = ("off_ms", "on_ms", "repeated_ms")


@dataclass(frozen=True, slots=True)
class Simulated:
    """A machine that queries are predicted for; `home` is the tables' node, number and kind."""

    name: str
    path: Path
    thread_count: int
    home: tuple[int, str]

    def predict(
        self, plans: Mapping[str, Sequence[PlannedScan]], tables: Mapping[str, Table]
    ) -> dict[str, dict[str, Any]]:
        """Predict queries, by their names; see `predict_scans`.

        Queries that read no movable column are skipped.
        """
        scans = {name: list(_scans_of(plan, tables)) for name, plan in plans.items()}
        return {
            name: predict_scans(self.path, each, threads=self.thread_count, home=self.home[0])
            for name, each in scans.items()
            if each
        }


def simulated_on(name: str, path: Path, threads: int | None, place: str | None) -> Simulated:
    """Make a simulated machine with its tables in `place`, as in `node_of`; None: its first node.

    Without `threads` all processors of its first node read.
    """
    home = node_of(path, place)
    if home is None:
        raise InvalidArgumentError(
            f"place tables on '{place}' of {name}",
            "it has no such memory",
            f"use {', '.join(places_of(path))}",
        )
    return Simulated(name, path, threads or max(1, len(replay(path).nodes[0].cpus)), home)


def total_of(predicted: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Total times of all queries, and the gains in throughput."""
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
            # The prefetcher then moves the filter's columns.
            filters, others = {}, filters
        if others:
            yield Scan(table.num_rows, filters, others)
