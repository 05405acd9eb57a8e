# SPDX-License-Identifier: Apache-2.0
"""Engine: have bytes moved by whatever moves them best on this machine."""

import atexit
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, Unpack, get_args, overload

from headrace import _core
from headrace._arguments import (
    NODE_MAX,
    byte_count,
    instance_of,
    node_list,
    not_picklable,
    one_of,
    whole_number,
)
from headrace._buffers import Memory
from headrace._closing import Closing
from headrace.engine_statistics import DeviceStatistics, EngineStatistics, OperationStatistics
from headrace.errors import ClosedError, InvalidArgumentError, TypeMismatchError
from headrace.job import Job
from headrace.machine import Machine, topo
from headrace.operation import Completion, Operation, as_operation, checked, completion_of

if TYPE_CHECKING:
    from headrace.channel import Channel

_DEPTH_MAX = 1 << 16
"""More entries than any queue has."""
MoverPath = Literal["automatic", "hardware", "software"]
"""What does an operation: see `Engine`."""
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
"""What chooses the movers of a job; the concepts of the engine describe each."""
FaultPolicy = Literal["touch_and_resubmit", "finish_on_cpu", "block"]
"""What a device does about a page that is not present: see `Engine`."""
Waiting = Literal["adaptive", "spin", "umwait", "sleep"]
"""How a thread waits for a job: see `Engine`."""
_PATHS: tuple[str, ...] = get_args(MoverPath)
_FAULT_POLICIES: tuple[str, ...] = get_args(FaultPolicy)
_WAYS_TO_WAIT: tuple[str, ...] = get_args(Waiting)
Then = Callable[[Completion], object]
"""Called after a job has ended."""
POLICIES: tuple[Policy, ...] = tuple(_core.policy_names())  # type: ignore[arg-type]
"""Who may choose the movers of a job; what each does is in the concepts of the engine."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From how many bytes on the path "automatic" takes a device.

    Attributes:
        synchronous_bytes: Of `Engine.run`: one operation, waited for.
        asynchronous_bytes: Of `Engine.submit`: the caller goes on with other work.
        batched_bytes: Of each operation of a batch, on average.
        source: Who said so: "published" figures, the "profile" that `headrace tune` made, or the
            "caller" who made the engine.
    """

    synchronous_bytes: int = 24 << 10
    asynchronous_bytes: int = 1 << 10
    batched_bytes: int = 256
    source: str = field(default="caller", kw_only=True)


@dataclass(frozen=True, slots=True)
class MoverInfo:
    """What moves bytes: the worker threads of a node, or the queue of a device.

    Attributes:
        name: "cpu/node0", "dsa0/wq0.0".
        node: The node it belongs to, if any.
        hardware: No processor does the work.
        queue_rank: So many other queues of the same device come before it; policies that choose
            several take the first queue of each device before the second of any.
        note: How a device is reached, and why in this way.
        emulated: It is a device of ``headrace emulate``: its figures say nothing of a real one.
    """

    name: str
    node: int | None
    hardware: bool
    queue_rank: int
    note: str
    emulated: bool = False


class _Submission(TypedDict, total=False):
    """What the two ways to call `Engine.submit` have in common."""

    path: MoverPath | None
    policy: Policy | None
    source_node: int | None
    target_node: int | None
    after: Iterable[Job]
    then: Then | None


class Engine(Closing):
    """Moves bytes by devices, and by worker threads that are pinned to the nodes of the machine.

    Use it as a context manager, or close it: jobs that run then end as stopped or done.

    Threading: shared.
    """

    def __init__(  # noqa: PLR0913 - Options, each by its name.
        self,
        machine: Machine | None = None,
        *,
        threads_per_node: int | None = None,
        nodes: Iterable[int] = (),
        path: MoverPath = "automatic",
        queues: Iterable[str] | None = None,
        policy: Policy | None = None,
        page_faults: FaultPolicy = "touch_and_resubmit",
        answer_ns_max: int = 5_000_000_000,
        thresholds: Thresholds | None = None,
        piece: int | str = "256KiB",
        queue_depth_max: int = 1024,
        waiting: Waiting = "adaptive",
        check_memory: bool = False,
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
            policy: Who chooses the movers of a job that does not say: one of `headrace.POLICIES`;
                None is near_target.
            page_faults: What a device does about a page that is not present: "touch_and_resubmit",
                it is brought in and the device goes on; "finish_on_cpu", a processor does the rest;
                "block", the device waits for the system.
            answer_ns_max: A device that is silent for so long is given up, and a processor does its
                work.
            thresholds: From how many bytes on "automatic" takes a device; None is what
                `headrace tune` found, or published figures.
            piece: A worker does so many bytes before it looks for other work; a number or a text
                such as "256KiB".
            queue_depth_max: What the workers of a node hold before they refuse.
            waiting: What threads do that wait for a job: "adaptive", look for as long as has paid
                lately, then rest, at last sleep; "spin"; "umwait", rest on the line that will
                change, by UMWAIT; "sleep", at once.
            check_memory: Have processors fail a job by name, as devices do, whose memory is not
                there or may not be accessed, such as what lies behind the end of a mapped file,
                instead of ending the process. It costs a system call for each buffer.

        Raises:
            InvalidArgumentError: A node does not exist or has no processors, or there are no
                threads, or no such path, policy or way to wait, or a figure is out of its range.
            HardwareAbsentError: A queue that was named cannot be used.
            TypeMismatchError: An argument is of another type.
            PermissionDeniedError: Threads cannot be made or pinned.
        """
        if machine is not None:
            instance_of(machine, Machine, "take the machine of an engine")
        if threads_per_node is not None:
            tried = "take the threads per node of an engine"
            threads_per_node = whole_number(threads_per_node, tried, 1)
        ids = node_list(nodes, "take the nodes of an engine")
        self.machine: Machine = machine if machine is not None else topo()
        _check_path(path)
        names = None if queues is None else _queue_names(queues)
        one_of(policy, POLICIES, "policy")
        one_of(page_faults, _FAULT_POLICIES, "fault policy")
        one_of(waiting, _WAYS_TO_WAIT, "way to wait")
        self._native = _core.Engine.make(
            self.machine.native(),
            threads_per_node=threads_per_node or 0,
            nodes=ids,
            path=path,
            queues=names,
            policy=policy,
            page_faults=page_faults,
            answer_ns_max=whole_number(answer_ns_max, "take the answer time of an engine", 1),
            thresholds=_checked_thresholds(thresholds),
            piece_bytes=byte_count(piece, "take the piece of an engine"),
            queue_depth_max=whole_number(queue_depth_max, "take the queue depth of an engine", 1),
            waiting=waiting,
            check_memory=bool(check_memory),
        )

    def copy(self, *, source: Memory, target: Memory) -> Completion:
        """Copy all of `source` to `target` and wait; other Python threads run meanwhile.

        Raises:
            InvalidArgumentError: A buffer is empty, has gaps or may not be written; the lengths
                differ; or the buffers overlap.
            ClosedError: The engine has been closed.
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
        """Carry `operation` out and wait; other Python threads run meanwhile.

        By processors that is done on the calling thread. The options are those of `submit`; Ctrl-C
        ends the wait for jobs of `after`, and then nothing has begun.

        Raises:
            InvalidArgumentError: The buffers do not fit together; or there is no such path; or
                `after` is as `submit` refuses it, or has a job that runs while this is called by a
                function that a job calls.
            ClosedError: The engine has been closed.
            JobFailedError: It failed; the error has the completion.
        """
        instance_of(operation, Operation, "take an operation")
        options = _submit_options(path, policy, source_node, target_node)
        native = self._native.run(operation, options, _natives_of(after))
        return checked(completion_of(native))

    @overload
    def submit(self, operation: Operation, /, **options: Unpack[_Submission]) -> Job: ...
    @overload
    def submit(self, *, source: Memory, target: Memory, **options: Unpack[_Submission]) -> Job: ...
    def submit(  # noqa: PLR0913 - Options, each by its name.
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

        No buffer of it may be changed until the job has ended.

        Args:
            operation: What to do; None for a copy.
            source: Of a copy.
            target: Of a copy.
            path: Who does it: "hardware", "software", "automatic"; None is the engine's.
            policy: Who chooses the movers, one of `headrace.POLICIES`; None is the engine's.
            source_node: NUMA node of what is read, for who chooses the movers.
            target_node: NUMA node of what is written.
            after: At most eight jobs of this engine that have to end first. If one fails or is
                stopped, this one never begins and fails with "predecessor_failed". They need not be
                kept once this has returned.
            then: Called once with the completion after the job has ended, however, by the thread
                that ended it: a worker's, or the one that polls or waits. It may submit, but not
                wait for a job that runs nor close the engine, which is an InvalidArgumentError.
                What it raises goes to sys.unraisablehook. Who waits for the job may be told of its
                end before.

        Raises:
            InvalidArgumentError: As for `copy` and `run`; or `after` has too many jobs, or one of
                another engine.
            CapacityExceededError: The queues are full; wait for a job and submit again. Not of a
                job that has to wait for others.
            ClosedError: The engine has been closed.
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
        """Start all of `operations` in one job; they run in any order, but for fences.

        `Operation.fenced()` begins after all before it. The job is done if all are; else it failed
        with "batch_failed", and `Job.completions` tells of each. The options are those of `submit`.

        Raises:
            InvalidArgumentError: There is no operation, or something is wrong with one, whose
                number in the batch the error says.
            CapacityExceededError: The queues are full; wait for a job and submit again.
            ClosedError: The engine has been closed.
        """
        checked_operations = [
            instance_of(operation, Operation, "take a batch of operations")
            for operation in operations
        ]
        options = _submit_options(path, policy, source_node, target_node)
        named = _natives_of(after)
        return Job(self._native.submit_batch(checked_operations, options, named, self._then(then)))

    def _then(self, then: Then | None) -> Callable[..., None] | None:
        if then is None:
            return None
        if not callable(then):
            raise TypeMismatchError(
                "take what is called after a job", f"{then!r} was given", "pass a function"
            )
        _with_calls.add(self)
        if _is_ending.is_set():
            raise ClosedError("call a function after a job", "the program is ending", "wait for it")
        function: Then = then

        def call(native: dict[str, Any]) -> None:
            function(completion_of(native))

        return call

    def poll(self) -> None:
        """Drive devices, which have no thread, for all jobs; never blocks.

        For programs that neither poll nor wait for each job.
        """
        self._native.poll()

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
        return [MoverInfo(**mover) for mover in self._native.movers()]

    @property
    def notes(self) -> list[str]:
        """Why devices, or some of their queues, are not among the movers; a sentence each."""
        return self._native.notes()

    @property
    def waiting(self) -> str:
        """How threads wait: as the engine was told, but "spin" where there is no UMWAIT."""
        return self._native.waiting()

    @property
    def thresholds(self) -> Thresholds:
        """From how many bytes on the path "automatic" takes a device, and who said so."""
        return Thresholds(**self._native.thresholds())

    @property
    def device_statistics(self) -> dict[str, DeviceStatistics]:
        """Totals of each queue of a device, by the name of the mover."""
        totals = zip(self.mover_infos, self._native.device_statistics(), strict=True)
        return {mover.name: DeviceStatistics(**one) for mover, one in totals if mover.hardware}

    @property
    def statistics(self) -> EngineStatistics:
        """Totals since the engine was made; also after it was closed."""
        totals = self._native.statistics()
        kinds = {name: OperationStatistics(**one) for name, one in totals["operations"].items()}
        return EngineStatistics(**totals | {"operations": kinds})

    def stats(self) -> EngineStatistics:
        """The same as `statistics`."""
        return self.statistics

    def __repr__(self) -> str:
        return f"<headrace.Engine: {', '.join(self.movers)}>"

    def __reduce__(self) -> NoReturn:
        raise not_picklable("an engine", "its threads and queues belong to one process")

    def native(self) -> _core.Engine:
        """The engine as the extension knows it."""
        return self._native

    def close(self) -> None:
        """Refuse new jobs and end those that run, as stopped or done. Idempotent."""
        self._native.close()


_with_calls: weakref.WeakSet[Engine] = weakref.WeakSet()
"""Those that may call functions of Python from their threads."""


_is_ending = threading.Event()


@atexit.register
def _end_calls() -> None:
    """No thread may come to the interpreter when it is gone."""
    _is_ending.set()
    for engine in list(_with_calls):
        engine.close()


@dataclass(frozen=True, slots=True)
class _SubmitOptions:
    """The options of a submission, by the names that the extension reads."""

    path: str | None
    policy: str | None
    source_node: int | None
    target_node: int | None


def _submit_options(
    path: str | None, policy: str | None, source_node: int | None, target_node: int | None
) -> _SubmitOptions:
    if path is not None:
        _check_path(path)
    one_of(policy, POLICIES, "policy")
    return _SubmitOptions(path, policy, _node(source_node), _node(target_node))


def _node(node: int | None) -> int | None:
    return (
        None if node is None else whole_number(node, "take the node of an operation", 0, NODE_MAX)
    )


def _natives_of(after: Iterable[Job]) -> tuple[_core.Job, ...]:
    tried = "take the jobs that another comes after"
    if isinstance(after, Job) or not isinstance(after, Iterable):
        raise TypeMismatchError(tried, f"{after!r} is no list of jobs", "pass jobs, as in [job]")
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
