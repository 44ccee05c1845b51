import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE


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
