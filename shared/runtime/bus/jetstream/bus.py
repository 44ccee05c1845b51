"""The ports of the bus over one connection to NATS."""

import asyncio
from collections.abc import Callable

from schemas.settings import Settings
from shared.runtime.bus.accounts import ADMISSION
from shared.runtime.bus.counts import Counts
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.facts import JetStreamFacts
from shared.runtime.bus.jetstream.handoff import Handoff
from shared.runtime.bus.jetstream.node_reads import NodeReads, until_answered
from shared.runtime.bus.jetstream.questions import JetStreamQuestions
from shared.runtime.bus.jetstream.reached import reached
from shared.runtime.bus.jetstream.samples import JetStreamSamples
from shared.runtime.bus.jetstream.state import JetStreamState
from shared.runtime.bus.jetstream.streams import ensure, keep_memory_streams, makes_streams
from shared.runtime.bus.jetstream.whole_streams import JetStreamStreams


class JetStreamBus(JetStreamFacts, JetStreamSamples, JetStreamQuestions, JetStreamState, JetStreamStreams):
    """One service's connection to the servers. Make it with `connect`."""

    def __init__(self, connection: Connection) -> None:
        keeps = connection.name == ADMISSION and connection.settings.nats_replicas > 1  # users wait for it
        JetStreamFacts.__init__(self, connection, Handoff(connection, self) if keeps else None)
        JetStreamQuestions.__init__(self, connection)
        self._reads = NodeReads(connection)
        self._memory_streams: asyncio.Task[None] | None = None

    @property
    def counts(self) -> Counts:
        return self._connection.counts

    @classmethod
    async def connect(cls, settings: Settings, name: str, timeout_s: float | None = None) -> "JetStreamBus":
        """Connect, and return once the streams exist; retries until a server is there.

        Raises Unavailable after `timeout_s` real seconds (None: never), PermissionError for credentials
        that the server refuses, ValueError for a `nats_url` that is not an address, RuntimeError for a stream
        that exists and cannot be given our settings.
        """
        connection, back = Connection(settings, name), asyncio.Event()
        connection.when_back.add(back.set)
        try:
            await connection.open(timeout_s)
            if connection.is_agents:
                await until_answered(connection, timeout_s)
            else:
                await ensure(connection, timeout_s)
            bus = cls(connection)
            await bus.open()
            if connection.answers_agents:
                await bus._reads.open()
            if makes_streams(connection):
                bus._memory_streams = asyncio.create_task(keep_memory_streams(connection, back))
        except BaseException:
            await connection.close()
            raise
        return bus

    def connected(self) -> bool:
        return self._connection.connected()

    async def up(self) -> None:
        """Wait for the connection. Raises Unavailable once it is closed."""
        await self._connection.up()

    async def time_ahead(self, now: Callable[[], float]) -> tuple[float, float]:
        """Real seconds that the clock `now` (Unix time) is ahead of the server's, and their largest error.

        Raises Unavailable.
        """
        return await self._connection.time_ahead(now)

    async def reached(self) -> float:
        """The latest cluster time in the newest facts of services; 0: no facts. Raises Unavailable."""
        return await reached(self._connection)

    async def close(self) -> None:
        if self._memory_streams is not None:
            self._memory_streams.cancel()
            await asyncio.wait([self._memory_streams])
        await self.stop_answering()
        if self._handoff is not None:
            await self._handoff.close()
        await self._reads.close()
        await self._connection.close()
