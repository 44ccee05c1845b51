"""Runs coroutines concurrently. A service awaits only its ports, so it can run without an event loop."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Tasks(Protocol):
    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run them side by side; their results, in their order. The first that raises raises here."""
        ...


class LoopTasks:
    """Runs them as tasks of the running event loop."""

    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        return list(await asyncio.gather(*coroutines))


LOOP_TASKS = LoopTasks()
