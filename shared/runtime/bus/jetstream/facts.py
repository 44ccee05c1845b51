"""The stream of facts over JetStream."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress

from msgspec.structs import replace
from nats.errors import Error
from nats.js.api import PubAck
from nats.js.errors import APIError, NotFoundError

from schemas.base import Event
from schemas.codec import Malformed, encode
from schemas.events import ServiceLed
from schemas.subjects import FACTS_STREAM, is_subject_of, passing, was_subject_of
from shared.domain.invariants import read_fact
from shared.runtime.bus.contract import Batch, Fenced, Record, Unavailable
from shared.runtime.bus.jetstream.acks import (
    ID_IN_PROCESS,
    SEQUENCE_IN_DOUBT,
    WRONG_LAST_SEQUENCE,
    Ack,
    Acks,
)
from shared.runtime.bus.jetstream.archived_facts import archived_after, fetched, first_of
from shared.runtime.bus.jetstream.connection import AWAY, NOTHING_STORED, Connection, Fence, unavailable
from shared.runtime.bus.jetstream.consumer import Consumer, Lost, Pulled, Raw
from shared.runtime.bus.jetstream.handoff import Handoff, Letter
from shared.runtime.bus.jetstream.node_reader import NodeReader
from shared.runtime.bus.jetstream.node_reads import facts_after, place_of
from shared.runtime.bus.limits import check_size

FETCHED_AT_ONCE = 100
MISSING_S = 10.0
"""how long the fact by which a leader began may be missing until the leader counts as deposed: a server whose
disk is gone finds nothing, and refuses what expects that fact; where it is supervised it is ended sooner"""
READ_ROOM_BYTES = 1_024
"""of a message, left for what a service adds that shows the fact to an agent"""


class JetStreamFacts:
    def __init__(self, connection: Connection, handoff: Handoff | None = None) -> None:
        self._connection = connection
        self._handoff = handoff
        self._acks = Acks(connection)
        self._publishing = asyncio.Lock()
        self._led_first = 0
        """0: not known, and to an agent none counts"""
        self._saying_on = asyncio.Lock()
        """held while it is said anew that this service leads"""
        self._missing_since = self._missed_at = -math.inf
        """when the fact by which it began to lead was first and last missing; of a clock nobody sets"""

    async def open(self) -> None:
        with unavailable("subscribe"):
            await self._acks.open()

    async def last_seq(self) -> int:
        with unavailable("last_seq"):
            if self._connection.of_agents:
                return (await place_of(self._connection, self._connection.node)).last
            return int((await self._connection.js.stream_info(FACTS_STREAM)).state.last_seq)

    async def fetch(self, seqs: Sequence[int]) -> list[Record]:
        with unavailable("fetch"):
            found: list[Raw] = []
            for first in range(0, len(seqs), FETCHED_AT_ONCE):
                some = [seq for seq in seqs[first : first + FETCHED_AT_ONCE] if seq > 0]
                messages = await asyncio.gather(*map(self._fetched, some))
                found += [message for message in messages if message is not None]
            there = {raw.seq: raw for raw in found}
            missing = [seq for seq in seqs if seq > 0 and seq not in there]
            for first in range(0, len(missing), FETCHED_AT_ONCE):
                older = await fetched(self._connection, missing[first : first + FETCHED_AT_ONCE])
                there |= {raw.seq: raw for raw in older}
        return await self._records([there[seq] for seq in seqs if seq in there])

    async def _fetched(self, seq: int) -> Raw | None:
        try:
            message = await self._connection.js.get_msg(FACTS_STREAM, seq)
        except NotFoundError:
            return None
        return Raw(seq, message.subject or "", message.data or b"")

    # ---- leading

    async def led_last(self, service: str) -> int:
        """Sequence of the fact by which a service's newest leader began; 0: none has. Raises Unavailable."""
        with unavailable("led_last"):
            return await self._newest_of(_led(service))

    async def lead(self, led: ServiceLed, after: int) -> None:
        """Publish that we lead, unless another leads since `after`; from now on publish as a leader.

        What an earlier leader has kept beside the stream comes first. Raises Fenced, Unavailable; then it may
        be stored all the same.
        """
        await self._say(led, after)
        if self._handoff is not None:
            await self._in_order(await self._handoff.take_over())
            await self._handoff.let_go()

    async def _say(self, led: ServiceLed, after: int) -> None:
        """Raises Fenced, Unavailable."""
        expected = {"Nats-Expected-Last-Subject-Sequence": str(after)}
        with unavailable("lead"):
            letter = self._letter(replace(led, first=await self._first_led_known()))
            try:
                ack = await self._lead(letter, letter.headers | expected)
                if ack.duplicate and await self._is_taken(letter, ack.seq):
                    ack = await self._lead(letter, expected)
            except APIError as error:
                if error.err_code in {WRONG_LAST_SEQUENCE, SEQUENCE_IN_DOUBT}:
                    raise Fenced(f"another leads since fact {after}") from None
                if error.err_code == ID_IN_PROCESS:
                    raise Unavailable(str(error)) from None
                raise
        self._connection.fence = Fence(letter.subject, int(ack.seq))

    async def _lead(self, letter: Letter, headers: dict[str, str]) -> PubAck:
        return await self._connection.js.publish(letter.subject, letter.data, headers=headers)

    async def lead_on(self, led: ServiceLed, distance: int) -> bool:
        """Say anew that we lead, where that was said more than so many facts ago; whether it was said.

        What is old may go, and by it the stream knows the leader. Raises Fenced, Unavailable.
        """
        fence = self._connection.fence
        assert fence is not None, "asked by one who leads"
        if await self.last_seq() - fence.seq < distance:
            return False
        async with self._publishing, self._saying_on:
            for pause in self._connection.pauses():
                try:
                    await self._say(led, fence.seq)
                except Unavailable as error:  # it may be stored: then it is known by its id
                    self._connection.log.info("leading is said again", reason=str(error))
                except Fenced:
                    if await self._said(led):
                        return True
                else:
                    return True
                await self._connection.up()
                await asyncio.sleep(pause)
        raise AssertionError("pauses have no end")

    async def _said(self, led: ServiceLed) -> bool:
        """Whether the fact is stored, though NATS did not confirm it: one server looks at ids last.

        False: it is not, or that is not known. Raises Fenced.
        """
        try:
            newest = await self._connection.js.get_last_msg(FACTS_STREAM, led.subject)
            fact = _fact_in(newest.data)
            if fact is not None and fact.event_id == led.event_id:
                self._connection.fence = Fence(led.subject, newest.seq or 0)
                return True
            leads = await self._leads()
        except (Error, OSError) as error:
            self._connection.log.debug("who leads is not known", reason=repr(error))
            return False
        if not leads:
            raise Fenced(f"another {led.service} leads")
        return False

    async def still_leads(self) -> bool:
        """Whether no other has led since. Raises Unavailable."""
        leads = await self._leads()
        if not leads and self._saying_on.locked():
            raise Unavailable("this service says anew that it leads, and NATS has not confirmed that")
        return leads

    async def _leads(self) -> bool:
        """As above, but for what `lead_on` is just saying."""
        assert self._connection.fence is not None, "asked by one who leads"
        with unavailable("still_leads"):
            newest = await self._newest_of(self._connection.fence.subject)
        fence = self._connection.fence  # it may have been said anew since
        self._doubt_while_missing(there=newest >= fence.seq)
        return newest == fence.seq

    def _doubt_while_missing(self, *, there: bool) -> None:
        """Raise Unavailable while the fact by which it began to lead is missing, for MISSING_S at most."""
        if there:
            self._missed_at = -math.inf
            return
        now = time.monotonic()
        if now - self._missed_at > MISSING_S:  # what was seen before says nothing of the time between
            self._missing_since = now
        self._missed_at = now
        if now - self._missing_since < MISSING_S:
            raise Unavailable("NATS does not find by which fact this service leads: its disk may be gone")

    def why_not_stored(self) -> str:
        if self._connection.away:
            return AWAY
        leads = self._connection.fence is not None
        kept = leads and self._handoff is not None and not self._handoff.failing
        return "" if kept else self._connection.why_not_stored

    # ---- publishing

    async def publish(self, events: Sequence[Event]) -> None:
        letters = [self._letter(event) for event in events]
        storing = self._in_order(letters)
        if self._handoff is None or self._connection.fence is None:
            await storing
        else:
            await self._handoff.safely(letters, storing)

    async def _in_order(self, letters: Sequence[Letter]) -> None:
        at_once = self._at_once()
        async with self._publishing:
            for first in range(0, len(letters), at_once):
                await self._store(letters[first : first + at_once])
        self._connection.counts.facts_published += len(letters)

    def _at_once(self) -> int:
        """A cluster of servers takes one message at a time that expects something of the same subject."""
        settings = self._connection.settings
        fenced = self._connection.fence is not None and settings.nats_replicas > 1
        return 1 if fenced else settings.publish_in_flight

    def _letter(self, event: Event) -> Letter:
        event_id = event.event_id
        limit = self._connection.nats.max_payload - READ_ROOM_BYTES
        data = check_size(event_id, encode(event), limit, message_id=event_id)
        return Letter(event.subject, data, {"Nats-Msg-Id": event_id})

    async def _store(self, letters: Sequence[Letter]) -> None:
        """Publish until all are stored. From the first that was not, all are published again, in order."""
        for pause in self._connection.pauses():
            await self._connection.up()
            stored = await self._send(letters)
            letters = letters[stored:]
            if stored or not letters:
                self._connection.why_not_stored = ""
            elif self._connection.connected():
                self._connection.why_not_stored = NOTHING_STORED
            if not letters:
                return
            self._connection.check_allowed(letters[0].subject)
            self._connection.counts.facts_republished += len(letters)
            self._connection.log.warning("facts are published again", count=len(letters))
            await asyncio.sleep(pause)

    async def _send(self, letters: Sequence[Letter]) -> int:
        """Publish the facts once; the number of them, from the first on, that are stored."""
        acks: list[asyncio.Future[Ack]] = []
        fence = self._connection.fence
        fenced = fence.headers if fence else {}
        try:
            for subject, data, headers in letters:
                acks.append(await self._acks.send(subject, data, headers | fenced))
        except Error as error:
            self._connection.log.debug("publishing broke off", reason=repr(error))
        try:
            if acks:
                await asyncio.wait(acks, timeout=self._connection.confirmed_s)
        finally:
            for ack in acks:
                ack.cancel()
        return await self._really_stored(letters, acks)

    async def _really_stored(self, letters: Sequence[Letter], acks: Sequence[asyncio.Future[Ack]]) -> int:
        """The number stored, from the first on; a duplicate counts if the stored message is the fact."""
        stored = _stored(acks)
        if any(_follows_another(ack) for ack in acks[stored : stored + 1]):
            await self._check_fence()  # a server that cannot read says so too
        if self._connection.fence and any(ack.result().duplicate for ack in acks[:stored]):
            await self._check_fence()  # a cluster looks at ids first
        for place, (letter, ack) in enumerate(zip(letters[:stored], acks, strict=False)):
            if ack.result().duplicate and not await self._stands(letter, ack.result().seq):
                return place
        return stored

    async def _check_fence(self) -> None:
        """Raises Fenced."""
        for pause in self._connection.pauses():
            try:
                if await self.still_leads():
                    return
            except (Error, OSError) as error:
                self._connection.log.debug("who leads is not known", reason=repr(error))
            else:
                raise Fenced("another leads")
            await self._connection.up()
            await asyncio.sleep(pause)

    async def _stands(self, letter: Letter, seq: int) -> bool:
        """Whether the fact is in the stream, where its id is: whoever knows an id may have put it elsewhere.

        Then it is stored without an id; readers pass over what comes twice.
        """
        try:
            if not await self._is_taken(letter, seq):
                return True
            fence = self._connection.fence
            ack = await self._acks.send(letter.subject, letter.data, fence.headers if fence else {})
        except NotFoundError:
            return True  # it is so old that the stream has dropped it
        except (Error, OSError):
            return False
        try:
            await asyncio.wait([ack], timeout=self._connection.confirmed_s)
        finally:
            ack.cancel()
        return not ack.cancelled() and ack.result().error is None

    async def _is_taken(self, letter: Letter, seq: int) -> bool:
        """Whether what has a fact's id is another's. Raises what NATS raises."""
        subject = await self._subject_at(letter, seq)
        if subject == letter.subject:
            return False
        reason = f"its id stands on {subject or 'what is another node'}"
        self._connection.log.error("the id of a fact was taken", subject=letter.subject, reason=reason)
        return True

    async def _subject_at(self, letter: Letter, seq: int) -> str:
        """Empty: of another node. Raises NotFoundError, and what NATS raises."""
        connection = self._connection
        if not connection.of_agents:
            return (await connection.js.get_msg(FACTS_STREAM, seq)).subject or ""
        node_id = letter.subject.split(".")[2]
        if seq < (await place_of(connection, node_id)).first:
            raise NotFoundError
        rows = await facts_after(connection, node_id, seq - 1)
        return next((row.subject for row in rows if row.seq == seq), "")

    # ---- reading

    async def dropped(self) -> int:
        with unavailable("dropped"):
            return await first_of(self._connection) - 1

    async def newest(self, subjects: Sequence[str]) -> int:
        with unavailable("newest"):
            if self._connection.of_agents:
                return (await place_of(self._connection, _node_of(subjects))).newest
            found = await asyncio.gather(*map(self._newest_of, Consumer(self._connection).filters(subjects)))
        return max(found)

    async def _newest_of(self, subject: str) -> int:
        try:
            return (await self._connection.js.get_last_msg(FACTS_STREAM, subject)).seq or 0
        except NotFoundError:
            return 0

    async def read(self, after: int, subjects: Sequence[str]) -> AsyncIterator[Batch]:
        last = after
        attempts = self._connection.pauses()
        while True:
            await self._connection.up()
            try:
                async with aclosing(self._dropped(last, subjects)) as older:
                    async for batch in older:
                        last = batch.last
                        yield batch
                async with aclosing(self._follow(last, subjects)) as batches:
                    async for end, found, skipped in batches:
                        attempts = self._connection.pauses()
                        lost = await self._lost(skipped)
                        records, last = await self._records(found), end
                        yield Batch(records, end, lost)
            except Lost as error:
                self._connection.counts.readers_restarted += 1
                self._connection.log.info("reading begins again", after=last, reason=str(error))
            await asyncio.sleep(next(attempts))

    async def _dropped(self, after: int, subjects: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """What is no longer in the stream. Raises Lost, Damaged."""
        connection, passes = self._connection, passing(subjects)
        while True:
            try:
                first = await first_of(connection)
            except (Error, OSError) as error:
                raise Lost(repr(error)) from error
            if after + 1 >= first:
                return
            older = await archived_after(
                connection, after, first, may_lack=connection.settings.allow_lost_facts
            )
            if older.forgotten:
                connection.counts.facts_forgotten += older.forgotten
                connection.log.error("facts are in no archive", after=after, count=older.forgotten)
            after = older.upto
            yield Batch(await self._records([raw for raw in older.found if passes(raw.subject)]), after)

    async def _follow(self, after: int, subjects: Sequence[str]) -> AsyncGenerator[Pulled, None]:
        """What one consumer brings. Raises Lost."""
        consumer = self._reader(subjects)
        connection = self._connection
        with (
            connection.notifying(connection.when_lost, consumer.interrupt),
            connection.notifying(connection.when_closed, consumer.interrupt),
        ):
            try:
                await consumer.open(after, subjects)
                while True:
                    yield await consumer.take()
            finally:
                await consumer.close()

    async def _lost(self, skipped: Sequence[range]) -> list[range]:
        """Sequences that did not come. Raises Lost where the stream was trimmed meanwhile."""
        if not skipped:
            return []
        try:
            first = await first_of(self._connection)
        except (Error, OSError) as error:
            raise Lost(repr(error)) from error
        if skipped[0].start < first:
            raise Lost(f"the stream was trimmed to {first}")
        self._connection.counts.facts_lost += sum(map(len, skipped))
        return list(skipped)

    def _reader(self, subjects: Sequence[str]) -> Consumer | NodeReader:
        if not self._connection.of_agents:
            return Consumer(self._connection)
        return NodeReader(self._connection, _node_of(subjects))

    async def _records(self, batch: Sequence[Raw]) -> list[Record]:
        records = []
        for raw in batch:
            event = await self._event(raw)
            if event is not None:
                records.append(Record(raw.seq, event))
        self._connection.counts.facts_read += len(records)
        return records

    async def _event(self, raw: Raw) -> Event | None:
        try:
            event = read_fact(raw.data)
        except Malformed as error:
            await self._connection.dead_letter(raw.subject, raw.data, str(error), raw.seq)
            return None
        self._connection.counts.facts_unknown += event is None
        if event is not None and not await self._belongs(event, raw):
            reason = f"a fact of {event.subject} does not belong there"
            await self._connection.dead_letter(raw.subject, raw.data, reason, raw.seq)
            return None
        return event

    async def _belongs(self, event: Event, raw: Raw) -> bool:
        """Whether it stands where its publisher may put it, or had it there before anybody led.

        A job may have the name of a node, so where version 0.1 put measurements an agent can say anything.
        """
        if is_subject_of(event, raw.subject):
            return True
        return was_subject_of(event, raw.subject) and raw.seq < await self._first_led()

    async def _first_led(self) -> float:
        """Sequence of the first fact by which an instance led; in version 0.1 none did."""
        connection = self._connection
        if connection.of_agents or self._led_first:
            return self._led_first
        for pause in connection.pauses():
            try:
                self._led_first = await self._first_led_known()
            except (Error, OSError):
                await connection.up()
                await asyncio.sleep(pause)
            else:
                return self._led_first or math.inf
        raise AssertionError("pauses have no end")

    async def _first_led_known(self) -> int:
        """0: none is. What the stream has dropped, who led since has said. Raises what NATS raises."""
        stream = self._connection.js
        try:
            oldest = await stream.get_msg(FACTS_STREAM, 1, subject=_led("*"), next=True)
            newest = await stream.get_last_msg(FACTS_STREAM, _led("*"))
        except NotFoundError:
            return 0
        known = oldest.seq, _first_said(oldest.data), _first_said(newest.data)
        return min(filter(None, known), default=0)


def _node_of(subjects: Sequence[str]) -> str:
    """The one node that all the subjects are about: an agent reads facts of one node."""
    (node_id,) = {subject.split(".")[2] for subject in subjects}
    return node_id


def _stored(acks: Sequence[asyncio.Future[Ack]]) -> int:
    """The number of good acknowledgements before the first bad one.

    Raises ValueError for a fact that the server will never take.
    """
    for place, ack in enumerate(acks):
        if ack.cancelled():
            return place
        error = ack.result().error
        if error is not None and error.err_code in {WRONG_LAST_SEQUENCE, SEQUENCE_IN_DOUBT, ID_IN_PROCESS}:
            return place
        if error is not None and 400 <= error.code < 500:  # noqa: PLR2004 - as in HTTP: our fault
            raise ValueError(f"the stream refuses a fact: {error.description}")
        if error is not None:
            return place
    return len(acks)


def _follows_another(ack: asyncio.Future[Ack]) -> bool:
    """Whether the server refuses a fact since it is no longer the newest leader's."""
    error = None if ack.cancelled() else ack.result().error
    return error is not None and error.err_code == WRONG_LAST_SEQUENCE


def _fact_in(data: bytes | None) -> Event | None:
    """None: what can be read there is no fact."""
    with suppress(Malformed):
        return read_fact(data or b"")
    return None


def _first_said(data: bytes | None) -> int:
    fact = _fact_in(data)
    return fact.first if isinstance(fact, ServiceLed) else 0


def _led(service: str) -> str:
    return f"hopyard.service.{service}.led"
