"""Follows the event log, also while services and the whole stack start again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from hopyard.api.client import Client, LoggedEvent
from hopyard.api.connect import BACKOFF_LIMIT_S, LONG_LIMIT_S, patiently, reach
from hopyard.failures import Unreachable
from hopyard.local.processes import Say

PAUSE_S = BACKOFF_LIMIT_S
"""at least so long between two requests, where an API answers and has no facts at the moment"""


def run(given: str | None, action: Callable[[Client], Awaitable[None]]) -> None:
    """`call` for an action that waits for the API."""

    async def within() -> None:
        async with reach(given) as client:
            await action(client)

    asyncio.run(within())


async def followed(
    client: Client,
    say: Say,
    *,
    after: int = 0,
    job: str | None = None,
    tail: int | None = None,
    since: float | None = None,
) -> AsyncIterator[LoggedEvent]:
    """The stored facts that `Client.events` gives, then new ones; says once when they are cut off.

    Raises Unreachable where the API is away from the start, or later for too long.
    """
    await client.policy()
    if tail is not None:
        newest = [line async for line in client.events(after=after, job=job, tail=max(tail, 1), since=since)]
        for line in newest if tail else ():
            yield line
        after = newest[-1].seq if newest else after
    said_at = -1
    while True:
        try:
            async for line in client.events(after=after, job=job, follow=True, since=since):
                yield line
                after = line.seq
        except Unreachable:
            pass  # below it is waited for
        if said_at != after:
            say(f"cut off; waiting up to {LONG_LIMIT_S / 60:g} minutes for the API")
            said_at = after
        await asyncio.sleep(PAUSE_S)
        await _back(client, after)


async def _back(client: Client, after: int) -> None:
    """Wait for the API. Raises Unreachable."""
    try:
        await patiently(client.policy, LONG_LIMIT_S)
    except Unreachable as gone:
        raise Unreachable(f"{gone}; the same command with --after {after} goes on") from None
