"""Where a stack's clock stands at its start: cluster time goes on from the newest fact.

The machine's clock may have been ahead in the last run, or was set back since. Before the time of the newest
fact no round would open.
"""

import time

import msgspec

from hopyard.local.data_folder import write_clock
from hopyard.local.processes import Say
from hopyard.local.stack_settings import StackSpec
from schemas.settings import Settings
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.reached import reached
from shared.runtime.process.clock_sync import TOLERATED_S

CONNECT_TIMEOUT_S = 10.0


async def going_on(spec: StackSpec, settings: Settings, say: Say) -> StackSpec:
    """The stack with an origin of its clock from which now is not before the newest fact.

    `settings`: those of the stack's NATS, which runs.
    """
    now, newest_s = time.time(), await _reached(settings) / spec.speed
    back_s = newest_s - (now - spec.clock_origin)
    if back_s <= TOLERATED_S:
        return spec
    say(f"this machine's clock is {back_s:,.0f} s behind the newest fact: cluster time goes on from there")
    write_clock(spec.data, now - newest_s, spec.speed)
    return msgspec.structs.replace(spec, clock_origin=now - newest_s)


async def _reached(settings: Settings) -> float:
    """Cluster time of the newest fact; 0 if NATS does not say it, which the services will find out."""
    connection = Connection(settings, "up")
    try:
        await connection.open(CONNECT_TIMEOUT_S)
        return await reached(connection)
    except Unavailable:
        return 0.0
    finally:
        await connection.close()
