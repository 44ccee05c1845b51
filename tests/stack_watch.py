"""What tests wait for on a stack that runs: live or in containers."""

import asyncio
import time
from collections.abc import Callable

from hopyard.api.client import Client
from hopyard.api.connect import patiently
from schemas.base import Event
from schemas.views import StatusView

LIMIT_S = 240.0
LOOK_EVERY_S = 0.3
"""each look is answered by two services, which have other work"""


class Seconds:
    """From its making on, printed for docs/failures.md (`pytest -s`). Limits of tests stand elsewhere."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, what: str) -> None:
        print(f"{what} after {time.monotonic() - self._began:.1f} s")


async def until(client: Client, fine: Callable[[StatusView], bool], limit_s: float = LIMIT_S) -> StatusView:
    async with asyncio.timeout(limit_s):
        while True:
            status = await patiently(client.status)
            if fine(status):
                return status
            await asyncio.sleep(LOOK_EVERY_S)


def busy(status: StatusView) -> bool:
    return status.jobs.get("running", 0) > 0


async def log_of(client: Client) -> list[Event]:
    async def read() -> list[Event]:
        return [line.fact() async for line in client.events()]

    return await patiently(read)
