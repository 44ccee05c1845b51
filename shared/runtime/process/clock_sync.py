"""Keeps every process on the clock of NATS, so that a machine with a wrong clock does no harm.

A difference of less than a second is left alone: machines that are set by a time server have none.
"""

import asyncio

import structlog

from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.clock import ScaledClock

BORNE_S = 1.0
EVERY_REAL_S = 60.0

log = structlog.get_logger()


async def set_right(clock: ScaledClock, bus: JetStreamBus) -> None:
    """Raises Unavailable."""
    ahead_s, wrong_by_s = await bus.time_ahead(clock.unix)
    if abs(ahead_s) > max(BORNE_S, 2 * wrong_by_s):
        log.warning("the clock of this machine is wrong, as NATS has it", ahead_s=ahead_s)
        clock.set_right(ahead_s)


async def keep_right(clock: ScaledClock, bus: JetStreamBus) -> None:
    """Look again and again until cancelled."""
    while True:
        await asyncio.sleep(EVERY_REAL_S)
        try:
            await set_right(clock, bus)
        except Unavailable as error:
            log.debug("time is not known", reason=str(error))
