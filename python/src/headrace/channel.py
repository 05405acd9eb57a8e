# SPDX-License-Identifier: Apache-2.0
"""Channel: a part of a device's queue that one thread has to itself."""

from typing import NewType, NoReturn, overload

from headrace import _core
from headrace._arguments import not_picklable, whole_number
from headrace._buffers import Memory
from headrace._closing import Closing
from headrace.operation import Completion, Operation, as_operation, checked, completion_of

Ticket = NewType("Ticket", int)
"""What a channel has in flight, until `poll` or `wait` has told its end."""

_TICKET_MAX = (1 << 64) - 1


class Channel(Closing):
    """Entries of a device's queue that one thread has to itself; made by `Engine.open_channel`.

    An operation needs no job, and nothing that other threads write is touched. Every trouble of the
    device ends as it does for jobs: page faults are resumed, and what the device does not do or not
    answer is done by the calling thread.

    Use it as a context manager, or close it: that waits for what is in flight.

    Threading: confined. A call while another thread waits raises InvalidArgumentError.
    """

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

        No buffer of it may be changed until its end has been told.

        Raises:
            InvalidArgumentError: As for `Engine.run`.
            CapacityExceededError: As much is in flight as there may be, or the device's queue is
                full; ask for an end and submit again.
            ClosedError: The channel or the engine has been closed, or the device does not answer.
        """
        what = as_operation(operation, source, target)
        return Ticket(self._native.submit(what))

    def poll(self, ticket: Ticket) -> Completion | None:
        """Tell how it ended, once; None if it has not.

        Raises:
            InvalidArgumentError: The ticket names nothing that is in flight.
            ClosedError: The channel has been closed.
            JobFailedError: The operation failed.
        """
        end = self._native.poll(_number(ticket))
        return None if end is None else checked(completion_of(end))

    def wait(self, ticket: Ticket) -> Completion:
        """As `poll`, once it has ended; other Python threads run meanwhile."""
        return checked(completion_of(self._native.wait(_number(ticket))))

    @property
    def in_flight(self) -> int:
        """Operations whose end has not been told."""
        return self._native.in_flight()

    @property
    def depth(self) -> int:
        """Operations that may be in flight: fewer than asked for where a device did not answer."""
        return self._native.depth()

    @property
    def queue(self) -> str:
        """The queue that it is a part of, as `Engine.movers` has it."""
        return self._native.queue()

    def __repr__(self) -> str:
        return f"<headrace.Channel: {self.queue}, {self.in_flight} of {self.depth} in flight>"

    def __reduce__(self) -> NoReturn:
        raise not_picklable("a channel", "it belongs to an engine of this process")

    def close(self) -> None:
        """Wait for what is in flight, and give the entries back. Idempotent."""
        self._native.close()


def _number(ticket: Ticket) -> int:
    return whole_number(ticket, "take a ticket of a channel", 0, _TICKET_MAX)
