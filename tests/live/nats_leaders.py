"""Which of three NATS servers leads what, as a client sees it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import ClusterInfo

from schemas.subjects import FACTS_STREAM
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.handoff import SILENT_NS
from shared.runtime.bus.jetstream.streams import STATE_STREAM
from shared.runtime.process.nats_server import NatsServer
from shared.runtime.process.nats_servers import NatsServers

STREAMS = (FACTS_STREAM, STATE_STREAM)
LIMIT_S = 120.0
LOOK_S = 0.05

T = TypeVar("T")


class Leaders:
    """Of the streams of facts and of state. Whom nobody answers knows of no leader."""

    def __init__(self, servers: NatsServers, eyes: JetStreamContext) -> None:
        self._servers = servers
        self._eyes = eyes

    async def of(self, stream: str) -> NatsServer | None:
        found = await self._cluster(stream)
        if found is None or not found.leader:
            return None
        return self._servers.each[int(found.leader.rpartition("-")[2]) - 1]

    async def apart(self) -> bool:
        """Whether each stream has a leader, and no server leads both."""
        first, second = [await self.of(stream) for stream in STREAMS]
        return first is not None and second is not None and first is not second

    async def whole(self) -> bool:
        """Whether every server has everything. Who stood still first takes itself for the leader."""
        found = [await self._cluster(stream) for stream in STREAMS]
        heard = [
            [
                copy
                for copy in (each and each.replicas) or []
                if copy.current and (copy.active or 0) < SILENT_NS
            ]
            for each in found
        ]
        return all(len(copies) == len(self._servers.each) - 1 for copies in heard)

    async def _cluster(self, stream: str) -> ClusterInfo | None:
        with suppress(Error, OSError):
            return (await self._eyes.stream_info(stream)).cluster
        return None


async def until(holds: Callable[[], Awaitable[T]]) -> T:
    """What it finds, once that is something; while NATS has no leader it is asked again."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with suppress(Unavailable):
                if found := await holds():
                    return found
            await asyncio.sleep(LOOK_S)
