# SPDX-License-Identifier: Apache-2.0
"""What an engine counts; see headrace.Engine."""

from dataclasses import dataclass

from headrace._words import html_totals


@dataclass(frozen=True, slots=True)
class OperationStatistics:
    """Totals of jobs of one kind.

    Attributes:
        jobs_done: All bytes are in place.
        bytes: Of all jobs that have ended, however.
        bytes_by_device: Of bytes.
        retries: Times that a full queue kept what had begun waiting.
        page_faults: That a device met.
        fallbacks: Jobs whose completion says fell_back.
        latencies: From submission to end, of all jobs that have ended (of those of a channel: if it
            was opened so; of what run() does by a processor with less than 256 KiB: one in
            sixteen): jobs by a time in ns that they stayed below, each twice the one before; times
            that no job belongs to are left out.
    """

    jobs_done: int
    bytes: int
    bytes_by_device: int
    retries: int
    page_faults: int
    fallbacks: int
    latencies: dict[int, int]

    def latency_ns_max(self, share: float) -> int | None:
        """A time that this share of the jobs (0.99: all but a hundredth) stayed below.

        Returns:
            At most twice the exact one; None if no latency is known.
        """
        wanted = share * sum(self.latencies.values())
        below = 0
        for latency_ns, count in self.latencies.items():
            below += count
            if below >= wanted:
                return latency_ns
        return None


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """Totals since the engine was made; each is exact, together they are not one instant.

    Attributes:
        jobs_submitted: Accepted; each has ended in one of the three ways below, or will.
        jobs_done: All bytes are in place.
        jobs_failed: A mover reported a cause.
        jobs_stopped: Ended by a wish before all was done.
        submissions_refused: Nothing was started: queues were full, or the engine was closed.
        bytes_moved: By all jobs that have ended, however.
        bytes_by_device: Of bytes_moved.
        jobs_fell_back: Jobs whose completion says fell_back.
        jobs_held_back: Of jobs_submitted: they had to wait for others first.
        operations: The same by kind of operation; "batch" is that of batches.
    """

    jobs_submitted: int
    jobs_done: int
    jobs_failed: int
    jobs_stopped: int
    submissions_refused: int
    bytes_moved: int
    bytes_by_device: int
    jobs_fell_back: int
    jobs_held_back: int
    operations: dict[str, OperationStatistics]

    def _repr_html_(self) -> str:
        return html_totals(self)


@dataclass(frozen=True, slots=True)
class DeviceStatistics:
    """Totals of one queue of a device.

    Attributes:
        descriptors: Accepted by the queue; a batch is one.
        retries: Times that the queue was full.
        page_faults: That the device met.
        errors: Records that tell of an error of the device, or of a reset.
        lost: Descriptors that were not answered in time.
        bytes_on_cpu: Done by a processor because of these troubles.
    """

    descriptors: int
    retries: int
    page_faults: int
    errors: int
    lost: int
    bytes_on_cpu: int

    def _repr_html_(self) -> str:
        return html_totals(self)
