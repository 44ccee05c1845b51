"""One ordered consumer of the stream of facts: it hands over the messages without a gap, or raises `Lost`.

It requests a batch of messages at a time, so a slow reader holds a bounded number of them. The server sends
each message as soon as it has it, so a single fact does not wait for others.

For a reader of several kinds of fact the server sends all facts, and the consumer drops those of other kinds.
With a filter for each kind the server (2.15) would go through all subjects of a block for every message: a
millisecond each where there are ten thousand subjects, so minutes for a long log.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import BadRequestError

from schemas.subjects import ALL_FACTS, FACTS_STREAM, Filter, coarser
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.limits import READ_BATCH

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

PULL_S = 10.0
"""how long one request for messages stands"""
GRACE_S = 2.0
"""how much later than that the server may say that the request is over"""
HEARTBEAT_S = 1.0
"""how often the server sends a heartbeat in a cluster, where the sender may be gone and our connection not"""
SILENT_S = 3.0
"""after so long without a message or a heartbeat the sender counts as gone"""
PULL_BYTES = 8 * 1024 * 1024
IDLE_S = 60.0
"""after this long without a request the server forgets the consumer"""
REQUEST_OVER = ("408", "409 Message Size Exceeds MaxBytes")
"""statuses by which the server ends the request: its time is over, or its bytes are sent"""
HARMLESS = ("100", "409 Batch Completed")
"""a heartbeat, and the end of a batch, which is known already from counting its messages"""


class Lost(Exception):
    """The consumer is of no more use: the reader begins a new one after the last message that it got."""


class EndsBefore(Lost):
    """The stream ends before the place from which it is to be read; the text says where."""


def check_end(connection: Connection, after: int, last: int) -> None:
    """Raises EndsBefore where the stream, which ends at `last`, ends before `after`."""
    if last < after:
        raise EndsBefore(
            f"{FACTS_STREAM} at NATS ends at fact {last}, and {connection.name} has read it up to {after}"
        )


class Raw(NamedTuple):
    """A message of the stream of facts, not decoded yet."""

    seq: int
    subject: str
    data: bytes


class Pulled(NamedTuple):
    """What a reader has read up to one place of the stream."""

    last: int
    """sequence of the last message that came"""
    wanted: list[Raw]
    """those on the reader's subjects, of the messages that came; may be empty"""
    skipped: tuple[range, ...] = ()
    """sequences that did not come though all facts were asked for: trimmed, or lost"""


class Consumer:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._name = f"{connection.name}-{token_hex(6)}"
        self._arrived: deque[Msg] = deque()
        self._ready = asyncio.Event()
        self._lost = ""
        """why the consumer is of no more use; empty: it can be used"""
        self._due = 0
        """messages that the request may still bring"""
        self._next = 1
        """number of the consumer's next message"""
        self._last = 0
        """sequence of the last message that came"""
        self._inbox = ""
        self._filter: Filter | None = None
        """passes the messages that the reader wants; None: it wants all that come"""
        self._unfiltered = False
        """whether the server was asked for all facts"""
        self._skipped: list[range] = []
        self._subscription: Subscription | None = None

    async def open(self, after: int, subjects: Sequence[str]) -> None:
        """Begin after a place in the stream. Raises Lost, and EndsBefore where there is no such place."""
        try:
            self._inbox = self._connection.nats.new_inbox()
            self._subscription = await self._connection.nats.subscribe(self._inbox, cb=self._receive)
            await self._check_place(after)
            await self._connection.js.add_consumer(FACTS_STREAM, self._config(after, self._filters(subjects)))
        except BadRequestError as error:
            raise RuntimeError(f"cannot read {', '.join(subjects)}: {error.description}") from error
        except (Error, OSError) as error:
            raise Lost(repr(error)) from error

    def _filters(self, subjects: Sequence[str]) -> list[str]:
        """The subjects that the server is asked for; sets what is dropped here."""
        filters = coarser(subjects)
        self._unfiltered = filters == (ALL_FACTS,)
        self._filter = None if set(filters) == set(subjects) else Filter(subjects)
        return list(filters)

    def _config(self, after: int, filters: list[str]) -> ConsumerConfig:
        return ConsumerConfig(
            name=self._name,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            filter_subjects=filters,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=IDLE_S,
            mem_storage=True,
            num_replicas=1,
        )

    async def _check_place(self, after: int) -> None:
        state = (await self._connection.js.stream_info(FACTS_STREAM)).state
        check_end(self._connection, after, state.last_seq)
        if state.messages and after + 1 < state.first_seq:
            raise Lost(f"the stream was trimmed to {state.first_seq}")
        self._last = after

    def interrupt(self) -> None:
        """Have `take` raise Lost: the connection was lost, and the requested messages will not come."""
        self._lost = "the connection was lost"
        self._ready.set()

    async def take(self) -> Pulled:
        """Wait for the next messages. Raises Lost."""
        while True:
            if not self._due:
                await self._ask_for_more()
            if not self._arrived and not self._lost:
                await self._wait()
            before, batch = self._last, self._take_arrived()
            if self._last > before:
                skipped, self._skipped = tuple(self._skipped), []
                return Pulled(self._last, batch, skipped)

    async def close(self) -> None:
        if self._subscription is None:
            return
        with suppress(Error):
            await self._subscription.unsubscribe()
            await self._connection.nats.publish(f"$JS.API.CONSUMER.DELETE.{FACTS_STREAM}.{self._name}")

    async def _receive(self, msg: Msg) -> None:
        self._arrived.append(msg)
        self._ready.set()

    async def _ask_for_more(self) -> None:
        request = {"batch": READ_BATCH, "max_bytes": PULL_BYTES, "expires": int(PULL_S * 1e9)}
        if self._connection.clustered:
            request["idle_heartbeat"] = int(HEARTBEAT_S * 1e9)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{FACTS_STREAM}.{self._name}"
        try:
            await self._connection.nats.publish(subject, msgspec.json.encode(request), reply=self._inbox)
        except Error as error:
            raise Lost(repr(error)) from error
        self._due = READ_BATCH

    async def _wait(self) -> None:
        self._ready.clear()
        try:
            async with asyncio.timeout(SILENT_S if self._connection.clustered else PULL_S + GRACE_S):
                await self._ready.wait()
        except TimeoutError:
            raise Lost("the server went silent") from None

    def _take_arrived(self) -> list[Raw]:
        batch: list[Raw] = []
        while self._arrived:
            msg = self._arrived.popleft()
            status = msg.headers.get("Status") if msg.headers else None
            if status is not None and not msg.data:
                self._note_status(status, msg)
                continue
            raw = self._in_order(msg)
            if self._unfiltered and raw.seq > self._last + 1:
                self._skipped.append(range(self._last + 1, raw.seq))
            self._last = raw.seq
            if self._filter is None or self._filter.passes(raw.subject):
                batch.append(raw)
        if not batch and self._lost:  # messages that the reader does not want are read again
            raise Lost(self._lost)
        return batch

    def _in_order(self, msg: Msg) -> Raw:
        """Raises Lost where a message of the consumer is missing before this one."""
        sequence = msg.metadata.sequence
        if sequence.consumer != self._next:
            raise Lost(f"message {self._next} of the consumer is missing")
        self._next += 1
        self._due -= 1
        return Raw(sequence.stream, msg.subject, msg.data)

    def _note_status(self, status: str, msg: Msg) -> None:
        """Note what the server says of the request."""
        said = f"{status} {(msg.headers or {}).get('Description', '')}"
        if said.startswith(REQUEST_OVER):
            self._due = 0
        elif not said.startswith(HARMLESS):
            self._lost = said
