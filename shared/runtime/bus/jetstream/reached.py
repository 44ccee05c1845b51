"""The cluster time that the facts have reached."""

import asyncio

from nats.js.errors import NotFoundError

from schemas.codec import Malformed
from schemas.subjects import FACT_SUBJECTS, FACTS_STREAM, OF_NODES, facts_of, is_subject_of
from shared.domain.invariants import read_fact
from shared.runtime.bus.jetstream.connection import Connection, unavailable

OF_SERVICES = tuple(set(FACT_SUBJECTS) - set(facts_of(*OF_NODES)))
"""the facts that only services publish: an agent whose clock is wrong does not move that of the cluster"""


async def reached(connection: Connection) -> float:
    """The latest cluster time of the newest facts that services published; 0: there are none.

    A message that is no fact, or is on another fact's subject, does not count: services pass it over, too.
    Raises Unavailable.
    """
    with unavailable("the time of the newest fact"):
        return max(await asyncio.gather(*(_newest_at(connection, subject) for subject in OF_SERVICES)))


async def _newest_at(connection: Connection, subject: str) -> float:
    try:
        newest = await connection.js.get_last_msg(FACTS_STREAM, subject)
        fact = read_fact(newest.data or b"")
    except (NotFoundError, Malformed):
        return 0.0
    return fact.at if fact is not None and is_subject_of(fact, newest.subject or "") else 0.0
