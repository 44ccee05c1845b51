"""The half of a shell without I/O, the same in every shell: hands messages to a core, collects effects."""

import math
from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from schemas.base import Event
from shared.domain.core import Asked, Effect, MustEnd, Publish
from shared.domain.recent_ids import RecentIds
from shared.runtime.bus.contract import Record
from shared.runtime.service import Service
from shared.runtime.shell.quarantine import FatalFact
from shared.runtime.shell.snapshots import packed, unpacked

TIMER_SLACK_S = 1e-4
"""a timer counts as due this much earlier: more than the clock's resolution, less than any interval in use"""
AHEAD_LIMIT_REAL_S = 10.0
"""by how much a fact may be ahead of the service's clock: more than the clocks of machines differ"""


class ShellCounts(msgspec.Struct):
    """Counts of a shell, for the metrics endpoint."""

    facts: int = 0
    repeated: int = 0
    inputs: int = 0
    questions_failed: int = 0
    published: int = 0
    work: int = 0
    work_failed: int = 0
    snapshots: int = 0
    replay_s: float = 0.0
    handle_s: float = 0.0


class Handling:
    """Hands messages to a core, each fact once, and remembers how far it has come.

    `remembered_ids`: how many ids of facts it remembers, to know a fact that comes again. `once`: nothing is
    remembered, since the stream delivers each fact once and drops what is published again. `fail`: called
    with the ticket of a question at which the core raised, and with the error. The service goes on, since a
    question changes no state; None: the error ends it, as any other error of a core does. `ahead_s`: by how
    many cluster seconds a fact may be ahead of the service's clock. The core is handed a later one as of
    now: an agent may state any time, and what a service concludes from a fact often takes over its time.
    """

    def __init__(
        self,
        service: Service,
        remembered_ids: int,
        *,
        once: bool = False,
        fail: Callable[[int, Exception], None] | None = None,
        ahead_s: float = AHEAD_LIMIT_REAL_S,
    ) -> None:
        self._fail = fail
        self._once = once
        self._ahead_s = ahead_s
        self.core = service.core
        self.counts = ShellCounts()
        self.seq = 0
        """sequence of the last fact that the core was handed"""
        self._name = service.name
        self._known = RecentIds(remembered_ids)
        self._published = RecentIds(remembered_ids)
        self._state_has_seq = hasattr(service.core.state, "seq")
        self.due: float | None = None
        """when the core wants to be woken, as of the last turn"""
        self.passed_over: Collection[int] = frozenset()
        """sequences of facts that the core is not handed"""

    def turn(self, batch: Sequence[object], now: float) -> list[Effect]:
        """The effects of some messages, and of a timer that is due."""
        effects: list[Effect] = []
        for item in batch:
            if type(item) is Record:
                effects += self._fact(item, now)
            else:
                effects += self._input(item, now)
        self.due = self.core.next_wakeup()
        if self.due is not None and self.due <= now + TIMER_SLACK_S:
            effects += self._wake(self.due, now)
        return effects

    def replay(self, record: Record, now: float = math.inf) -> None:
        """Handle a fact from before the cursor, without effects: they went out in an earlier life.

        It is handled as of its own time, but no later than `now`.
        """
        self._fact(record, min(record.event.at, now))

    def fresh(self, effects: Sequence[Effect]) -> list[Event]:
        """The facts to publish that were neither read nor published before; now they count as published."""
        facts = [effect.event for effect in effects if type(effect) is Publish]
        return facts if self._once else [fact for fact in facts if self._is_fresh(fact.event_id)]

    def _is_fresh(self, event_id: str) -> bool:
        return event_id not in self._known and self._published.add(event_id)

    # ---- snapshots

    def snapshot(self) -> bytes:
        self.counts.snapshots += 1
        return packed(self.seq, self.core.state, self._known)

    def restore(self, blob: bytes) -> None:
        """Raises UnreadableSnapshot."""
        self.seq, self.core.state, ids = unpacked(blob, type(self.core.state))
        for event_id in ids:
            self._known.add(event_id)

    # ---- messages

    def _input(self, item: object, now: float) -> Sequence[Effect]:
        self.counts.inputs += 1
        try:
            return self.core.handle(item, now)  # type: ignore[arg-type] # a sample, an answer, a question
        except Exception as error:
            if self._fail is None or type(item) is not Asked or isinstance(error, MustEnd):
                raise
            self.counts.questions_failed += 1
            self._fail(item.ticket, error)
            return ()

    def _fact(self, record: Record, now: float) -> Sequence[Effect]:
        if record.seq <= self.seq:
            self.counts.repeated += 1
            return ()
        self.seq = record.seq
        if not self._once and not self._known.add(record.event.event_id):
            self.counts.repeated += 1
            return ()
        self.counts.facts += 1
        if self._state_has_seq:
            self.core.state.seq = record.seq
        if record.seq in self.passed_over:
            return ()
        event = record.event
        if event.at > now + self._ahead_s:
            event = replace(event, at=now)
        try:
            return self.core.handle(event, now)
        except MustEnd:
            raise
        except Exception as error:
            raise FatalFact(record, error) from error

    def _wake(self, due: float, now: float) -> Sequence[Effect]:
        effects = self.core.wake(max(now, due))
        self.due = self.core.next_wakeup()
        assert self.due is None or self.due > due, f"{self._name} wakes for {due} again and again"
        return effects
