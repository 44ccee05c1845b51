"""Questions and replies larger than one NATS message: announced in a header, fetched in parts.

The sender subscribes to a subject of its own, and sends an empty message whose header names that subject and
the number of parts. The receiver asks there for each part, a few at once, so that nothing is sent faster than
it is taken.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import TYPE_CHECKING

from schemas.codec import Malformed
from shared.runtime.bus.accounts import INBOXES
from shared.runtime.bus.limits import QUESTION_MAX_BYTES

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

HEADER = "Hopyard-LargeMessage"
PART_ROOM_BYTES = 1_024
"""bytes of the largest message that are left for headers"""
PARTS_AT_ONCE = 4
PARTS_AT_MOST = 1_024


class LargeMessage:
    """Bytes that `offered` holds ready in parts."""

    def __init__(self, parts: list[bytes], subject: str) -> None:
        self.headers = {HEADER: f"{subject} {len(parts)}"}
        self._parts = parts
        self._left = set(range(len(parts)))
        self.taken = asyncio.Event()
        """set once every part was asked for"""

    async def hand_over(self, msg: "Msg") -> None:
        """Reply with the part whose number is asked for."""
        index = int(msg.data)
        await msg.respond(self._parts[index])
        self._left.discard(index)
        if not self._left:
            self.taken.set()


@asynccontextmanager
async def offered(nats: "Client", data: bytes, within: str) -> AsyncIterator[LargeMessage]:
    """A context in which parts of the data can be fetched.

    `within`: the subject below which the receiver may ask.
    """
    size = nats.max_payload - PART_ROOM_BYTES
    subject = nats.new_inbox() if within == INBOXES else f"{within}.{token_hex(16)}"
    large = LargeMessage([data[at : at + size] for at in range(0, len(data), size)], subject)
    subscription = await nats.subscribe(subject, cb=large.hand_over)
    try:
        await nats.flush()
        yield large
    finally:
        await subscription.unsubscribe()


async def fetched(
    ask: Callable[[str, bytes], Awaitable["Msg"]],
    data: bytes,
    headers: Mapping[str, str] | None,
    *,
    within: str,
) -> bytes:
    """The data of a message, fetched by `ask` where its headers announce it in parts.

    `within`: the subject below which the sender may offer parts. Raises Malformed, and what `ask` raises;
    then no further part is asked for.
    """
    announced = (headers or {}).get(HEADER)
    if announced is None:
        return data
    subject, count = _address(announced, within)
    slots, size = asyncio.Semaphore(PARTS_AT_ONCE), 0

    async def part(index: int) -> bytes:
        nonlocal size
        async with slots:
            if size > QUESTION_MAX_BYTES:
                raise Malformed(f"a large message of more than {QUESTION_MAX_BYTES} bytes")
            reply = await ask(subject, str(index).encode())
            size += len(reply.data)
        return bytes(reply.data)

    parts = [asyncio.create_task(part(index)) for index in range(count)]
    try:
        return b"".join(await asyncio.gather(*parts))
    finally:
        for each in parts:
            each.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


def _address(announced: str, within: str) -> tuple[str, int]:
    """The announced subject and number of parts. Raises Malformed for a subject that is not for parts."""
    subject, _, parts = announced.partition(" ")
    if not subject.startswith(f"{within}."):
        raise Malformed(f"a large message whose parts are not below {within}")
    if not parts.isdecimal() or not 1 <= int(parts) <= PARTS_AT_MOST:
        raise Malformed(f"a large message of {parts!r} parts")
    return subject, int(parts)
