# SPDX-License-Identifier: Apache-2.0
"""Channel: entries of a device queue reserved for one thread."""

from typing import ClassVar, NewType, NoReturn, overload

from headrace import _core
from headrace._arguments import not_picklable, whole_number
from headrace._buffers import Memory
from headrace._closing import Closing
from headrace.operation import Completion, Operation, as_operation, checked, completion_of

Ticket = NewType("Ticket", int)
"""Identifies an operation in flight on a channel, until `result` or `try_result`."""

_TICKET_MAX = (1 << 64) - 1


class Channel(Closing):
    """Entries of a device queue reserved for one thread; made by `Engine.open_channel`.

    Submission creates no job and touches no data written by other threads. Errors are handled as
    for jobs: page faults are resumed, and the calling thread does what the device refuses or does
    not answer.

    Use it as a context manager, or call `close`, which waits for operations in flight.

    Threading: confined. A call while another thread waits raises InvalidArgumentError.
    """

    _renamed: ClassVar = {"poll": "try_result", "wait": "result"}

    def __init__(self, native: _core.Channel) -> None:
        self._native = native

    @overload
    def submit(self, operation: Operation, /) -> Ticket: ...
    @overload
    def submit(self, *, source: Memory, target: Memory) -> Ticket: ...
    def submit(
        self,
        operation: Operation | None = None,
        *,
        source: Memory | None = None,
        target: Memory | None = None,
    ) -> Ticket:
        """Start an operation, or a copy of all of `source` to `target`, and return at once.

        The buffers must not be changed until `result` or `try_result` has returned its end.

        Raises:
            InvalidArgumentError: As for `Engine.run`.
            CapacityExceededError: `depth` operations are in flight, or the device queue is full;
                take the result of one and submit again.
            ClosedError: The channel or engine has been closed, or the device does not respond.
        """
        what = as_operation(operation, source, target)
        return Ticket(self._native.submit(what))

    def try_result(self, ticket: Ticket) -> Completion | None:
        """Return the completion of an operation, once; None while it runs.

        Raises:
            InvalidArgumentError: The ticket is not in flight.
            ClosedError: The channel has been closed.
            JobFailedError: The operation failed.
        """
        end = self._native.poll(_number(ticket))
        return None if end is None else checked(completion_of(end))

    def result(self, ticket: Ticket) -> Completion:
        """Wait for an operation, and else as `try_result`; other Python threads run."""
        return checked(completion_of(self._native.wait(_number(ticket))))

    @property
    def in_flight(self) -> int:
        """Operations in flight: submitted and not yet returned by `result` or `try_result`."""
        return self._native.in_flight()

    @property
    def depth(self) -> int:
        """Maximum operations in flight; smaller than requested if the device stopped responding."""
        return self._native.depth()

    @property
    def queue(self) -> str:
        """Name of the queue, as in `Engine.movers`."""
        return self._native.queue()

    def __repr__(self) -> str:
        return f"<headrace.Channel: {self.queue}, {self.in_flight} of {self.depth} in flight>"

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a channel", "it belongs to an engine of this process")

    def close(self) -> None:
        """Wait for operations in flight and release the entries. Idempotent."""
        self._native.close()


def _number(ticket: Ticket) -> int:
    return whole_number(ticket, "take a ticket of a channel", 0, _TICKET_MAX)
