"""Submits jobs at their times, against whatever takes them."""

from collections.abc import Awaitable, Callable, Sequence

from schemas.scenarios import Arrival
from shared.runtime.clock import Clock


async def replay(
    arrivals: Sequence[Arrival], submit: Callable[[Arrival], Awaitable[None]], clock: Clock
) -> None:
    """Hand each arrival to `submit` when its time has come, counted in cluster seconds from now."""
    began = clock.now()
    for arrival in sorted(arrivals, key=lambda arrival: arrival.at_s):
        await clock.sleep(began + arrival.at_s - clock.now())
        await submit(arrival)
