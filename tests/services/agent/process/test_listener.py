import asyncio
import contextlib
from pathlib import Path

import pytest

from services.agent.process.listener import listening
from tests.services.agent.process.process_bench import short_folder


@pytest.mark.parametrize("turns", range(6))
async def test_an_agent_that_is_ended_while_it_begins_to_listen_leaves_no_socket(turns: int) -> None:
    """In one of these turns of the loop asyncio had bound the socket, and nobody knew of it yet."""
    with short_folder() as folder:
        path = folder / "agent.sock"
        agent = asyncio.create_task(listen(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        agent.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await agent
        assert not path.exists()


async def listen(path: Path) -> None:
    async with listening(path, lambda _: None):
        await asyncio.Event().wait()
