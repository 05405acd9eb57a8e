# SPDX-License-Identifier: Apache-2.0
"""Engine and jobs: have bytes moved by whatever moves them best on this machine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, overload

from headrace import _core
from headrace._arguments import instance_of, node_list, whole_number
from headrace._buffers import ByteArray, flat_bytes
from headrace._closing import Closing
from headrace.engine_statistics import DeviceStatistics, EngineStatistics, OperationStatistics
from headrace.errors import InvalidArgumentError, JobFailedError, TypeMismatchError
from headrace.machine import Machine, topo

if TYPE_CHECKING:
    from headrace.channel import Channel

_THREADS_PER_NODE_MAX = 1 << 16
"""More than any node has processors; the system refuses threads much sooner."""


_PATTERN_MAX = (1 << 64) - 1
_SEED_MAX = (1 << 32) - 1
_DEPTH_MAX = 1 << 16
"""More entries than any queue has."""
_PATHS = ("automatic", "hardware", "software")


@dataclass(frozen=True, slots=True)
class Completion:
    """How a job ended.

    Attributes:
        state: "done", "failed" or "stopped".
        cause: Why it failed; "none" unless it did.
        fell_back: Another mover than the one asked for, or a processor in the place of a device,
            did some of it.
        late_write_possible: A device was given up on that may still write to the target.
        bytes_done: Bytes that were done, not necessarily a prefix.
        bytes_by_device: Those that a device did.
        device_status: First status byte of a device that told of trouble; 0 if none did.
        fault_address: Address that could not be touched; 0 unless the cause is a page fault.
        different: Of a comparison: whether there is a difference.
        difference_offset: Where the first one is, if there is one.
        crc: Of a checksum: its value.
    """

    state: str
    cause: str
    fell_back: bool
    late_write_possible: bool
    bytes_done: int
    bytes_by_device: int
    device_status: int
    fault_address: int
    different: bool
    difference_offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class MoverInfo:
    """What moves bytes: the worker threads of a node, or the queue of a device.

    Attributes:
        name: "cpu/node0", "dsa0/wq0.0".
        node: The node it belongs to, if any.
        hardware: No processor does the work.
        note: How a device is reached, and why in this way.
    """

    name: str
    node: int | None
    hardware: bool
    note: str


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """What is to be done with bytes; made by one of the class methods.

    Every operation gives the same bytes and the same result by a device and by a processor. It
    keeps its buffers alive, and none may be changed while a job does it.

    All of them raise InvalidArgumentError for a buffer that is empty, has gaps, or is read-only
    where it is written; whether the buffers fit together is found out on submission.

    Threading: immutable.
    """

    kind: str
    target: ByteArray | None = None
    source: ByteArray | None = None
    second_source: ByteArray | None = None
    number: int = 0
    is_durable: bool = False

    def durable(self) -> Self:
        """Have what is written in memory, and not only in a cache, when it has ended.

        On persistent memory it survives a loss of power then. A mapped ordinary file needs an
        msync besides.
        """
        return replace(self, is_durable=True)

    @classmethod
    def copy(cls, source: object, target: object) -> Self:
        """All of `source` to `target`."""
        written = flat_bytes(target, "target", writable=True)
        return cls("copy", target=written, source=flat_bytes(source, "source"))

    @classmethod
    def fill(cls, target: object, pattern: int) -> Self:
        """Repeat the 8 bytes of `pattern`, the lowest first; the last repetition may be cut."""
        pattern = whole_number(pattern, "take the pattern of a fill", 0, _PATTERN_MAX)
        return cls("fill", target=flat_bytes(target, "target", writable=True), number=pattern)

    @classmethod
    def compare(cls, one: object, other: object) -> Self:
        """Find the first difference: `different` and `difference_offset` of the completion."""
        second = flat_bytes(other, "other source")
        return cls("compare", source=flat_bytes(one, "source"), second_source=second)

    @classmethod
    def compare_pattern(cls, source: object, pattern: int) -> Self:
        """As `compare`, with what `fill` would have made of the pattern."""
        pattern = whole_number(pattern, "take the pattern of a comparison", 0, _PATTERN_MAX)
        return cls("compare_pattern", source=flat_bytes(source, "source"), number=pattern)

    @classmethod
    def crc(cls, source: object, *, seed: int = 0) -> Self:
        """CRC-32C of iSCSI and ext4; the value of one as the seed of the next goes on from it."""
        seed = whole_number(seed, "take the seed of a checksum", 0, _SEED_MAX)
        return cls("crc", source=flat_bytes(source, "source"), number=seed)

    @classmethod
    def copy_crc(cls, source: object, target: object, *, seed: int = 0) -> Self:
        """Copy, and CRC-32C of what is copied."""
        seed = whole_number(seed, "take the seed of a checksum", 0, _SEED_MAX)
        written = flat_bytes(target, "target", writable=True)
        return cls("copy_crc", target=written, source=flat_bytes(source, "source"), number=seed)


class Job:
    """An operation that was submitted.

    Its buffers are kept alive until the job has ended, also when this handle is dropped before;
    dropping it does not stop the job.

    Threading: shared.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _core.Job) -> None:
        self._native = native

    def poll(self) -> bool:
        """Tell whether the job has ended; never blocks."""
        return self._native.poll()

    def wait(self) -> None:
        """Block until the job has ended, however; other Python threads run meanwhile."""
        self._native.wait()

    def stop(self) -> None:
        """Ask for an early end and return at once.

        What a mover has begun is finished, the rest never starts. No effect on an ended job.
        """
        self._native.stop()

    def result(self) -> Completion:
        """Wait for the end and tell how it was.

        Raises:
            JobFailedError: The job failed or was stopped.
        """
        self._native.wait()
        return checked(Completion(*self._native.completion()))


class Engine(Closing):
    """Moves bytes by devices, and by worker threads that are pinned to the nodes of the machine.

    Use it as a context manager, or close it: jobs that run then end as stopped or done.

    Threading: shared.
    """

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        threads_per_node: int | None = None,
        nodes: Iterable[int] = (),
        path: str = "automatic",
        queues: Iterable[str] | None = None,
    ) -> None:
        """Start the workers.

        Args:
            machine: The machine they run on; None discovers it.
            threads_per_node: Workers per node with processors; None is one per two processors.
            nodes: Nodes that get workers; empty is every node with processors.
            path: Who does it unless a submission says otherwise: "hardware", a device if there is
                one; "software", processors; "automatic", a device where it is expected to be
                faster.
            queues: Queues of devices that may be used, such as "dsa0/wq0.0"; None is every one,
                empty is none.

        Raises:
            InvalidArgumentError: A node does not exist or has no processors, or there are no
                threads, or no such path.
            HardwareAbsentError: A queue that was named cannot be used.
            TypeMismatchError: An argument is of another type.
            PermissionDeniedError: Threads cannot be made or pinned.
        """
        if machine is not None:
            instance_of(machine, Machine, "take the machine of an engine")
        if threads_per_node is not None:
            tried = "take the threads per node of an engine"
            threads_per_node = whole_number(threads_per_node, tried, 1, _THREADS_PER_NODE_MAX)
        ids = node_list(nodes, "take the nodes of an engine")
        self.machine = machine if machine is not None else topo()
        _check_path(path)
        names = None if queues is None else _queue_names(queues)
        native = self.machine.native()
        self._native = _core.Engine.make(native, threads_per_node or 0, ids, path, names)

    def copy(self, source: object, target: object) -> Completion:
        """Copy all of `source` to `target` and wait; other Python threads run meanwhile.

        Raises:
            InvalidArgumentError: A buffer is empty, has gaps or may not be written; the lengths
                differ; or the buffers overlap.
            ClosedError: The engine has been closed.
            JobFailedError: The copy failed.
        """
        native = self._native.copy(
            flat_bytes(source, "source"), flat_bytes(target, "target", writable=True)
        )
        return checked(Completion(*native))

    def run(self, operation: Operation, *, path: str | None = None) -> Completion:
        """Carry `operation` out and wait; other Python threads run meanwhile.

        By processors that is done on the calling thread. `path` is the engine's unless given.

        Raises:
            InvalidArgumentError: The buffers do not fit together; or there is no such path.
            ClosedError: The engine has been closed.
            JobFailedError: It failed.
        """
        return checked(Completion(*self._native.run(*_arguments(operation, path))))

    @overload
    def submit(self, operation: Operation, /, *, path: str | None = None) -> Job: ...
    @overload
    def submit(self, source: object, target: object, *, path: str | None = None) -> Job: ...
    def submit(self, source: object, target: object = None, *, path: str | None = None) -> Job:
        """Start an operation, or a copy of all of `source` to `target`, and return at once.

        No buffer of it may be changed until the job has ended.

        Raises:
            InvalidArgumentError: As for `copy` and `run`.
            CapacityExceededError: The queues are full; wait for a job and submit again.
            ClosedError: The engine has been closed.
        """
        return Job(self._native.submit(*_arguments(as_operation(source, target), path)))

    def open_channel(
        self,
        queue: str | None = None,
        *,
        node: int | None = None,
        depth: int = 8,
        latencies: bool = False,
    ) -> "Channel":
        """Reserve a part of a device's queue for one thread, whose operations then cost less.

        Args:
            queue: Such as "dsa0/wq0.0"; None is the one of `node` with the most room.
            node: A queue of this node, if it has a device; None is any.
            depth: Operations that may be in flight.
            latencies: Count how long each takes; it costs some time.

        Raises:
            HardwareAbsentError: There is no device, or none of that name.
            CapacityExceededError: The queue has not so many free entries and one more for jobs.
            ClosedError: The engine has been closed.
        """
        from headrace.channel import Channel  # noqa: PLC0415 - It needs what is here.

        if queue is not None:
            queue = _queue_names([queue])[0]
        depth = whole_number(depth, "take the depth of a channel", 1, _DEPTH_MAX)
        if node is not None:
            node = node_list([node], "take the node of a channel")[0]
        return Channel(_core.Channel.open(self._native, queue or "", node, depth, bool(latencies)))

    @property
    def movers(self) -> list[str]:
        """Names of what moves the bytes."""
        return [mover.name for mover in self.mover_infos]

    @property
    def mover_infos(self) -> list[MoverInfo]:
        """What moves the bytes: worker threads and the queues of devices; also after the end."""
        return [MoverInfo(*mover) for mover in self._native.movers()]

    @property
    def notes(self) -> list[str]:
        """Why devices, or some of their queues, are not among the movers; a sentence each."""
        return self._native.notes()

    @property
    def device_statistics(self) -> dict[str, DeviceStatistics]:
        """Totals of each queue of a device, by the name of the mover."""
        totals = zip(self.mover_infos, self._native.device_statistics(), strict=True)
        return {mover.name: DeviceStatistics(**one) for mover, one in totals if mover.hardware}

    @property
    def statistics(self) -> EngineStatistics:
        """Totals since the engine was made; also after it was closed."""
        totals, operations = self._native.statistics()
        kinds = {name: OperationStatistics(**one) for name, one in operations.items()}
        return EngineStatistics(**totals, operations=kinds)

    def native(self) -> _core.Engine:
        """The engine as the extension knows it."""
        return self._native

    def close(self) -> None:
        """Refuse new jobs and end those that run, as stopped or done. Idempotent."""
        self._native.close()


_Arguments = tuple[str, ByteArray | None, ByteArray | None, ByteArray | None, int, bool, str | None]


def as_operation(source: object, target: object) -> Operation:
    """What is submitted: an operation alone, or a copy of `source` to `target`."""
    if not isinstance(source, Operation):
        return Operation.copy(source, target)
    if target is not None:
        raise InvalidArgumentError(
            "submit an operation", "it has its own target", "pass the operation alone"
        )
    return source


def _arguments(operation: Operation, path: str | None) -> _Arguments:
    instance_of(operation, Operation, "take an operation")
    if path is not None:
        _check_path(path)
    return (
        operation.kind,
        operation.target,
        operation.source,
        operation.second_source,
        operation.number,
        operation.is_durable,
        path,
    )


def _queue_names(queues: Iterable[str]) -> list[str]:
    tried = "take the queues of an engine"
    remedy = "pass names such as ['dsa0/wq0.0']; 'headrace dsa list' shows them"
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise TypeMismatchError(tried, f"{queues!r} is no list of names", remedy)
    names = list(queues)
    for name in names:
        if not isinstance(name, str):
            raise TypeMismatchError(tried, f"{name!r} is no name", remedy)
    return names


def _check_path(path: str) -> None:
    if path not in _PATHS:
        raise InvalidArgumentError(
            "take the path of an operation", f"there is no path {path!r}", f"take one of {_PATHS}"
        )


def checked(completion: Completion) -> Completion:
    """`completion`, or JobFailedError unless it says done."""
    if completion.state == "done":
        return completion
    cause = "it was stopped" if completion.state == "stopped" else completion.cause
    raise JobFailedError(
        "do all of a job", f"{cause} after {completion.bytes_done} bytes", "submit it again"
    )
