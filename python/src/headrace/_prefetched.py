# SPDX-License-Identifier: Apache-2.0
"""What became of the prefetching for a statement: of `headrace.sql`, which publishes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """What a query read of one column.

    Attributes:
        name: The column.
        bytes_from_copies: Read from copies that were there in time.
        bytes_from_source: Read where the table lies.
        lead_ns: How long before the query its chunks were submitted, on average; None if none was.
    """

    name: str
    bytes_from_copies: int
    bytes_from_source: int
    lead_ns: int | None


@dataclass(frozen=True, slots=True)
class ScanRead:
    """What became of one planned pass over a table.

    Attributes:
        table: Name that it is registered under.
        chunks: Chunks of the table.
        chunks_submitted: Chunks whose moves were started, or that had copies.
        chunks_given_up: Chunks that the query came to first, or that found no room.
        chunks_read: Chunks that the query read.
        columns: By column.
    """

    table: str
    chunks: int
    chunks_submitted: int
    chunks_given_up: int
    chunks_read: int
    columns: tuple[ColumnRead, ...]


@dataclass(frozen=True, slots=True)
class Prefetched:
    """What was done for one statement.

    Attributes:
        plan_ns: Time to get and read its plan; 0 if it was known.
        scans: By pass over a table, in the order of the plan.
    """

    plan_ns: int
    scans: tuple[ScanRead, ...]

    @property
    def bytes_from_copies(self) -> int:
        """Bytes of all columns that were read from copies."""
        return sum(column.bytes_from_copies for scan in self.scans for column in scan.columns)

    @property
    def bytes_from_source(self) -> int:
        """Bytes of all columns that were read where the table lies."""
        return sum(column.bytes_from_source for scan in self.scans for column in scan.columns)


@dataclass(frozen=True, slots=True)
class ChunkEvent:
    """One column of one chunk was submitted, or read.

    Attributes:
        kind: "submitted", "copies" (all that can be moved was read from copies) or "source".
        scan_index: Of the scan in `Prefetched.scans`.
        chunk_index: Of the chunk in the table.
        column: Its name.
        time_ns: Since prefetching for the statement began.
    """

    kind: str
    scan_index: int
    chunk_index: int
    column: str
    time_ns: int
