# SPDX-License-Identifier: Apache-2.0
"""What copies of a statement's columns would gain; decides for `headrace.sql` in mode "auto".

A model of reading by bandwidth and latency, corrected by measured runs. Not considered: what else
the machine does.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace._prefetched import Prefetched
from headrace._words import counted
from headrace.machine import Machine

GAIN_MIN = 0.05
"""Least gain for which bytes are moved."""
_BYTES_IN_FLIGHT = 32 * 64
"""Of the misses of a core, as in src/query/automatic.hpp."""
_OFF_RUNS, _ON_RUNS = 2, 3
"""Runs without and with copies before a gain counts as observed. The first of each are slower: one
reads the tables for the first time, the other makes the copies."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a statement reads, from where it could, and by whom.

    Attributes:
        worker: The node of the processors that read.
        target: The node of the copies; None if there is none.
        bytes_by_node: Bytes of its columns; on None if the node is unknown, taken for `worker`.
    """

    machine: Machine
    worker: int
    threads: int
    target: int | None
    bytes_by_node: Mapping[int | None, int]

    def gain(self, query_ns: float | None = None, share: float = 1.0) -> float | None:
        """Time of the statement without copies by that with them, minus 1.

        Args:
            query_ns: Time without copies; None: that of reading alone, which gives the most.
            share: Share of the bytes that are read from copies.

        Returns:
            None if a bandwidth is unknown or there is no node for copies.
        """
        if self.target is None:
            return None
        source_ns = target_ns = 0.0
        for node, byte_count in self.bytes_by_node.items():
            home = self._ns_per_byte(self.worker if node is None else node)
            near = self._ns_per_byte(self.target)
            if home is None or near is None:
                return None
            source_ns += byte_count * home
            target_ns += byte_count * (share * near + (1 - share) * home)
        if source_ns == 0:
            return 0.0
        total_ns = source_ns if query_ns is None else query_ns
        # A statement cannot read for longer than it runs: then the bandwidth was too pessimistic.
        saved_ns = (1 - target_ns / source_ns) * min(source_ns, total_ns)
        return total_ns / max(total_ns - saved_ns, 1.0) - 1

    def _ns_per_byte(self, node: int) -> float | None:
        for each in self.machine.accesses:
            if (each.initiator, each.target) == (self.worker, node):
                if each.bandwidth_bytes_per_s is None:
                    return None
                by_latency = (each.latency_ns or 0) / (_BYTES_IN_FLIGHT * self.threads)
                return max(1e9 / each.bandwidth_bytes_per_s, by_latency)
        return None


@dataclass(slots=True)
class Learned:
    """What runs of a statement have told.

    Attributes:
        off_ns: The shortest run without copies; None before there was one.
        on_ns: The shortest run with copies.
        share: Share of the bytes that the last run with copies read from them.
        expected: The gain that the model gave last.
    """

    off_ns: int | None = None
    on_ns: int | None = None
    off_runs: int = 0
    on_runs: int = 0
    share: float = 1.0
    expected: float | None = None

    @property
    def observed(self) -> float | None:
        """The measured gain; None before it is known."""
        if self.off_ns is None or self.on_ns is None or self.off_runs < _OFF_RUNS:
            return None
        return self.off_ns / self.on_ns - 1

    def pays(self, reading: Reading) -> bool:
        """Whether the next run should have copies: by the measured gain, else by the model."""
        self.expected = reading.gain(self.off_ns, self.share)
        if self.on_runs >= _ON_RUNS and self.off_runs < _OFF_RUNS:
            return False  # To compare with.
        gain = self.expected if self.observed is None else self.observed
        return gain is not None and gain >= GAIN_MIN

    def add(self, run_ns: int, prefetched: Prefetched | None) -> None:
        """Count a run; `prefetched` is None for one without copies."""
        if prefetched is None:
            self.off_runs += 1
            self.off_ns = min(run_ns, self.off_ns or run_ns)
            return
        self.on_runs += 1
        self.on_ns = min(run_ns, self.on_ns or run_ns)
        read_bytes = prefetched.bytes_from_copies + prefetched.bytes_from_source
        if self.on_runs >= _ON_RUNS and read_bytes > 0:  # The first runs make the copies.
            self.share = prefetched.bytes_from_copies / read_bytes

    def outcome(self) -> str:
        """What the runs have shown, for a note."""
        if self.observed is not None:
            return f"gained {self.observed:.1%}"
        return f"{counted(self.on_runs, 'run')} with copies so far"
