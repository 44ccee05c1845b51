"""Keeps an instance that does not lead up to date: it replays the facts that the leader has handled.

So its core is at every moment as the leader's would be after a restart, and to take over is a restart without
a replay. It holds facts beyond the leader's cursor back: their effects may not be out yet.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from shared.runtime.bus.contract import Batch, Record, Unavailable

AHEAD_MAX = 50_000
"""facts beyond the cursor that are held"""


class Follower:
    """Reads facts, and replays them as far as the leader's cursor has moved."""

    def __init__(self, facts: AsyncIterator[Batch], replay: Callable[[Record], None]) -> None:
        self._facts = facts
        self._replay = replay
        self._ahead: deque[Record] = deque()
        self._next: asyncio.Future[Batch] | None = None
        self._read_to = 0

    async def until(
        self, leads: Callable[[], Awaitable[bool]], cursor: Callable[[], Awaitable[int]], step_s: float
    ) -> None:
        """Return once `leads` returns true; it and `cursor` are called every `step_s` real seconds."""
        due = 0.0
        while True:
            if time.monotonic() >= due:
                with suppress(Unavailable, TimeoutError):
                    self.acknowledged(await cursor())
                    if await leads():
                        return
                due = time.monotonic() + step_s
            await self._take(max(due - time.monotonic(), 0.0))

    async def read_to(self, seq: int) -> None:
        """Return once all facts up to `seq` are here."""
        while self._read_to < seq:
            await self._take(None)

    def acknowledged(self, cursor: int) -> None:
        """Replay up to the leader's cursor: the effects of these facts are out."""
        while self._ahead and self._ahead[0].seq <= cursor:
            self._replay(self._ahead.popleft())

    def rest(self) -> tuple[Batch, AsyncIterator[Batch]]:
        """The facts beyond the cursor that were read, and those to come."""
        return Batch(self._ahead, self._read_to), self._coming()

    def end(self) -> None:
        if self._next is not None:
            self._next.cancel()

    async def _take(self, limit_s: float | None) -> None:
        if len(self._ahead) >= AHEAD_MAX and limit_s is not None:
            await asyncio.sleep(limit_s)
            return
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._facts))
        await asyncio.wait([self._next], timeout=limit_s)  # to cancel it would end the reading
        if self._next.done():
            batch, self._next = self._next.result(), None
            self._ahead.extend(batch)
            self._read_to = max(self._read_to, batch.last)

    async def _coming(self) -> AsyncIterator[Batch]:
        if self._next is not None:
            yield await self._next
            self._next = None
        async for batch in self._facts:
            yield batch
