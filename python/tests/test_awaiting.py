# SPDX-License-Identifier: Apache-2.0
"""How awaited jobs share one poller of the event loop."""

import asyncio
from typing import Any

import pytest

from headrace.job import _ended


class _CancelsWhenAsked:
    """A job whose poll cancels the one who awaits it, as a function that it calls may."""

    def __init__(self) -> None:
        self.awaiting: asyncio.Future[None] | None = None

    def poll(self) -> bool:
        if self.awaiting is not None:
            self.awaiting.cancel()
        return True


class _Ends:
    def __init__(self, poll_count: int) -> None:
        self._left = poll_count

    def poll(self) -> bool:
        self._left -= 1
        return self._left <= 0


def test_a_job_that_cancels_its_awaiter_does_not_stop_the_others() -> None:
    async def work() -> None:
        cancels: Any = _CancelsWhenAsked()
        ends: Any = _Ends(3)
        cancels.awaiting = _ended(cancels)
        other = _ended(ends)
        await asyncio.wait_for(other, 10)
        assert cancels.awaiting.cancelled()
        again: Any = _Ends(2)
        await asyncio.wait_for(_ended(again), 10)

    asyncio.run(work())


def test_a_poll_that_raises_does_not_stop_the_others() -> None:
    class Raises:
        def poll(self) -> bool:
            raise RuntimeError("this job cannot be asked")

    async def work() -> None:
        raises: Any = Raises()
        ends: Any = _Ends(2)
        broken = _ended(raises)
        other = _ended(ends)
        await asyncio.wait_for(other, 10)
        with pytest.raises(RuntimeError, match="cannot be asked"):
            await broken

    asyncio.run(work())
