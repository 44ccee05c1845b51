"""The stream of facts over JetStream: publishing to it, and reading it from any place on."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from nats.errors import Error
from nats.js.errors import NotFoundError

from schemas.base import Event
from schemas.codec import Malformed
from schemas.events import ServiceLed
from schemas.subjects import FACTS_STREAM, coarser, is_subject_of, passing, was_subject_of
from shared.domain.invariants import read_fact
from shared.runtime.bus.accounts import is_agent
from shared.runtime.bus.contract import Batch, Record
from shared.runtime.bus.jetstream.acks import (
    ID_IN_PROCESS,
    SEQUENCE_IN_DOUBT,
    WRONG_LAST_SEQUENCE,
    Ack,
    Acks,
)
from shared.runtime.bus.jetstream.archived_facts import archived_after, archived_at, first_of
from shared.runtime.bus.jetstream.connection import Connection, unavailable
from shared.runtime.bus.jetstream.consumer import Consumer, EndsBefore, Lost, Pulled, Raw
from shared.runtime.bus.jetstream.encoded_facts import EncodedFact, encoded, id_is_taken, newest_seq
from shared.runtime.bus.jetstream.handoff import Handoff
from shared.runtime.bus.jetstream.leading import Leading
from shared.runtime.bus.jetstream.node_reader import NodeReader
from shared.runtime.bus.jetstream.node_reads import place_of
from shared.runtime.damage import REMEDY, Damaged

FETCHED_AT_ONCE = 100
REPAIRED_S = 60.0
"""how long a stream of several replicas may end too early: the server that leads it may have to hear of the
others first"""


class JetStreamFacts:
    def __init__(self, connection: Connection, handoff: Handoff | None = None) -> None:
        self._connection = connection
        self._handoff = handoff
        self._acks = Acks(connection)
        self._leading = Leading(connection)
        self._publishing = asyncio.Lock()
        """held by the one publishing whose facts go to the stream, so that those of two never mix"""

    async def open(self) -> None:
        with unavailable("listening to acknowledgements"):
            await self._acks.open()

    async def last_seq(self) -> int:
        with unavailable("the end of the log"):
            if self._connection.is_agents:
                return (await place_of(self._connection, self._connection.node)).last
            return int((await self._connection.js.stream_info(FACTS_STREAM)).state.last_seq)

    async def fetch(self, seqs: Sequence[int], *, archived: bool = True) -> list[Record]:
        with unavailable("reading facts"):
            found: dict[int, Raw] = {}
            for some in _chunks([seq for seq in seqs if seq > 0]):
                messages = await asyncio.gather(*map(self._fetched, some))
                found |= {raw.seq: raw for raw in messages if raw is not None}
            absent = [seq for seq in seqs if seq > 0 and seq not in found]
            for some in _chunks(absent if archived else []):
                found |= {raw.seq: raw for raw in await archived_at(self._connection, some)}
        return await self._records([found[seq] for seq in seqs if seq in found])

    async def _fetched(self, seq: int) -> Raw | None:
        """None: the stream does not have it."""
        try:
            message = await self._connection.js.get_msg(FACTS_STREAM, seq)
        except NotFoundError:
            return None
        return Raw(seq, message.subject or "", message.data or b"")

    # ---- leading

    async def led_last(self, service: str) -> int:
        """Sequence of the fact by which a service's newest leader began; 0: none has. Raises Unavailable."""
        return await self._leading.newest(service)

    async def lead(self, led: ServiceLed, after: int) -> None:
        """Begin to lead: publish `led` unless another instance has led since fact `after`.

        From then on this connection publishes as the leader, and first what an earlier leader has left in the
        handoff. Raises Fenced, Unavailable; `led` may be stored all the same.
        """
        await self._leading.publish_led(led, after)
        if self._handoff is not None:
            await self._in_order(await self._handoff.take_over())
            await self._handoff.clear()

    async def renew_lead(self, led: ServiceLed, distance: int) -> bool:
        """Publish `led` in the place of this leader's last, once `distance` facts are behind that.

        The stream drops its oldest facts, and knows the leader by this one. False: it was not due yet.
        Raises Fenced, Unavailable.
        """
        fence = self._connection.fence
        assert fence is not None, "only a leader has a fence"
        if await self.last_seq() - fence.seq < distance:
            return False
        async with self._publishing:
            await self._leading.renew(led)
        return True

    async def still_leads(self) -> bool:
        """Whether no other instance has led since this one. Raises Unavailable where that is not known."""
        return await self._leading.still_leads()

    def why_not_stored(self) -> str:
        if why := self._connection.why_away:
            return why
        leads = self._connection.fence is not None
        kept = leads and self._handoff is not None and not self._handoff.failing
        return "" if kept else self._connection.why_not_stored

    # ---- publishing

    async def publish(self, events: Sequence[Event]) -> None:
        facts = [encoded(self._connection, event) for event in events]
        storing = self._in_order(facts)
        if self._handoff is None or self._connection.fence is None:
            await storing
        else:
            await self._handoff.store_or_keep(facts, storing)

    async def _in_order(self, facts: Sequence[EncodedFact]) -> None:
        """Store the facts in the stream, those of an earlier call first."""
        at_once = self._at_once()
        async with self._publishing:
            for first in range(0, len(facts), at_once):
                await self._store(facts[first : first + at_once])
        self._connection.counts.facts_published += len(facts)

    def _at_once(self) -> int:
        """How many facts may be on their way at once.

        A cluster of NATS servers refuses a message with a fence while another with the same is on its way.
        """
        settings = self._connection.settings
        fenced = self._connection.fence is not None and settings.nats_replicas > 1
        return 1 if fenced else settings.publish_in_flight

    async def _store(self, facts: Sequence[EncodedFact]) -> None:
        """Publish until all are stored. From the first that was not, all are published again, in order."""
        for pause in self._connection.pauses():
            await self._connection.up()
            stored = await self._send_once(facts)
            facts = facts[stored:]
            if stored or not facts:
                self._connection.write_confirmed()
            else:
                self._connection.write_unconfirmed()
            if not facts:
                return
            self._connection.check_allowed(facts[0].subject)
            self._connection.counts.facts_republished += len(facts)
            self._connection.log.warning("facts are published again", count=len(facts))
            await asyncio.sleep(pause)

    async def _send_once(self, facts: Sequence[EncodedFact]) -> int:
        """Publish the facts once; the number of them, from the first on, that are stored. Raises Fenced."""
        acks: list[asyncio.Future[Ack]] = []
        fence = self._fence_headers()
        try:
            for subject, data, headers in facts:
                acks.append(await self._acks.send(subject, data, headers | fence))
        except Error as error:
            self._connection.log.debug("publishing broke off", reason=repr(error))
        await self._confirmed(acks)
        return await self._count_stored(facts, acks)

    def _fence_headers(self) -> dict[str, str]:
        fence = self._connection.fence
        return fence.headers if fence else {}

    async def _confirmed(self, acks: Sequence[asyncio.Future[Ack]]) -> None:
        """Wait until all have come, or the time for it is over; those that have not come are cancelled."""
        try:
            if acks:
                await asyncio.wait(acks, timeout=self._connection.confirmed_s)
        finally:
            for ack in acks:
                ack.cancel()

    async def _count_stored(self, facts: Sequence[EncodedFact], acks: Sequence[asyncio.Future[Ack]]) -> int:
        """The number of facts stored, from the first on. Raises Fenced.

        NATS calls a message a duplicate by its id alone: it counts where the message that it has is the fact.
        """
        stored = _good(acks)
        if any(_fence_refused(ack) for ack in acks[stored : stored + 1]):
            await self._leading.check()  # a server that cannot read its disk refuses the fence as well
        if self._connection.fence and any(ack.result().duplicate for ack in acks[:stored]):
            await self._leading.check()  # a cluster looks at the id before the fence
        for place, (fact, ack) in enumerate(zip(facts[:stored], acks, strict=False)):
            if ack.result().duplicate and not await self._is_stored(fact, ack.result().seq):
                return place
        return stored

    async def _is_stored(self, fact: EncodedFact, seq: int) -> bool:
        """Whether a fact of which NATS has a duplicate, at `seq`, is in the stream.

        Where the duplicate is another message that was given the fact's id, the fact is published without
        an id; readers pass over what comes twice.
        """
        try:
            if not await id_is_taken(self._connection, fact, seq):
                return True
            ack = await self._acks.send(fact.subject, fact.data, self._fence_headers())
        except NotFoundError:
            return True  # it is so old that the stream has dropped it
        except (Error, OSError):
            return False
        await self._confirmed([ack])
        return not ack.cancelled() and ack.result().error is None

    # ---- reading

    async def dropped(self) -> int:
        with unavailable("the beginning of the log"):
            return await first_of(self._connection) - 1

    async def newest(self, subjects: Sequence[str]) -> int:
        connection = self._connection
        with unavailable("the newest fact"):
            if connection.is_agents:
                return (await place_of(connection, _node_of(subjects))).newest
            found = await asyncio.gather(*(newest_seq(connection, one) for one in coarser(subjects)))
            return max(found)

    async def read(self, after: int, subjects: Sequence[str]) -> AsyncIterator[Batch]:
        last = after
        attempts = self._connection.pauses()
        short_since: float | None = None
        while True:
            await self._connection.up()
            try:
                async with aclosing(self._from_archive(last, subjects)) as archived:
                    async for batch in archived:
                        last = batch.last
                        yield batch
                was_short = short_since is not None
                async with aclosing(self._from_stream(last, subjects, was_short=was_short)) as pulled:
                    async for end, found, skipped in pulled:
                        attempts = self._connection.pauses()
                        lost = await self._lost(skipped)
                        records, last = await self._records(found), end
                        yield Batch(records, end, lost)
            except Lost as error:
                if isinstance(error, EndsBefore):
                    short_since = short_since or time.monotonic()
                    self._check_patience(error, short_since)
                self._connection.counts.readers_restarted += 1
                self._connection.log.info("reading begins again", after=last, reason=str(error))
            await asyncio.sleep(next(attempts))

    def _check_patience(self, error: EndsBefore, since: float) -> None:
        """Raise an error that ends the process if the stream has ended too early for long enough.

        Damaged, unless the process may go on without the facts that are lost: then it begins again, without
        its snapshot (`Shell`). `since`: by a clock that cannot be set.
        """
        settings = self._connection.settings
        if time.monotonic() - since < (REPAIRED_S if settings.nats_replicas > 1 else 0.0):
            return
        if settings.allow_lost_facts or is_agent(self._connection.name):
            raise RuntimeError(str(error)) from None
        raise Damaged(f"{error}: what was between is lost. {REMEDY}") from None

    async def _from_archive(self, after: int, subjects: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """The facts after `after` that the stream has dropped. Raises Lost, Damaged."""
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
                connection.counts.facts_forgotten += len(older.forgotten)
                connection.log.error("facts are in no archive", after=after, count=len(older.forgotten))
            after = older.upto
            records = await self._records([raw for raw in older.found if passes(raw.subject)])
            yield Batch(records, after, forgotten=older.forgotten)

    async def _from_stream(
        self, after: int, subjects: Sequence[str], *, was_short: bool
    ) -> AsyncGenerator[Pulled, None]:
        """What one consumer brings, until it is lost. Raises Lost.

        Raises RuntimeError where the stream `was_short`, ending before `after`, and no longer is: servers
        have repaired it, or it has gone on with other facts. A new process compares its snapshot with it.
        """
        consumer = self._consumer(subjects)
        connection = self._connection
        with (
            connection.notifying(connection.when_lost, consumer.interrupt),
            connection.notifying(connection.when_closed, consumer.interrupt),
        ):
            try:
                await consumer.open(after, subjects)
                if was_short:
                    raise RuntimeError(
                        f"{FACTS_STREAM} at NATS ended before fact {after} for a while, and may have other "
                        f"facts there now: {connection.name} has to begin again"
                    )
                while True:
                    yield await consumer.take()
            finally:
                await consumer.close()

    async def _lost(self, skipped: Sequence[range]) -> list[range]:
        """The skipped sequences, which the stream has lost. Raises Lost where it was trimmed meanwhile."""
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

    def _consumer(self, subjects: Sequence[str]) -> Consumer | NodeReader:
        if not self._connection.is_agents:
            return Consumer(self._connection)
        return NodeReader(self._connection, _node_of(subjects))

    async def _records(self, batch: Sequence[Raw]) -> list[Record]:
        """The facts among the messages; what is none goes to the dead letters."""
        records = []
        for raw in batch:
            event = await self._event(raw)
            if event is not None:
                records.append(Record(raw.seq, event))
        self._connection.counts.facts_read += len(records)
        return records

    async def _event(self, raw: Raw) -> Event | None:
        """None: it is malformed, impossible, or of a type that only a later version knows."""
        try:
            event = read_fact(raw.data)
        except Malformed as error:
            await self._connection.dead_letter(raw.subject, raw.data, str(error), raw.seq)
            return None
        self._connection.counts.facts_unknown += event is None
        if event is not None and not await self._is_on_its_subject(event, raw):
            reason = f"a fact of {event.subject} does not belong there"
            await self._connection.dead_letter(raw.subject, raw.data, reason, raw.seq)
            return None
        return event

    async def _is_on_its_subject(self, event: Event, raw: Raw) -> bool:
        """Whether a fact is on the subject of those who may publish it, or was so in version 0.1.

        In that version no instance led: a fact before the first `ServiceLed` is of it. After that the old
        subjects do not count, since an agent whose node has the name of a job may publish on the job's.
        """
        if is_subject_of(event, raw.subject):
            return True
        return was_subject_of(event, raw.subject) and raw.seq < await self._leading.first_led()


def _chunks(seqs: Sequence[int]) -> list[Sequence[int]]:
    """The sequences in chunks of FETCHED_AT_ONCE."""
    return [seqs[first : first + FETCHED_AT_ONCE] for first in range(0, len(seqs), FETCHED_AT_ONCE)]


def _node_of(subjects: Sequence[str]) -> str:
    """The one node that all the subjects are about: an agent reads facts of one node."""
    (node_id,) = {subject.split(".")[2] for subject in subjects}
    return node_id


def _good(acks: Sequence[asyncio.Future[Ack]]) -> int:
    """The number of good acknowledgements before the first bad or missing one.

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


def _fence_refused(ack: asyncio.Future[Ack]) -> bool:
    """Whether the server refuses a fact since its fence is not the newest `ServiceLed`."""
    error = None if ack.cancelled() else ack.result().error
    return error is not None and error.err_code == WRONG_LAST_SEQUENCE
