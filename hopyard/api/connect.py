"""From a command to the API: which address, and the one place where a coroutine is run to its end."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from hopyard.api.client import ApiRefusal, Client
from hopyard.failures import Unreachable
from hopyard.local.data_folder import find_stack_file
from schemas.settings import Settings

T = TypeVar("T")

SILENT_LIMIT_S = 30.0
"""how long `patiently` bears an API that is gone or busy"""
BACKOFF_S = 0.2
BACKOFF_LIMIT_S = 3.0
TOO_MANY_REQUESTS = 429


def api_url(given: str | None) -> str:
    """--api or HOPYARD_API_URL, else what `hopyard up` wrote here or further up, else the default."""
    if given:
        return given
    stack = find_stack_file(Path.cwd())
    return stack.api_url if stack else Settings().api_url


def call(given: str | None, action: Callable[[Client], Awaitable[T]]) -> T:
    """Run `action` with a client of the API."""
    return asyncio.run(_call(api_url(given), action))


async def _call(url: str, action: Callable[[Client], Awaitable[T]]) -> T:
    async with connect(url) as client:
        return await action(client)


def connect(url: str) -> Client:
    return Client(url, token=os.environ.get("HOPYARD_API_TOKEN", ""))


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again while the API is gone or wants fewer requests. Raises what it raised last."""
    until = time.monotonic() + SILENT_LIMIT_S
    delay_s = BACKOFF_S
    while True:
        try:
            return await ask()
        except (Unreachable, ApiRefusal) as error:
            if not _passing(error) or time.monotonic() > until:
                raise
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, BACKOFF_LIMIT_S)


def _passing(error: Unreachable | ApiRefusal) -> bool:
    return isinstance(error, Unreachable) or error.problem.status == TOO_MANY_REQUESTS
