"""What facts taught the planner about jobs and nodes, and what each fact changes. Pure.

The GPUs that are spoken for are in `ledger`.
"""

import contextlib

import msgspec

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    JobEvent,
    JobPreempted,
    JobQueued,
    JobStarted,
    JobSubmitted,
    NodeDrained,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeRestored,
    NodeReturned,
    PlanPublished,
    PolicyChosen,
    ProfilingPlanned,
    WorkerCheckpointed,
)
from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from schemas.plans import Configuration, PlanKind
from services.planner.ledger import Ledger
from shared.domain.states import ENDED, IllegalMove, JobState, next_state


class JobRecord(msgspec.Struct, kw_only=True):
    """An unfinished job; it is forgotten when it ends."""

    submitted_at: float
    demand: tuple[int, ...]
    samples: float
    priority: float
    project: str = "default"
    workload: Fingerprint = Fingerprint("")
    status: JobState = JobState.SUBMITTED
    age_s: float = 0.0
    sensitivity: float = 1.0
    single_gpu: dict[GpuType, float] = {}
    restarts: int = 0
    held_s: float = 0.0
    """time for which it held GPUs, without the present placement"""
    attained_gpu_s: float = 0.0
    received_s: dict[GpuType, float] = {}
    running: Configuration = {}
    running_since: float = 0.0
    samples_done: float = 0.0
    """as told last"""
    told_at: float = 0.0
    """when; or when it began to run again, if that was later"""


class NodeRecord(msgspec.Struct, kw_only=True):
    node: Node
    alive: bool = True
    draining: bool = False

    @property
    def usable(self) -> bool:
        return self.alive and not self.draining


class State(msgspec.Struct, kw_only=True):
    seq: int = 0
    """of the last fact; the shell sets it"""
    jobs: dict[JobId, JobRecord] = {}
    nodes: dict[NodeId, NodeRecord] = {}
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    opened_round: int = -1
    """the last round the profiler opened"""
    planned_round: int = -1
    """the last round with a first plan"""
    plans: int = 0
    """published so far: makes ids unique"""
    token: int = 0
    """the newest leader's, as seen in plans"""
    policy: str = ""
    """chosen at run time; empty: the settings say"""
    memory: bytes = b""
    """the policy's, from its last decision"""
    memory_of: str = ""
    """the policy it belongs to"""
    notes: list[str] = []
    """for the next plan"""


def fold(state: State, fact: Event) -> None:
    """Take a fact into account. One that is not named here changes nothing."""
    if isinstance(fact, JobEvent):
        _fold_job(state, fact)
    state.ledger.fold(fact)
    match fact:
        case WorkerCheckpointed():
            _checkpointed(state, fact)
        case NodeEvent() if isinstance(fact, NodeJoined) or fact.node_id in state.nodes:
            _fold_node(state, fact)
        case ProfilingPlanned():
            state.opened_round = max(state.opened_round, fact.round)
        case PlanPublished():
            _published(state, fact)
        case PolicyChosen():
            state.policy = fact.policy
        case _:
            pass


def _fold_job(state: State, fact: JobEvent) -> None:
    """Move the job along its table; a move that is not in it makes the fact void."""
    if isinstance(fact, JobSubmitted):
        state.jobs.setdefault(fact.job_id, _submitted(fact))
        return
    job = state.jobs.get(fact.job_id)
    if job is None:
        return
    with contextlib.suppress(IllegalMove):
        job.status = next_state(job.status, fact)
        _change(state, job, fact)
        if job.status in ENDED:
            del state.jobs[fact.job_id]
            state.ledger.drop_job(fact.job_id)


def _submitted(fact: JobSubmitted) -> JobRecord:
    spec = fact.spec
    return JobRecord(
        submitted_at=fact.at,
        demand=spec.demand,
        samples=spec.samples,
        priority=spec.priority,
        project=spec.project,
        workload=spec.workload.fingerprint,
    )


def _change(state: State, job: JobRecord, fact: JobEvent) -> None:
    match fact:
        case JobQueued():
            job.age_s, job.sensitivity = fact.age_s, fact.sensitivity
            job.single_gpu = dict(sorted(fact.single_gpu.items()))
        case JobStarted():
            job.running = fact.configuration
            job.running_since = job.told_at = fact.at
        case JobPreempted():
            _preempted(state, job, fact)
        case _:
            pass


def _preempted(state: State, job: JobRecord, fact: JobPreempted) -> None:
    stretch_s = fact.at - job.running_since
    job.held_s += stretch_s
    job.attained_gpu_s += stretch_s * sum(job.running.values())
    for gpu_type in types_of(state, job.running):
        job.received_s[gpu_type] = job.received_s.get(gpu_type, 0.0) + stretch_s
    job.restarts += 1
    job.running = {}
    job.samples_done, job.told_at = fact.samples_done, fact.at


def _checkpointed(state: State, fact: WorkerCheckpointed) -> None:
    job = state.jobs.get(fact.job_id)
    if job is not None and fact.samples_done >= job.samples_done:
        job.samples_done, job.told_at = fact.samples_done, fact.at


def _fold_node(state: State, fact: NodeEvent) -> None:
    match fact:
        case NodeJoined():
            known = state.nodes.get(fact.node_id)
            draining = known is not None and known.draining
            state.nodes[fact.node_id] = NodeRecord(node=fact.node, draining=draining)
        case NodeLost() | NodeReturned():
            state.nodes[fact.node_id].alive = isinstance(fact, NodeReturned)
        case NodeDrained() | NodeRestored():
            state.nodes[fact.node_id].draining = isinstance(fact, NodeDrained)
        case _:
            pass


def _published(state: State, fact: PlanPublished) -> None:
    state.plans += 1
    if fact.token < state.token:
        return  # of a leader that was already replaced: the placer refuses it
    state.token = fact.token
    state.memory, state.memory_of = fact.memory, fact.policy
    state.notes = []
    if fact.kind == PlanKind.FIRST:
        state.planned_round = max(state.planned_round, fact.round)
    state.ledger.plan(fact)


def types_of(state: State, place: Configuration) -> list[GpuType]:
    """The GPU types of a configuration, in alphabetical order."""
    return sorted({state.nodes[node_id].node.gpu_type for node_id in place if node_id in state.nodes})
