# SPDX-License-Identifier: Apache-2.0
"""Statistics of the prefetching for a statement; public through `headrace.sql`."""

from dataclasses import dataclass

from headrace._plan import PlannedScan


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """Reads of one column by a query.

    Attributes:
        bytes_from_copies: Bytes read from copies that were ready in time.
        lead_ns: Average time from submission of a chunk to its read; None if none was submitted.
    """

    name: str
    bytes_from_copies: int
    bytes_from_source: int
    lead_ns: int | None


@dataclass(frozen=True, slots=True)
class ScanRead:
    """Prefetching of one planned scan.

    Attributes:
        chunks_submitted: Chunks whose moves were started, or that had copies.
        chunks_skipped: Chunks that the query reached first, or for which there was no room.
        chunks_read: Chunks that the query read.
    """

    table: str
    chunks: int
    chunks_submitted: int
    chunks_skipped: int
    chunks_read: int
    columns: tuple[ColumnRead, ...]


@dataclass(frozen=True, slots=True)
class Prefetched:
    """Prefetching of one statement.

    Attributes:
        plan_ns: Time to get and parse the plan; 0 if the plan was cached.
        scans: The scans in the order of the plan.
        copies_by_node: Chunks of columns read from copies, by the node of the copy.
    """

    plan_ns: int
    scans: tuple[ScanRead, ...]
    copies_by_node: dict[int, int]

    @property
    def bytes_from_copies(self) -> int:
        """Bytes read from copies, of all columns."""
        return sum(column.bytes_from_copies for scan in self.scans for column in scan.columns)

    @property
    def bytes_from_source(self) -> int:
        """Bytes read from the tables, of all columns."""
        return sum(column.bytes_from_source for scan in self.scans for column in scan.columns)


@dataclass(frozen=True, slots=True)
class ExplainedColumn:
    """One column that a statement reads.

    Attributes:
        reason: "can be moved", or why it is read in place.
    """

    table: str
    name: str
    is_filter: bool
    movable_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Explained:
    """Whether and why a statement is prefetched; see `Connection.explain_prefetch`.

    Attributes:
        answer: "yes", or "no" with the reason.
        expected_gain: Time without copies by that with them, minus 1, by bandwidths and latencies:
            before the first run the most that is possible. None if a bandwidth is unknown.
        observed_gain: The same of measured runs in mode "auto"; None before there are enough.
        columns: In the order in which they are moved.
        scans: As `Connection.plan`.
    """

    answer: str
    expected_gain: float | None
    observed_gain: float | None
    columns: tuple[ExplainedColumn, ...]
    scans: tuple[PlannedScan, ...]
