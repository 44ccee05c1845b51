"""Facts that are safe while their stream has no leader: kept in the state bucket, then handed on to it.

When the NATS server is lost that leads the stream of facts, the others elect another after four to nine
seconds. The state bucket has a leader of its own, and `keep_apart` sees to it that this is another server. So
facts that somebody waits for are stored there meanwhile, in their order: a hinted handoff (DeCandia et al.,
Dynamo, SOSP 2007, section 4.6).

One value holds all facts that are outstanding, and who wrote it. It is written at its last known revision,
and a leader of the service begins by writing it: from then on an earlier leader can keep nothing there.
"""

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from nats.errors import Error
from nats.js.api import ClusterInfo

from schemas.subjects import FACTS_STREAM, state_subject
from shared.runtime.bus.contract import Conflict, Fenced, State, Unavailable
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.streams import STATE_STREAM

APART_EVERY_S = 5.0
HEARD_NS = 2 * 10**9
"""a server that is there says so every second"""
LIMIT_S = 5.0
STEP_DOWN = f"$JS.API.STREAM.LEADER.STEPDOWN.{STATE_STREAM}"


class Letter(NamedTuple):
    """A fact with its subject and id, ready to be published."""

    subject: str
    data: bytes
    headers: dict[str, str]


class _Kept(msgspec.Struct, array_like=True):
    writer: str
    letters: list[Letter] = []


class Handoff:
    """The handoff of one service, whose leader this connection is."""

    def __init__(self, connection: Connection, state: State) -> None:
        self.failing = False
        """whether what was to be kept last could not be"""
        self._connection = connection
        self._state = state
        self._key = f"handoff/{connection.name}"
        self._kept = _Kept(secrets.token_hex(8))
        self._revision = 0
        self._writing = asyncio.Lock()
        self._outstanding = 0
        """publishings whose letters are kept, and not all in the stream"""
        self._letting_go = False
        self._behind: set[asyncio.Task[None]] = set()
        """tasks that go on after `safely` has returned"""
        self._error: BaseException | None = None
        """the error that ended one of these tasks"""
        self._apart: asyncio.Task[None] | None = None

    async def take_over(self) -> list[Letter]:
        """What an earlier leader has left, to be published first and then let go. Raises Unavailable.

        Nothing where this account may not write there: accounts of NATS may be of an earlier version.
        """
        while True:
            found = await self._state.get(self._key)
            value, revision = found or (b"", 0)
            letters = await self._read(value)
            try:
                self._kept.letters = letters
                self._revision = await self._put(revision)
            except Conflict:
                continue
            except Unavailable as error:
                if not self._refused():
                    raise
                self._connection.log.warning("this account may keep no facts", reason=str(error))
                self._kept.letters, self.failing = [], True
                return []
            if self._apart is None:
                self._apart = asyncio.create_task(keep_apart(self._connection))
            return letters

    async def safely(self, letters: Sequence[Letter], storing: Coroutine[Any, Any, None]) -> None:
        """Return once the letters are in the stream, or kept to be; `storing` puts them there, without end.

        Raises Fenced, and what `storing` raises, then or when more is to be published.
        """
        task = asyncio.create_task(storing)
        try:
            await self._stored_or_kept(task, letters)
        except BaseException:
            task.cancel()
            self._tidy()
            raise

    async def _stored_or_kept(self, task: asyncio.Task[None], letters: Sequence[Letter]) -> None:
        patience_s = 0.0 if self._outstanding else self._connection.confirmed_s
        for pause in self._connection.pauses():
            if self._error is not None:
                raise self._error
            await asyncio.wait([task], timeout=patience_s)
            if task.done():
                self._tidy()
                return task.result()
            if await self._keep(letters):
                self._go_on(self._hand_on(task))
                return None
            patience_s = pause
        raise AssertionError("pauses have no end")

    async def _keep(self, letters: Sequence[Letter]) -> bool:
        """Whether they are stored beside what is outstanding. Raises Fenced."""
        async with self._writing:
            before = self._kept.letters
            self._kept.letters = [*before, *(letter for letter in letters if letter not in before)]
            try:
                await self._write()
            except (Unavailable, ValueError) as error:  # no leader there either, or too much for one message
                self._connection.log.info("facts are not kept", count=len(letters), reason=str(error))
                if isinstance(error, ValueError) or self._refused():  # else they may be stored all the same
                    self._kept.letters = before
                self.failing = True
                return False
            self._outstanding += 1
        self._connection.log.warning("facts are kept until their stream has a leader", count=len(letters))
        self._connection.counts.facts_kept += len(letters)
        self.failing = False
        return True

    async def _hand_on(self, task: asyncio.Task[None]) -> None:
        """Wait until the facts are in the stream; the last to finish has all kept facts forgotten."""
        try:
            await task
        except (Fenced, ValueError, OSError) as error:
            self._error = error
            return
        self._outstanding -= 1
        await self.let_go()

    def _tidy(self) -> None:
        """Remove what a write that seemed to fail may have kept all the same."""
        if self._kept.letters and not self._outstanding:
            self._go_on(self.let_go())

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        self._behind.add(task := asyncio.create_task(work))
        task.add_done_callback(self._behind.discard)

    async def let_go(self) -> None:
        """Remove what is kept: it is in the stream now."""
        if self._letting_go:
            return
        self._letting_go = True
        try:
            for pause in self._connection.pauses():
                if await self._emptied():
                    return
                await asyncio.sleep(pause)
        finally:
            self._letting_go = False

    async def _emptied(self) -> bool:
        """Whether nothing is kept any more, or more is on its way: false if it is to be tried again."""
        async with self._writing:
            if self._outstanding or self._error or not self._kept.letters:
                return True
            letters, self._kept.letters = self._kept.letters, []
            try:
                await self._write()
            except Fenced as error:
                self._error = error
            except Unavailable as error:
                self._connection.log.info("facts are kept still", reason=str(error))
                self._kept.letters = letters
                return False
        return True

    async def _write(self) -> None:
        """Raises Fenced, Unavailable, ValueError."""
        while True:
            try:
                self._revision = await self._put(self._revision)
            except Conflict:
                value, revision = await self._state.get(self._key) or (b"", 0)
                if not value or msgspec.msgpack.decode(value, type=_Kept).writer != self._kept.writer:
                    raise Fenced(f"another {self._connection.name} leads") from None
                self._revision = revision  # of a write of ours that seemed to fail
            else:
                return

    def _refused(self) -> bool:
        """Whether the server has refused this account to write there."""
        return self._connection.refuses(state_subject(self._key))

    async def _put(self, revision: int) -> int:
        return await self._state.put(self._key, msgspec.msgpack.encode(self._kept), expected=revision)

    async def _read(self, value: bytes) -> list[Letter]:
        try:
            return msgspec.msgpack.decode(value, type=_Kept).letters if value else []
        except msgspec.DecodeError as error:
            await self._connection.dead_letter(self._key, value, str(error))
            return []

    async def close(self) -> None:
        """Stop; what is still kept is left to the next leader."""
        tasks = [*self._behind, *([self._apart] if self._apart else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def keep_apart(connection: Connection) -> None:
    """Have facts and state led by two servers, so that no server takes both away. Runs until cancelled."""
    while True:
        with suppress(Error, OSError):
            infos = [await connection.js.stream_info(stream) for stream in (FACTS_STREAM, STATE_STREAM)]
            leader = _led_by_one([info.cluster for info in infos])
            if leader:
                connection.log.info("facts and state are led by one server", server=leader)
                await connection.nats.request(STEP_DOWN, timeout=LIMIT_S)
        await asyncio.sleep(APART_EVERY_S)


def _led_by_one(clusters: Sequence[ClusterInfo | None]) -> str:
    """The server that leads all; empty: none, or a server is away, which would be chosen to lead as well."""
    copies = [copy for cluster in clusters if cluster for copy in cluster.replicas or []]
    leaders = {cluster.leader or "" for cluster in clusters if cluster}
    there = all(copy.current and not copy.offline and (copy.active or 0) < HEARD_NS for copy in copies)
    return leaders.pop() if copies and there and len(leaders) == 1 else ""
