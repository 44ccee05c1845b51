"""A node under random hands: the shipped agent, and workers that come up, save and end when it is drawn.

`crash` ends the agent; its workers may go on, and the next life adopts them. `cut` keeps what it publishes
until `join` lets it out.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from schemas.base import Event
from schemas.events import StartOrdered
from schemas.ids import NodeId, PlacementId
from schemas.measurements import Measured
from schemas.placement import Forked, Lockstep, Mode, Relaxed
from services.agent.core import Agent
from services.agent.folds import FOLDS
from services.agent.tasks import (
    Completed,
    Failed,
    GpusSeen,
    Interrupted,
    Profiled,
    Report,
    Saved,
    Started,
    StartWorker,
    Stopped,
    StopWorker,
    TrainWorker,
)
from shared.domain import gangs, in_turns
from shared.domain.core import Effects, Publish, Work
from tests.fact_builders import K80, a_node

MODES: frozenset[type[Mode]] = frozenset({Lockstep, Forked, Relaxed})
SAMPLES = 6_400.0
"""of each job"""
STEP = 64.0
"""samples between two checkpoints"""
GPUS = 4
MEASURED = Measured(
    data_s=(0.1,), forward_s=(0.1,), backward_s=(0.1,), update_s=(0.1,), iteration_s=(0.4,), parameters=1e6
)


@dataclass
class RunningWorker:
    order: StartOrdered
    gpus: frozenset[int]
    samples: float
    up: bool = False
    trains: bool = False
    must_stop: bool = False


class Host:
    def __init__(
        self, node_id: NodeId, gpu_type: str, random: Random, publish: Callable[[Event], None]
    ) -> None:
        self.node_id = node_id
        self._gpu_type = gpu_type
        self.gpus = GPUS
        self.workers: dict[PlacementId, RunningWorker] = {}
        self.down = False
        self.is_cut = False
        self.agent: Agent
        self._random = random
        self._publish = publish
        self._kept: list[Event] = []
        self._lives = 0

    @property
    def life(self) -> str:
        return f"{self.node_id}-{self._lives}"

    @property
    def lives(self) -> bool:
        """Whether its agent runs and the present life has joined."""
        return not self.down and self.agent.state.life == self.life

    # ---- its agent

    def begin(self, read: Iterable[Event], now: float, *, adopt: bool, gpus: int = GPUS) -> None:
        """Begin a life, over the facts that the last one had read."""
        self.down, self.gpus = False, gpus
        self._lives += 1
        if not adopt:
            self.workers = {}
        node = a_node(self.node_id, gpus=gpus, gpu_type=self._gpu_type)
        self.agent = Agent(node, self.life, MODES, adopted=tuple(self.workers))
        for fact in read:
            if self.concerns(fact):
                self.agent.handle(fact, fact.at)
        self._perform(self.agent.resume(now))
        for placement_id, worker in self.workers.items():
            if worker.up:
                self.report(Started(placement_id), now)

    def crash(self) -> None:
        self.down = True

    def cut(self) -> None:
        self.is_cut = True

    def join(self) -> None:
        self.is_cut = False
        for fact in self._kept:
            self._publish(fact)
        self._kept = []

    def concerns(self, fact: Event) -> bool:
        return type(fact) in FOLDS and getattr(fact, "node_id", None) == self.node_id

    def handle(self, fact: Event, now: float) -> None:
        if self.concerns(fact):
            self._perform(self.agent.handle(fact, now))

    def report(self, report: Report | GpusSeen, now: float) -> None:
        self._perform(self.agent.handle(report, now))

    def leave(self, now: float) -> None:
        """The time of the node is over."""
        self.agent._leave_at = now
        self._perform(self.agent.wake(now))

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Publish(fact):
                    (self._kept.append if self.is_cut else self._publish)(fact)
                case Work(StartWorker() as task):
                    self._start(task)
                case Work(TrainWorker(placement_id=placement_id)) if placement_id in self.workers:
                    self.workers[placement_id].trains = True
                case Work(StopWorker(placement_id=placement_id)) if placement_id in self.workers:
                    self.workers[placement_id].must_stop = True
                case _:
                    pass

    # ---- its workers

    def _start(self, task: StartWorker) -> None:
        gpus, order = frozenset(task.gpu_indices), task.order
        assert order.placement_id not in self.workers
        assert gpus <= set(range(self.gpus))
        others = [worker.order for worker in self.workers.values() if gpus & worker.gpus]
        owners = {in_turns.holder(one.placement_id, one.gang) for one in (order, *others)}
        assert len(owners) == 1, "a GPU has one owner"
        self.workers[order.placement_id] = RunningWorker(order, gpus, order.samples_done)

    def work(self, placement_id: PlacementId, now: float, *, faults: bool) -> None:
        """Something happens to one of its workers, or nothing."""
        if self.down:
            return
        worker = self.workers[placement_id]
        report = self._next(placement_id, worker, faults=faults)
        if report is None:
            return
        if not isinstance(report, Started | Saved):
            del self.workers[placement_id]
        self.report(report, now)

    def _next(self, placement_id: PlacementId, worker: RunningWorker, *, faults: bool) -> Report | None:
        random = self._random.random
        if worker.must_stop and (not faults or random() < 0.6):
            return Stopped(placement_id, worker.samples)
        if faults and random() < 0.1:
            return self._fault(placement_id, worker)
        if not worker.up:
            worker.up = True
            return Started(placement_id)
        if worker.order.profile_iterations:
            return Profiled(placement_id, MEASURED)
        if worker.trains and self.node_id in gangs.leaders(worker.order.gang):
            return self._trained(placement_id, worker, likely=0.04 if faults else 0.7)
        return None

    def _trained(self, placement_id: PlacementId, worker: RunningWorker, likely: float) -> Report | None:
        """It ends with probability `likely`, or saves."""
        whole = SAMPLES if worker.order.until is None else worker.order.until
        if self._random.random() < likely:
            return Completed(placement_id, whole)
        worker.samples = min(whole, worker.samples + STEP)
        return Saved(placement_id, worker.samples)

    def _fault(self, placement_id: PlacementId, worker: RunningWorker) -> Report:
        faults: list[Report] = [
            Failed(placement_id, "exit 1", lasting=self._random.random() < 0.3 and self._gpu_type == K80),
            Interrupted(placement_id, "a peer is gone"),
            Interrupted(placement_id, "a signal", samples_done=worker.samples),
        ]
        return self._random.choice(faults)
