"""The shell around every core: it receives messages, calls the core, publishes, and then moves its cursor.

Recovery is a replay. The shell loads the last snapshot, then hands the core every fact up to the cursor and
drops the effects, which were out before the cursor moved; then it calls `resume`, and goes on with new facts.
Effects of facts between the cursor and a crash may go out twice; the id of a fact derives from its cause, so
publishing it again changes nothing.
"""

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from schemas.base import Message, Question, Sample
from schemas.settings import Settings
from schemas.subjects import FACTS_STREAM
from shared.domain.core import Asked, Behind, Effect, Publish, Reply, Send, Work, WorkFailed
from shared.runtime.bus.accounts import is_agent
from shared.runtime.bus.backoff import pauses
from shared.runtime.bus.contract import Batch, DamagedBlob, Record, Unavailable
from shared.runtime.bus.limits import seq_of
from shared.runtime.damage import REMEDY, Damaged, ranges_text
from shared.runtime.leadership import Candidate, Deposed
from shared.runtime.service import Inbox, Ports, Service
from shared.runtime.shell.follower import Follower
from shared.runtime.shell.handling import AHEAD_LIMIT_REAL_S, TIMER_SLACK_S, Handling, ShellCounts
from shared.runtime.shell.mailbox import Mailbox
from shared.runtime.shell.progress import Progress
from shared.runtime.shell.quarantine import FatalFact, forget_released, quarantine_of, record_death
from shared.runtime.shell.snapshots import UnreadableSnapshot, facts_in, unpacked
from shared.runtime.shell.turns import AT_ONCE, Turns

BATCH = 256
"""messages handled before their effects go out"""
MAILBOX_LIMIT = 2_000
CURSOR_EVERY_REAL_S = 0.25
CURSOR_LIMIT_REAL_S = 2.0
CURSOR_AGAIN_REAL_S = 5.0
"""pause after the cursor could not be moved, since each attempt keeps the core from its messages"""
RECORD_LIMIT_REAL_S = 5.0
RECOVERY_LIMIT_REAL_S = 120.0
"""after this long a recovery fails, and says what was missing"""
RECOVERY_ATTEMPTS = 100
IN_DOUBT = "NATS does not confirm that it leads"
RELEASED = "has to handle a released fact in its place"
ANOTHER_VERSION = "cannot read its snapshot, which is of another version"
BEFORE = "Start the version again that wrote the snapshot. "

T = TypeVar("T")

log = structlog.get_logger()


class Shell:
    """Drives one service. `run` ends only when it is cancelled or raises."""

    def __init__(
        self,
        service: Service,
        ports: Ports,
        settings: Settings,
        turns: Turns = AT_ONCE,
        candidate: Candidate | None = None,
    ) -> None:
        """`candidate`: stands for election among the instances of the service; None: there is no other."""
        self._service = service
        self._core = service.core
        # On virtual time, which is for simulations, an error of a core ends the run.
        fail = self._fail if turns is AT_ONCE else None
        ahead_s = ports.clock.cluster_s(AHEAD_LIMIT_REAL_S)
        self._handling = Handling(service, settings.remembered_ids, fail=fail, ahead_s=ahead_s)
        self._turns = turns
        self._bus = ports.bus
        self._clock = ports.clock
        self._settings = settings
        self._mailbox = Mailbox(MAILBOX_LIMIT)
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._snapshot_seq = 0
        # An agent does what is ordered now, not long ago, and one that joins late reads from the beginning.
        self._needs_all = not (settings.allow_lost_facts or is_agent(service.name))
        self._without_snapshot = ""
        """why it replays the log from its beginning; empty: it began with a snapshot"""
        self._snapshot_is_void = False
        """whether the stored snapshot has facts that the stream has lost"""
        self._released: tuple[int, ...] = ()
        """facts that were released before it began, and that it has handled in their place"""
        self._cursor = 0
        self._cursor_at = 0.0
        """cluster time of the last attempt to move it"""
        self._cursor_moved = True
        """whether that attempt succeeded"""
        self._read_to = 0
        """sequence up to which the service's facts are in the mailbox, or were handled"""
        self._newest_read = 0
        """sequence of the last fact that is or was in the mailbox"""
        self.progress = Progress(settings.stuck_after_real_s)
        self._ready = False
        self._follows = False
        self._candidate = candidate
        self.when_ending: Callable[[], None] = lambda: None
        """called once it handles no more messages, and has only to end its tasks"""
        self._group: asyncio.TaskGroup
        self._inbox = Inbox(
            put=self._mailbox.put,
            ask=self.ask,
            replayed=lambda: self._ready,
            seq=lambda: self.seq,
            why_idle=self._why_idle,
        )

    @property
    def counts(self) -> ShellCounts:
        return self._handling.counts

    def ready(self) -> bool:
        """Whether the bus is there, it is not stuck, and the replay is over or it follows a leader."""
        follows = self._candidate is not None and self._candidate.follows and self._follows
        return (self._ready or follows) and self._bus.connected() and not self.stalled()

    def stalled(self) -> str:
        """Work that has been outstanding for too long, in words; empty: none has."""
        return self.progress.stalled()

    @property
    def seq(self) -> int:
        """Sequence up to which it has handled all facts that concern the service."""
        handled = self._handling.seq
        return handled if handled < self._newest_read else max(handled, self._read_to)

    def _why_idle(self) -> str:
        return IN_DOUBT if self._candidate is not None and self._candidate.in_doubt() else ""

    def leads(self) -> bool:
        """Whether this instance leads, and so acts."""
        return self._ready

    async def run(self) -> None:
        try:
            facts = await self._recover()
            await self._turns.mine()
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    if self._candidate is not None:
                        facts = await self._follow(facts, self._candidate)
                    await self._begin(facts)
                    await self._handle_messages()
                finally:
                    self.when_ending()
        except* FatalFact as deaths:
            await self._record_death(deaths)
            raise
        finally:
            self._ready = self._follows = False
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(Unavailable(f"{self._service.name} has ended"))

    async def _begin(self, facts: AsyncIterator[Batch]) -> None:
        """Do what the last life left undone, then accept all kinds of messages."""
        await self._perform(self._core.resume(self._clock.now()))
        if self._snapshot_is_void:
            await self._until_available(self._save_snapshot)
        if self._released:
            await self._until_available(self._keep_released)
        self._group.create_task(self._read(facts))
        if self._service.samples:
            self._group.create_task(self._listen())
        if self._service.answers:
            await self._bus.serve(self._service.name, self._service.answers, self.ask)
        for task in self._service.tasks:
            self._group.create_task(_forever(task, self._inbox))
        self._ready = True
        log.info(
            "service ready", service=self._service.name, seq=self._handling.seq, replay_s=self.counts.replay_s
        )

    async def _keep_released(self) -> None:
        """Save a snapshot with the effects of released facts: the one before it is without them.

        Until then later lives, and other instances, have to replay the log for them.
        """
        await self._save_snapshot()
        await forget_released(self._bus, self._service.name, self._released)

    async def _record_death(self, deaths: BaseExceptionGroup[FatalFact]) -> None:
        """Record the fact on which the service failed, if the bus is reachable."""
        fatal = next(one for one in _leaves(deaths) if isinstance(one, FatalFact))
        with contextlib.suppress(OSError):
            async with asyncio.timeout(RECORD_LIMIT_REAL_S):
                await record_death(self._bus, self._service.name, fatal, self._service.own_facts)

    # ---- recovery

    async def _recover(self) -> AsyncIterator[Batch]:
        """Bring the core to the cursor; returns the facts beyond it."""
        began = time.perf_counter()
        self._cursor = await self._until_available(self._stored_cursor)
        known = await self._until_available(lambda: quarantine_of(self._bus, self._service.name))
        self._handling.passed_over = frozenset([one.seq for one in known.deaths if one.passed_over])
        self._released = known.released
        if known.released:
            log.info(
                "replaying for facts that were released", service=self._service.name, seqs=known.released
            )
            self._without_snapshot = RELEASED
        else:
            await self._until_available(self._load_snapshot)
        stored = self._without_loss(self._bus.read(self._handling.seq, self._service.facts))
        facts = stored
        self._read_to = self._handling.seq
        while self._read_to < self._cursor:
            batch = await anext(stored)
            self._read_to = batch.last
            replayed = [record for record in batch if record.seq <= self._cursor]
            for record in replayed:
                self._replay(record)
            beyond = batch[len(replayed) :]
            if beyond:
                facts = _chained(Batch(beyond, batch.last), stored)
                self._read_to = beyond[0].seq - 1
                break
        self.counts.replay_s = time.perf_counter() - began
        return facts

    def _replay(self, record: Record) -> None:
        self._handling.replay(record, self._clock.now())

    async def _until_available(self, look: Callable[[], Awaitable[T]]) -> T:
        """What `look` returns, called again while the bus is away or elects a leader. Raises Unavailable."""
        began = time.monotonic()
        for pause in itertools.islice(pauses(), RECOVERY_ATTEMPTS):
            try:
                return await look()
            except Unavailable as error:
                if time.monotonic() - began > RECOVERY_LIMIT_REAL_S:
                    raise
                log.warning("waiting for what is stored", service=self._service.name, reason=str(error))
            await asyncio.sleep(pause)
        return await look()

    async def _without_loss(self, batches: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
        """The batches. Raises Damaged where facts are lost, unless `allow_lost_facts` is set."""
        async for batch in batches:
            if batch.lacking and not self._settings.allow_lost_facts:
                raise Damaged(f"{FACTS_STREAM} at NATS has lost facts {ranges_text(batch.lacking)}. {REMEDY}")
            if batch.forgotten and self._needs_all:
                raise await self._missing(batch.forgotten)
            yield batch

    async def _missing(self, forgotten: range) -> Damaged | Deposed:
        """The error for facts that it has to read, and that were trimmed and are in no archive.

        An instance that follows may fall behind the leader's snapshot: its next life begins with that.
        """
        name, seqs = self._service.name, ranges_text([forgotten])
        is_covered = await self._until_available(lambda: self._is_in_snapshot(forgotten))
        if is_covered and self._without_snapshot != RELEASED:
            return Deposed(f"facts {seqs} were trimmed before this instance had read them")
        why = self._without_snapshot or "is behind the beginning of the stream"
        moved = f"Put files that were moved out of {self._settings.archive} back. "
        return Damaged(
            f"{name} {why}, and facts {seqs}, which it needs, are neither at NATS nor in the archive. "
            f"{moved if self._settings.archive else ''}"
            f"{BEFORE if self._without_snapshot == ANOTHER_VERSION else ''}{REMEDY}"
        )

    async def _is_in_snapshot(self, seqs: range) -> bool:
        """Whether a snapshot that can be read has the effects of these facts. Raises Unavailable."""
        try:
            blob = await self._bus.load(self._service.name)
            return blob is not None and unpacked(blob, type(self._core.state))[0] >= seqs[-1]
        except (DamagedBlob, UnreadableSnapshot):
            return False

    async def _stored_cursor(self) -> int:
        """The cursor that the last life stored; 0 where there is none that can be read.

        From 0 the effects of all facts since the snapshot go out again, which by their ids changes nothing.
        Where the cursor is beyond the end, the stream has lost its last facts: all that are there were
        handled.
        """
        stored = await self._bus.get(f"cursor/{self._service.name}")
        if stored is None:
            return 0
        newest = max(await self._bus.newest(self._service.facts), await self._bus.dropped())
        value = seq_of(stored[0])
        if value is not None and value <= newest:
            return value
        taken = 0 if value is None else newest
        log.error(
            "cursor is not a place in the stream",
            service=self._service.name,
            cursor=stored[0][:80].decode("ascii", "replace"),
            taken=taken,
        )
        return taken

    async def _follow(self, facts: AsyncIterator[Batch], candidate: Candidate) -> AsyncIterator[Batch]:
        """Follow the leader until this instance leads; returns the facts that are still to be handled.

        It reads to its own `ServiceLed` first: behind that the stream has no fact of an earlier leader.
        """
        following = Follower(facts, self._replay)
        kept: deque[Sample] = deque(maxlen=self._service.samples_kept)
        collecting = (
            self._group.create_task(self._collect_samples(kept)) if self._service.samples_kept else None
        )
        try:
            self._follows = True
            await following.until(candidate.stand, self._acknowledged, candidate.step_s)
            self._group.create_task(candidate.hold())
            self._group.create_task(candidate.renew_lead())
            # In a cluster of NATS servers the newest fact may not be known while a leader is elected.
            await following.read_to(
                await self._until_available(lambda: self._bus.newest(self._service.facts))
            )
            following.acknowledged(await self._until_available(self._acknowledged))
        except BaseException:
            following.end()
            raise
        finally:
            if collecting is not None:
                collecting.cancel()
        ahead, coming = following.rest()
        for item in (*ahead, *kept):
            self._mailbox.put(item)
        self._note_read(ahead)
        return coming

    async def _collect_samples(self, kept: deque[Sample]) -> None:
        """Collect samples for an instance that does not lead, until cancelled."""
        async for sample in self._bus.listen(self._service.samples):
            kept.append(sample)

    async def _acknowledged(self) -> int:
        """The leader's cursor; also reads which facts the leader has passed over."""
        known = await quarantine_of(self._bus, self._service.name)
        self._handling.passed_over = frozenset([one.seq for one in known.deaths if one.passed_over])
        self._cursor = max(self._cursor, await self._stored_cursor())
        return self._cursor

    async def _load_snapshot(self) -> None:
        try:
            blob = await self._bus.load(self._service.name)
        except DamagedBlob as error:
            log.warning("snapshot is damaged, replaying the stream", reason=str(error))
            self._without_snapshot = "cannot read its snapshot, which is damaged"
            return
        if blob is None:
            self._without_snapshot = "has no snapshot"
            return
        try:
            if not await self._is_of_the_stream(blob):
                log.warning("snapshot of facts that are lost, replaying the stream")
                self._snapshot_is_void = True
                return
            self._handling.restore(blob)
        except UnreadableSnapshot as error:
            log.warning("snapshot of another version, replaying the stream", reason=str(error))
            self._without_snapshot = ANOTHER_VERSION
            return
        self._snapshot_seq = self._handling.seq
        self._cursor = max(self._cursor, self._snapshot_seq)  # a crash may come between snapshot and cursor

    async def _is_of_the_stream(self, blob: bytes) -> bool:
        """Whether the snapshot's facts are those of the stream, as far as its last one tells.

        A stream that has lost its last facts has others in their places once it has gone on. What it has
        dropped, or cannot read, tells nothing. Raises Damaged for other facts unless `allow_lost_facts` is
        set, UnreadableSnapshot, Unavailable.
        """
        seq, ids = facts_in(blob)
        name = self._service.name
        if (self._settings.allow_lost_facts or is_agent(name)) and seq > await self._bus.last_seq():
            return False
        if is_agent(name) or not ids:
            return True
        found = await self._bus.fetch([seq], archived=False)  # the archive's monitor may be what starts here
        if not found or found[0].event.event_id in ids:
            return True
        if self._settings.allow_lost_facts:
            return False
        raise Damaged(
            f"{name}'s snapshot ends with fact {seq}, and {FACTS_STREAM} at NATS has another there: it has "
            f"lost facts, and has gone on without them. {REMEDY}"
        )

    # ---- life

    async def _handle_messages(self) -> None:
        """Take messages, handle them, let their effects out, move the cursor; without end."""
        while True:
            timer = self._set_timer()
            await self._mailbox.wait()
            await self._turns.mine()
            if timer is not None:
                timer.cancel()
            if self._candidate is not None:
                await self._candidate.until_sure()
            batch = self._mailbox.take(BATCH)
            if not self._bus.connected():
                batch.insert(0, Behind())  # before a time limit ends in this turn
            began = time.perf_counter()
            effects = self._handling.turn(batch, self._clock.now())
            self.counts.handle_s += time.perf_counter() - began
            await self._perform(effects)
            if not self._service.progress_messages:
                self.progress.worked()
            elif judged := [one for one in batch if isinstance(one, self._service.progress_messages)]:
                self.progress.record_activity(judged[-1].tag())
            await self._move_cursor()

    def _set_timer(self) -> asyncio.TimerHandle | None:
        """Set a timer for the core's next wakeup or the next move of the cursor, whichever is first."""
        due = self._core.next_wakeup()
        if self._handling.seq != self._cursor:
            cursor_due = self._cursor_due(self._clock.now())
            due = cursor_due if due is None else min(due, cursor_due)
        if due is None:
            return None
        real_s = max(due - self._clock.now(), 0.0) / self._clock.cluster_s(1.0)
        return asyncio.get_running_loop().call_later(real_s, self._mailbox.wake)

    # ---- effects

    async def _perform(self, effects: Sequence[Effect]) -> None:
        facts = self._handling.fresh(effects)
        if facts:
            await self._bus.publish(facts)
            self.counts.published += len(facts)
            self.progress.record_activity(facts[-1].tag())
            await self._turns.settled()
        for effect in effects:
            match effect:
                case Send(sample):
                    await self._bus.send(sample)
                case Reply(ticket, message):
                    waiting = self._waiting.pop(ticket, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(message)
                case Work(task):
                    self._group.create_task(self._work(task))
                case Asked():
                    self._mailbox.put(effect)
                case Publish():
                    pass

    async def _work(self, task: msgspec.Struct) -> None:
        self.counts.work += 1
        worker = self._service.workers[type(task)]
        if not isinstance(task, self._service.long_tasks):
            self.progress.begin(id(task), type(task).__name__)
        try:
            async with self._clock.within(self._settings.work_timeout_real_s):
                answer = await worker(task)
        except OSError as error:  # TimeoutError and Unavailable among them
            self.counts.work_failed += 1
            given_up = isinstance(error, TimeoutError)
            self.progress.give_up(id(task)) if given_up else self.progress.done(id(task))
            self._mailbox.put(WorkFailed(task, f"{type(error).__name__}: {error}"))
        else:
            self.progress.done(id(task))
            if answer is not None:
                self._mailbox.put(answer)

    def _fail(self, ticket: int, error: Exception) -> None:
        """Raise the error in the coroutine that asked: the bus and the web server log it, and answer."""
        waiting = self._waiting.pop(ticket, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    async def ask(self, question: Question) -> Message:
        ticket = next(self._tickets)
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = waiting
        self._mailbox.put(Asked(ticket, question))
        try:
            return await waiting
        finally:
            self._waiting.pop(ticket, None)

    # ---- the stream

    async def _read(self, facts: AsyncIterator[Batch]) -> None:
        async for batch in facts:
            for record in batch:
                await self._mailbox.offer(record)
            self._note_read(batch)
        raise RuntimeError("the stream of facts ended")

    def _note_read(self, batch: Batch) -> None:
        """Note how far the stream is read, also past facts that do not concern the service."""
        self._newest_read = max((one.seq for one in batch), default=self._newest_read)
        self._read_to = batch.last

    async def _listen(self) -> None:
        async for sample in self._bus.listen(self._service.samples):
            await self._mailbox.offer(sample)

    async def _move_cursor(self) -> None:
        """Store how far facts are handled, a few times a second, and after many facts a snapshot before."""
        now = self._clock.now()
        if self._handling.seq == self._cursor or now < self._cursor_due(now) - TIMER_SLACK_S:
            return
        self._cursor_at, seq = now, self._handling.seq
        try:
            enough = seq - self._snapshot_seq >= self._settings.snapshot_every
            if enough and self._cursor_moved:
                await self._save_snapshot()
            async with self._clock.within(CURSOR_LIMIT_REAL_S):
                await self._bus.put(f"cursor/{self._service.name}", str(seq).encode())
        except (Unavailable, TimeoutError) as error:  # the bus is away, or its disk full
            if self._cursor_moved:
                log.warning("cursor not moved", service=self._service.name, seq=seq, reason=str(error))
            self._cursor_moved = False
            self._cursor_at += self._clock.cluster_s(CURSOR_AGAIN_REAL_S)
        else:
            if not self._cursor_moved:
                log.info("cursor moved again", service=self._service.name, seq=seq)
            self._cursor, self._cursor_moved = seq, True

    def _cursor_due(self, now: float) -> float:
        """Cluster time of the cursor's next move; a clock that is set back does not delay it for long."""
        latest = now + self._clock.cluster_s(CURSOR_AGAIN_REAL_S)
        self._cursor_at = min(self._cursor_at, latest)
        return self._cursor_at + self._clock.cluster_s(CURSOR_EVERY_REAL_S)

    async def _save_snapshot(self) -> None:
        await self._bus.save(self._service.name, self._handling.snapshot())
        self._snapshot_seq = self._handling.seq


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]


async def _forever(task: Any, inbox: Inbox) -> None:  # noqa: ANN401 - any of Service.tasks
    await task(inbox)


async def _chained(first: Batch, rest: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
    yield first
    async for batch in rest:
        yield batch
