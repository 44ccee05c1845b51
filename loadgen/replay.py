"""Submits jobs and chooses policies at their times, in a simulation or in a live stack."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from schemas.scenarios import Arrival, PolicyChange
from shared.runtime.clock import Clock

Timed = TypeVar("Timed", Arrival, PolicyChange)


async def next_round(clock: Clock, round_s: float) -> None:
    """Sleep until a round begins.

    A replay that begins with a round, as a simulation does, has every later round at the same offset.
    """
    await clock.sleep(round_s - clock.now() % round_s)


async def replay(timed: Sequence[Timed], hand: Callable[[Timed], Awaitable[None]], clock: Clock) -> None:
    """Call `hand` with each item at its time, in cluster seconds from now."""
    began = clock.now()
    for one in sorted(timed, key=lambda one: one.at_s):
        await clock.sleep(began + one.at_s - clock.now())
        await hand(one)
