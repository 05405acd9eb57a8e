# SPDX-License-Identifier: Apache-2.0
"""Engine and jobs: have bytes moved by whatever moves them best on this machine."""

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headrace import _core
from headrace._arguments import instance_of, node_list, whole_number
from headrace._buffers import flat_bytes
from headrace.errors import JobFailedError
from headrace.machine import Machine, topo

_THREADS_PER_NODE_MAX = 1 << 16
"""More than any node has processors; the system refuses threads much sooner."""


@dataclass(frozen=True, slots=True)
class Completion:
    """How a job ended.

    Attributes:
        state: "done", "failed" or "stopped".
        cause: Why it failed; "none" unless it did.
        fell_back: Another mover than the one asked for moved some of the bytes.
        bytes_done: Bytes of the target that hold their final value, not necessarily a prefix.
        fault_address: Address that could not be touched; 0 unless the cause is a page fault.
    """

    state: str
    cause: str
    fell_back: bool
    bytes_done: int
    fault_address: int


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """Totals since the engine was made; each is exact, together they are not one instant."""

    jobs_submitted: int
    jobs_done: int
    jobs_failed: int
    jobs_stopped: int
    submissions_refused: int
    bytes_moved: int


class Job:
    """A copy that was submitted.

    Source and target are kept alive until the job has ended, also when this handle is dropped
    before; dropping it does not stop the copy.

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
        return _checked(Completion(*self._native.completion()))


class Engine:
    """Moves bytes by worker threads that are pinned to the nodes of the machine.

    Use it as a context manager, or close it: jobs that run then end as stopped or done.

    Threading: shared.
    """

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        threads_per_node: int | None = None,
        nodes: Iterable[int] = (),
    ) -> None:
        """Start the workers.

        Args:
            machine: The machine they run on; None discovers it.
            threads_per_node: Workers per node with processors; None is one per two processors.
            nodes: Nodes that get workers; empty is every node with processors.

        Raises:
            InvalidArgumentError: A node does not exist or has no processors, or there are no
                threads.
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
        self._native = _core.Engine.make(self.machine.native(), threads_per_node or 0, ids)

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
        return _checked(Completion(*native))

    def submit(self, source: object, target: object) -> Job:
        """Start copying all of `source` to `target` and return at once.

        Neither may be changed until the job has ended.

        Raises:
            InvalidArgumentError: As for `copy`.
            CapacityExceededError: The queues are full; wait for a job and submit again.
            ClosedError: The engine has been closed.
        """
        native = self._native.submit(
            flat_bytes(source, "source"), flat_bytes(target, "target", writable=True)
        )
        return Job(native)

    @property
    def movers(self) -> list[str]:
        """Names of what moves the bytes."""
        return self._native.movers()

    @property
    def statistics(self) -> EngineStatistics:
        """Totals since the engine was made."""
        return EngineStatistics(**self._native.statistics())

    def native(self) -> _core.Engine:
        """The engine as the extension knows it."""
        return self._native

    def close(self) -> None:
        """Refuse new jobs and end those that run, as stopped or done. Idempotent."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _checked(completion: Completion) -> Completion:
    if completion.state == "done":
        return completion
    cause = "it was stopped" if completion.state == "stopped" else completion.cause
    raise JobFailedError(
        "copy all bytes", f"{cause} after {completion.bytes_done} bytes", "submit the copy again"
    )
