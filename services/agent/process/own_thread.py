"""Work that may wait for a disk of a job, in a thread of its own.

`asyncio.to_thread` has few threads for all of a process: one disk that hangs would take them from every job.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T]) -> T:
    """What the work returns or raises. Who does not wait for it any more leaves it behind."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    result: list[T] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            result.append(work())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failed.append(error)
        with suppress(RuntimeError):  # the process ends, and nobody waits
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, daemon=True).start()
    await done.wait()
    if failed:
        raise failed[0]
    return result[0]
