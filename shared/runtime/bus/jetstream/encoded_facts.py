"""A fact as NATS takes it, and whether the stream of facts has it already."""

from typing import NamedTuple

from nats.js.errors import NotFoundError

from schemas.base import Event
from schemas.codec import encode
from schemas.subjects import FACTS_STREAM
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.node_reads import facts_after, place_of
from shared.runtime.bus.limits import check_size

READ_ROOM_BYTES = 1_024
"""bytes of the largest message that are left for what a service adds for an agent (`node_reads`)"""


class EncodedFact(NamedTuple):
    """A fact ready to be published; its headers hold its id."""

    subject: str
    data: bytes
    headers: dict[str, str]


def encoded(connection: Connection, event: Event) -> EncodedFact:
    """Raises ValueError for a fact larger than a message may be."""
    event_id = event.event_id
    limit = connection.nats.max_payload - READ_ROOM_BYTES
    data = check_size(event_id, encode(event), limit, message_id=event_id)
    return EncodedFact(event.subject, data, {"Nats-Msg-Id": event_id})


async def newest_seq(connection: Connection, subject: str) -> int:
    """Sequence of the newest fact on a subject; 0: there is none. Raises what NATS raises."""
    try:
        return (await connection.js.get_last_msg(FACTS_STREAM, subject)).seq or 0
    except NotFoundError:
        return 0


async def id_is_taken(connection: Connection, fact: EncodedFact, seq: int) -> bool:
    """Whether another message has the fact's id: `seq` is where, as NATS says, a message with this id is.

    Any account can publish a message with any id on a subject of its own. Raises what NATS raises:
    NotFoundError where the stream has dropped the message.
    """
    subject = await _subject_at(connection, fact, seq)
    if subject == fact.subject:
        return False
    reason = f"a message on {subject or 'a subject of another node'} has its id"
    connection.log.error("the id of a fact was taken", subject=fact.subject, reason=reason)
    return True


async def _subject_at(connection: Connection, fact: EncodedFact, seq: int) -> str:
    """Subject of the message `seq`; to an agent, which reads facts of its node alone, "" for any other."""
    if not connection.is_agents:
        return (await connection.js.get_msg(FACTS_STREAM, seq)).subject or ""
    node_id = fact.subject.split(".")[2]
    if seq < (await place_of(connection, node_id)).first:
        raise NotFoundError
    rows = await facts_after(connection, node_id, seq - 1)
    return next((row.subject for row in rows if row.seq == seq), "")
