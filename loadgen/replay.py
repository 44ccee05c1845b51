"""Submits jobs at their times, against whatever takes them."""

from collections.abc import Awaitable, Callable, Sequence

from schemas.scenarios import Arrival
from shared.runtime.clock import Clock


async def next_round(clock: Clock, round_s: float) -> None:
    """Sleep until a round begins.

    A replay that begins with a round, as a simulation does, meets every later round at the same place.
    """
    await clock.sleep(round_s - clock.now() % round_s)


async def replay(
    arrivals: Sequence[Arrival], submit: Callable[[Arrival], Awaitable[None]], clock: Clock
) -> None:
    """Hand each arrival to `submit` when its time has come, counted in cluster seconds from now."""
    began = clock.now()
    for arrival in sorted(arrivals, key=lambda arrival: arrival.at_s):
        await clock.sleep(began + arrival.at_s - clock.now())
        await submit(arrival)
