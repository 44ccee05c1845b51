"""A monitor on its own stream: what it publishes is stored and comes back to it, as in life."""

from collections.abc import Sequence

import msgspec

from schemas.base import Event, Message, Question
from schemas.ids import JobId, NodeId
from schemas.samples import Heartbeat
from services.monitor.core import Monitor
from services.monitor.state import State
from shared.domain.core import Asked, Effects, Publish, Reply

LEASE_S = 6.0


def a_monitor() -> Monitor:
    return Monitor(lease_s=LEASE_S, interruptions_max=3, raqlr_window_s=3600.0, speed=1.0)


def heartbeat(
    node_id: str = "node-1", *, life: str = "1", progress: dict[JobId, float] | None = None
) -> Heartbeat:
    return Heartbeat(at=0, node_id=NodeId(node_id), life=life, workers=(), progress=progress or {})


class World:
    """Drives one monitor. `now` moves only when the test moves it."""

    def __init__(self, *facts: Event) -> None:
        self.monitor = a_monitor()
        self.now = 0.0
        self.log: list[Event] = []
        self.published: list[Event] = []
        self.tell(*facts)

    def tell(self, *facts: Event) -> list[Event]:
        """Facts of others; what the monitor says to them."""
        return self._published([effect for fact in facts for effect in self._take(fact)])

    def hear(self, *samples: Heartbeat, at: float) -> list[Event]:
        self.now = at
        effects = [effect for sample in samples for effect in self.monitor.handle(sample, at)]
        return self._published(effects)

    def until(self, at: float) -> list[Event]:
        """Let time pass, and wake the monitor whenever it asks for it."""
        published: list[Event] = []
        while (due := self.monitor.next_wakeup()) is not None and due <= at:
            self.now = max(due, self.now)
            published += self._published(self.monitor.wake(self.now))
        self.now = at
        return published

    def wake_late(self, at: float) -> list[Event]:
        self.now = at
        return self._published(self.monitor.wake(at))

    def ask(self, question: Question) -> Message:
        [effect] = self.monitor.handle(Asked(7, question), self.now)
        assert isinstance(effect, Reply)
        assert effect.ticket == 7
        return effect.message

    def restart(self, *, at: float, snapshot: bool) -> list[Event]:
        """A new process: from a snapshot, or from the stream's beginning; then it resumes."""
        before, self.monitor = self.monitor, a_monitor()
        if snapshot:
            self.monitor.state = msgspec.msgpack.decode(msgspec.msgpack.encode(before.state), type=State)
        else:
            for fact in self.log:
                self.monitor.handle(fact, fact.at)
        assert self.monitor.state == before.state
        self.now = at
        return [effect.event for effect in self.monitor.resume(at) if isinstance(effect, Publish)]

    def _take(self, fact: Event) -> Effects:
        self.log.append(fact)
        return self.monitor.handle(fact, self.now)

    def _published(self, effects: Sequence[object]) -> list[Event]:
        facts = [effect.event for effect in effects if isinstance(effect, Publish)]
        self.published += facts
        for fact in facts:
            assert not self._take(fact), "the monitor answers nobody's fact but a worker's"
        return facts
