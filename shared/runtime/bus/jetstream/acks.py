"""Publishes messages to a stream without waiting for the acknowledgement of one before the next is sent."""

import asyncio
import itertools

import msgspec
from nats.aio.msg import Msg

from shared.runtime.bus.jetstream.connection import Connection

WRONG_LAST_SEQUENCE = 10071
"""JetStream's error code: the newest message of the subject is not the one that the header expects"""
SEQUENCE_IN_DOUBT = 10164
"""as `WRONG_LAST_SEQUENCE`, perhaps: a cluster has not decided yet on a message with the same expectation"""
ID_IN_PROCESS = 10158
"""error code: a cluster has not decided yet on another message with this id"""


class ApiProblem(msgspec.Struct):
    """JetStream's error: `code` is like an HTTP status, `err_code` its own."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct):
    """What the server says of one message."""

    seq: int = 0
    duplicate: bool = False
    error: ApiProblem | None = None


NO_STREAM = Ack(error=ApiProblem(503, 0, "no stream listens"))
_decoder = msgspec.json.Decoder(Ack)


class Acks:
    """Matches acknowledgements with what they acknowledge, by reply subject."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox = ""
        self._waiting: dict[str, asyncio.Future[Ack]] = {}
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        self._inbox = self._connection.nats.new_inbox()
        await self._connection.nats.subscribe(f"{self._inbox}.*", cb=self._take)
        self._connection.when_lost.add(self._cancel_all)

    async def send(self, subject: str, data: bytes, headers: dict[str, str]) -> asyncio.Future[Ack]:
        """Put a message on the socket. The future is cancelled if the connection is lost first.

        Raises nats.errors.Error if the connection is lost already.
        """
        reply = f"{self._inbox}.{next(self._numbers)}"
        ack: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = ack
        ack.add_done_callback(lambda _: self._waiting.pop(reply))
        try:
            await self._connection.nats.publish(subject, data, reply=reply, headers=headers)
        except BaseException:
            ack.cancel()
            raise
        return ack

    async def _take(self, msg: Msg) -> None:
        ack = self._waiting.get(msg.subject)
        if ack is not None and not ack.done():
            ack.set_result(_decoder.decode(msg.data) if msg.data else NO_STREAM)

    def _cancel_all(self) -> None:
        """The connection is lost, and with it the acknowledgements on their way."""
        for ack in tuple(self._waiting.values()):
            ack.cancel()
