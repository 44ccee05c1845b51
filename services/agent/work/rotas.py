"""Emulated workers, and rotas of them, which take turns on the same GPUs.

Single turns are not emulated. The world says how fast each job of the rota is on average; these rates hold
for a stretch, which ends when a job comes, goes or gets other turns, or after a time. The jobs of a rota may
be led by different nodes. Each node asks the world about all jobs and counts the samples of those that it
leads. Asked at one time about the same jobs, the world gives all nodes the same answer.
"""

from collections.abc import Callable, Iterable

from schemas.events import StartOrdered
from schemas.ids import PlacementId
from services.agent.work.progress import Progress
from services.agent.work.world import World
from shared.domain import gangs, in_turns
from shared.runtime.clock import Alarm, Clock


class EmulatedWorker:
    """One worker: its order, its progress once it trains, and the alarm it waits for."""

    def __init__(self, order: StartOrdered) -> None:
        self.order = order
        self.progress: Progress | None = None
        """None: it does not train yet, or another node leads it"""
        self.save_at = 0.0
        """cluster time of its next periodic checkpoint"""
        self.stretches = 0
        """number of stretches begun so far"""
        self.stretch_s = 0.0
        """seconds that the next stretch lasts"""
        self.stopping = False
        self.up = False
        """whether its processes are up"""
        self.rota: Rota | None = None
        """the rota that it trains in; None: its GPUs are its own, or it does not train yet"""
        self.alarm: Alarm | None = None

    @property
    def holder(self) -> str:
        """The holder of its GPUs."""
        return in_turns.holder(self.order.placement_id, self.order.gang)


class Rota:
    """Workers that take turns on the same GPUs.

    `rate_changed`: called for each job whose rate has changed.
    """

    def __init__(
        self,
        world: World,
        clock: Clock,
        first: EmulatedWorker,
        *,
        observe_every_s: float,
        rate_changed: Callable[[EmulatedWorker], None],
    ) -> None:
        self._world = world
        self._clock = clock
        self._going_on = rate_changed
        self._holder = first.holder
        self._nodes = first.order.nodes
        self._jobs: dict[PlacementId, EmulatedWorker] = {}
        self._observe_every_s = observe_every_s
        self._alarm: Alarm | None = None

    def check(self, worker: EmulatedWorker) -> None:
        """Check that the job fits on these GPUs. Raises DoesNotFit."""
        alone = worker.order.spec, gangs.turning(worker.order.gang)
        self._world.rota([alone], self._nodes, key=self._holder, index=0)

    def join(self, worker: EmulatedWorker) -> None:
        """Add a job, which trains from now on."""
        worker.rota = self
        self._jobs[worker.order.placement_id] = worker
        self.deal()

    def leave(self, worker: EmulatedWorker) -> None:
        worker.rota = None
        del self._jobs[worker.order.placement_id]
        self.deal()

    def deal(self) -> None:
        """End the stretch of all jobs, and begin a new one with their present turns."""
        self._next_stretch(self._observe_every_s)

    def end(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _next_stretch(self, seconds: float) -> None:
        """Begin a stretch; each lasts twice as long as the one before it, until the turns change."""
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

    def _rates(self, workers: Iterable[EmulatedWorker], now: float) -> tuple[float, ...]:
        """samples/s of each worker; the time is in the key, so that later stretches have other draws."""
        jobs = [(worker.order.spec, worker.order.gang) for worker in workers]
        return self._world.rota(jobs, self._nodes, key=f"{self._holder} at {now!r}", index=0)


def rota_of(worker: EmulatedWorker, others: Iterable[EmulatedWorker]) -> Rota | None:
    """The rota that already runs on the worker's GPUs; None: there is none."""
    if not gangs.rota(worker.order.gang):
        return None
    return next((one.rota for one in others if one.rota is not None and one.holder == worker.holder), None)
