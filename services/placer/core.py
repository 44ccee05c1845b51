"""The placer's decisions: facts in, orders out.

A fact first changes which placements are wanted, or which workers are known to run (`folds`); then `converge`
orders starts and stops until the two agree.
"""

from collections.abc import Iterable, Iterator

from schemas.base import Event
from schemas.events import JobPreempted, JobStarted, JobSubmitted, WorkerCheckpointed
from schemas.ids import PlacementId
from services.placer.converge import settled, started
from services.placer.folds import FOLDS, fold
from services.placer.orders import refused
from services.placer.phases import ComingUp
from services.placer.state import Placed, State, oldest_first
from shared.domain.core import Effects, Input, Publish

ORDERS_NOTHING: frozenset[type[Event]] = frozenset(
    {JobSubmitted, JobStarted, JobPreempted, WorkerCheckpointed}
)
"""facts that change neither the wanted placements nor the running ones"""


class Placer:
    """`start_timeout_s`: cluster seconds for all workers of a placement to come up."""

    def __init__(self, *, start_timeout_s: float, profile_iterations: int) -> None:
        self.state = State()
        self._start_timeout_s = start_timeout_s
        self._profile_iterations = profile_iterations
        self._timed_out: set[PlacementId] = set()

    def handle(self, message: Input, now: float) -> Effects:  # noqa: ARG002 - facts carry their time
        if not isinstance(message, Event) or type(message) not in FOLDS:
            return []
        return _published(fold(self.state, message) + self._converged(message.at))

    def next_wakeup(self) -> float | None:
        """When the next placement that is coming up reaches its time limit."""
        return min([deadline for _, deadline in self._coming_up()], default=None)

    def wake(self, now: float) -> Effects:
        late = oldest_first(placed for placed, deadline in self._coming_up() if now >= deadline)
        self._timed_out.update(placed.placement_id for placed in late)
        reason = f"its workers were not up within {self._start_timeout_s:g} s"
        return _published(refused(placed, reason, now, late=True) for placed in late)

    def resume(self, now: float) -> Effects:
        return _published(self._converged(now))

    def _converged(self, at: float) -> list[Event]:
        state = self.state
        if not (state.changed or state.candidates):
            return []
        return [*settled(state, at), *started(state, at, self._profile_iterations)]

    def _coming_up(self) -> Iterator[tuple[Placed, float]]:
        """Placements that are coming up and were not refused yet, each with its deadline."""
        for placement_id in self.state.coming_up:
            placed = self.state.placements[placement_id]
            if placement_id not in self._timed_out and isinstance(placed.phase, ComingUp):
                yield placed, placed.phase.ordered_at + self._start_timeout_s


def _published(events: Iterable[Event]) -> Effects:
    return [Publish(event) for event in events]
