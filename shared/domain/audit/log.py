"""What the rules of the audit need to know of the log read so far, and the form of a violation.

An audit keeps nodes, jobs that have not ended, and the ids of all jobs that have. The jobs that ended last
keep their placements too: a fact may cross the end of its job on its way.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable

import msgspec

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobFailed,
    JobPreempted,
    JobProfiled,
    JobQueued,
    JobStarted,
    JobSubmitted,
    JobTypeProfiled,
    NodeJoined,
    NodeLost,
    PlacementRefused,
    PlanPublished,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.jobs import JobSpec
from schemas.plans import Placement, PlanKind
from shared.domain import in_turns
from shared.domain.states import ENDED, IllegalMove, JobState, next_state
from shared.domain.tally import Tally


class Violation(msgspec.Struct, frozen=True):
    rule: str
    detail: str
    at: float
    """cluster time of the fact that broke the rule"""
    event_id: str


class AuditedPlace(msgspec.Struct):
    """A placement of a job, or a measurement of it. Numbers are sequences of facts; 0: there was none."""

    planned: int = 0
    """the first plan or round that has the placement"""
    fresh: bool = False
    """whether a plan had it whose token was the newest at that time"""
    stale: int | None = None
    """the token of an outdated plan that had it"""
    worker: int = 0
    """its newest WorkerStarted"""
    started: int = 0
    """its JobStarted, if the job is not preemptible"""
    preempted: bool = False
    holder: str = ""
    """the holder of its GPUs"""
    gone: int = 0
    """the newest fact that ended it, or may have"""
    up: dict[NodeId, int] = {}
    """number of its worker's GPUs, by node, as its newest worker came up"""
    left: set[NodeId] = set()
    """nodes whose worker has ended since then"""
    tally: Tally | None = None


class AuditedJob(msgspec.Struct):
    spec: JobSpec | None = None
    """None: the job was not submitted, or has ended"""
    state: JobState | None = None
    last: JobEvent | None = None
    """the fact that brought it into its state"""
    queued: int = 0
    ended: int = 0
    unusable: Collection[GpuType] = ()
    places: dict[PlacementId, AuditedPlace] = {}


class HeldGpus(msgspec.Struct, frozen=True):
    """A worker's GPUs on a node."""

    gpus: tuple[int, ...]
    holder: str


class Planned(msgspec.Struct, frozen=True):
    placement: Placement
    seq: int
    """sequence of the plan"""
    made_from: int
    token: int


Standing = dict[PlacementId, Planned]

OVER = AuditedJob(state=JobState.COMPLETED, ended=1)
"""stands for the record of any job that ended long ago"""


class Log:
    def __init__(self, kept: int) -> None:
        """`kept`: how many ended jobs are kept with their placements, and how many plans."""
        self._kept_at_most = kept
        self.open: dict[JobId, AuditedJob] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.changed: dict[NodeId, int] = {}
        """nodes that came back with other GPUs: the sequence of the last NodeJoined that said so"""
        self.adopted: dict[NodeId, Collection[PlacementId]] = {}
        """workers that nodes came back with"""
        self.workers: dict[NodeId, dict[PlacementId, HeldGpus]] = {}
        self.plans: OrderedDict[PlanId, int] = OrderedDict()
        """the sequence that each plan was made from"""
        self.standing: Standing = {}
        """placements of the newest round's plans that nothing has ended"""
        self.token = 0
        """the newest token of all plans"""
        self._ended: OrderedDict[JobId, AuditedJob] = OrderedDict()
        self._over: set[JobId] = set()

    def job(self, job_id: JobId) -> AuditedJob:
        """The record of a job; an empty one if no fact has mentioned it."""
        found = self.open.get(job_id) or self._ended.get(job_id)
        return found or (OVER if job_id in self._over else AuditedJob())

    def is_known(self, node_id: NodeId, plan: PlanPublished | Planned) -> bool:
        """Whether the plan's maker knew which GPUs the node has."""
        return self.changed.get(node_id, 0) <= plan.made_from

    def place(self, job_id: JobId, placement_id: PlacementId) -> AuditedPlace:
        return self.job(job_id).places.get(placement_id) or AuditedPlace()

    def after(self, fact: JobEvent) -> JobState | None:
        """The job's new state; None if the table of states has no such move, which makes the fact void."""
        try:
            return next_state(self.job(fact.job_id).state, fact)
        except IllegalMove:
            return None

    def stand(self, seq: int, plan: PlanPublished) -> Standing:
        """The placements that stand after this plan; a plan with an older token is refused as a whole.

        What ended while the plan was made does not stand again.
        """
        if plan.token < self.token:
            return self.standing
        before = {} if plan.kind is PlanKind.FIRST else self.standing
        return before | {
            placement.placement_id: Planned(placement, seq, plan.made_from, plan.token)
            for placement in plan.placements
            if not self._is_gone(placement, plan.made_from)
        }

    def _is_gone(self, placement: Placement, since: int) -> bool:
        ended = self.job(placement.job_id).ended
        return bool(ended) or self.place(placement.job_id, placement.placement_id).gone > since

    # ---- fact by fact

    def take(self, seq: int, fact: Event) -> None:  # noqa: C901 - a table, a line or two a fact
        match fact:
            case PlanPublished():
                self._take_plan(seq, fact)
            case ProfilingPlanned(runs=runs) | ProfilingAdded(runs=runs):
                for run in runs:
                    self._plan(seq, run.job_id, run.placement_id)
            case StartOrdered():
                self._order(fact)
            case WorkerStarted():
                self._take_worker(seq, fact)
            case WorkerCheckpointed() | WorkerStopped(leads=True):
                if tally := self._kept_place(fact.job_id, fact.placement_id).tally:
                    tally.count(fact.node_id, fact.samples_done, fact.at)
            case NodeJoined():
                if gpus_of(self.nodes.get(fact.node_id, fact.node)) != gpus_of(fact.node):
                    self.changed[fact.node_id] = seq
                self.nodes[fact.node_id] = fact.node
                self.adopted[fact.node_id] = fact.workers
                there = self.workers.get(fact.node_id, {})
                self.workers[fact.node_id] = {key: one for key, one in there.items() if key in fact.workers}
            case JobEvent():
                self._take_of_job(seq, fact)
            case _:
                pass
        if isinstance(fact, WorkerStopped):
            self.workers.get(fact.node_id, {}).pop(fact.placement_id, None)
            self._kept_place(fact.job_id, fact.placement_id).left.add(fact.node_id)
        self._take_away(seq, fact)

    def _kept(self, job_id: JobId) -> AuditedJob:
        found = self.job(job_id)
        if not found.ended:
            self.open[job_id] = found
        return found

    def _kept_place(self, job_id: JobId, placement_id: PlacementId) -> AuditedPlace:
        job = self._kept(job_id)
        return AuditedPlace() if job is OVER else job.places.setdefault(placement_id, AuditedPlace())

    def _take_plan(self, seq: int, plan: PlanPublished) -> None:
        self.plans[plan.plan_id] = plan.made_from
        if len(self.plans) > self._kept_at_most:
            self.plans.popitem(last=False)
        self.standing = self.stand(seq, plan)
        for placement in plan.placements:
            place = self._plan(seq, placement.job_id, placement.placement_id)
            if plan.token >= self.token:
                place.fresh = True
            elif not place.fresh:
                place.stale = plan.token
        self.token = max(self.token, plan.token)

    def _plan(self, seq: int, job_id: JobId, placement_id: PlacementId) -> AuditedPlace:
        place = self._kept_place(job_id, placement_id)
        place.planned = place.planned or seq
        return place

    def _order(self, fact: StartOrdered) -> None:
        place = self._kept_place(fact.job_id, fact.placement_id)
        place.holder = in_turns.holder(fact.placement_id, fact.gang)
        if not fact.profile_iterations and not self.job(fact.job_id).ended:
            place.tally = place.tally or Tally()
            place.tally.order(fact)

    def _take_worker(self, seq: int, fact: WorkerStarted) -> None:
        place = self._kept_place(fact.job_id, fact.placement_id)
        held = HeldGpus(fact.gpu_indices, place.holder or fact.placement_id)
        self.workers.setdefault(fact.node_id, {})[fact.placement_id] = held
        place.worker = seq
        place.up = {node_id: gpus for node_id, gpus in place.up.items() if node_id not in place.left}
        place.left = set()
        place.up[fact.node_id] = len(set(fact.gpu_indices))
        if place.tally and fact.samples_restored is not None:
            place.tally.restore(fact.node_id, fact.samples_restored)

    def _take_of_job(self, seq: int, fact: JobEvent) -> None:
        job, after = self._kept(fact.job_id), self.after(fact)
        if job.ended:
            return
        match fact:
            case JobSubmitted() if job.spec is None:
                job.spec = fact.spec
            case JobProfiled():
                job.unusable = frozenset(fact.unusable)
            case JobTypeProfiled():
                job.unusable = frozenset(job.unusable) - {fact.gpu_type}
            case JobQueued():
                job.queued = job.queued or seq
            case JobStarted() if job.spec and not job.spec.preemptible:
                self._kept_place(fact.job_id, fact.placement_id).started = seq
            case JobPreempted():
                place = self._kept_place(fact.job_id, fact.placement_id)
                place.preempted, place.tally = after is not None or place.preempted, None
            case _:
                pass
        if after is None:
            return
        job.state, job.last = after, fact
        if after in ENDED:
            self._end(seq, fact.job_id)

    def _end(self, seq: int, job_id: JobId) -> None:
        """End a job, but keep its placements and their sequences: later facts may still be about them."""
        job = self.open.pop(job_id)
        job.ended, job.spec, job.last, job.unusable = seq, None, None, ()
        for place in job.places.values():
            place.up, place.left, place.tally = {}, set(), None
        self._ended[job_id] = job
        if len(self._ended) > self._kept_at_most:
            self._over.add(self._ended.popitem(last=False)[0])

    def _take_away(self, seq: int, fact: Event) -> None:
        """Remove the placements that have ended, or may have."""
        match fact:
            case JobPreempted() | PlacementRefused() | WorkerStopped():
                self._kept_place(fact.job_id, fact.placement_id).gone = seq
                self.standing.pop(fact.placement_id, None)
            case JobCompleted() | JobFailed() | JobCancelled():
                self._drop(key for key, one in self.standing.items() if one.placement.job_id == fact.job_id)
            case NodeLost() | NodeJoined():
                there = [one.placement for one in self.standing.values()]
                there = [placement for placement in there if placement.gang.on(fact.node_id)]
                for placement in there:
                    place = self._kept_place(placement.job_id, placement.placement_id)
                    place.gone = seq
                    if isinstance(fact, NodeLost) or placement.placement_id not in fact.workers:
                        place.left.add(fact.node_id)
                self._drop(placement.placement_id for placement in there)
            case _:
                pass

    def _drop(self, keys: Iterable[PlacementId]) -> None:
        for key in list(keys):
            del self.standing[key]


def gpus_of(node: Node) -> tuple[GpuType, int]:
    return node.gpu_type, node.gpus


def broken(rule: str, fact: Event, detail: str) -> Violation:
    return Violation(rule, detail, fact.at, fact.event_id)
