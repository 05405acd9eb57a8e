# SPDX-License-Identifier: Apache-2.0
"""Publish statistics for ``headrace top``, and record traces for ``headrace sim replay``."""

import os

from headrace import _core
from headrace._arguments import seconds

DIRECTORY = _core.TELEMETRY_DIRECTORY
"""Directory of the files, one per process."""


def publish_statistics(interval: float = 0.2) -> None:
    """Publish the statistics of this process's engines and caches until it ends.

    A thread copies the counters into a file in /dev/shm that only this user can read; operations
    and cache hits cost no more. With HEADRACE_TELEMETRY=1 in the environment, the first engine or
    cache of a process does the same. A second call has no effect. A child of fork() publishes
    nothing until it calls this itself.

    Args:
        interval: Seconds between two publications, at least 0.001.

    Raises:
        InvalidArgumentError: The interval is too short.
        TypeMismatchError: The interval is not a number.
        PermissionDeniedError, CapacityExceededError, IoFailedError: The file cannot be made.
    """
    interval_s = min(seconds(interval, "publish statistics"), 1e6)
    _core.start_telemetry(int(interval_s * 1e9), DIRECTORY)


def stop_publishing() -> None:
    """Stop publishing and remove the file; no effect if nothing is published."""
    _core.stop_telemetry()


def start_trace(path: str | os.PathLike[str]) -> None:
    """Record what this process does with engines, caches, stores and queues into a file.

    ``headrace sim replay`` reads it. HEADRACE_TRACE=FILE in the environment does the same from the
    start of the process. Processes that record into one file at the same time share it.

    Raises:
        InvalidArgumentError: This process records already, or the file is something else.
        PermissionDeniedError, CapacityExceededError, IoFailedError: The file cannot be made.
    """
    _core.start_trace(os.fspath(path))


def stop_trace() -> None:
    """Stop recording; no effect if nothing is recorded."""
    _core.stop_trace()
