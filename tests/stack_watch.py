"""What tests wait for on a stack that runs: live or in containers."""

import asyncio
import time
from collections.abc import Callable

from hopyard.api.client import Client
from hopyard.api.connect import patiently
from schemas.base import Event
from schemas.views import StatusView

LIMIT_S = 240.0
LOOK_AFTER_S = 0.2
LOOK_AFTER_MOST_S = 2.0
LATER_BY = 0.1
"""of what was waited for so far is the time until the next look: each is two dozen reads at NATS"""


class Seconds:
    """From its making on, printed for docs/failures.md (`pytest -s`). Limits of tests stand elsewhere."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, what: str) -> None:
        print(f"{what} after {time.monotonic() - self._began:.1f} s")


async def until(client: Client, fine: Callable[[StatusView], bool], limit_s: float = LIMIT_S) -> StatusView:
    """All services may begin again meanwhile, and a crowded machine takes its time."""
    began = time.monotonic()
    status: StatusView | None = None
    try:
        async with asyncio.timeout(limit_s):
            while not fine(status := await patiently(client.status, limit_s)):
                waited_s = time.monotonic() - began
                await asyncio.sleep(min(max(LOOK_AFTER_S, LATER_BY * waited_s), LOOK_AFTER_MOST_S))
    except TimeoutError:
        raise TimeoutError(f"after {limit_s:g} s it is still {status}") from None
    assert status is not None
    return status


def busy(status: StatusView) -> bool:
    return status.jobs.get("running", 0) > 0


async def log_of(client: Client) -> list[Event]:
    async def read() -> list[Event]:
        return [line.fact() async for line in client.events()]

    return await patiently(read)
