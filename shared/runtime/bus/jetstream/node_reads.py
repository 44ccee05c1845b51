"""Answers agents that ask what the streams hold: the agent's requests, and the service's answers.

An agent may not use JetStream itself: with its requests anybody could read, or have sent, whatever is stored.
So every process of a service answers on `hopyard-read.NODE.WHAT`. NATS hands each request to one of them, and
an agent without an answer soon asks again (`asking_again`). The answer holds what belongs to that node alone.
NATS lets an agent ask on the subjects of its own node alone.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import TypeVar

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError

from schemas.base import Message
from schemas.numbers import WholeNumber
from schemas.questions import ArchivePage, ReadArchive
from schemas.subjects import (
    FACTS_STREAM,
    READ_PREFIX,
    Filter,
    about_node,
    earlier_state_subject,
    node_of_key,
    state_subject,
)
from shared.runtime.bus.backoff import pauses
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.fair_queue import FairQueue
from shared.runtime.bus.jetstream.asking_again import first_answer
from shared.runtime.bus.jetstream.connection import Connection, dated, in_words, unavailable
from shared.runtime.bus.jetstream.questions import JetStreamQuestions
from shared.runtime.bus.jetstream.streams import STATE_STREAM
from shared.runtime.bus.limits import check_key

FACTS_AT_MOST = 100
"""facts in a reply"""
BYTES_AT_MOST = 256 * 1_024
"""bytes of facts in a reply; the last fact may exceed it"""
REQUESTS_AT_ONCE = 64
REQUESTS_OF_A_NODE = 16
"""requests of a node that are answered at the same time, so that no node keeps others waiting"""
WAITING_OF_A_NODE = 256
"""requests that may wait; more are dropped, and the agent asks again"""
TIMEOUT_S = 2.0
OLDER_TIMEOUT_S = 1.5
COMMON_KEYS = frozenset({"settings"})
"""keys of the state bucket that any agent may read"""
T = TypeVar("T")


class ReadFacts(Message, frozen=True, kw_only=True):
    """The facts about the node after a place in the stream."""

    after: WholeNumber


class Row(Message, frozen=True, kw_only=True):
    """A fact as the stream holds it."""

    seq: WholeNumber
    subject: str
    data: bytes


class NodeFacts(Message, frozen=True, kw_only=True):
    rows: tuple[Row, ...]
    """the next ones, in their order; empty: there are none yet"""


class OlderFacts(Message, frozen=True, kw_only=True):
    """The next facts that the stream has dropped, from the archive."""

    rows: tuple[Row, ...]
    upto: WholeNumber
    """the rows are all facts about the node up to this sequence; if it is not above the one asked after, the
    archive has no more"""


class Place(Message, frozen=True, kw_only=True):
    """From which sequence to which the stream goes."""

    first: WholeNumber
    last: WholeNumber
    newest: WholeNumber
    """sequence of the newest fact about the node; 0: there is none"""


class ReadValue(Message, frozen=True, kw_only=True):
    key: str


class StoredValue(Message, frozen=True, kw_only=True):
    data: bytes | None
    """None: there is none"""
    revision: WholeNumber = 0


# ---- the agent's side


async def facts_after(connection: Connection, node_id: str, after: int) -> tuple[Row, ...]:
    """The next facts about a node, from the stream. Raises what NATS raises."""
    return (await _asked(connection, node_id, "facts", ReadFacts(after=after), NodeFacts)).rows


async def older_after(connection: Connection, node_id: str, after: int) -> OlderFacts:
    """The next facts about a node, from the archive. Raises what NATS raises."""
    return await _asked(connection, node_id, "older", ReadFacts(after=after), OlderFacts)


async def until_answered(connection: Connection, timeout_s: float | None) -> None:
    """Wait until a service answers: then the streams exist. Raises Unavailable."""
    try:
        async with asyncio.timeout(timeout_s):
            log = connection.log_once_late()
            for pause in pauses():
                try:
                    await place_of(connection, connection.node)
                except (Error, OSError) as error:
                    log("waiting for a service that answers agents", reason=in_words(error))
                else:
                    return
                await asyncio.sleep(pause)
                await connection.up()
    except TimeoutError:
        raise Unavailable(f"no service answers agents within {timeout_s} s") from None


async def place_of(connection: Connection, node_id: str) -> Place:
    """Raises what NATS raises."""
    return await _asked(connection, node_id, "place", None, Place)


async def asked_value(connection: Connection, key: str) -> StoredValue:
    """A value of the state bucket, as a service finds it. Raises what NATS raises."""
    node_id = node_of_key(key) or connection.node
    return await _asked(connection, node_id, "value", ReadValue(key=key), StoredValue)


async def _asked(connection: Connection, node_id: str, what: str, body: Message | None, kind: type[T]) -> T:
    """A service's answer, of this `kind`. Raises what NATS raises."""
    data = b"" if body is None else msgspec.msgpack.encode(body)
    reply = await first_answer(connection.nats, f"{READ_PREFIX}.{node_id}.{what}", data)
    try:
        return msgspec.msgpack.decode(reply.data, type=kind)
    except msgspec.DecodeError as error:  # of another version, or refused
        raise Error(f"{what} of {node_id}: {error}") from None


# ---- the service's side


class NodeReads:
    """Answers agents, in one process of a service."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: FairQueue[Msg] = FairQueue(
            at_once=REQUESTS_AT_ONCE, at_once_of_one=REQUESTS_OF_A_NODE, waiting_of_one=WAITING_OF_A_NODE
        )
        self._answering: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self._connection.nats.subscribe(f"{READ_PREFIX}.>", queue="reads", cb=self._take)
        await self._connection.flush()

    async def close(self) -> None:
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _take(self, msg: Msg) -> None:
        if not msg.reply:
            return  # an agent had NATS send an acknowledgement here
        _, node_id, _ = msg.subject.split(".")
        if self._waiting.put(node_id, msg):
            self._answer_waiting()

    def _answer_waiting(self) -> None:
        while (turn := self._waiting.next()) is not None:
            who, msg = turn
            task = asyncio.get_running_loop().create_task(self._reply(msg))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            task.add_done_callback(partial(self._answered, who))

    def _answered(self, who: str, task: "asyncio.Task[None]") -> None:
        self._waiting.done(who)
        if not task.cancelled():
            self._answer_waiting()

    async def _reply(self, msg: Msg) -> None:
        _, node_id, what = msg.subject.split(".")
        try:
            if what == "time":
                await msg.respond(await self._dated())
                return
            found = await self._found(node_id, what, msg.data)
        except (msgspec.DecodeError, ValueError) as error:
            await self._connection.dead_letter(msg.subject, msg.data, f"not to be read: {error}")
            found = None
        except (Error, OSError):
            return  # the agent asks again
        with suppress(Error):
            await msg.respond(msgspec.msgpack.encode(found))

    async def _found(self, node_id: str, what: str, data: bytes) -> Message:
        """Raises ValueError for what is not the node's to read."""
        match what:
            case "facts":
                return await self._facts(node_id, msgspec.msgpack.decode(data, type=ReadFacts).after)
            case "older":
                return await self._older(node_id, msgspec.msgpack.decode(data, type=ReadFacts).after)
            case "place":
                return await self._place(node_id)
            case "value":
                key = check_key(msgspec.msgpack.decode(data, type=ReadValue).key)
                if node_of_key(key) != node_id and key not in COMMON_KEYS:
                    raise ValueError(f"{key} is not of {node_id}")
                return await stored_value(self._connection, key)
            case _:
                raise ValueError(f"there is no {what} to read")

    async def _dated(self) -> bytes:
        """The server's time, with which an agent compares its clock (`Connection.time_ahead`)."""
        nats = self._connection.nats
        info = (await nats.request(f"$JS.API.STREAM.INFO.{FACTS_STREAM}", b"", timeout=TIMEOUT_S)).data
        return msgspec.json.encode({"ts": dated(info)})

    async def _facts(self, node_id: str, after: int) -> NodeFacts:
        rows: list[Row] = []
        size, passes = 0, Filter(about_node(node_id)).passes
        while len(rows) < FACTS_AT_MOST and size < BYTES_AT_MOST:
            try:
                found = await self._connection.js.get_msg(
                    FACTS_STREAM, seq=after + 1, subject=f"hopyard.*.{node_id}.*", next=True
                )
            except NotFoundError:
                break
            assert found.seq is not None
            after = found.seq
            if passes(found.subject or ""):
                rows.append(Row(seq=after, subject=found.subject or "", data=found.data or b""))
                size += len(rows[-1].data)
        return NodeFacts(rows=tuple(rows))

    async def _older(self, node_id: str, after: int) -> OlderFacts:
        """Raises Unavailable.

        Facts that the archive lacks are passed over: an agent does what services order now, not long ago.
        """
        if not self._connection.settings.archive:
            return OlderFacts(rows=(), upto=after)
        question = ReadArchive(after=after, node=node_id)
        page = await JetStreamQuestions(self._connection).ask(question, OLDER_TIMEOUT_S)
        if not isinstance(page, ArchivePage):
            raise Unavailable(f"the archive: {page}")
        passes = Filter(about_node(node_id)).passes
        rows = [
            Row(seq=one.seq, subject=one.subject, data=one.data)
            for one in page.messages
            if passes(one.subject)
        ]
        fitting = _fitting(rows)
        return OlderFacts(rows=fitting, upto=fitting[-1].seq if len(fitting) < len(rows) else page.upto)

    async def _place(self, node_id: str) -> Place:
        with unavailable("a node's newest fact"):
            info: StreamInfo = await self._connection.js.stream_info(FACTS_STREAM)
            try:
                subject = f"hopyard.*.{node_id}.*"
                newest = (await self._connection.js.get_last_msg(FACTS_STREAM, subject)).seq or 0
            except NotFoundError:
                newest = 0
        return Place(first=info.state.first_seq, last=info.state.last_seq, newest=newest)


def _fitting(rows: Sequence[Row]) -> tuple[Row, ...]:
    """As many rows as fit one reply, at least one."""
    sizes = accumulate(len(row.data) for row in rows)
    count = sum(size <= BYTES_AT_MOST for size in sizes)
    return tuple(rows[: min(max(count, 1), FACTS_AT_MOST)])


async def stored_value(connection: Connection, key: str) -> StoredValue:
    """A value of the state bucket. Raises what NATS raises."""
    for subject in dict.fromkeys((state_subject(key), earlier_state_subject(key))):
        with suppress(NotFoundError):
            found = await connection.js.get_last_msg(STATE_STREAM, subject)
            assert found.seq is not None
            return StoredValue(
                data=found.data or b"", revision=found.seq if subject == state_subject(key) else 0
            )
    return StoredValue(data=None)
