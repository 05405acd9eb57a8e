# SPDX-License-Identifier: Apache-2.0
"""Statistics of an engine; see headrace.Engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperationStatistics:
    """Totals of one kind of operation.

    Attributes:
        jobs_done: Jobs that completed successfully.
        bytes: Bytes done by all ended jobs, whatever their outcome.
        bytes_by_device: Part of `bytes` done by devices.
        retries: Times that started work waited for a full queue.
        page_faults: Page faults of devices.
        fallbacks: Jobs whose completion has `fell_back`.
        latencies: Histogram of the time from submission to end: jobs by the upper bound of their
            bucket in ns. Each bound is twice the one before; empty buckets are left out. Channels
            count only if opened with `latencies`; of `Engine.run` in software below 256 KiB, one
            operation in sixteen is sampled.
    """

    jobs_done: int
    bytes: int
    bytes_by_device: int
    retries: int
    page_faults: int
    fallbacks: int
    latencies: dict[int, int]

    def latency_ns_max(self, share: float) -> int | None:
        """Upper bound of a latency quantile: `share` 0.99 is the 99th percentile.

        Returns:
            At most twice the exact value; None if no latency was counted.
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
        jobs_submitted: Accepted jobs; each ends as done, failed or stopped.
        jobs_done: Jobs that completed successfully.
        jobs_failed: Jobs that failed with a cause.
        jobs_stopped: Jobs stopped before all was done.
        submissions_refused: Submissions refused because queues were full or the engine was closed.
        bytes_moved: Bytes done by all ended jobs, whatever their outcome.
        bytes_by_device: Part of `bytes_moved` done by devices.
        jobs_fell_back: Jobs whose completion has `fell_back`.
        jobs_held_back: Submitted jobs that had to wait for predecessors.
        operations: Totals by kind of operation; "batch" counts batches.
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


@dataclass(frozen=True, slots=True)
class DeviceStatistics:
    """Totals of one device queue.

    Attributes:
        descriptors: Descriptors accepted by the queue; a batch counts as one.
        retries: Times that the queue was full.
        page_faults: Page faults of the device.
        errors: Completion records that report a device error or a reset.
        lost: Descriptors that timed out.
        bytes_on_cpu: Bytes done by a processor because of the above.
    """

    descriptors: int
    retries: int
    page_faults: int
    errors: int
    lost: int
    bytes_on_cpu: int
