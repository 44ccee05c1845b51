"""Runs a coroutine until it is done or a signal stops it, and lets it clean up either way."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_stopped(main: Coroutine[Any, Any, T]) -> T | None:
    """The coroutine's result, or None when a signal stopped it. Afterwards signals are handled as before."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        return asyncio.run(_until_stopped(main))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _until_stopped(main: Coroutine[Any, Any, T]) -> T | None:
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores it
            loop.add_signal_handler(number, _cancel_once, task)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def _cancel_once(task: asyncio.Future[Any]) -> None:
    """Ignore further signals during the clean-up, which has a limit of its own."""
    if isinstance(task, asyncio.Task) and not task.cancelling():
        task.cancel()


async def to_its_end(work: Coroutine[Any, Any, None]) -> bool:
    """Complete `work` even if this call is cancelled meanwhile; returns whether the call was cancelled."""
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    return cancelled
