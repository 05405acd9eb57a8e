# SPDX-License-Identifier: Apache-2.0
"""Headrace: a prefetching cache over heterogeneous memory, and one engine to move bytes.

Example:
    >>> import headrace, numpy
    >>> with headrace.Cache(capacity="64MiB", placement="local") as cache:
    ...     entry = cache.access(numpy.arange(1000))
    ...     entry.wait()
    ...     int(entry.view().sum())
    499500
"""

import importlib

# Not from typing: loading it takes longer than everything else the command does before it can
# handle a signal. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headrace import pmem
    from headrace._cache_policies import MoveContext, PlacementContext
    from headrace.cache import Cache, CacheStatistics, Change, Entry
    from headrace.engine import (
        POLICIES,
        Engine,
        FaultPolicy,
        LateWrites,
        MoverInfo,
        MoverPath,
        Policy,
        Thresholds,
        Waiting,
    )
    from headrace.engine_statistics import (
        DeviceStatistics,
        EngineStatistics,
        OperationStatistics,
    )
    from headrace.errors import (
        CapacityExceededError,
        ClosedError,
        CorruptDataError,
        Error,
        HardwareAbsentError,
        InvalidArgumentError,
        IoFailedError,
        NotFoundError,
        OutOfMemoryError,
        OutOfRangeError,
        PermissionDeniedError,
        TypeMismatchError,
        UnsupportedError,
        VersionMismatchError,
    )
    from headrace.job import Job
    from headrace.machine import Machine, record, replay, topo
    from headrace.operation import (
        Completion,
        DifFormat,
        DifSource,
        DifTags,
        DifTarget,
        JobFailedError,
        Operation,
    )
    from headrace.queue import PeerLostError, Queue, QueueConsumer, QueueProducer, QueueState
    from headrace.store import Store, StoreStatistics, StoreTransfer, Tier, TierStatistics
    from headrace.table import Table
    from headrace.telemetry import (
        publish_statistics,
        start_trace,
        stop_publishing,
        stop_trace,
    )

    __version__: str

__all__ = [
    "POLICIES",
    "Cache",
    "CacheStatistics",
    "CapacityExceededError",
    "Change",
    "ClosedError",
    "Completion",
    "CorruptDataError",
    "DeviceStatistics",
    "DifFormat",
    "DifSource",
    "DifTags",
    "DifTarget",
    "Engine",
    "EngineStatistics",
    "Entry",
    "Error",
    "FaultPolicy",
    "HardwareAbsentError",
    "InvalidArgumentError",
    "IoFailedError",
    "Job",
    "JobFailedError",
    "LateWrites",
    "Machine",
    "MoveContext",
    "MoverInfo",
    "MoverPath",
    "NotFoundError",
    "Operation",
    "OperationStatistics",
    "OutOfMemoryError",
    "OutOfRangeError",
    "PeerLostError",
    "PermissionDeniedError",
    "PlacementContext",
    "Policy",
    "Queue",
    "QueueConsumer",
    "QueueProducer",
    "QueueState",
    "Store",
    "StoreStatistics",
    "StoreTransfer",
    "Table",
    "Thresholds",
    "Tier",
    "TierStatistics",
    "TypeMismatchError",
    "UnsupportedError",
    "VersionMismatchError",
    "Waiting",
    "__version__",
    "pmem",
    "publish_statistics",
    "record",
    "replay",
    "start_trace",
    "stop_publishing",
    "stop_trace",
    "topo",
]

# Loaded on first use: the command must handle Ctrl-C before NumPy is loaded, and the baseline
# process needs none of these modules.
_MODULES = {
    "headrace._cache_policies": ("MoveContext", "PlacementContext"),
    "headrace.cache": (
        "Cache",
        "CacheStatistics",
        "Change",
        "Entry",
    ),
    "headrace.engine": (
        "POLICIES",
        "Engine",
        "FaultPolicy",
        "LateWrites",
        "MoverInfo",
        "MoverPath",
        "Policy",
        "Thresholds",
        "Waiting",
    ),
    "headrace.engine_statistics": (
        "DeviceStatistics",
        "EngineStatistics",
        "OperationStatistics",
    ),
    "headrace.job": ("Job",),
    "headrace.machine": ("Machine", "record", "replay", "topo"),
    "headrace.operation": (
        "Completion",
        "DifFormat",
        "DifSource",
        "DifTags",
        "DifTarget",
        "JobFailedError",
        "Operation",
    ),
    "headrace.queue": ("PeerLostError", "Queue", "QueueConsumer", "QueueProducer", "QueueState"),
    "headrace.table": ("Table",),
    "headrace.store": ("Store", "StoreStatistics", "StoreTransfer", "Tier", "TierStatistics"),
    "headrace.telemetry": (
        "publish_statistics",
        "start_trace",
        "stop_publishing",
        "stop_trace",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> "Any":  # noqa: ANN401 - Any attribute of a module.
    if name == "__version__":
        from headrace._core import version  # noqa: PLC0415

        value: object = version()
    elif name == "pmem":
        value = importlib.import_module("headrace.pmem")
    elif name in __all__:
        value = getattr(importlib.import_module(_MODULE_OF.get(name, "headrace.errors")), name)
    else:
        message = f"module 'headrace' has no attribute '{name}'"
        raise AttributeError(message)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
