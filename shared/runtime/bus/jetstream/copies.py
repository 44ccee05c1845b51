"""Copies whole streams out of a server and back into one, by the server's own snapshots.

A snapshot is of one instant, though the stream goes on. It keeps the sequences, times and ids of messages.
The server sends it in parts, and waits for a reply after each.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, BinaryIO

import msgspec
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from schemas.subjects import STATE_SUBJECT
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.connection import Connection, unavailable
from shared.runtime.bus.jetstream.streams import STATE_STREAM

PART_BYTES = 128 * 1024
PART_LIMIT_S = 30.0
"""how long the server may take for each part of a snapshot"""
RAISED_AT_ONCE = 500
RAISED_AT_MOST = 1_000_000
"""revisions: each costs a message"""
Plain = dict[str, Any]


class StreamCopy(msgspec.Struct, frozen=True):
    """The server's description of a stream that it hands over."""

    config: Plain
    state: Plain

    @property
    def last_seq(self) -> int:
        return int(self.state.get("last_seq", 0))


class NotCopied(Exception):
    """The server does not hand the stream over, or does not take it; the text says why."""


class _Problem(msgspec.Struct, frozen=True):
    description: str = ""
    code: int = 0


class _Answer(msgspec.Struct, frozen=True):
    error: _Problem | None = None
    config: Plain = {}
    state: Plain = {}
    deliver_subject: str = ""


async def copy_stream(connection: Connection, stream: str, out: BinaryIO) -> StreamCopy:
    """Write the stream into a file. Raises Unavailable, NotCopied."""
    parts: asyncio.Queue[Msg] = asyncio.Queue()
    inbox = connection.nats.new_inbox()
    with unavailable(f"snapshot of {stream}"):
        subscription = await connection.nats.subscribe(inbox, cb=parts.put)
        try:
            request = {"deliver_subject": inbox, "no_consumers": True, "chunk_size": PART_BYTES}
            answer = await _request(
                connection, f"$JS.API.STREAM.SNAPSHOT.{stream}", msgspec.json.encode(request)
            )
            async for part in _parts(stream, parts):
                out.write(part)
        finally:
            await subscription.unsubscribe()
    return StreamCopy(answer.config, answer.state)


async def _parts(stream: str, parts: asyncio.Queue[Msg]) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(PART_LIMIT_S):
                msg = await parts.get()
        except TimeoutError:
            raise Unavailable(f"the snapshot of {stream} stopped") from None
        status = (msg.headers or {}).get("Status", "")
        if status and not status.startswith("2"):
            raise NotCopied(f"{stream}: {status} {(msg.headers or {}).get('Description', '')}".strip())
        if not msg.data:
            return
        yield msg.data
        if msg.reply:
            await msg.respond(b"")


async def restore_stream(connection: Connection, copy: StreamCopy, data: BinaryIO) -> None:
    """Create the stream from a file, with one replica. Raises Unavailable, NotCopied."""
    name, config = str(copy.config["name"]), copy.config | {"num_replicas": 1}
    with unavailable(f"restore of {name}"):
        request = msgspec.json.encode({"config": config, "state": copy.state})
        answer = await _request(connection, f"$JS.API.STREAM.RESTORE.{name}", request)
        while part := data.read(PART_BYTES):
            await connection.nats.request(answer.deliver_subject, part, timeout=PART_LIMIT_S)
        await _request(connection, answer.deliver_subject, b"")


async def _request(connection: Connection, subject: str, data: bytes) -> _Answer:
    """Raises NotCopied."""
    reply = await connection.nats.request(subject, data, timeout=PART_LIMIT_S)
    answer = msgspec.json.decode(reply.data, type=_Answer)
    if answer.error is not None:
        raise NotCopied(answer.error.description)
    return answer


async def last_seq_of(connection: Connection, stream: str) -> int:
    """Sequence of a stream's newest message. Raises Unavailable."""
    with unavailable(f"state of {stream}"):
        return int((await connection.js.stream_info(stream)).state.last_seq)


async def raise_revisions(connection: Connection, at_least: int) -> None:
    """Have the next write to the state bucket get a revision above `at_least`. Raises Unavailable, NotCopied.

    A lease's revision is its holder's fencing token, which facts carry: no new holder may have an older one.
    A revision is a sequence of the bucket's stream, so messages of no meaning are published until it is
    reached.
    """
    with unavailable("the revisions of the state"):
        try:
            last = await last_seq_of(connection, STATE_STREAM)
        except NotFoundError:
            raise NotCopied(f"there is no stream {STATE_STREAM}") from None
        if at_least - last > RAISED_AT_MOST:
            raise NotCopied(f"{STATE_STREAM} ends at {last}, far before {at_least}")
        while last < at_least:
            some = min(RAISED_AT_ONCE, at_least - last)
            publishing = [connection.js.publish(f"{STATE_SUBJECT}.restored", b"") for _ in range(some)]
            last = max(ack.seq for ack in await asyncio.gather(*publishing))
