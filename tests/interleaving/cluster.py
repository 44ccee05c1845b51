"""The cores around one log, each of which reads it at its own pace, under random hands.

Placer, monitor, agents and the planner's state are the shipped ones. A random number says what comes next:
who reads how far, which node crashes, is cut off, or comes back with other GPUs, which worker fails. Plans
are random as well. They keep to what the planner's state knows of nodes and claims, as those of a policy do.
"""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import NamedTuple

import msgspec

from schemas.base import Event
from schemas.events import JobCancelled, NodeDrained, NodeLost, NodeRestored, NodeReturned
from schemas.ids import JobId, NodeId, PlanId
from schemas.placement import Forked, Gang, Member
from schemas.plans import Placement, PlanKind, Waiting
from services.agent.tasks import GpusSeen
from services.monitor.core import Monitor
from services.placer.core import Placer
from services.planner.core import folds as planner_folds
from services.planner.core.state import State as PlannerState
from shared.domain import gangs
from shared.domain.core import Effects, Publish
from tests.fact_builders import in_queue, left_out, placement, plan
from tests.interleaving.hosts import GPUS, SAMPLES, Host

NODES, JOBS = 3, 8
DEMANDS = ((1,), (1, 2), (2, 4), (1, 2, 4))
OPEN = ("queued", "running", "preempted")
ROUNDS, TURNS = 60, 400
"""at most, until the cluster is at rest"""
START_TIMEOUT_S = 60.0
FAILS = 0.3
"""how likely it is that a node fails, where one that has failed is back"""
NEVER = 1e12
"""seconds after which the monitor by itself takes a node as lost"""


class Reading(NamedTuple):
    """The cores that follow from a log alone."""

    placer: Placer
    monitor: Monitor
    planner: PlannerState

    @classmethod
    def begin(cls) -> "Reading":
        return cls(
            Placer(start_timeout_s=START_TIMEOUT_S, profile_iterations=20),
            Monitor(lease_s=NEVER, interruptions_max=50, raqlr_window_s=3600.0, speed=1.0),
            PlannerState(),
        )

    def note(self, seq: int, fact: Event) -> None:
        """Take a fact into the planner's state."""
        self.planner.seq = seq
        if type(fact) in planner_folds.FOLDS:
            planner_folds.fold(self.planner, fact)


class Cluster:
    def __init__(self, seed: int, *, copies: bool, adopt: bool, other_gpus: bool) -> None:
        """`copies`: some gangs are of copies. `adopt`: workers may outlive agents.

        `other_gpus`: GPUs break, nodes leave, and come back with fewer GPUs.
        """
        self.log: list[Event] = []
        self.now = 0.0
        self.cores = Reading.begin()
        self._random = Random(seed)
        self._copies, self._adopt, self._other_gpus = copies, adopt, other_gpus
        self._ids: set[str] = set()
        self._plans = 0
        self._planned_to = -1
        """sequence behind the newest plan"""
        self.hosts = {
            name: Host(name, self._random, self._publish)
            for name in [NodeId(f"n{number}") for number in range(NODES)]
        }
        self._read_to: dict[str, int] = dict.fromkeys(("placer", "monitor", "planner", *self.hosts), 0)
        for host in self.hosts.values():
            host.begin([], self.now, adopt=False)
        self.jobs: list[JobId] = []
        self._submit()

    def _submit(self) -> None:
        """Submit as many jobs as have ended."""
        ended = sum(job.ended for job in self.cores.monitor.state.ledger.jobs.values())
        while len(self.jobs) < JOBS + ended:
            self.jobs.append(JobId(f"j{len(self.jobs)}"))
            demand = self._random.choice(DEMANDS)
            for fact in in_queue(self.jobs[-1], demand=demand, samples=SAMPLES, retries=1_000):
                self._publish(fact)

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

    def _begin(self, host: Host, *, gpus: int = GPUS) -> None:
        adopt = self._adopt and self._random.random() < 0.6
        host.begin(self.log[: self._read_to[host.node_id]], self.now, adopt=adopt, gpus=gpus)

    def _restart_placer(self) -> None:
        """It begins again with its snapshot."""
        again, state = Reading.begin().placer, self.cores.placer.state
        again.state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state))
        self.cores = self.cores._replace(placer=again)
        self._publish_all(again.resume(self.now))

    # ---- plans

    def _plan(self, kind: PlanKind, keep: float = 0.6) -> None:
        """Publish a plan that fits what the planner's state knows; `keep`: how likely a placement stays."""
        state, first = self.cores.planner, kind is PlanKind.FIRST
        if self._planned_to >= self._read_to["planner"]:
            return  # it has not read its last plan yet
        self._plans += 1
        free = {name: known.node.gpus for name, known in state.nodes.items() if known.usable}
        kept = list(self._kept(free, keep)) if first else []
        if first:
            placed = {one.job_id for one in kept}
            jobs = [name for name, job in state.jobs.items() if job.status in OPEN and name not in placed]
        else:
            free = {name: max(gpus - state.claims.claimed.get(name, 0), 0) for name, gpus in free.items()}
            jobs = [job_id for job_id in state.waiting if job_id not in state.claims.of_job]
        self._random.shuffle(jobs)
        new = {job_id: self._gang(state.jobs[job_id].demand, free) for job_id in jobs}
        placements = kept + [self._placement(job_id, gang) for job_id, gang in new.items() if gang]
        if not (placements or first):
            return
        missing = [left_out(name, Waiting.NO_CONFIGURATION) for name, gang in new.items() if not gang]
        self._planned_to = len(self.log)
        self._publish(
            plan(
                *placements,
                at=self.now,
                plan_id=PlanId(f"plan-{self._plans}"),
                kind=kind,
                round=self._plans,
                made_from=state.seq,
                left_out=tuple(missing) if first else (),
            )
        )

    def _kept(self, free: dict[NodeId, int], keep: float) -> Iterator[Placement]:
        """Placements that stay; `free` is reduced by them."""
        claims = self.cores.planner.claims
        for job_id, job in self.cores.planner.jobs.items():
            one = claims.placement_of(job_id) if job.status in OPEN else None
            if one is None or self._random.random() >= keep:
                continue
            there = all(free.get(member.node, 0) >= member.gpus for member in one.gang.members)
            if there and one.placement_id not in claims.broken and not gangs.merges(one.gang):
                _take(free, one.gang)
                yield one

    def _gang(self, demand: Iterable[int], free: dict[NodeId, int]) -> Gang | None:
        """A random gang on free GPUs, by which `free` is reduced; None: there are too few."""
        wanted, names = self._random.choice(list(demand)), [name for name in free if free[name]]
        self._random.shuffle(names)
        wide = sorted([name for name in names if free[name] >= wanted][:2])
        if self._copies and len(wide) == 2 and self._random.random() < 0.4:
            gang = Gang(tuple(Member(name, wanted) for name in wide), Forked(shares=(0.5, 0.5)))
        else:
            members: dict[NodeId, int] = {}
            for name in names:
                if taken := min(free[name], wanted - sum(members.values()), self._random.choice((1, 2, 4))):
                    members[name] = taken
            if sum(members.values()) < wanted:
                return None
            gang = Gang.of(members)
        _take(free, gang)
        return gang

    def _placement(self, job_id: JobId, gang: Gang) -> Placement:
        return msgspec.structs.replace(placement(job_id, place=f"{job_id}-{self._plans}"), gang=gang)

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

    def _judge(self, host: Host) -> None:
        """The monitor's leases: a node that is away is lost, and one that is back returns."""
        known = self.cores.monitor.state.ledger.nodes.get(host.node_id)
        away = host.down or host.is_cut
        if known is not None and known.alive and away:
            self._publish(NodeLost(at=self.now, node_id=host.node_id))
        elif known is not None and not known.alive and not away and known.life == host.life:
            self._publish(NodeReturned(at=self.now, node_id=host.node_id))

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
            self.now += 1.0
            self._plan(PlanKind.FIRST, keep=0.8)

    def _come_to_rest(self) -> None:
        for _ in range(TURNS):
            self.now += 1.0
            before = len(self.log)
            moved = [who for who in self._read_to if self._read(who)]
            for host in self.hosts.values():
                for placement_id in list(host.workers):
                    host.work(placement_id, self.now, faults=False)
                self._judge(host)
            if not moved and len(self.log) == before:
                return


def _take(free: dict[NodeId, int], gang: Gang) -> None:
    for member in gang.members:
        free[member.node] -= member.gpus


HAPPENINGS: dict[Callable[[Cluster, Host], None], float] = {
    lambda cluster, _: cluster._read_some(): 500,
    Cluster._work: 280,
    lambda cluster, _: cluster._plan(PlanKind.FRAGMENT): 40,
    lambda cluster, _: cluster._plan(PlanKind.FIRST): 10,
    lambda cluster, _: cluster._submit(): 5,
    Cluster._crash_or_begin: 12,
    Cluster._cut_or_join: 12,
    Cluster._judge: 10,
    lambda cluster, _: cluster._time_out(): 1,
    lambda cluster, _: cluster._cancel(): 0.3,
    Cluster._drain: 0.7,
    Cluster._restore: 10,
    Cluster._break_gpus: 3.5,
    lambda cluster, _: cluster._restart_placer(): 1.5,
}
"""what may happen next, and how likely it is"""
