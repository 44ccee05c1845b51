"""Facts about one node, asked for one by one: for agents, which may make no consumer.

A consumer can have the server send what is in a stream to any subject: whoever may make one could put words
into everybody's mouth. An agent's account hears the subjects of its node instead, which only rings a bell;
what it goes by is the stream, read in order from the place where it is.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.errors import NotFoundError

from schemas.subjects import FACTS_STREAM, Filter
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.consumer import Found, Lost, Raw

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

LOOK_EVERY_S = 5.0
"""without a bell: one may be lost"""
STORED_AFTER_S = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""between looks after a bell: it may ring before the fact is stored"""
AT_ONCE = 100


class NodeReader:
    """As `Consumer`."""

    def __init__(self, connection: Connection, node_id: str) -> None:
        self._connection = connection
        self._subject = f"hopyard.*.{node_id}.*"
        """of all facts about the node, whatever they are about"""
        self._filter = Filter(())
        self._seq = 0
        self._bell = asyncio.Event()
        self._lost = ""
        self._subscription: Subscription

    def filters(self, _: Sequence[str]) -> list[str]:
        return [self._subject]

    async def open(self, after: int, subjects: Sequence[str]) -> None:
        """Raises Lost, and RuntimeError for a place that the stream does not have."""
        self._seq, self._filter = after, Filter(subjects)
        try:
            self._subscription = await self._connection.nats.subscribe(self._subject, cb=self._ring)
            await self._connection.nats.flush()
            await self._connection.nats.flush()  # the first overtakes the queued subscription
            state = (await self._connection.js.stream_info(FACTS_STREAM)).state
        except (Error, OSError) as error:
            raise Lost(repr(error)) from error
        if state.last_seq < after:
            raise RuntimeError(f"{FACTS_STREAM} ends at {state.last_seq}, and was read up to {after}")

    def interrupt(self) -> None:
        """The connection changed: bells may have been missed."""
        self._lost = "the connection was lost"
        self._bell.set()

    async def take(self) -> Found:
        """The next facts. Raises Lost."""
        while True:
            found = await self._stored()
            if found:
                return Found(self._seq, [raw for raw in found if self._filter.passes(raw.subject)])
            await self._rings_within(LOOK_EVERY_S)
            self._bell.clear()

    async def close(self) -> None:
        with suppress(Error, AttributeError):
            await self._subscription.unsubscribe()

    async def _ring(self, _: Msg) -> None:
        self._bell.set()

    async def _rings_within(self, limit_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._bell.wait()
        return self._bell.is_set()

    async def _stored(self) -> list[Raw]:
        """The next facts; looks a few times where none is there yet, or until it rings."""
        for pause_s in STORED_AFTER_S:
            if self._lost:
                raise Lost(self._lost)
            if await self._rings_within(pause_s):
                break
            found = await self._next_ones()
            if found:
                return found
        return []

    async def _next_ones(self) -> list[Raw]:
        found: list[Raw] = []
        while len(found) < AT_ONCE:
            raw = await self._next()
            if raw is None:
                break
            found.append(raw)
            self._seq = raw.seq
        return found

    async def _next(self) -> Raw | None:
        try:
            message = await self._connection.js.get_msg(
                FACTS_STREAM, seq=self._seq + 1, subject=self._subject, next=True
            )
        except NotFoundError:
            return None
        except (Error, OSError) as error:
            raise Lost(repr(error)) from error
        assert message.seq is not None
        return Raw(message.seq, message.subject or "", message.data or b"")
