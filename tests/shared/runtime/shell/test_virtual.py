"""Virtual time."""

import asyncio
import time

import pytest

from shared.runtime.shell.virtual import Deadlock, run


def test_a_year_passes_at_once() -> None:
    async def story() -> float:
        await asyncio.sleep(365 * 24 * 3600)
        return asyncio.get_running_loop().time()

    began = time.perf_counter()
    assert run(story) == pytest.approx(365 * 24 * 3600)
    assert time.perf_counter() - began < 5


def test_timers_fire_in_their_order() -> None:
    async def story() -> list[int]:
        order: list[int] = []

        async def after(seconds: int) -> None:
            await asyncio.sleep(seconds)
            order.append(seconds)

        await asyncio.gather(*(after(seconds) for seconds in (3, 1, 2)))
        return order

    assert run(story) == [1, 2, 3]


def test_waiting_without_a_timer_is_a_deadlock() -> None:
    async def story() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(story)
