"""A conducted shell with seeded faults: it can be cut off, or killed and begun again from what it stored."""

from collections import deque
from collections.abc import Sequence

from schemas.settings import Settings
from shared.domain.core import Effect, Publish
from shared.runtime.bus.contract import Record
from shared.runtime.bus.memory import Faults
from shared.runtime.conductor.conducted_shell import ConductedShell, DurableState, ShellHost
from shared.runtime.service import Service
from shared.runtime.shell.handling import TIMER_SLACK_S
from shared.runtime.shell.shell import CURSOR_EVERY_REAL_S


class FaultyShell(ConductedShell):
    """See `Faults`; `life` seeds the draws, so that each life has its own."""

    once = False

    def __init__(
        self,
        conductor: ShellHost,
        service: Service,
        settings: Settings,
        *,
        rank: int,
        kept: DurableState,
        faults: Faults,
        life: str,
    ) -> None:
        super().__init__(conductor, service, settings, rank=rank, kept=kept)
        self._faults = faults
        self._random = faults.random(f"{service.name}/{life}")
        self._outbox: deque[Effect] = deque()
        self._held: list[object] = []
        self._comes_at = 0.0
        """when the last delayed fact arrives: later facts come no sooner, so their order stays"""
        self._cursor_at = 0.0
        self._stalled = False

    # ---- what reaches it

    def deliver(self, record: Record) -> None:
        again = self._random.random() < self._faults.redeliver
        for one in (record, record) if again else (record,):
            self._deliver_late(one)

    def _deliver_late(self, record: object) -> None:
        delay_s = self._faults.delay_s
        if not delay_s:
            self.arrive(record)
            return
        self._comes_at = max(self._comes_at, self._conductor.now + self._random.uniform(0.0, delay_s))
        self._conductor.timers.at(self._comes_at, lambda: self.arrive(record))

    def arrive(self, item: object) -> None:
        if self.linked:
            self.put(item)
        else:
            self._held.append(item)

    def cut_off(self) -> None:
        """Until `mend`, messages of others wait, and so do the facts that this one publishes."""
        self.linked = False

    def mend(self) -> None:
        self.linked = True
        held, self._held = self._held, []
        for item in held:
            self.put(item)
        self._conductor.ready(self)

    # ---- its turns

    def stall(self) -> None:
        """Take no turns until `go_on`: messages queue up, coroutines go on."""
        self._stalled = True

    def go_on(self) -> None:
        self._stalled = False
        self._conductor.ready(self)

    def turn(self) -> None:
        if self._stalled:
            return
        if self.begun and self._outbox:
            self._emit()
            return
        begun = self.begun
        super().turn()
        if begun:
            self._move_cursor()

    def _perform(self, effects: Sequence[Effect]) -> None:
        self._outbox += map(Publish, self._handling.fresh(effects))
        self._outbox += (effect for effect in effects if type(effect) is not Publish)
        self._emit()

    def _emit(self) -> None:
        """Publish what waits to go out; with `one_by_one` other services have turns between two facts."""
        while self._outbox:
            effect = self._outbox[0]
            if type(effect) is not Publish:
                self._do(self._outbox.popleft())
                continue
            if not self.linked:
                return
            self._outbox.popleft()
            self._conductor.log.publish(effect.event)
            if self._faults.one_by_one and self._outbox:
                break
        if self._outbox or self._mailbox:
            self._conductor.ready(self)

    # ---- what its next life begins with

    def _move_cursor(self) -> None:
        """Store cursor and snapshot a few times a second, as the asyncio shell does.

        If the life ends in between, effects of the facts since then go out twice.
        """
        now, kept, seq = self._conductor.now, self._kept, self._handling.seq
        if self._outbox or seq == kept.cursor or now < self._cursor_at + CURSOR_EVERY_REAL_S - TIMER_SLACK_S:
            return
        self._cursor_at = now
        if seq - kept.snapshot_seq >= self._settings.snapshot_every:
            kept.snapshot, kept.snapshot_seq = self._handling.snapshot(), seq
        kept.cursor = seq
