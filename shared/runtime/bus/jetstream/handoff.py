"""Keeps facts in the state bucket while their stream has no leader, and publishes them once it has one.

When a cluster loses the NATS server that leads the stream of facts, the others elect another after four to
nine seconds. The state bucket has a leader of its own, and `keep_leaders_apart` sees to it that it is another
server. So a service whose facts others wait for stores them there meanwhile, in their order: a hinted
handoff (DeCandia et al., Dynamo, SOSP 2007, section 4.6).

One value of the bucket, the handoff, holds all facts that are kept, and who wrote it. The service's leader
writes it at its last known revision. A new leader writes it first of all: from then on the writes of an
earlier leader are in conflict.
"""

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from nats.errors import Error
from nats.js.api import ClusterInfo

from schemas.subjects import FACTS_STREAM, state_subject
from shared.runtime.bus.contract import Conflict, Fenced, State, Unavailable
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.encoded_facts import EncodedFact
from shared.runtime.bus.jetstream.streams import STATE_STREAM

APART_EVERY_S = 5.0
SILENT_NS = 2 * 10**9
"""a server counts as away once the leader has heard nothing of it for so long; it should every second"""
STEP_DOWN_LIMIT_S = 5.0
STEP_DOWN = f"$JS.API.STREAM.LEADER.STEPDOWN.{STATE_STREAM}"


class _Kept(msgspec.Struct, array_like=True):
    """The value in the state bucket."""

    writer: str
    """a name that each life of an instance makes up for itself"""
    facts: list[EncodedFact] = []


class Handoff:
    """The handoff of one service, in the instance that leads."""

    def __init__(self, connection: Connection, state: State) -> None:
        self.failing = False
        """whether the last attempt to keep facts failed"""
        self._connection = connection
        self._state = state
        self._key = f"handoff/{connection.name}"
        self._kept = _Kept(secrets.token_hex(8))
        self._revision = 0
        self._writing = asyncio.Lock()
        self._outstanding = 0
        """calls of `store_or_keep` whose facts are kept and not all in the stream yet"""
        self._clearing = False
        self._background: set[asyncio.Task[None]] = set()
        """tasks that go on after `store_or_keep` has returned"""
        self._error: BaseException | None = None
        """the error that ended one of these tasks: nothing can be published after it"""
        self._apart: asyncio.Task[None] | None = None

    async def take_over(self) -> list[EncodedFact]:
        """What an earlier leader has kept; the caller publishes it, then calls `clear`. Raises Unavailable.

        Empty where this account may not write the handoff: the accounts of NATS may be of an earlier version.
        """
        while True:
            value, revision = await self._state.get(self._key) or (b"", 0)
            facts = await self._read(value)
            try:
                self._kept.facts = facts
                self._revision = await self._put(revision)
            except Conflict:
                continue
            except Unavailable as error:
                if not self._refused():
                    raise
                self._connection.log.warning("this account may keep no facts", reason=str(error))
                self._kept.facts, self.failing = [], True
                return []
            if self._apart is None:
                self._apart = asyncio.create_task(keep_leaders_apart(self._connection))
            return facts

    async def store_or_keep(self, facts: Sequence[EncodedFact], storing: Coroutine[Any, Any, None]) -> None:
        """Return once the facts are in the stream, or kept in the handoff.

        `storing` puts them into the stream and retries for ever; where they are kept it goes on behind.
        Raises Fenced, and what `storing` raises: if that is after the return, the next call raises it.
        """
        task = asyncio.create_task(storing)
        try:
            await self._stored_or_kept(task, facts)
        except BaseException:
            task.cancel()
            self._clear_leftovers()
            raise

    async def _stored_or_kept(self, task: asyncio.Task[None], facts: Sequence[EncodedFact]) -> None:
        # While facts are outstanding the stream has no leader: nothing is gained by waiting for it.
        patience_s = 0.0 if self._outstanding else self._connection.confirmed_s
        for pause in self._connection.pauses():
            if self._error is not None:
                raise self._error
            await asyncio.wait([task], timeout=patience_s)
            if task.done():
                self._clear_leftovers()
                return task.result()
            if await self._keep(facts):
                self._start(self._finish(task))
                return None
            patience_s = pause
        raise AssertionError("pauses have no end")

    async def _keep(self, facts: Sequence[EncodedFact]) -> bool:
        """Add the facts to those that are kept; whether the bucket has confirmed it. Raises Fenced."""
        async with self._writing:
            before = self._kept.facts
            self._kept.facts = [*before, *(fact for fact in facts if fact not in before)]
            try:
                await self._write()
            except (Unavailable, ValueError) as error:  # no leader there either, or too much for one message
                self._connection.log.info("facts are not kept", count=len(facts), reason=str(error))
                if isinstance(error, ValueError) or self._refused():  # else they may be stored all the same
                    self._kept.facts = before
                self.failing = True
                return False
            self._outstanding += 1
        self._connection.log.warning("facts are kept until their stream has a leader", count=len(facts))
        self._connection.counts.facts_kept += len(facts)
        self.failing = False
        return True

    async def _finish(self, task: asyncio.Task[None]) -> None:
        """Wait until kept facts are in the stream; clear the handoff if no others are outstanding."""
        try:
            await task
        except (Fenced, ValueError, OSError) as error:
            self._error = error
            return
        self._outstanding -= 1
        await self.clear()

    def _clear_leftovers(self) -> None:
        """Clear what a write that seemed to fail may have kept all the same."""
        if self._kept.facts and not self._outstanding:
            self._start(self.clear())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.add(task := asyncio.create_task(work))
        task.add_done_callback(self._background.discard)

    async def clear(self) -> None:
        """Remove what is kept, which is in the stream by now; retry until NATS has removed it."""
        if self._clearing:
            return
        self._clearing = True
        try:
            for pause in self._connection.pauses():
                if await self._try_to_clear():
                    return
                await asyncio.sleep(pause)
        finally:
            self._clearing = False

    async def _try_to_clear(self) -> bool:
        """False: it has to be tried again. True also where facts are outstanding: their end clears."""
        async with self._writing:
            if self._outstanding or self._error or not self._kept.facts:
                return True
            facts, self._kept.facts = self._kept.facts, []
            try:
                await self._write()
            except Fenced as error:
                self._error = error
            except Unavailable as error:
                self._connection.log.info("facts are still kept", reason=str(error))
                self._kept.facts = facts
                return False
        return True

    async def _write(self) -> None:
        """Write the handoff at its last known revision. Raises Fenced, Unavailable, ValueError."""
        while True:
            try:
                self._revision = await self._put(self._revision)
            except Conflict:
                value, revision = await self._state.get(self._key) or (b"", 0)
                if _writer_of(value) != self._kept.writer:
                    raise Fenced(f"another {self._connection.name} leads") from None
                self._revision = revision  # of a write of ours that seemed to fail
            else:
                return

    def _refused(self) -> bool:
        """Whether the server has refused this account to write there."""
        return self._connection.refuses(state_subject(self._key))

    async def _put(self, revision: int) -> int:
        return await self._state.put(self._key, msgspec.msgpack.encode(self._kept), expected=revision)

    async def _read(self, value: bytes) -> list[EncodedFact]:
        try:
            return msgspec.msgpack.decode(value, type=_Kept).facts if value else []
        except msgspec.DecodeError as error:
            await self._connection.dead_letter(self._key, value, str(error))
            return []

    async def close(self) -> None:
        """Stop; the next leader takes over what is still kept."""
        tasks = [*self._background, *([self._apart] if self._apart else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _writer_of(value: bytes) -> str:
    """Empty: there is no value, or one that cannot be read, which is not ours."""
    try:
        return msgspec.msgpack.decode(value, type=_Kept).writer if value else ""
    except msgspec.DecodeError:
        return ""


async def keep_leaders_apart(connection: Connection) -> None:
    """Have two servers lead facts and state, so that no server takes both away. Runs until cancelled.

    Where one leads both, it is asked to step down from leading the state bucket.
    """
    while True:
        with suppress(Error, OSError):
            infos = [await connection.js.stream_info(stream) for stream in (FACTS_STREAM, STATE_STREAM)]
            leader = _leader_of_both([info.cluster for info in infos])
            if leader:
                connection.log.info("facts and state are led by one server", server=leader)
                await connection.nats.request(STEP_DOWN, timeout=STEP_DOWN_LIMIT_S)
        await asyncio.sleep(APART_EVERY_S)


def _leader_of_both(clusters: Sequence[ClusterInfo | None]) -> str:
    """The server that leads all streams; empty: there is none, or a server is away.

    A server that is away may be chosen to lead as well as any other, so no leader steps down then.
    """
    copies = [copy for cluster in clusters if cluster for copy in cluster.replicas or []]
    leaders = {cluster.leader or "" for cluster in clusters if cluster}
    there = all(copy.current and not copy.offline and (copy.active or 0) < SILENT_NS for copy in copies)
    return leaders.pop() if copies and there and len(leaders) == 1 else ""
