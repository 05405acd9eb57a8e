# SPDX-License-Identifier: Apache-2.0
"""Publish the statistics of this process, for ``headrace top``."""

from headrace import _core
from headrace._arguments import seconds

DIRECTORY = _core.TELEMETRY_DIRECTORY
"""Where the files of the processes are."""


def publish_statistics(interval: float = 0.2) -> None:
    """Publish what engines and caches of this process count, until it ends.

    A thread copies the counters into a file in /dev/shm, which only this user may read. Operations
    and cache hits cost nothing more. With HEADRACE_TELEMETRY=1 in the environment the first engine
    or cache of a process does the same. A second call changes nothing. A child of fork() publishes
    nothing before it calls this itself.

    Args:
        interval: Seconds between two publications, at least 0.001.

    Raises:
        InvalidArgumentError: The interval is too short.
        TypeMismatchError: It is no number.
        PermissionDeniedError, CapacityExceededError, IoFailedError: The file cannot be made.
    """
    interval_s = min(seconds(interval, "publish statistics"), 1e6)
    _core.start_telemetry(int(interval_s * 1e9), DIRECTORY)


def stop_publishing() -> None:
    """End what `publish_statistics` began, and remove the file; nothing if there is none."""
    _core.stop_telemetry()
