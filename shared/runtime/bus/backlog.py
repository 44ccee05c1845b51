"""A bounded queue of items that may be lost: when it is full, it drops the oldest for a new one."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from shared.runtime.bus.contract import Unavailable

T = TypeVar("T")


class Backlog(Generic[T]):
    def __init__(self, limit: int) -> None:
        self._items: deque[T] = deque(maxlen=limit)
        self._limit = limit
        self._ready = asyncio.Event()
        self._ended = False

    def put(self, item: T) -> bool:
        """Add an item; true if the oldest was dropped for it."""
        full = len(self._items) == self._limit
        self._items.append(item)
        self._ready.set()
        return full

    async def take(self) -> T:
        """The oldest item, as soon as there is one. Raises Unavailable after `end`."""
        while not self._items:
            if self._ended:
                raise Unavailable("the bus is closed")
            self._ready.clear()
            await self._ready.wait()
        return self._items.popleft()

    def end(self) -> None:
        self._ended = True
        self._ready.set()
