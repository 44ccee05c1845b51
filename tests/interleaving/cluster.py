"""The cores around one log, each of which reads it at its own pace, under random hands.

Profiler, estimator, placer, monitor, agents and the planner's state are the shipped ones. A random number
says what comes next: who reads how far, which node crashes, is cut off, or comes back with other GPUs, which
worker fails. Plans are random as well. They keep to what the planner's state knows of nodes and claims, as
those of a policy do.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

import msgspec

from schemas.base import Event
from schemas.events import (
    JobCancelled,
    JobHeld,
    JobPriorityChanged,
    JobProfiled,
    JobReleased,
    JobTypeProfiled,
    NodeDrained,
    NodeRestored,
)
from schemas.ids import JobId, NodeId
from schemas.placement import Mode
from schemas.plans import PlanKind
from schemas.samples import Heartbeat
from services.agent.tasks import GpusSeen
from services.estimator.core import Estimator
from services.monitor.core import Monitor
from services.placer.core import Placer
from services.planner.core import folds as planner_folds
from services.planner.core.state import State as PlannerState
from services.profiler.core import Profiler
from shared.domain.core import Effects, Publish, Work, WorkFailed
from tests.fact_builders import (
    K80,
    V100,
    a_spec,
    queued,
    submitted,
    type_estimated,
)
from tests.interleaving.hosts import GPUS, SAMPLES, Host
from tests.interleaving.plans import Planning

NODES = {"n0": V100, "n1": V100, "n2": K80}
"""the GPU type of each"""
JOBS, MODELS = 8, 3
DEMANDS = ((1,), (1, 2), (2, 4), (1, 2, 4))
ROUNDS, TURNS = 60, 400
"""at most, until the cluster is at rest"""
START_TIMEOUT_S = 60.0
ROUND_S = 100.0
READERS = ("profiler", "estimator", "placer", "monitor", "planner")
S = TypeVar("S")
FAILS = 0.3
"""how likely it is that a node fails, where one that has failed is back"""
LEASE_S = 60.0
TIME_LIMIT_S = 300.0
"""of some jobs"""
SUBMITTED_ON_HOLD = 0.1
"""share of jobs"""


class Reading(NamedTuple):
    """The cores that follow from a log alone."""

    profiler: Profiler
    estimator: Estimator
    placer: Placer
    monitor: Monitor
    planner: PlannerState

    @classmethod
    def begin(cls) -> "Reading":
        return cls(
            Profiler(round_s=ROUND_S, timeout_s=START_TIMEOUT_S, attempts=2),
            Estimator(flush_s=10.0),
            Placer(start_timeout_s=START_TIMEOUT_S, profile_iterations=20),
            Monitor(lease_s=LEASE_S, interruptions_max=50, raqlr_window_s=3600.0, speed=1.0),
            PlannerState(),
        )

    def note(self, seq: int, fact: Event) -> None:
        """Take a fact into the planner's state."""
        self.planner.seq = seq
        if type(fact) in planner_folds.FOLDS:
            planner_folds.fold(self.planner, fact)


class Cluster:
    def __init__(self, seed: int, *, mode: type[Mode], adopt: bool, other_gpus: bool) -> None:
        """`mode`: of some gangs. `adopt`: workers may outlive agents.

        `other_gpus`: GPUs break, nodes leave, and come back with fewer GPUs.
        """
        self.log: list[Event] = []
        self.now = 0.0
        self.cores = Reading.begin()
        self._random = Random(seed)
        self._mode, self._adopt, self._other_gpus = mode, adopt, other_gpus
        self._ids: set[str] = set()
        self._plans = 0
        self._planned_to = -1
        """sequence behind the newest plan"""
        self.hosts = {
            NodeId(name): Host(NodeId(name), gpu_type, self._random, self._publish)
            for name, gpu_type in NODES.items()
        }
        self._read_to: dict[str, int] = dict.fromkeys((*READERS, *self.hosts), 0)
        for host in self.hosts.values():
            host.begin([], self.now, adopt=False)
        self._perform(self.cores.profiler.resume(self.now))
        self.jobs: list[JobId] = []
        self._submit()

    def _submit(self) -> None:
        """Submit as many jobs as have ended."""
        ended = sum(job.ended for job in self.cores.monitor.state.ledger.jobs.values())
        while len(self.jobs) < JOBS + ended:
            self.jobs.append(JobId(f"j{len(self.jobs)}"))
            model = f"model-{self._random.randrange(MODELS)}"
            workload = msgspec.structs.replace(a_spec().workload, model=model)
            demand = self._random.choice(DEMANDS)
            self._publish(
                submitted(
                    self.jobs[-1],
                    at=self.now,
                    on_hold=self._random.random() < SUBMITTED_ON_HOLD,
                    workload=workload,
                    demand=demand,
                    samples=SAMPLES,
                    retries=1_000,
                    time_limit_s=self._random.choice((None, None, None, TIME_LIMIT_S)),
                )
            )

    def _publish(self, fact: Event) -> None:
        if fact.event_id not in self._ids:
            self._ids.add(fact.event_id)
            self.log.append(fact)

    def _publish_all(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Publish):
                self._publish(effect.event)

    def is_published(self, fact: Event) -> bool:
        return fact.event_id in self._ids

    # ---- readers

    def _read(self, who: str) -> bool:
        """Hand a reader its next fact; false: it has read all, or cannot read."""
        seq = self._read_to[who] + 1
        host = self.hosts.get(NodeId(who))
        if seq > len(self.log) or (host is not None and (host.down or host.is_cut)):
            return False
        self._read_to[who], fact = seq, self.log[seq - 1]
        match who:
            case "profiler":
                self._perform(self.cores.profiler.handle(fact, self.now))
            case "estimator":
                self.cores.estimator.handle(fact, self.now)
                self._estimate(fact)
            case "placer":
                self._publish_all(self.cores.placer.handle(fact, self.now))
            case "monitor":
                self._publish_all(self.cores.monitor.handle(fact, self.now))
            case "planner":
                self.cores.note(seq, fact)
            case _:
                assert host is not None
                host.handle(fact, self.now)
        return True

    def _read_all(self, who: str) -> bool:
        """Hand a reader all that it has not read; false: there is nothing."""
        moved = False
        while self._read(who):
            moved = True
        return moved

    def _perform(self, effects: Effects) -> None:
        """Publish the facts. A fit that the profiler asks for fails, so it goes by the means."""
        self._publish_all(effects)
        for effect in effects:
            if isinstance(effect, Work):
                answer = WorkFailed(effect.task, "no fit")
                self._perform(self.cores.profiler.handle(answer, self.now))

    def _wake_profiler(self) -> None:
        due = self.cores.profiler.next_wakeup()
        if due is not None and due <= self.now:
            self._perform(self.cores.profiler.wake(self.now))

    def _estimate(self, fact: Event) -> None:
        """What the estimator's store would say of a job's speeds."""
        match fact:
            case JobProfiled(job_id=job_id, modules=modules) if modules:
                self._publish(queued(job_id, at=self.now, single_gpu=dict.fromkeys(modules, 10.0)))
            case JobTypeProfiled(job_id=job_id, gpu_type=gpu_type):
                self._publish(type_estimated(job_id, at=self.now, gpu_type=gpu_type))
            case _:
                pass

    def _begin(self, host: Host, *, gpus: int = GPUS) -> None:
        adopt = self._adopt and self._random.random() < 0.6
        host.begin(self.log[: self._read_to[host.node_id]], self.now, adopt=adopt, gpus=gpus)

    def _restart(self, name: str) -> None:
        """The placer, the monitor or the profiler begins again with its snapshot."""
        again = getattr(Reading.begin(), name)
        again.state = _stored(getattr(self.cores, name).state)
        self.cores = self.cores._replace(**{name: again})
        self._perform(again.resume(self.now))

    # ---- plans

    def _plan(self, kind: PlanKind, keep: float = 0.6) -> None:
        """Publish a plan, unless the planner has not read its last one; `keep`: see `Planning`."""
        if self._planned_to >= self._read_to["planner"]:
            return
        self._plans += 1
        planning = Planning(self.cores.planner, self._random, self._plans, self._mode, keep)
        made = planning.made(kind, self.now)
        if made is not None:
            self._planned_to = len(self.log)
            self._publish(made)

    # ---- what happens

    def step(self) -> None:
        """Something happens."""
        self.now += self._random.random()
        host = self._random.choice(list(self.hosts.values()))
        [happen] = self._random.choices(list(HAPPENINGS), list(HAPPENINGS.values()))
        happen(self, host)

    def _read_some(self) -> None:
        who = self._random.choice(list(self._read_to))
        for _ in range(self._random.choice((1, 2, 5, 20))):
            self._read(who)

    def _work(self, host: Host) -> None:
        if host.workers:
            host.work(self._random.choice(list(host.workers)), self.now, faults=True)

    def _time_out(self) -> None:
        due = self.cores.placer.next_wakeup()
        if due is not None:
            self._publish_all(self.cores.placer.wake(max(due, self.now)))

    def _cancel(self) -> None:
        self._publish(JobCancelled(at=self.now, job_id=self._random.choice(self.jobs)))

    def _set_priority(self) -> None:
        job_id = self._random.choice(self.jobs)
        self._publish(
            JobPriorityChanged(at=self.now, job_id=job_id, priority=self._random.choice((0.5, 9.0)))
        )

    def _hold_or_release(self) -> None:
        kind = self._random.choice((JobHeld, JobReleased))
        self._publish(kind(at=self.now, job_id=self._random.choice(self.jobs)))

    def _drain(self, host: Host) -> None:
        self._publish(NodeDrained(at=self.now, node_id=host.node_id))

    def _restore(self, host: Host) -> None:
        self._publish(NodeRestored(at=self.now, node_id=host.node_id))

    def _crash_or_begin(self, host: Host) -> None:
        if host.down:
            gpus = self._random.choice((GPUS, 3, 2)) if self._other_gpus else GPUS
            self._begin(host, gpus=gpus)
        elif not host.is_cut and self._random.random() < FAILS:
            host.crash()

    def _cut_or_join(self, host: Host) -> None:
        if host.is_cut:
            host.join()
        elif not host.down and self._random.random() < FAILS:
            host.cut()

    def _beat(self, host: Host) -> None:
        """A heartbeat reaches the monitor, which finds out by itself which nodes are lost and back."""
        if not host.is_cut and host.lives:
            beat = Heartbeat(at=self.now, node_id=host.node_id, life=host.life, workers=tuple(host.workers))
            self._publish_all(self.cores.monitor.handle(beat, self.now))

    def _wake_monitor(self) -> None:
        due = self.cores.monitor.next_wakeup()
        if due is not None and due <= self.now:
            self._publish_all(self.cores.monitor.wake(self.now))

    def _break_gpus(self, host: Host) -> None:
        if not self._other_gpus or host.is_cut or not host.lives:
            return
        if self._random.random() < 0.3:
            host.leave(self.now)
            return
        broken = {index: "ecc" for index in range(host.gpus) if self._random.random() < 0.2}
        host.report(GpusSeen(busy={}, broken=broken), self.now)

    # ---- the end

    def settle(self) -> None:
        """Nothing fails any more, and rounds follow until all jobs have ended."""
        for host in self.hosts.values():
            host.join()
            if host.down or self._other_gpus:
                self._begin(host)
            self.now += 1.0
            self._restore(host)
        for _ in range(ROUNDS):
            self._come_to_rest()
            if not (self.cores.planner.jobs or self.cores.placer.state.jobs):
                return
            self.now += ROUND_S / 4
            self._plan(PlanKind.FIRST, keep=0.8)

    def _come_to_rest(self) -> None:
        for _ in range(TURNS):
            self.now += 1.0
            before = len(self.log)
            self._wake_profiler()
            self._wake_monitor()
            moved = [who for who in self._read_to if self._read_all(who)]
            for host in self.hosts.values():
                for placement_id in list(host.workers):
                    host.work(placement_id, self.now, faults=False)
                self._beat(host)
            if not moved and len(self.log) == before:
                return


def _stored(state: S) -> S:
    """The state as a snapshot has it."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state))


HAPPENINGS: dict[Callable[[Cluster, Host], None], float] = {
    lambda cluster, _: cluster._read_some(): 500,
    Cluster._work: 280,
    lambda cluster, _: cluster._plan(PlanKind.FRAGMENT): 40,
    lambda cluster, _: cluster._plan(PlanKind.FIRST): 10,
    lambda cluster, _: cluster._submit(): 5,
    Cluster._crash_or_begin: 12,
    Cluster._cut_or_join: 12,
    Cluster._beat: 60,
    lambda cluster, _: cluster._wake_monitor(): 30,
    lambda cluster, _: cluster._time_out(): 1,
    lambda cluster, _: cluster._cancel(): 0.3,
    lambda cluster, _: cluster._set_priority(): 1,
    lambda cluster, _: cluster._hold_or_release(): 1,
    Cluster._drain: 0.7,
    Cluster._restore: 10,
    Cluster._break_gpus: 3.5,
    lambda cluster, _: cluster._restart("placer"): 1.5,
    lambda cluster, _: cluster._restart("profiler"): 1.5,
    lambda cluster, _: cluster._restart("monitor"): 1.5,
    lambda cluster, _: cluster._wake_profiler(): 100,
}
"""what may happen next, and how likely it is"""
