"""Who is cancelled at the instant of an answer is cancelled, whatever the version of Python."""

import asyncio

import pytest

from shared.runtime.process.waiting import wait_for, wait_rightly


async def test_a_cancellation_at_the_instant_of_the_answer_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio, "wait_for", asyncio.wait_for)  # put back afterwards
    wait_rightly()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def waits() -> str:
        return await asyncio.wait_for(answer, 60.0)

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0)
    answer.set_result("an answer")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_it_waits_no_longer_than_the_limit() -> None:
    with pytest.raises(TimeoutError):
        await wait_for(asyncio.get_running_loop().create_future(), 0.01)
    with pytest.raises(TimeoutError):
        await wait_for(asyncio.sleep(60.0), 0.0)
    assert await wait_for(asyncio.sleep(0.0, "done"), None) == "done"
