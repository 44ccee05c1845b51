"""Reads the facts about one node for its agent, which may make no consumer.

A consumer can have the server send whatever a stream holds to any subject: an account that may make one can
publish as any other. So an agent asks a service for the next facts (`node_reads`), in order from where it is.
It also subscribes to the subjects of its node: a message there only tells it that it is time to ask.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error

from schemas.subjects import Filter, about_node
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.consumer import Lost, Pulled, Raw, check_end
from shared.runtime.bus.jetstream.node_reads import facts_after, place_of

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

ASK_EVERY_S = 5.0
"""seconds after which an agent asks although no message has come: one may be lost"""
PAUSES_S = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""pauses before each attempt to get an announced fact: the message may come before the fact is stored"""
ONCE = PAUSES_S[:1]


class NodeReader:
    """Has the methods of `Consumer`."""

    def __init__(self, connection: Connection, node_id: str) -> None:
        self._connection = connection
        self._node_id = node_id
        self._filter = Filter(())
        self._seq = 0
        self._announced = asyncio.Event()
        self._lost = ""
        self._subscriptions: list[Subscription] = []

    async def open(self, after: int, subjects: Sequence[str]) -> None:
        """Begin after a place in the stream. Raises Lost, and EndsBefore where there is no such place."""
        self._seq, self._filter = after, Filter(subjects)
        try:
            for subject in about_node(self._node_id):
                self._subscriptions.append(await self._connection.nats.subscribe(subject, cb=self._announce))
            await self._connection.nats.flush()
            place = await place_of(self._connection, self._node_id)
        except (Error, OSError) as error:
            raise Lost(repr(error)) from error
        check_end(self._connection, after, place.last)

    def interrupt(self) -> None:
        """Have `take` raise Lost: the connection was lost, and messages with it."""
        self._lost = "the connection was lost"
        self._announced.set()

    async def take(self) -> Pulled:
        """Wait for the next facts. Raises Lost."""
        pauses: Sequence[float] = ONCE
        while True:
            found = await self._ask(pauses)
            if found:
                return Pulled(self._seq, [raw for raw in found if self._filter.passes(raw.subject)])
            announced = await self._announced_within(ASK_EVERY_S)
            pauses = PAUSES_S if announced else ONCE
            self._announced.clear()

    async def close(self) -> None:
        with suppress(Error):
            for subscription in self._subscriptions:
                await subscription.unsubscribe()

    async def _announce(self, _: Msg) -> None:
        self._announced.set()

    async def _announced_within(self, limit_s: float) -> bool:
        """Whether a message comes within so many seconds, or has come since the last `clear`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._announced.wait()
        return self._announced.is_set()

    async def _ask(self, pauses: Sequence[float]) -> list[Raw]:
        """The next facts: asks after each pause until there are some, or a message announces one."""
        for pause_s in pauses:
            if self._lost:
                raise Lost(self._lost)
            if await self._announced_within(pause_s):
                break
            found = await self._next_facts()
            if found:
                return found
        return []

    async def _next_facts(self) -> list[Raw]:
        try:
            rows = await facts_after(self._connection, self._node_id, self._seq)
        except (Error, OSError) as error:
            raise Lost(repr(error)) from error
        if rows:
            self._seq = rows[-1].seq
        return [Raw(row.seq, row.subject, row.data) for row in rows]
