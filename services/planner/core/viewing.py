"""From state to view: what a policy gets to see of the cluster at one instant. Pure."""

from collections.abc import Sequence

import msgspec

from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang
from schemas.plans import Placement, PlanKind
from services.planner.core.state import State, TrackedJob, types_of
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.solver.effort import Effort
from shared.domain import gangs
from shared.domain.states import WAITING, JobState

PLANNABLE = WAITING | {JobState.RUNNING}


class Memo(msgspec.Struct, kw_only=True):
    """Parts of the last view that the next one can reuse.

    A cache: it is in no snapshot and changes no view.
    """

    node_facts: int = -1
    """`State.node_facts` when the fields below were computed"""
    types: tuple[GpuType, ...] = ()
    """GPU types of all nodes, in alphabetical order"""
    whole: tuple[ViewNode, ...] = ()
    """the usable nodes with every GPU idle"""
    nodes: dict[tuple[NodeId, int], ViewNode] = {}
    """a node with so many of its GPUs idle"""
    taken: dict[NodeId, int] | None = None
    seen: tuple[ViewNode, ...] = ()
    """the nodes of the last view, without the GPUs taken then"""
    usable: dict[tuple[GpuType, ...], tuple[GpuType, ...]] = {}
    """by the GPU types that a job has speeds on: those that the cluster has"""
    jobs: dict[JobId, ViewJob] = {}
    """what is the same of a job in view after view"""
    places: dict[PlacementId, "PlacedJob"] = {}
    """of the last view, or of the one in the making: where each placement's job is"""
    places_before: dict[PlacementId, "PlacedJob"] = {}
    """of the view before it"""


class PlacedJob(msgspec.Struct, frozen=True):
    placement: Placement
    running: Gang | None
    """where the job runs by now"""
    present: Present | None
    types: tuple[GpuType, ...]
    """of the GPUs that it runs on"""
    gpus: int
    """that it runs on"""


def view_of(
    state: State,
    *,
    kind: PlanKind,
    at: float,
    round_s: float,
    restart_s: float,
    policy: str,
    effort: Effort,
    memo: Memo | None = None,
) -> View:
    """A first plan sees all GPUs but profiling's and all jobs; a fragment plan what is idle and waits."""
    memo = memo or Memo()
    fragment = kind == PlanKind.FRAGMENT
    nodes = _nodes(state, state.claims.claimed if fragment else state.claims.reserved(), memo)
    shown = waiting(state) if fragment else plannable(state)
    jobs = state.jobs
    rows = [((job := jobs[job_id]).submitted_at, job_id, job) for job_id in shown]
    rows.sort()  # never by the job itself: ids are unique
    memo.places_before, memo.places = memo.places, {}
    if len(memo.jobs) > 2 * len(state.jobs) + 100:  # most of them ended
        memo.jobs = {job_id: job for job_id, job in memo.jobs.items() if job_id in state.jobs}
    return View(
        at=at,
        round=int(at // round_s),
        round_s=round_s,
        kind=kind,
        nodes=nodes,
        jobs=tuple([_job(state, job_id, job, at, memo) for _, job_id, job in rows]),
        jobs_present=len(state.jobs),
        effort=effort,
        restart_s=restart_s,
        memory=state.memory if state.memory_of == policy else b"",
    )


def plannable(state: State) -> list[JobId]:
    return [job_id for job_id, job in state.jobs.items() if job.status in PLANNABLE]


def waiting(state: State) -> list[JobId]:
    """Jobs without GPUs and without a promise of any."""
    placed = state.claims.of_job
    return [job_id for job_id in state.waiting if job_id not in placed]


def idle_gpus(state: State, memo: Memo | None = None) -> int:
    """GPUs of usable nodes that nobody claims."""
    memo, claimed = memo or Memo(), state.claims.claimed
    _look_at_nodes(state, memo)
    return sum([max(node.gpus - claimed.get(node.node_id, 0), 0) for node in memo.whole])


def _look_at_nodes(state: State, memo: Memo) -> None:
    if memo.node_facts == state.node_facts:
        return
    memo.node_facts = state.node_facts
    memo.types = tuple(sorted({record.node.gpu_type for record in state.nodes.values()}))
    memo.whole = tuple(
        ViewNode(
            node_id=node_id,
            gpu_type=record.node.gpu_type,
            gpus=record.node.gpus,
            idle=record.node.gpus,
            modes=record.modes,
        )
        for node_id, record in sorted(state.nodes.items())
        if record.usable
    )
    memo.taken = None
    memo.nodes, memo.usable, memo.places, memo.jobs = {}, {}, {}, {}


def _nodes(state: State, taken: dict[NodeId, int], memo: Memo) -> tuple[ViewNode, ...]:
    _look_at_nodes(state, memo)
    if taken != memo.taken:
        memo.taken = dict(taken)
        memo.seen = tuple(
            [_less(node, taken[node.node_id], memo) if node.node_id in taken else node for node in memo.whole]
        )
    return memo.seen


def _less(node: ViewNode, taken: int, memo: Memo) -> ViewNode:
    idle = max(node.gpus - taken, 0)
    known = memo.nodes.get((node.node_id, idle))
    if known is None:
        known = memo.nodes[node.node_id, idle] = msgspec.structs.replace(node, idle=idle)
    return known


def _job(state: State, job_id: JobId, job: TrackedJob, at: float, memo: Memo) -> ViewJob:
    base = memo.jobs.get(job_id)
    if base is None or base.single_gpu is not job.single_gpu or base.restarts != job.restarts:
        base = memo.jobs[job_id] = _lasting(job_id, job, memo)
    placement_id, running = state.claims.of_job.get(job_id), job.running
    place = _place(state, job, placement_id, memo) if placement_id is not None else None
    if running is None:
        return msgspec.structs.replace(
            base,
            wait_s=max(at - job.submitted_at - job.held_s, 0.0),
            samples_done=min(job.samples_done, job.samples),
            present=place.present if place else None,
        )
    types, gpus, speed = (
        (place.types, place.gpus, place.placement.throughput)
        if place
        else (tuple(types_of(state, running)), running.gpus, 0.0)
    )
    stretch_s = at - job.running_since
    return msgspec.structs.replace(
        base,
        wait_s=max(at - job.submitted_at - job.held_s - stretch_s, 0.0),
        attained_gpu_s=job.attained_gpu_s + stretch_s * gpus,
        received_s=_received(job, types, stretch_s),
        samples_done=min(job.samples_done + speed * (at - job.samples_at), job.samples),
        present=place.present if place else None,
    )


def _lasting(job_id: JobId, job: TrackedJob, memo: Memo) -> ViewJob:
    """What is the same until the job is queued or preempted; `attained_gpu_s` is without the present run."""
    return ViewJob(
        job_id=job_id,
        submitted_at=job.submitted_at,
        demand=job.demand,
        gpu_types=_usable(tuple(job.single_gpu), memo),
        single_gpu=job.single_gpu,
        sensitivity=job.sensitivity,
        age_s=job.age_s,
        wait_s=0.0,
        attained_gpu_s=job.attained_gpu_s,
        received_s=job.received_s,
        restarts=job.restarts,
        samples=job.samples,
        samples_done=0.0,
        priority=job.priority,
        project=job.project,
        workload=job.workload,
        batch_size=job.batch_size,
    )


def _usable(known: tuple[GpuType, ...], memo: Memo) -> tuple[GpuType, ...]:
    """The GPU types that a job has speeds on and the cluster has."""
    found = memo.usable.get(known)
    if found is None:
        found = memo.usable[known] = tuple(gpu_type for gpu_type in memo.types if gpu_type in known)
    return found


def _received(job: TrackedJob, types: Sequence[GpuType], stretch_s: float) -> dict[GpuType, float]:
    if not job.received_s and len(types) == 1:
        return {types[0]: stretch_s}
    received = job.received_s.copy()
    for gpu_type in types:
        received[gpu_type] = received.get(gpu_type, 0.0) + stretch_s
    return received


def _place(state: State, job: TrackedJob, placement_id: PlacementId, memo: Memo) -> PlacedJob:
    placement, running = state.claims.planned[placement_id], job.running
    known = memo.places_before.get(placement_id)
    if known is None or known.running is not running or known.placement is not placement:
        types, gpus = tuple(types_of(state, running)), running.gpus if running else 0
        known = PlacedJob(placement, running, _where(job, placement), types, gpus)
    memo.places[placement_id] = known
    return known


def _where(job: TrackedJob, placement: Placement) -> Present | None:
    """A placement that has lost a worker is about to end, so the job cannot stay there."""
    if gangs.misfit(placement.gang, job.demand, job.batch_size):
        return None
    return Present(
        placement_id=placement.placement_id,
        gang=placement.gang,
        throughput=placement.throughput,
        layer=placement.layer,
        starting=job.running != placement.gang,
    )
