"""The queue of everything that a core has to handle, in one order."""

import asyncio
from collections import deque
from typing import Any


class Mailbox:
    """A queue in which facts and samples wait for room (`offer`), and all else does not (`put`).

    Answers to work, and questions, must not wait for room: the shell may wait for them while it performs the
    core's effects, and nothing else makes room.
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

    def wake(self) -> None:
        """Let `wait` return although the mailbox may be empty: a timer is due."""
        self._ready.set()

    async def wait(self) -> None:
        """Return once there is a message, or `wake` was called."""
        await self._ready.wait()

    def take(self, at_most: int) -> list[Any]:
        """Up to so many messages, the oldest first."""
        batch = [self._items.popleft() for _ in range(min(at_most, len(self._items)))]
        if not self._items:
            self._ready.clear()
        if len(self._items) < self._limit:
            self._room.set()
        return batch
