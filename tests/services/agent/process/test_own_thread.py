"""Work in a thread of its own says how it ended, however that was."""

import asyncio

import pytest

from services.agent.process.own_thread import in_own_thread
from tests.bus_nets import LIMIT_S


async def test_the_result_of_the_work_is_returned() -> None:
    assert await in_own_thread(lambda: 7) == 7


@pytest.mark.parametrize("error", [OSError("no disk"), SystemExit(3)])
async def test_an_error_of_the_work_is_raised_at_its_caller(error: BaseException) -> None:
    def end() -> None:
        raise error

    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(type(error)) as raised:
            await in_own_thread(end)
    assert raised.value is error
