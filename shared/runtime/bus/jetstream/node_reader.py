"""Facts about one node, asked for one by one: for agents, which may make no consumer.

A consumer can have the server send what is in a stream to any subject: whoever may make one could put words
into everybody's mouth. An agent's account hears the subjects of its node instead, which only rings a bell;
what it goes by is the stream, which a service reads for it (`node_reads`) in order from where it is.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error

from schemas.subjects import FACTS_STREAM, Filter, about_node
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.consumer import Lost, Pulled, Raw
from shared.runtime.bus.jetstream.node_reads import facts_after, place_of

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

LOOK_EVERY_S = 5.0
"""without a bell: one may be lost"""
STORED_AFTER_S = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""between looks after a bell: it may ring before the fact is stored"""


class NodeReader:
    """Reads as `Consumer` does."""

    def __init__(self, connection: Connection, node_id: str) -> None:
        self._connection = connection
        self._node_id = node_id
        self._filter = Filter(())
        self._seq = 0
        self._bell = asyncio.Event()
        self._lost = ""
        self._subscriptions: list[Subscription] = []

    async def open(self, after: int, subjects: Sequence[str]) -> None:
        """Raises Lost, and RuntimeError for a place that the stream does not have."""
        self._seq, self._filter = after, Filter(subjects)
        try:
            for subject in about_node(self._node_id):
                self._subscriptions.append(await self._connection.nats.subscribe(subject, cb=self._ring))
            await self._connection.nats.flush()
            await self._connection.nats.flush()  # the first overtakes the queued subscription
            place = await place_of(self._connection, self._node_id)
        except (Error, OSError) as error:
            raise Lost(repr(error)) from error
        if place.last < after:
            raise RuntimeError(f"{FACTS_STREAM} ends at {place.last}, and was read up to {after}")

    def interrupt(self) -> None:
        """The connection changed: bells may have been missed."""
        self._lost = "the connection was lost"
        self._bell.set()

    async def take(self) -> Pulled:
        """The next facts. Raises Lost."""
        looks: Sequence[float] = STORED_AFTER_S[:1]
        while True:
            found = await self._stored(looks)
            if found:
                return Pulled(self._seq, [raw for raw in found if self._filter.passes(raw.subject)])
            rang = await self._rings_within(LOOK_EVERY_S)
            looks = STORED_AFTER_S if rang else STORED_AFTER_S[:1]
            self._bell.clear()

    async def close(self) -> None:
        with suppress(Error):
            for subscription in self._subscriptions:
                await subscription.unsubscribe()

    async def _ring(self, _: Msg) -> None:
        self._bell.set()

    async def _rings_within(self, limit_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._bell.wait()
        return self._bell.is_set()

    async def _stored(self, looks: Sequence[float]) -> list[Raw]:
        """The next facts; looks a few times where none is there yet, or until it rings."""
        for pause_s in looks:
            if self._lost:
                raise Lost(self._lost)
            if await self._rings_within(pause_s):
                break
            found = await self._next_ones()
            if found:
                return found
        return []

    async def _next_ones(self) -> list[Raw]:
        try:
            rows = await facts_after(self._connection, self._node_id, self._seq)
        except (Error, OSError) as error:
            raise Lost(repr(error)) from error
        if rows:
            self._seq = rows[-1].seq
        return [Raw(row.seq, row.subject, row.data) for row in rows]
