"""Checks of the streams find nothing wrong with sound ones."""

import asyncio
import contextlib

from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.integrity import flaws
from tests.bus_nets import LIMIT_S, JetStreamNet
from tests.fact_builders import checkpointed

LOOKS = 60


async def _handles_what_it_publishes(bus: JetStreamBus) -> None:
    done = 0
    while True:
        done += 1
        await bus.publish([checkpointed(samples_done=float(done))])
        await bus.put("cursor/planner", str(await bus.last_seq()).encode())


async def test_a_service_at_work_is_no_damage(live: JetStreamNet) -> None:
    """The service's cursor moves on between two looks: the end is to be newer than what it has handled."""
    at_work = asyncio.create_task(_handles_what_it_publishes(await live.client("planner")))
    connection = Connection(live.settings, "diag")
    await connection.open(LIMIT_S)
    found = [await flaws(connection, (), ()) for _ in range(LOOKS)]
    await connection.close()
    at_work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await at_work
    assert found == [[]] * LOOKS
