"""A stack whose stream is trimmed after few facts, and what tests do with it."""

import asyncio
import os
import signal
import time
from pathlib import Path

from msgspec.structs import replace

from hopyard.actions.backup import BackedUp, BesideNats, back_up
from hopyard.api.client import Client
from hopyard.local.credentials import account_of
from hopyard.local.stack import Stack
from schemas.base import Event
from schemas.subjects import FACTS_STREAM
from schemas.views import ServiceState
from shared.runtime.bus.contract import Extent
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.streams import SNAPSHOT_STREAM
from tests.live.live_builders import all_ended, submit_all
from tests.stack_watch import LIMIT_S, until


class Trimmed:
    def __init__(self, stack: Stack, client: Client) -> None:
        self.stack = stack
        self.client = client
        self.jobs = 0

    async def submit(self) -> None:
        self.jobs += await submit_all(self.client, f"key-{self.jobs}")

    async def extent(self) -> Extent:
        bus = await JetStreamBus.connect(self.stack.settings(), "operator", LIMIT_S)
        try:
            return await bus.extent(FACTS_STREAM)
        finally:
            await bus.close()

    async def trimmed_beyond(self, seq: int) -> Extent:
        async with asyncio.timeout(LIMIT_S):
            while (extent := await self.extent()).first <= seq:
                await asyncio.sleep(0.2)
        return extent

    async def ended(self, beside: int = 0) -> None:
        """Wait for all jobs that were submitted here, and so many others."""
        await until(self.client, all_ended(self.jobs + beside))

    async def restarted(self, *names: str) -> None:
        """Kill them, and wait until they lead anew."""
        running = [one for one in self.stack.running if one.program.name in names]
        killed_at = time.time()
        for one in running:
            os.killpg(one.process.pid, signal.SIGKILL)
        await until(
            self.client,
            lambda status: (
                set(names)
                <= {
                    one.name
                    for one in status.services
                    if (one.state, one.leads) == (ServiceState.UP, True) and one.since > killed_at
                }
            ),
        )

    async def without_snapshots(self) -> None:
        account = str(account_of(self.stack.data, "planner"))
        settings = replace(self.stack.settings(), nats_credentials=account)
        bus = await JetStreamBus.connect(settings, "planner", LIMIT_S)
        try:
            await bus._connection.js.purge_stream(SNAPSHOT_STREAM)
        finally:
            await bus.close()

    async def backed_up(self, file: Path) -> BackedUp:
        connection = Connection(self.stack.settings(), "test")
        await connection.open(LIMIT_S)
        try:
            whole = BesideNats(data=self.stack.data, settings=await self.client.settings(), version="1")
            return await back_up(connection, file, whole)
        finally:
            await connection.close()

    async def log(self) -> list[tuple[int, Event]]:
        return [(line.seq, line.fact()) async for line in self.client.events()]
