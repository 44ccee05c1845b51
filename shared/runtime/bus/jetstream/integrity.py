"""Checks the streams for damage before any service relies on them.

A server that starts on damaged files goes on with what it can read. That something is missing shows in the
numbers of its stream info alone.
"""

from collections.abc import AsyncIterator, Collection
from typing import NamedTuple

import msgspec
from nats.js.errors import APIError, NotFoundError

from schemas.subjects import ALL_FACTS, DEAD_STREAM, FACTS_STREAM, OBSERVATIONS_STREAM, STATE_SUBJECT
from shared.runtime.bus.contract import DamagedBlob, Unavailable
from shared.runtime.bus.jetstream import blobs
from shared.runtime.bus.jetstream.connection import Connection, unavailable
from shared.runtime.bus.jetstream.consumer import Consumer, Lost
from shared.runtime.bus.jetstream.streams import SNAPSHOT_STREAM, STATE_STREAM
from shared.runtime.bus.limits import seq_of
from shared.runtime.damage import joined, ranges_text

STREAMS = (FACTS_STREAM, STATE_STREAM, SNAPSHOT_STREAM, OBSERVATIONS_STREAM, DEAD_STREAM)
EXPENDABLE = (OBSERVATIONS_STREAM, DEAD_STREAM)
"""streams whose loss is not grave: no service restores from them"""
LIMIT_S = 10.0
NO_STREAM = 10059
"""JetStream's error code: there is no stream of this name"""


class Flaw(NamedTuple):
    """Damage that was found."""

    text: str
    """what is damaged, and what is lost by it"""
    grave: bool = True
    """false: nothing is lost that does not come back by itself"""


class _Lost(msgspec.Struct, frozen=True):
    msgs: list[int] | None = None
    bytes: int = 0


class _State(msgspec.Struct, frozen=True):
    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    num_deleted: int = 0
    deleted: list[int] | None = None
    lost: _Lost | None = None
    subjects: dict[str, int] | None = None


class _Problem(msgspec.Struct, frozen=True):
    err_code: int = 0
    description: str = ""


class _Info(msgspec.Struct, frozen=True):
    state: _State | None = None
    error: _Problem | None = None


async def flaws(
    connection: Connection, on_disk: Collection[str], services: Collection[str], archived: range = range(1, 1)
) -> list[Flaw]:
    """What is damaged in the streams, and in the snapshots of the `services`. Raises Unavailable.

    `on_disk`: streams whose folders are there. `archived`: sequences of the facts that are in the archive.
    """
    with unavailable("a look at the streams"):
        cursors = await _cursors(connection)  # first: services add to the streams and move them meanwhile
        states = {name: await _state(connection, name) for name in STREAMS}
        found = [
            Flaw(f"NATS cannot read what its stream {name} is: all in it is lost", name not in EXPENDABLE)
            for name, state in states.items()
            if state is None and name in on_disk
        ]
        facts, values = states[FACTS_STREAM], states[STATE_STREAM]
        if facts is None and values is not None and not found:
            found.append(Flaw(f"NATS has no stream {FACTS_STREAM} any more: all facts are lost"))
        if facts is not None:
            found += _of_facts(facts, await _deleted(connection, facts), cursors)
        if values is not None and (values.lost or (values.last_seq and not values.messages)):
            found.append(
                Flaw(f"NATS has lost values of {STATE_STREAM}: cursors, claims and leases of services")
            )
        whole = facts is not None and _begins(facts, archived) <= 1 and not found
        found += await _of_snapshots(connection, states[SNAPSHOT_STREAM], services, whole=whole)
    return found


async def lost_facts(connection: Connection) -> list[range]:
    """Sequences that the stream of facts has lost, found by reading all of it. Raises Unavailable."""
    with unavailable("a look at all facts"):
        state = await _state(connection, FACTS_STREAM)
        if state is None or not state.messages:
            return []
        end = (await connection.js.get_last_msg(FACTS_STREAM, ALL_FACTS)).seq or 0
        consumer, last = Consumer(connection), state.first_seq - 1
        found: list[range] = []
        try:
            await consumer.open(last, [ALL_FACTS])
            while last < end:
                last, _, skipped = await consumer.take()
                found += skipped
        except Lost as error:
            raise Unavailable(f"the facts could not all be read: {error}") from None
        finally:
            await consumer.close()
    return found


async def messages(connection: Connection, stream: str, subject: str) -> AsyncIterator[tuple[str, bytes]]:
    """The messages of a stream on a subject, in order, each with its own subject. Raises Unavailable."""
    with unavailable(f"reading {stream}"):
        state = await _state(connection, stream)
        if state is None or not state.messages:
            return
        end = (await connection.js.get_last_msg(stream, subject)).seq or 0
        reader = await connection.js.subscribe(subject, stream=stream, ordered_consumer=True)
        try:
            while True:
                message = await reader.next_msg(timeout=LIMIT_S)
                yield message.subject, message.data
                if message.metadata.sequence.stream >= end:
                    return
        finally:
            await reader.unsubscribe()


async def _state(connection: Connection, name: str, options: bytes = b"") -> _State | None:
    reply = await connection.nats.request(f"$JS.API.STREAM.INFO.{name}", options, timeout=LIMIT_S)
    info = msgspec.json.decode(reply.data, type=_Info)
    if info.error is not None and info.error.err_code != NO_STREAM:
        raise OSError(info.error.description)
    return info.state


def _begins(facts: _State, archived: range) -> int:
    """Sequence of the first fact that stream and archive have together."""
    return archived.start if facts.first_seq <= archived.stop else facts.first_seq


async def _deleted(connection: Connection, facts: _State) -> list[int]:
    """Sequences that are missing behind the first fact: nothing deletes single facts, so these are lost."""
    if not facts.num_deleted:
        return []
    state = await _state(connection, FACTS_STREAM, b'{"deleted_details":true}')
    return [seq for seq in (state.deleted or [] if state else []) if seq >= max(facts.first_seq, 1)]


def _of_facts(facts: _State, deleted: list[int], cursors: dict[str, int]) -> list[Flaw]:
    furthest = max(cursors, key=lambda name: cursors[name], default="")
    if furthest and cursors[furthest] > facts.last_seq:
        ends = f"NATS' stream {FACTS_STREAM} ends at fact {facts.last_seq}"
        return [
            Flaw(f"{ends}, and {furthest} has handled fact {cursors[furthest]}: what was between is lost")
        ]
    if not facts.messages and facts.last_seq:
        return [Flaw(f"NATS' stream {FACTS_STREAM} has lost all of its {facts.last_seq} facts")]
    if deleted:
        seqs = ranges_text(joined(deleted))
        return [Flaw(f"NATS' stream {FACTS_STREAM} has lost facts {seqs}, of {facts.last_seq}")]
    if facts.lost is not None:
        return [Flaw(f"NATS' stream {FACTS_STREAM} cannot read {facts.lost.bytes} bytes of its facts")]
    return []


async def _cursors(connection: Connection) -> dict[str, int]:
    """The services' cursors, by name."""
    options = msgspec.json.encode({"subjects_filter": f"{STATE_SUBJECT}.>"})
    state = await _state(connection, STATE_STREAM, options)
    found = {}
    for subject in state.subjects or {} if state else {}:
        kind, _, name = subject.removeprefix(f"{STATE_SUBJECT}.").partition("/")
        if kind != "cursor":
            continue
        try:
            value = (await connection.js.get_last_msg(STATE_STREAM, subject)).data or b""
        except (NotFoundError, APIError):
            continue
        if (seq := seq_of(value)) is not None:
            found[name] = seq
    return found


async def _of_snapshots(
    connection: Connection, state: _State | None, services: Collection[str], *, whole: bool
) -> list[Flaw]:
    """`whole`: the log has its beginning and no gap, so that a replay restores what a snapshot held."""
    if state is None:
        return []
    damaged = []
    for name in services:
        try:
            await blobs.read(connection.js, name)
        except DamagedBlob:
            damaged.append(name)
    then = "they replay the whole log" if whole else "the log to replay in their place has lost its beginning"
    if damaged:
        return [Flaw(f"snapshots of {', '.join(damaged)} at NATS are damaged: {then}", not whole)]
    if state.lost is not None:
        return [Flaw(f"NATS has lost {state.lost.bytes} bytes of snapshots: {then}", not whole)]
    return []
