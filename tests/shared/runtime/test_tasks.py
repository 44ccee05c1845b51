"""Coroutines side by side: their results in order, and nothing that runs on after an error."""

import asyncio

import pytest

from shared.runtime.tasks import LOOP_TASKS


async def test_results_come_in_the_order_of_the_coroutines() -> None:
    first = asyncio.Event()

    async def waits() -> int:
        await first.wait()
        return 1

    async def wakes() -> int:
        first.set()
        return 2

    assert await LOOP_TASKS.all([waits(), wakes()]) == [1, 2]


async def test_the_first_error_is_raised_once_the_others_have_ended() -> None:
    ended = []

    async def for_ever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("no such node")

    with pytest.raises(LookupError, match="no such node"):
        await LOOP_TASKS.all([for_ever("a"), fails(), for_ever("b")])
    assert sorted(ended) == ["a", "b"]
