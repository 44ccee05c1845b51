"""A task that is cancelled at the instant of an answer ends, whatever the version of Python."""

import asyncio

import pytest

from shared.runtime.bus.contract import Bus
from shared.runtime.bus.jetstream.cancellation import patch_wait_for, wait_for
from tests.bus_nets import LIMIT_S, JetStreamNet
from tests.fact_builders import cancelled

CANCELLATIONS = 60
"""one in nine was lost"""


async def test_a_cancellation_at_the_instant_of_the_answer_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio, "wait_for", asyncio.wait_for)  # put back afterwards
    patch_wait_for()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def waits() -> str:
        return await asyncio.wait_for(answer, 60.0)

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0)
    answer.set_result("an answer")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def _publishes_for_ever(bus: Bus) -> None:
    while True:
        await bus.publish([cancelled("a")])
        await bus.last_seq()


async def test_publishing_over_a_connection_can_be_cancelled(live: JetStreamNet) -> None:
    bus = await live.client()
    for _ in range(CANCELLATIONS):
        at_work = asyncio.create_task(_publishes_for_ever(bus))
        await bus.last_seq()
        at_work.cancel()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([at_work])
        assert at_work.cancelled()


async def test_wait_for_waits_no_longer_than_the_limit() -> None:
    with pytest.raises(TimeoutError):
        await wait_for(asyncio.get_running_loop().create_future(), 0.01)
    with pytest.raises(TimeoutError):
        await wait_for(asyncio.sleep(60.0), 0.0)
    assert await wait_for(asyncio.sleep(0.0, "done"), None) == "done"
