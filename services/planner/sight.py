"""From state to view: what a policy gets to see of the cluster at one instant. Pure."""

from schemas.ids import GpuType, JobId, NodeId
from schemas.plans import Placement, PlanKind
from services.planner.state import JobRecord, State, types_of
from services.planner.view import Effort, Present, View, ViewJob, ViewNode
from shared.domain.states import WAITING, JobState

PLANNABLE = WAITING | {JobState.RUNNING}
COMING = frozenset({JobState.SUBMITTED, JobState.PROFILED})


def view_of(state: State, *, kind: PlanKind, at: float, round_s: float, policy: str, effort: Effort) -> View:
    """A first plan sees all GPUs but profiling's and all jobs; a fragment plan what is idle and waits."""
    fragment = kind == PlanKind.FRAGMENT
    taken = state.ledger.claimed() if fragment else state.ledger.reserved()
    jobs = waiting(state) if fragment else plannable(state)
    placements = state.ledger.placements()
    types = tuple(sorted({record.node.gpu_type for record in state.nodes.values()}))
    return View(
        at=at,
        round=int(at // round_s),
        round_s=round_s,
        kind=kind,
        nodes=_nodes(state, taken),
        jobs=tuple(
            _job(state, job_id, types, placements.get(job_id), at)
            for job_id in sorted(jobs, key=lambda name: (state.jobs[name].submitted_at, name))
        ),
        jobs_present=len(state.jobs),
        effort=effort,
        memory=state.memory if state.memory_of == policy else b"",
    )


def plannable(state: State) -> list[JobId]:
    return [job_id for job_id, job in state.jobs.items() if job.status in PLANNABLE]


def waiting(state: State) -> list[JobId]:
    """Jobs without GPUs and without a promise of any."""
    placed = state.ledger.placements()
    return [job_id for job_id, job in state.jobs.items() if job.status in WAITING and job_id not in placed]


def more_come(state: State) -> bool:
    """Whether some job is on its way to the queue."""
    return any(job.status in COMING for job in state.jobs.values())


def idle_gpus(state: State) -> int:
    """GPUs of usable nodes that nobody claims."""
    return sum(node.idle for node in _nodes(state, state.ledger.claimed()))


def _nodes(state: State, taken: dict[NodeId, int]) -> tuple[ViewNode, ...]:
    return tuple(
        ViewNode(
            node_id=node_id,
            gpu_type=record.node.gpu_type,
            gpus=record.node.gpus,
            idle=max(record.node.gpus - taken.get(node_id, 0), 0),
        )
        for node_id, record in sorted(state.nodes.items())
        if record.usable
    )


def _job(
    state: State, job_id: JobId, types: tuple[GpuType, ...], placement: Placement | None, at: float
) -> ViewJob:
    job = state.jobs[job_id]
    stretch_s = at - job.running_since if job.running else 0.0
    return ViewJob(
        job_id=job_id,
        submitted_at=job.submitted_at,
        demand=job.demand,
        gpu_types=tuple(gpu_type for gpu_type in types if gpu_type in job.single_gpu),
        single_gpu=job.single_gpu,
        sensitivity=job.sensitivity,
        age_s=job.age_s,
        wait_s=max(at - job.submitted_at - job.held_s - stretch_s, 0.0),
        attained_gpu_s=job.attained_gpu_s + stretch_s * sum(job.running.values()),
        received_s=_received(state, job, stretch_s),
        restarts=job.restarts,
        samples=job.samples,
        samples_done=_done(job, placement, at),
        priority=job.priority,
        project=job.project,
        workload=job.workload,
        present=_present(job, placement),
    )


def _received(state: State, job: JobRecord, stretch_s: float) -> dict[GpuType, float]:
    received = dict(job.received_s)
    for gpu_type in types_of(state, job.running):
        received[gpu_type] = received.get(gpu_type, 0.0) + stretch_s
    return received


def _done(job: JobRecord, placement: Placement | None, at: float) -> float:
    speed = placement.throughput if job.running and placement is not None else 0.0
    return min(job.samples_done + speed * (at - job.told_at), job.samples)


def _present(job: JobRecord, placement: Placement | None) -> Present | None:
    """A placement that has lost a worker is about to end: it is no place to stay."""
    if placement is None or placement.gpus not in job.demand:
        return None
    return Present(
        placement_id=placement.placement_id,
        configuration=placement.configuration,
        throughput=placement.throughput,
        layer=placement.layer,
        starting=job.running != placement.configuration,
    )
