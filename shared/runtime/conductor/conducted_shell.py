"""The shell of a service under the conductor, for one life: its mailbox, its turns, its coroutines."""

import itertools
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from schemas.base import Question, Sample
from schemas.settings import Settings
from shared.domain.core import Asked, Effect, Publish, Reply, Send, Work, WorkFailed
from shared.runtime.bus.contract import Record, Unavailable
from shared.runtime.conductor.coroutine_driver import CoroutineDriver, Until, Wake
from shared.runtime.conductor.log import ConductedLog
from shared.runtime.conductor.timers import TimerAlarm, Timers
from shared.runtime.service import Inbox, Service
from shared.runtime.shell.handling import TIMER_SLACK_S, Handling
from shared.runtime.shell.snapshots import UnreadableSnapshot

BATCH = 256
"""messages handled in one turn, as in the asyncio shell"""


class DurableState(msgspec.Struct):
    """What a service stores, and its next life begins with."""

    cursor: int = 0
    snapshot: bytes | None = None
    snapshot_seq: int = 0


class ShellHost(Protocol):
    """The part of the conductor that a shell needs."""

    now: float
    log: ConductedLog
    timers: Timers

    def ready(self, shell: "ConductedShell") -> None:
        """Give the shell a turn: it has something to do."""
        ...

    def send(self, sample: Sample) -> None: ...

    def failed(self, error: BaseException) -> None: ...


class ConductedShell:
    """Runs one life of a service. `rank`: its place among the shells that are ready at the same instant."""

    once = True
    """each fact is delivered once, in the order of the stream"""

    def __init__(
        self, conductor: ShellHost, service: Service, settings: Settings, *, rank: int, kept: DurableState
    ) -> None:
        self.service = service
        self.rank = rank
        self.begun = False
        self.ended = False
        self.linked = True
        """false: it is cut off from the others"""
        self.waits = False
        """whether it waits for its turn"""
        self._conductor = conductor
        self._settings = settings
        self._kept = kept
        self._handling = Handling(service, settings.remembered_ids, once=self.once)
        self._quiet_facts = service.quiet_facts
        self._mailbox: list[object] = []
        self._asking: dict[int, Wake] = {}
        self._tickets = itertools.count(1)
        self._drivers: dict[CoroutineDriver, None] = {}
        self._alarm: TimerAlarm | None = None
        self._heard_from = conductor.log.last_seq
        """sequence from which on facts are delivered; earlier ones are read from the log"""
        conductor.log.follow(self, service.facts)
        self._inbox = Inbox(
            put=self.put,
            ask=self.ask,
            replayed=lambda: self.begun,
            seq=lambda: conductor.log.last_seq,  # facts are handed over as they are stored
        )

    # ---- what reaches it

    def put(self, item: object) -> None:
        if not self.ended:
            self._mailbox.append(item)
            if not self.waits:
                self._conductor.ready(self)

    arrive = put
    """takes a message from another service"""

    def deliver(self, record: Record) -> None:
        """Take a fact. While the mailbox is small, a quiet fact waits for the next turn and asks for none."""
        quiet = type(record.event) in self._quiet_facts
        if quiet and len(self._mailbox) < BATCH and not self._wakes_now():
            self._mailbox.append(record)
        else:
            self.put(record)

    def _wakes_now(self) -> bool:
        """Whether a turn at this moment would wake the core."""
        return self._alarm is not None and self._alarm.when <= self._conductor.now + TIMER_SLACK_S

    def question(self, question: Question, wake: Wake) -> None:
        """Put a question before the core, and wake with its answer."""
        ticket = next(self._tickets)
        self._asking[ticket] = wake
        self.arrive(Asked(ticket, question))

    async def ask(self, question: Question) -> Any:  # noqa: ANN401 - its own protocol's
        if self.ended:
            raise Unavailable(f"{self.service.name} has ended")
        return await Until(lambda wake: self.question(question, wake))

    def end(self) -> None:
        """End this life at once, as `kill -9` does: what it had not published is lost."""
        self.ended = True
        self.waits = False
        if self._alarm is not None:
            self._alarm.cancel()
        for driver in list(self._drivers):
            driver.cut()
        self._conductor.log.forget(self, self.service.facts)
        for wake in self._asking.values():
            wake(error=Unavailable(f"{self.service.name} has ended"))

    # ---- its turns

    def turn(self) -> None:
        if not self.begun:
            self._begin()
            return
        batch, self._mailbox = self._mailbox, []
        if len(batch) > BATCH:
            batch, self._mailbox = batch[:BATCH], batch[BATCH:]
            self._conductor.ready(self)
        handling = self._handling
        effects = handling.turn(batch, self._conductor.now)
        if effects:
            self._perform(effects)
        if handling.due is not None or self._alarm is not None:
            self._set_alarm(handling.due)

    def _begin(self) -> None:
        """Replay up to the cursor, do what the last life left undone, and begin to take messages."""
        replayed = self._recover()
        self.begun = True
        missed = self._conductor.log.since(replayed, self._heard_from, self.service.facts)
        self._mailbox = [*missed, *self._mailbox]
        self._perform(self._handling.core.resume(self._conductor.now))
        for task in self.service.tasks:
            self.begin(task(self._inbox))  # type: ignore[arg-type] # a coroutine
        if self._mailbox:
            self._conductor.ready(self)
        self._set_alarm(self._handling.core.next_wakeup())

    def _recover(self) -> int:
        """The sequence up to which the core knows the stream."""
        kept = self._kept
        if kept.snapshot is not None:
            try:
                self._handling.restore(kept.snapshot)
            except UnreadableSnapshot:
                kept.snapshot = None
        cursor = max(kept.cursor, self._handling.seq)
        for record in self._conductor.log.since(self._handling.seq, cursor, self.service.facts):
            self._handling.replay(record, self._conductor.now)
        return cursor

    def _set_alarm(self, due: float | None) -> None:
        """Set the alarm for the core's next wakeup."""
        alarm = self._alarm
        if alarm is not None:
            if alarm.when == due and alarm.do is not None:
                return
            alarm.cancel()
            self._alarm = None
        if due is not None:
            self._alarm = self._conductor.timers.at(
                max(due, self._conductor.now), lambda: self._conductor.ready(self)
            )

    # ---- effects

    def _perform(self, effects: Sequence[Effect]) -> None:
        conductor, handling = self._conductor, self._handling
        for event in handling.fresh(effects):
            conductor.log.publish(event)
            handling.counts.published += 1
        for effect in effects:
            if type(effect) is not Publish:
                self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Work():
                self._work(effect.task)
            case Send():
                if self.linked:
                    self._conductor.send(effect.sample)
            case Reply():
                wake = self._asking.pop(effect.ticket, None)
                if wake is not None:
                    wake(effect.message)
            case Asked():
                self.put(effect)
            case Publish():
                raise AssertionError("facts go out first")

    def _work(self, task: msgspec.Struct) -> None:
        self._handling.counts.work += 1
        worker = self.service.workers[type(task)]
        driver: CoroutineDriver
        limit: TimerAlarm | None = None

        def done(answer: object, error: BaseException | None) -> None:
            self._drivers.pop(driver, None)
            if limit is not None:
                limit.cancel()
            if isinstance(error, OSError):  # TimeoutError and Unavailable among them
                self._handling.counts.work_failed += 1
                self.put(WorkFailed(task, f"{type(error).__name__}: {error}"))
            elif error is not None:
                self._conductor.failed(error)
            elif answer is not None:
                self.put(answer)

        driver = CoroutineDriver(worker(task), done)  # type: ignore[arg-type] # a coroutine
        self._drivers[driver] = None
        driver.go()
        if driver in self._drivers:
            ends_at = self._conductor.now + self._settings.work_timeout_real_s
            limit = self._conductor.timers.at(ends_at, lambda: driver.interrupt(TimeoutError()))

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine to its end, or to the end of this life."""

        def done(_: object, error: BaseException | None) -> None:
            self._drivers.pop(driver, None)
            if error is not None:
                self._conductor.failed(error)

        driver = CoroutineDriver(coroutine, done)
        self._drivers[driver] = None
        driver.go()
