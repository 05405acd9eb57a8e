# SPDX-License-Identifier: Apache-2.0
"""Engine: moves bytes by worker threads and DSA devices."""

import atexit
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypedDict, Unpack, get_args, overload

from headrace import _core
from headrace._arguments import (
    NODE_MAX,
    byte_count,
    instance_of,
    node_list,
    one_of,
    seconds,
    whole_number,
)
from headrace._buffers import Memory
from headrace._closing import Closing, OfOneProcess
from headrace.engine_statistics import DeviceStatistics, EngineStatistics, OperationStatistics
from headrace.errors import ClosedError, InvalidArgumentError, TypeMismatchError
from headrace.job import Job
from headrace.machine import Machine, topo
from headrace.operation import Completion, Operation, as_operation, checked, completion_of

_TIMEOUT_NS_MAX = 365 * 24 * 3600 * 1e9
MoverPath = Literal["auto", "dsa", "cpu"]
"""Whether devices or processors run an operation: see `Engine`."""
Policy = Literal[
    "near_target",
    "near_source",
    "all",
    "round_robin",
    "least_loaded",
    "push_pull",
    "smart_copy",
    "by_size",
]
"""How the movers of a job are chosen; the page on the engine describes each policy."""
FaultPolicy = Literal["touch_and_resubmit", "finish_on_cpu", "block"]
"""How a page fault of a device is handled: see `Engine`."""
LateWrites = Literal["report", "fail"]
"""What becomes of what a device may still write to: see `Engine`."""
Waiting = Literal["adaptive", "spin", "umwait", "sleep"]
"""How a thread waits for a job: see `Engine`."""
_PATHS: tuple[str, ...] = get_args(MoverPath)
_OLD_PATHS = {"automatic": "auto", "hardware": "dsa", "software": "cpu"}
_FAULT_POLICIES: tuple[str, ...] = get_args(FaultPolicy)
_WAYS_TO_WAIT: tuple[str, ...] = get_args(Waiting)
Then = Callable[[Completion], object]
"""Completion callback of a job."""
POLICIES: tuple[Policy, ...] = tuple(_core.policy_names())  # type: ignore[arg-type]
"""Names of all mover policies; the page on the engine describes each."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Smallest sizes for which the path "auto" chooses a device.

    Attributes:
        synchronous_bytes: Of one operation by `Engine.run`.
        asynchronous_bytes: Of one operation by `Engine.submit`.
        batched_bytes: Of the operations of a batch, on average.
        source: Origin of the sizes: "published" figures, the "profile" made by `headrace tune`, or
            the "caller" that made the engine.
    """

    synchronous_bytes: int = 24 << 10
    asynchronous_bytes: int = 1 << 10
    batched_bytes: int = 256
    source: str = field(default="caller", kw_only=True)


@dataclass(frozen=True, slots=True)
class MoverInfo:
    """A mover: the worker threads of a node, or one queue of a device.

    Attributes:
        name: Such as "cpu/node0" or "dsa0/wq0.0".
        node: Its NUMA node; None if unknown.
        hardware: True for a device, False for worker threads.
        queue_rank: Rank among the queues of its device, from 0; policies that choose several movers
            take the first queue of each device before the second of any.
        note: How descriptors reach the device, and why in this way.
        emulated: A device of ``headrace emulate``; its timings do not apply to hardware.
    """

    name: str
    node: int | None
    hardware: bool
    queue_rank: int
    note: str
    emulated: bool = False


class _Submission(TypedDict, total=False):
    path: MoverPath | None
    policy: Policy | None
    source_node: int | None
    target_node: int | None
    after: Iterable[Job]
    then: Then | None


class Engine(Closing, OfOneProcess):
    """Moves bytes by DSA devices and by worker threads pinned to NUMA nodes.

    Use it as a context manager, or call `close`: running jobs then end as stopped or done. After
    that, methods that take an operation raise `ClosedError`.

    Threading: shared.
    """

    _renamed: ClassVar = {"stats": "statistics"}

    if not TYPE_CHECKING:

        def __new__(cls, *_: object, **options: object) -> Self:
            """Refuse the name of an earlier version."""
            if "answer_ns_max" in options:
                cause = "'answer_ns_max' is 'device_timeout' now"
                raise InvalidArgumentError("make an engine", cause, "give it in seconds")
            return super().__new__(cls)

    def __init__(  # noqa: PLR0913 - Keyword options.
        self,
        machine: Machine | None = None,
        *,
        threads_per_node: int | None = None,
        nodes: Iterable[int] = (),
        path: MoverPath = "auto",
        queues: Iterable[str] | None = None,
        policy: Policy | None = None,
        page_faults: FaultPolicy = "touch_and_resubmit",
        device_timeout: float = 5,
        late_writes: LateWrites = "report",
        thresholds: Thresholds | None = None,
        piece: int | str = "256KiB",
        queue_depth_max: int = 1024,
        waiting: Waiting = "adaptive",
        check_memory: bool = False,
    ) -> None:
        """Start the workers.

        Args:
            machine: The machine; None discovers it.
            threads_per_node: Workers per node with processors; None: one per two processors.
            nodes: Nodes that get workers; empty: every node with processors.
            path: Default for submissions: "dsa", a device if there is one; "cpu",
                processors; "auto", a device where it is expected to be faster.
            queues: Device queues to use, such as "dsa0/wq0.0"; None: all, empty: none.
            policy: Default policy that chooses movers, one of `headrace.POLICIES`; None:
                "near_target".
            page_faults: How a page fault of a device is handled: "touch_and_resubmit", touch the
                page and resume on the device; "finish_on_cpu", finish on a processor; "block", the
                device waits for the kernel.
            device_timeout: Seconds that a device has to answer; a processor then does its work.
            late_writes: What becomes of an operation whose device has not answered and may still
                write to the target: "report", a processor does it, and the completion says so
                (`late_write_possible`); "fail", it fails with "device_dead".
            thresholds: Smallest sizes for which "auto" chooses a device; None: the profile of
                `headrace tune`, or published figures.
            piece: Bytes that a worker processes before it looks for other work, as a number or a
                text such as "256KiB".
            queue_depth_max: Requests that the workers of a node queue before they refuse more.
            waiting: How threads wait for a job: "adaptive", spin for a time learned from recent
                waits, then yield or UMWAIT, finally sleep; "spin"; "umwait", UMWAIT on the line
                that will be written; "sleep", at once.
            check_memory: Processors fail a job on inaccessible memory, such as beyond the end of a
                mapped file, as devices do; otherwise the process gets a signal. Costs a system call
                per buffer.

        Raises:
            InvalidArgumentError: A node does not exist or has no processors; there are no threads;
                a path, policy or way to wait is unknown; or a number is out of range.
            HardwareAbsentError: A named queue cannot be used.
            TypeMismatchError: An argument has the wrong type.
            PermissionDeniedError: Threads cannot be created or pinned.
        """
        if machine is not None:
            instance_of(machine, Machine, "take the machine of an engine")
        if threads_per_node is not None:
            tried = "take the threads per node of an engine"
            threads_per_node = whole_number(threads_per_node, tried, 1)
        ids = node_list(nodes, "take the nodes of an engine")
        self.machine: Machine = machine if machine is not None else topo()
        one_of(path, _PATHS, "path", _OLD_PATHS)
        names = None if queues is None else _queue_names(queues)
        one_of(policy, POLICIES, "policy")
        one_of(page_faults, _FAULT_POLICIES, "fault policy")
        one_of(late_writes, get_args(LateWrites), "way to treat late writes")
        one_of(waiting, _WAYS_TO_WAIT, "way to wait")
        self._native = _core.Engine.make(
            self.machine.native(),
            threads_per_node=threads_per_node or 0,
            nodes=ids,
            path=path,
            queues=names,
            policy=policy,
            page_faults=page_faults,
            device_timeout_ns=_device_timeout_ns(device_timeout),
            late_writes=late_writes,
            thresholds=_checked_thresholds(thresholds),
            piece_bytes=byte_count(piece, "take the piece of an engine"),
            queue_depth_max=whole_number(queue_depth_max, "take the queue depth of an engine", 1),
            waiting=waiting,
            check_memory=bool(check_memory),
        )

    def copy(self, *, source: Memory, target: Memory) -> Completion:
        """Copy all of `source` to `target` and wait; other Python threads run meanwhile.

        Raises:
            InvalidArgumentError: A buffer is empty, not contiguous or read-only; the lengths
                differ; or the buffers overlap.
            JobFailedError: The copy failed.
        """
        native = self._native.copy(Operation.copy(source=source, target=target))
        return checked(completion_of(native))

    def run(
        self,
        operation: Operation,
        *,
        path: MoverPath | None = None,
        policy: Policy | None = None,
        source_node: int | None = None,
        target_node: int | None = None,
        after: Iterable[Job] = (),
    ) -> Completion:
        """Run `operation` and wait; other Python threads run meanwhile.

        In software, the calling thread does the work. The options are those of `submit`. Ctrl-C
        ends the wait for the jobs of `after`; the operation is then not started.

        Raises:
            InvalidArgumentError: The buffers do not fit together; the path is unknown; `after` is
                one that `submit` refuses; or a completion callback calls this with a running job in
                `after`.
            JobFailedError: The operation failed; `completion` of the error has details.
        """
        instance_of(operation, Operation, "take an operation")
        options = _submit_options(path, policy, source_node, target_node)
        native = self._native.run(operation, options, _natives_of(after))
        return checked(completion_of(native))

    @overload
    def submit(self, operation: Operation, /, **options: Unpack[_Submission]) -> Job: ...
    @overload
    def submit(self, *, source: Memory, target: Memory, **options: Unpack[_Submission]) -> Job: ...
    def submit(  # noqa: PLR0913 - Keyword options.
        self,
        operation: Operation | None = None,
        *,
        source: Memory | None = None,
        target: Memory | None = None,
        path: MoverPath | None = None,
        policy: Policy | None = None,
        source_node: int | None = None,
        target_node: int | None = None,
        after: Iterable[Job] = (),
        then: Then | None = None,
    ) -> Job:
        """Start an operation, or a copy of all of `source` to `target`, and return at once.

        The buffers must not be changed until the job has ended.

        Args:
            operation: The operation; None for a copy.
            source: Source of a copy.
            target: Target of a copy.
            path: "auto", "dsa" or "cpu"; None: the engine's path.
            policy: Policy that chooses the movers, one of `headrace.POLICIES`; None: the engine's
                policy.
            source_node: NUMA node of the source, for the policy.
            target_node: NUMA node of the target, for the policy.
            after: Predecessors: at most eight jobs of this engine that must end first. If one fails
                or is stopped, this job never starts and fails with "predecessor_failed". Their
                handles may be dropped once this returns.
            then: Called once with the completion after the job has ended, by the thread that ended
                it: a worker, or a thread that polls, waits or closes. May submit and drop ended
                jobs, this one included, also inside `Job.wait` or `Job.poll` of it, while other
                threads wait for it too. Must not block: waiting for a running job or closing the
                engine raises InvalidArgumentError. Its exceptions go to sys.unraisablehook. A
                waiting thread may continue before the call.

        Raises:
            InvalidArgumentError: As for `copy` and `run`; or `after` has too many jobs, or a job of
                another engine.
            CapacityExceededError: The queues are full; wait for a job and submit again. Not raised
                for a job with running predecessors.
        """
        what = as_operation(operation, source, target)
        options = _submit_options(path, policy, source_node, target_node)
        return Job(self._native.submit(what, options, _natives_of(after), self._then(then)))

    def submit_batch(
        self,
        operations: Iterable[Operation],
        *,
        path: MoverPath | None = None,
        policy: Policy | None = None,
        source_node: int | None = None,
        target_node: int | None = None,
        after: Iterable[Job] = (),
        then: Then | None = None,
    ) -> Job:
        """Start `operations` as one job; they run in any order, except for fences.

        An operation made by `Operation.fenced` starts after all before it. The job is done if all
        operations are; otherwise it fails with "batch_failed", and `Job.completions` has each
        outcome. The options are those of `submit`.

        Raises:
            InvalidArgumentError: The batch is empty, or an operation is invalid; the error has its
                index.
            CapacityExceededError: The queues are full; wait for a job and submit again.
        """
        checked_operations = [
            instance_of(operation, Operation, "take a batch of operations")
            for operation in operations
        ]
        options = _submit_options(path, policy, source_node, target_node)
        named = _natives_of(after)
        return Job(self._native.submit_batch(checked_operations, options, named, self._then(then)))

    def _then(self, then: Then | None) -> Callable[..., object] | None:
        if then is None:
            return None
        if not callable(then):
            raise TypeMismatchError(
                "register a completion callback", f"{then!r} was given", "pass a function"
            )
        _with_calls.add(self)
        if _is_ending.is_set():
            raise ClosedError(
                "register a completion callback", "the program is ending", "wait for the job"
            )
        return lambda native: then(completion_of(native))

    def poll(self) -> None:
        """Drive the device queues, which have no thread, for all jobs; never blocks.

        For programs that do not poll or wait for each job.
        """
        self._native.poll()

    @property
    def movers(self) -> list[str]:
        """Names of the movers."""
        return [mover.name for mover in self.mover_infos]

    @property
    def mover_infos(self) -> list[MoverInfo]:
        """The movers: worker threads and device queues; also after `close`."""
        return [MoverInfo(**mover) for mover in self._native.movers()]

    @property
    def notes(self) -> list[str]:
        """Why devices or queues are not among the movers, one sentence each."""
        return self._native.notes()

    @property
    def waiting(self) -> str:
        """How threads wait: the option `waiting`, but "spin" for "umwait" without WAITPKG."""
        return self._native.waiting()

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds in use, and their origin."""
        return Thresholds(**self._native.thresholds())

    @property
    def device_statistics(self) -> dict[str, DeviceStatistics]:
        """Totals of each device queue, by the name of the mover."""
        totals = zip(self.mover_infos, self._native.device_statistics(), strict=True)
        return {mover.name: DeviceStatistics(**one) for mover, one in totals if mover.hardware}

    @property
    def statistics(self) -> EngineStatistics:
        """Totals since the engine was made; also after `close`."""
        totals = self._native.statistics()
        kinds = {name: OperationStatistics(**one) for name, one in totals["operations"].items()}
        return EngineStatistics(**totals | {"operations": kinds})

    def __repr__(self) -> str:
        return f"<headrace.Engine: {', '.join(self.movers)}>"

    def native(self) -> _core.Engine:
        """The engine of the extension module."""
        return self._native

    def close(self) -> None:
        """Refuse new jobs, end running ones as stopped or done, close devices. Idempotent."""
        self._native.close()


_with_calls: weakref.WeakSet[Engine] = weakref.WeakSet()
"""Engines whose threads may call Python functions."""


_is_ending = threading.Event()


@atexit.register
def _end_calls() -> None:
    """Close these engines: no thread may enter the interpreter after finalization."""
    _is_ending.set()
    for engine in list(_with_calls):
        engine.close()


def _submit_options(
    path: str | None, policy: str | None, *nodes: int | None
) -> tuple[str | None, str | None, int | None, int | None]:
    one_of(path, _PATHS, "path", _OLD_PATHS)
    one_of(policy, POLICIES, "policy")
    tried = "take the node of an operation"
    source, target = (
        None if node is None else whole_number(node, tried, 0, NODE_MAX) for node in nodes
    )
    return path, policy, source, target


def _device_timeout_ns(timeout: float) -> int:
    tried = "take the device_timeout of an engine"
    timeout_ns = seconds(timeout, tried) * 1e9
    if not 1 <= timeout_ns <= _TIMEOUT_NS_MAX:
        raise InvalidArgumentError(tried, f"{timeout} was given", "pass seconds, at most a year")
    return int(timeout_ns)


def _natives_of(after: Iterable[Job]) -> tuple[_core.Job, ...]:
    tried = "set the predecessors of a job"
    if isinstance(after, Job) or not isinstance(after, Iterable):
        raise TypeMismatchError(tried, f"{after!r} is not a list of jobs", "pass jobs, as in [job]")
    return tuple(instance_of(job, Job, tried).native() for job in after)


def _checked_thresholds(thresholds: Thresholds | None) -> Thresholds | None:
    if thresholds is None:
        return None
    tried = "take the thresholds of an engine"
    given = instance_of(thresholds, Thresholds, tried)
    for count in (given.synchronous_bytes, given.asynchronous_bytes, given.batched_bytes):
        whole_number(count, tried)
    return given


def _queue_names(queues: Iterable[str]) -> list[str]:
    tried = "take the queues of an engine"
    remedy = "pass names such as ['dsa0/wq0.0']; 'headrace dsa list' shows them"
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise TypeMismatchError(tried, f"{queues!r} is not a list of names", remedy)
    names = list(queues)
    for name in names:
        if not isinstance(name, str):
            raise TypeMismatchError(tried, f"{name!r} is not a name", remedy)
    return names
