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
    from typing import Any  # noqa: I001 - One statement a module; an alias re-exports a name.

    from headrace import pmem as pmem
    from headrace._cache_policies import (
        MoveContext as MoveContext,
        PlacementContext as PlacementContext,
    )
    from headrace.cache import (
        Cache as Cache,
        CacheStatistics as CacheStatistics,
        Change as Change,
        Entry as Entry,
    )
    from headrace.engine import (
        POLICIES as POLICIES,
        Engine as Engine,
        FaultPolicy as FaultPolicy,
        LateWrites as LateWrites,
        MoverInfo as MoverInfo,
        MoverPath as MoverPath,
        Policy as Policy,
        Thresholds as Thresholds,
        Waiting as Waiting,
    )
    from headrace.engine_statistics import (
        DeviceStatistics as DeviceStatistics,
        EngineStatistics as EngineStatistics,
        OperationStatistics as OperationStatistics,
    )
    from headrace.errors import (
        CapacityExceededError as CapacityExceededError,
        ClosedError as ClosedError,
        CorruptDataError as CorruptDataError,
        Error as Error,
        HardwareAbsentError as HardwareAbsentError,
        InvalidArgumentError as InvalidArgumentError,
        IoFailedError as IoFailedError,
        NotFoundError as NotFoundError,
        OutOfMemoryError as OutOfMemoryError,
        OutOfRangeError as OutOfRangeError,
        PermissionDeniedError as PermissionDeniedError,
        TypeMismatchError as TypeMismatchError,
        UnsupportedError as UnsupportedError,
        VersionMismatchError as VersionMismatchError,
    )
    from headrace.job import Job as Job
    from headrace.machine import (
        Machine as Machine,
        record as record,
        replay as replay,
        topo as topo,
    )
    from headrace.operation import (
        Completion as Completion,
        DifFormat as DifFormat,
        DifSource as DifSource,
        DifTags as DifTags,
        DifTarget as DifTarget,
        JobFailedError as JobFailedError,
        Operation as Operation,
    )
    from headrace.queue import (
        PeerLostError as PeerLostError,
        Queue as Queue,
        QueueConsumer as QueueConsumer,
        QueueProducer as QueueProducer,
        QueueState as QueueState,
    )
    from headrace.store import (
        ClientStatistics as ClientStatistics,
        Store as Store,
        StoreStatistics as StoreStatistics,
        StoreTransfer as StoreTransfer,
        Tier as Tier,
        TierStatistics as TierStatistics,
    )
    from headrace.table import Table as Table
    from headrace.telemetry import (
        publish_statistics as publish_statistics,
        start_trace as start_trace,
        stop_publishing as stop_publishing,
        stop_trace as stop_trace,
    )

    __version__: str

# Loaded on first use: the command must handle Ctrl-C before NumPy is loaded, and the baseline
# process needs none of these modules.
_MODULES = {
    "headrace._cache_policies": "MoveContext PlacementContext",
    "headrace.cache": "Cache CacheStatistics Change Entry",
    "headrace.engine": (
        "POLICIES Engine FaultPolicy LateWrites MoverInfo MoverPath Policy Thresholds Waiting"
    ),
    "headrace.engine_statistics": "DeviceStatistics EngineStatistics OperationStatistics",
    "headrace.errors": (
        "CapacityExceededError ClosedError CorruptDataError Error HardwareAbsentError "
        "InvalidArgumentError IoFailedError NotFoundError OutOfMemoryError OutOfRangeError "
        "PermissionDeniedError TypeMismatchError UnsupportedError VersionMismatchError"
    ),
    "headrace.job": "Job",
    "headrace.machine": "Machine record replay topo",
    "headrace.operation": (
        "Completion DifFormat DifSource DifTags DifTarget JobFailedError Operation"
    ),
    "headrace.queue": "PeerLostError Queue QueueConsumer QueueProducer QueueState",
    "headrace.store": "ClientStatistics Store StoreStatistics StoreTransfer Tier TierStatistics",
    "headrace.table": "Table",
    "headrace.telemetry": "publish_statistics start_trace stop_publishing stop_trace",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
if not TYPE_CHECKING:
    __all__ = sorted({"__version__", "pmem", *_MODULE_OF})  # noqa: PLE0605


def __getattr__(name: str) -> "Any":  # noqa: ANN401 - Any attribute of a module.
    if name == "__version__":
        from headrace._core import version  # noqa: PLC0415

        value: object = version()
    elif name == "pmem":
        value = importlib.import_module("headrace.pmem")
    elif name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    else:
        message = f"module 'headrace' has no attribute '{name}'"
        raise AttributeError(message)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, "__version__", "pmem"})
