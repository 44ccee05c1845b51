"""Streams as the monitor sees them, which archives and trims them (`Streams` of the contract)."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from shared.runtime.bus.contract import Extent, Stored, Unavailable
from shared.runtime.bus.jetstream.connection import Connection, unavailable

MESSAGE_LIMIT_S = 10.0


class JetStreamStreams:
    _connection: Connection

    async def extent(self, stream: str) -> Extent:
        with unavailable(f"state of {stream}"):
            state = (await self._connection.js.stream_info(stream)).state
        first = state.first_seq if state.messages else state.last_seq + 1
        return Extent(first=first, last=state.last_seq, bytes=state.bytes)

    async def stored(self, stream: str, after: int, upto: int, bytes_max: int) -> list[Stored]:
        found: list[Stored] = []
        size = 0
        async with aclosing(self._messages(stream, after)) as messages:
            async for message in messages:
                metadata = message.metadata
                seq = metadata.sequence.stream
                if seq > upto:
                    break
                sent_as = (message.headers or {}).get("Nats-Msg-Id", "")
                at = metadata.timestamp.timestamp()
                found.append(Stored(seq, at, message.subject, sent_as, message.data))
                size += len(message.data)
                if seq == upto or size >= bytes_max or not metadata.num_pending:
                    break
        return found

    async def _messages(self, stream: str, after: int) -> AsyncGenerator[Msg, None]:
        """The messages above `after`, by the client's own consumer, which begins again at a gap."""
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after + 1, ack_policy=AckPolicy.NONE
        )
        with unavailable(f"reading {stream}"):
            reader = await self._connection.js.subscribe(
                ">", stream=stream, ordered_consumer=True, config=config
            )
            try:
                while True:
                    yield await reader.next_msg(timeout=MESSAGE_LIMIT_S)
            except NatsTimeoutError:
                raise Unavailable(f"{stream} does not hand over messages after {after}") from None
            finally:
                await reader.unsubscribe()

    async def drop(self, stream: str, upto: int) -> None:
        with unavailable(f"dropping from {stream}"):
            await self._connection.js.purge_stream(stream, seq=upto + 1)
