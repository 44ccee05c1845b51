"""The queue of everything that a core has to handle, in one order."""

import asyncio
from collections import deque
from typing import Any


class Mailbox:
    """A queue that bounds what comes from the stream and takes at once what comes from inside.

    Answers to work, questions and timers must never wait behind a full queue: what is performing the
    core's effects would wait for itself.
    """

    def __init__(self, limit: int) -> None:
        self._items: deque[Any] = deque()
        self._limit = limit
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, item: object) -> None:
        self._items.append(item)
        self._ready.set()
        if len(self._items) >= self._limit:
            self._room.clear()

    async def offer(self, item: object) -> None:
        """Wait for room, then `put`."""
        await self._room.wait()
        self.put(item)

    def ring(self) -> None:
        """Let `something` return although the mailbox is empty."""
        self._ready.set()

    async def something(self) -> None:
        """Wait for a message, or until `ring` is called."""
        await self._ready.wait()

    def take(self, at_most: int) -> list[Any]:
        """All messages, oldest first."""
        batch = [self._items.popleft() for _ in range(min(at_most, len(self._items)))]
        if not self._items:
            self._ready.clear()
        if len(self._items) < self._limit:
            self._room.set()
        return batch
