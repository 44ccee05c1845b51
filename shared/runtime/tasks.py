"""Runs coroutines concurrently. A service awaits only its ports, so it can run without an event loop."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Tasks(Protocol):
    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run them side by side; their results, in their order. The first error is raised here."""
        ...


class LoopTasks:
    """Runs them as tasks of the running event loop. When one raises, the others are cancelled first."""

    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in coroutines]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return [task.result() for task in tasks]


LOOP_TASKS = LoopTasks()
