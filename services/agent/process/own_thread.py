"""Work that may wait for a disk of a job, in a thread of its own.

`asyncio.to_thread` has few threads for all of a process: one disk that hangs would take them from every job.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T]) -> T:
    """What the work returns or raises. Who does not wait for it any more leaves it behind."""
    done: Future[T] = Future()

    def run() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)
