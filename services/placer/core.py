"""The placer's decisions: facts in, orders out.

A fact first changes which placements are wanted, or which workers are known to run (`folds`); then `converge`
orders starts and stops until the two agree.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from schemas.base import Event
from schemas.events import (
    GangFormed,
    JobStarted,
    JobSubmitted,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
    WorkerCheckpointed,
)
from schemas.ids import PlacementId
from services.placer.converge import settled, started
from services.placer.folds import FOLDS, fold
from services.placer.orders import refused
from services.placer.phases import WorkerState
from services.placer.state import Placed, State, oldest_first
from shared.domain.core import Behind, Effects, Input, Publish
from shared.domain.timeouts import Timeouts, overslept

ORDERS_NOTHING: frozenset[type[Event]] = frozenset({JobSubmitted, JobStarted, WorkerCheckpointed})
"""facts that change neither the wanted placements nor the running ones"""
ORDERS = StartOrdered | GangFormed | StopOrdered | TurnsOrdered
NAMED = 3
"""nodes that a reason names"""


class Placer:
    """`start_timeout_s`: cluster seconds for all workers of a placement to come up.

    They count from when this life first saw the placement coming up, and again from when facts reach it as
    they come, since the workers may have come up in between. `speed`: cluster seconds a real second.
    """

    def __init__(self, *, start_timeout_s: float, profile_iterations: int, speed: float = 1.0) -> None:
        self.state = State()
        self._start_timeout_s = start_timeout_s
        self._limit_real_s = start_timeout_s / speed
        self._profile_iterations = profile_iterations
        self._starts: Timeouts[PlacementId] = Timeouts(start_timeout_s)
        self._seen: set[PlacementId] = set()
        """placements that are coming up, those included that this life has refused as late"""

    def handle(self, message: Input, now: float) -> Effects:
        if isinstance(message, Behind):
            self._listen_from(now)
        if not isinstance(message, Event) or type(message) not in FOLDS:
            return []
        events = fold(self.state, message) + self._converged(message.at)
        self._watch_starts(now)
        return _published(_ordered_at(now, event) for event in events) if events else []

    def next_wakeup(self) -> float | None:
        """When the next placement that is coming up reaches its time limit."""
        return self._starts.first()

    def wake(self, now: float) -> Effects:
        if overslept(self.next_wakeup(), self._start_timeout_s, now):
            self._listen_from(now)
            return []
        late = oldest_first(self.state.placements[one] for one in self._starts.take_late(now))
        return _published(refused(placed, self._why_late(placed), now, late=True) for placed in late)

    def _why_late(self, placed: Placed) -> str:
        missing = [node_id for node_id, worker in placed.workers.items() if worker is WorkerState.ORDERED]
        others = len(missing) - NAMED
        more = f" and {others} other node{'s' if others > 1 else ''}" if others > 0 else ""
        where = ", ".join(missing[:NAMED]) + more
        return f"its workers on {where} were not up within start_timeout_real_s ({self._limit_real_s:g} s)"

    def resume(self, now: float) -> Effects:
        events = self._converged(now)
        self._listen_from(now)
        return _published(events)

    def _converged(self, at: float) -> list[Event]:
        state = self.state
        if not (state.changed or state.candidates):
            return []
        return [*settled(state, at), *started(state, at, self._profile_iterations)]

    def _watch_starts(self, now: float) -> None:
        """Begin the limits of placements that have begun to come up, and drop those of others."""
        coming = self.state.coming_up.keys()
        if coming == self._seen:
            return
        for placement_id in self._seen - coming:
            self._starts.drop(placement_id)
        for placement_id in coming:
            if placement_id not in self._seen:
                self._starts.begin(placement_id, now)
        self._seen = set(coming)

    def _listen_from(self, now: float) -> None:
        self._seen = set(self.state.coming_up)
        self._starts.restart(self.state.coming_up, now)


def _ordered_at(now: float, event: Event) -> Event:
    """An order with the time at which it is given: the fact that it follows from may have come late."""
    return replace(event, at=now) if isinstance(event, ORDERS) and event.at < now else event


def _published(events: Iterable[Event]) -> Effects:
    return [Publish(event) for event in events]
