"""Corrects the clock of each process by that of NATS, so that a machine with a wrong clock does no harm.

A difference of less than a second is left alone: machines that follow a time server differ by less.
"""

import asyncio

import structlog

from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.clock import ScaledClock

TOLERATED_S = 1.0
EVERY_REAL_S = 60.0

log = structlog.get_logger()


async def correct_clock(clock: ScaledClock, bus: JetStreamBus) -> None:
    """Correct the clock where it differs by more than the measurement may be wrong. Raises Unavailable."""
    ahead_s, error_s = await bus.time_ahead(clock.unix)
    if abs(ahead_s) > max(TOLERATED_S, 2 * error_s):
        log.warning("the clock of this machine is wrong, as NATS has it", ahead_s=ahead_s)
        clock.set_right(ahead_s)


async def keep_clock_correct(clock: ScaledClock, bus: JetStreamBus) -> None:
    """Correct it once a minute, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_REAL_S)
        try:
            await correct_clock(clock, bus)
        except Unavailable as error:
            log.debug("time is not known", reason=str(error))
