"""Waiting with a limit, so that who is cancelled at the instant of the answer is cancelled.

`asyncio.wait_for` of Python 3.11 gives him the answer, and he goes on as if nobody had: NATS' client waits by
it, so a service now and then ran on after SIGTERM. From 3.12 on it is as here.
"""

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

RIGHT_SINCE = (3, 12)


async def wait_for(awaitable: Awaitable[T], timeout: float | None) -> T:  # noqa: ASYNC109 - as the library has it
    """Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        return await awaitable


def wait_rightly() -> None:
    """Have all libraries of this process wait so."""
    if sys.version_info < RIGHT_SINCE:
        asyncio.wait_for = wait_for  # type: ignore[assignment]
