"""Corrects the clock of each process by that of NATS, so that a machine with a wrong clock does no harm.

A difference of less than a second is left alone: machines that follow a time server differ by less. Cluster
time does not go back with the clock of NATS, since no round opens before the end of the newest one. It goes
slower until the difference is gone.
"""

import asyncio

import structlog

from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.clock import SLOWED, Clock, ScaledClock

TOLERATED_S = 1.0
EVERY_REAL_S = 60.0

log = structlog.get_logger()


async def correct_clock(clock: ScaledClock, bus: JetStreamBus) -> None:
    """Correct the clock where it differs by more than the measurement may be wrong. Raises Unavailable."""
    ahead_s, error_s = await bus.time_ahead(clock.unix)
    if abs(ahead_s) > max(TOLERATED_S, 2 * error_s):
        log.warning("the clock of this machine is wrong, as NATS has it", ahead_s=ahead_s)
        clock.set_right(ahead_s)
        _say_if_slowed(clock)


async def go_on_from_newest(clock: ScaledClock, bus: JetStreamBus) -> None:
    """Begin no earlier than the newest fact of a service, by whichever clock. Raises Unavailable."""
    reached = await bus.reached()
    if reached - clock.now() > clock.cluster_s(TOLERATED_S):
        clock.go_on_from(reached)
        _say_if_slowed(clock)


def clock_troubles(clock: Clock) -> tuple[str, ...]:
    """What a report says of a clock that goes slower."""
    ahead_s = clock.ahead_s() if isinstance(clock, ScaledClock) else 0.0
    slower = (
        f"cluster time is {ahead_s:,.0f} s ahead of the clock of NATS, and goes at {SLOWED:g} of its speed"
    )
    return (slower,) if ahead_s > TOLERATED_S else ()


def _say_if_slowed(clock: ScaledClock) -> None:
    if ahead_s := clock.ahead_s():
        log.warning("cluster time goes slower, since it is ahead", ahead_s=ahead_s, pace=SLOWED)


async def keep_clock_correct(clock: ScaledClock, bus: JetStreamBus) -> None:
    """Correct it once a minute, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_REAL_S)
        try:
            await correct_clock(clock, bus)
        except Unavailable as error:
            log.debug("time is not known", reason=str(error))
