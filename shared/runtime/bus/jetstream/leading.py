"""Which instance of a service leads, as the stream of facts has it, and the fence of this connection.

An instance begins to lead with a fact, `ServiceLed`, and leads until another instance publishes one. It keeps
the subject and the sequence of its own as its fence (`Connection.fence`), which goes with every fact that it
publishes: NATS refuses the fact once the fence is not the newest `ServiceLed` of the service.
"""

import asyncio
import math
import time
from contextlib import suppress

from msgspec.structs import replace
from nats.errors import Error
from nats.js.api import PubAck
from nats.js.errors import APIError, NotFoundError

from schemas.base import Event
from schemas.codec import Malformed
from schemas.events import ServiceLed
from schemas.subjects import FACTS_STREAM
from shared.domain.invariants import read_fact
from shared.runtime.bus.contract import Fenced, Unavailable
from shared.runtime.bus.jetstream.acks import ID_IN_PROCESS, SEQUENCE_IN_DOUBT, WRONG_LAST_SEQUENCE
from shared.runtime.bus.jetstream.connection import EXPECTED_LAST, Connection, Fence, unavailable
from shared.runtime.bus.jetstream.encoded_facts import EncodedFact, encoded, id_is_taken, newest_seq

MISSING_S = 10.0
"""how long the stream may lack the fence's fact until the leader counts as deposed: a server that has lost
its disk finds nothing, and refuses whatever expects that fact; a supervised one is ended sooner"""
MISSING_LOOKS = 5
"""looks in a row that this takes at least: between two that are far apart the fact may have been there"""


class Leading:
    """What a connection knows of leaders; its service's own, once it leads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._renewing = asyncio.Lock()
        """held while a renewal of the lead may be stored and is not confirmed"""
        self._missed_at = math.inf
        """when the fence's fact was last found missing, by a clock that cannot be set; infinite: it is not"""
        self._missing_s = 0.0
        """how long it has been missing, of the time between two looks MISSING_S / MISSING_LOOKS at most"""
        self._first_led = 0
        """sequence of the first `ServiceLed` of any service; 0: not known"""

    async def newest(self, service: str) -> int:
        """Sequence of the newest `ServiceLed` of a service; 0: it has none. Raises Unavailable."""
        with unavailable("a leader's last fact"):
            return await newest_seq(self._connection, _subject_of(service))

    async def publish_led(self, led: ServiceLed, after: int) -> None:
        """Publish `led` unless the service has a `ServiceLed` newer than `after`; it becomes the fence.

        Raises Fenced where there is a newer one, and Unavailable; `led` may be stored all the same.
        """
        expected = {EXPECTED_LAST: str(after)}
        with unavailable("taking the lead"):
            fact = encoded(self._connection, replace(led, first=await self._find_first_led()))
            try:
                ack = await self._send(fact, fact.headers | expected)
                if ack.duplicate and await id_is_taken(self._connection, fact, ack.seq):
                    ack = await self._send(fact, expected)
            except APIError as error:
                if error.err_code in {WRONG_LAST_SEQUENCE, SEQUENCE_IN_DOUBT}:
                    raise Fenced(f"another instance leads since fact {after}") from None
                if error.err_code == ID_IN_PROCESS:
                    raise Unavailable(str(error)) from None
                raise
        self._connection.fence = Fence(fact.subject, int(ack.seq))

    async def _send(self, fact: EncodedFact, headers: dict[str, str]) -> PubAck:
        return await self._connection.js.publish(fact.subject, fact.data, headers=headers)

    async def renew(self, led: ServiceLed) -> None:
        """Put `led` in the place of the fence, and retry until it is known to be stored.

        Nothing else may be published meanwhile. Raises Fenced, Unavailable.
        """
        async with self._renewing:
            for pause in self._connection.pauses():
                try:
                    await self.publish_led(led, self._fence.seq)
                except Unavailable as error:
                    self._connection.log.info("renewing the lead again", reason=str(error))
                except Fenced:
                    if await self._led_is_stored(led):
                        return
                else:
                    return
                await self._connection.up()
                await asyncio.sleep(pause)

    async def _led_is_stored(self, led: ServiceLed) -> bool:
        """Whether the refused `led` is the newest of its service: then an earlier attempt has stored it.

        A NATS server on its own looks at the expected sequence before the id, so it refuses a fact that it
        has, where a cluster says that it is a duplicate. False: `led` is not stored, or NATS does not say.
        Raises Fenced where another instance leads.
        """
        try:
            stored_at = await self._stored_at(led)
            if stored_at:
                self._connection.fence = Fence(led.subject, stored_at)
                return True
            leads = await self._fence_is_newest()
        except (Error, OSError) as error:
            self._connection.log.debug("the leader is not known", reason=repr(error))
            return False
        if not leads:
            raise Fenced(f"another {led.service} leads")
        return False

    async def _stored_at(self, led: ServiceLed) -> int:
        """Sequence of `led` where it is the newest of its service; 0: it is not. Raises what NATS raises."""
        try:
            newest = await self._connection.js.get_last_msg(FACTS_STREAM, led.subject)
        except NotFoundError:
            return 0
        fact = _fact_in(newest.data)
        return (newest.seq or 0) if fact is not None and fact.event_id == led.event_id else 0

    async def still_leads(self) -> bool:
        """Whether no other instance has led since this one. Raises Unavailable where that is not known."""
        leads = await self._fence_is_newest()
        if not leads and self._renewing.locked():  # what is newer may be the renewal
            raise Unavailable("NATS has not confirmed yet that this service renews its lead")
        return leads

    async def check(self) -> None:
        """Return once it is known that this instance leads still. Raises Fenced where it does not."""
        for pause in self._connection.pauses():
            try:
                if await self.still_leads():
                    return
            except (Error, OSError) as error:
                self._connection.log.debug("the leader is not known", reason=repr(error))
            else:
                raise Fenced("another instance leads")
            await self._connection.up()
            await asyncio.sleep(pause)

    @property
    def _fence(self) -> Fence:
        fence = self._connection.fence
        assert fence is not None, "only a leader has a fence"
        return fence

    async def _fence_is_newest(self) -> bool:
        """Whether the fence is the newest `ServiceLed` of its service. Raises Unavailable."""
        with unavailable("a look at who leads"):
            newest = await newest_seq(self._connection, self._fence.subject)
        fence = self._fence  # read again: it may have been renewed while NATS was asked
        self._doubt_while_missing(there=newest >= fence.seq)
        return newest == fence.seq

    def _doubt_while_missing(self, *, there: bool) -> None:
        """Raise Unavailable while the stream lacks the fence's fact, for MISSING_S at most."""
        if there:
            self._missed_at, self._missing_s = math.inf, 0.0
            return
        now = time.monotonic()
        self._missing_s += min(max(now - self._missed_at, 0.0), MISSING_S / MISSING_LOOKS)
        self._missed_at = now
        if self._missing_s < MISSING_S:
            raise Unavailable("NATS does not find the fact by which this service leads: its disk may be gone")

    async def first_led(self) -> float:
        """Sequence of the first `ServiceLed` of any service; infinite: there is none, as in version 0.1.

        To an agent 0, since it may not ask. Waits until NATS answers.
        """
        connection = self._connection
        if connection.is_agents or self._first_led:
            return self._first_led
        for pause in connection.pauses():
            try:
                self._first_led = await self._find_first_led()
            except (Error, OSError):
                await connection.up()
                await asyncio.sleep(pause)
            else:
                return self._first_led or math.inf
        raise AssertionError("pauses have no end")

    async def _find_first_led(self) -> int:
        """0: there is none. Raises what NATS raises.

        The stream may have dropped the first, so each `ServiceLed` names it (`ServiceLed.first`).
        """
        try:
            oldest = await self._connection.js.get_msg(FACTS_STREAM, 1, subject=_subject_of("*"), next=True)
            newest = await self._connection.js.get_last_msg(FACTS_STREAM, _subject_of("*"))
        except NotFoundError:
            return 0
        known = oldest.seq, _first_named_by(oldest.data), _first_named_by(newest.data)
        return min(filter(None, known), default=0)


def _subject_of(service: str) -> str:
    return f"hopyard.service.{service}.led"


def _fact_in(data: bytes | None) -> Event | None:
    """None: the message holds no fact that can be read."""
    with suppress(Malformed):
        return read_fact(data or b"")
    return None


def _first_named_by(data: bytes | None) -> int:
    fact = _fact_in(data)
    return fact.first if isinstance(fact, ServiceLed) else 0
