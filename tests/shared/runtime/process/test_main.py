import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from shared.runtime.process.main import beside


async def test_a_service_that_still_waits_for_nats_says_so_and_stops_at_a_signal() -> None:
    environ = os.environ | {"HOPYARD_NATS_URL": "nats://127.0.0.1:1"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.placer"), env=environ, stderr=PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(120):
        assert b"waiting for NATS" in await process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_what_runs_beside_a_service_takes_it_along_when_it_fails() -> None:
    """A watch that had failed watched no more, and nobody knew."""

    async def failing() -> None:
        raise LookupError("the watch")

    with pytest.raises(ExceptionGroup) as found:
        async with asyncio.timeout(60), beside(failing()):
            await asyncio.Future()
    assert found.group_contains(LookupError, match="the watch")


async def test_what_runs_beside_a_service_ends_with_it() -> None:
    ended = []

    async def watching() -> None:
        try:
            await asyncio.Future()
        finally:
            ended.append("the watch")

    async with asyncio.timeout(60), beside(watching()):
        await asyncio.sleep(0)
    assert ended == ["the watch"]
