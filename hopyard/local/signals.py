"""Runs a coroutine until it is done or a signal stops it, and lets it clean up either way."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_stopped(main: Coroutine[Any, Any, T]) -> T | None:
    """The result, or None when a signal ended it."""
    return asyncio.run(_until_stopped(main))


async def _until_stopped(main: Coroutine[Any, Any, T]) -> T | None:
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, _cancel_once, task)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def _cancel_once(task: asyncio.Future[Any]) -> None:
    """A second Ctrl-C does not interrupt the clean-up: that has a limit of its own."""
    if isinstance(task, asyncio.Task) and not task.cancelling():
        task.cancel()
