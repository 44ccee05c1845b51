"""Emulated workers, and those that take turns on the same GPUs.

No turn is an event. The world says how fast each job is while these take turns; that holds for a stretch,
until one comes or goes or takes other turns, or until the stretch is drawn anew. The jobs of a rota may be
led by unlike nodes. Each of these knows all the jobs, asks about all of them, and counts for its own; asked
at the same time about the same jobs the world gives all nodes the same answer.
"""

from collections.abc import Callable, Iterable

from schemas.events import StartOrdered
from schemas.ids import PlacementId
from services.agent.work.progress import Progress
from services.agent.work.world import World
from shared.domain import gangs, in_turns
from shared.runtime.clock import Alarm, Clock


class Emulated:
    """One worker: its order, its progress once it trains, and the alarm it waits for."""

    def __init__(self, order: StartOrdered) -> None:
        self.order = order
        self.progress: Progress | None = None
        """once it trains, on the node that leads it"""
        self.save_at = 0.0
        self.stretches = 0
        """number of stretches begun so far"""
        self.stretch_s = 0.0
        """how long the next one lasts"""
        self.stopping = False
        self.up = False
        """whether its processes are up"""
        self.rota: Rota | None = None
        """while it trains on GPUs that it has in turns"""
        self.alarm: Alarm | None = None

    @property
    def holder(self) -> str:
        """The holder of its GPUs."""
        return in_turns.holder(self.order.placement_id, self.order.gang)


class Rota:
    """`going_on`: hears of each job, after its rate has changed."""

    def __init__(
        self,
        world: World,
        clock: Clock,
        first: Emulated,
        *,
        observe_every_s: float,
        going_on: Callable[[Emulated], None],
    ) -> None:
        self._world = world
        self._clock = clock
        self._going_on = going_on
        self._holder = first.holder
        self._nodes = first.order.nodes
        self._jobs: dict[PlacementId, Emulated] = {}
        self._observe_every_s = observe_every_s
        self._alarm: Alarm | None = None

    def check(self, worker: Emulated) -> None:
        """Whether the world knows it there. Raises DoesNotFit."""
        alone = worker.order.spec, gangs.turning(worker.order.gang)
        self._world.rota([alone], self._nodes, key=self._holder, index=0)

    def join(self, worker: Emulated) -> None:
        """Add a job, which trains from now on."""
        worker.rota = self
        self._jobs[worker.order.placement_id] = worker
        self.deal()

    def leave(self, worker: Emulated) -> None:
        worker.rota = None
        del self._jobs[worker.order.placement_id]
        self.deal()

    def deal(self) -> None:
        """End the stretch of all jobs, and begin one with the turns that they take now."""
        self._next_stretch(self._observe_every_s)

    def end(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _next_stretch(self, seconds: float) -> None:
        """A stretch lasts as long as all before it since the turns changed, as it does of a lone gang."""
        self.end()
        if all(worker.progress is None for worker in self._jobs.values()):
            return
        now, workers = self._clock.now(), [self._jobs[key] for key in sorted(self._jobs)]
        for worker, rate in zip(workers, self._rates(workers, now), strict=True):
            if worker.progress is not None:
                worker.progress.settle(now)
                worker.progress.rate = rate
                self._going_on(worker)
        self._alarm = self._clock.at(now + seconds, lambda: self._next_stretch(2 * seconds))

    def _rates(self, workers: Iterable[Emulated], now: float) -> tuple[float, ...]:
        """No two times have the same draws."""
        jobs = [(worker.order.spec, worker.order.gang) for worker in workers]
        return self._world.rota(jobs, self._nodes, key=f"{self._holder} at {now!r}", index=0)


def rota_of(worker: Emulated, others: Iterable[Emulated]) -> Rota | None:
    """The rota that runs on these GPUs."""
    if not gangs.rota(worker.order.gang):
        return None
    return next((one.rota for one in others if one.rota is not None and one.holder == worker.holder), None)
