"""Facts with every field defaulted: a test names only what it is about."""

from collections.abc import Sequence
from typing import Any

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    GangFormed,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobHeld,
    JobPreempted,
    JobPriorityChanged,
    JobProfiled,
    JobQueued,
    JobReleased,
    JobStarted,
    JobSubmitted,
    JobTypeEstimated,
    JobTypeProfiled,
    NodeJoined,
    NodeLost,
    NodeReturned,
    Outcome,
    PlacementRefused,
    PlanPublished,
    PreemptReason,
    ProfileRun,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import DataMode, TimeModules
from schemas.placement import ONLY_LOCKSTEP, Configuration, Gang
from schemas.plans import Layer, LeftOut, Placement, PlanKind, Stage, Waiting

JOB, NODE, PLACE = JobId("job-1"), NodeId("node-1"), PlacementId("pl-1")
V100, K80 = GpuType("v100"), GpuType("k80")


def config(**gpus: int) -> Configuration:
    """`config(node_1=4)`: four GPUs on node-1."""
    return {NodeId(name.replace("_", "-")): count for name, count in gpus.items()}


def a_node(node_id: str = NODE, *, gpus: int = 8, gpu_type: str = V100) -> Node:
    return Node(
        node_id=NodeId(node_id),
        gpu_type=GpuType(gpu_type),
        gpus=gpus,
        server="generic",
        link_bandwidth=1e10,
        network_bandwidth=1e9,
    )


def a_spec(**fields: Any) -> JobSpec:  # noqa: ANN401 - any field of JobSpec
    workload = Workload(model="resnet-18", dataset="cifar-10", batch_size=64)
    defaults: dict[str, Any] = {"name": "job", "workload": workload, "demand": (1, 2, 4), "samples": 1000.0}
    return JobSpec(**{**defaults, **fields})


# ---- nodes


def joined(
    node_id: str = NODE,
    *,
    at: float = 0.0,
    gpus: int = 8,
    gpu_type: str = V100,
    life: str = "1",
    workers: Sequence[str] = (),
    modes: Sequence[str] = ONLY_LOCKSTEP,
) -> NodeJoined:
    return NodeJoined(
        at=at,
        node_id=NodeId(node_id),
        node=a_node(node_id, gpus=gpus, gpu_type=gpu_type),
        life=life,
        workers=tuple(PlacementId(worker) for worker in workers),
        modes=tuple(modes),
    )


def lost(node_id: str = NODE, *, at: float = 0.0) -> NodeLost:
    return NodeLost(at=at, node_id=NodeId(node_id))


def returned(node_id: str = NODE, *, at: float = 0.0) -> NodeReturned:
    return NodeReturned(at=at, node_id=NodeId(node_id))


# ---- jobs


def submitted(
    job_id: str = JOB,
    *,
    at: float = 0.0,
    on_hold: bool = False,
    **spec: Any,  # noqa: ANN401 - as above
) -> JobSubmitted:
    return JobSubmitted(at=at, job_id=JobId(job_id), spec=a_spec(**spec), key=job_id, on_hold=on_hold)


def profiled(job_id: str = JOB, *, at: float = 0.0, unusable: Sequence[str] = ()) -> JobProfiled:
    return JobProfiled(
        at=at,
        job_id=JobId(job_id),
        workload=a_spec().workload,
        modules={},
        known=False,
        unusable={GpuType(kind): "out of memory" for kind in unusable},
    )


def type_profiled(job_id: str = JOB, *, at: float = 0.0, gpu_type: GpuType = K80) -> JobTypeProfiled:
    return JobTypeProfiled(
        at=at,
        job_id=JobId(job_id),
        workload=a_spec().workload,
        gpu_type=gpu_type,
        modules=TimeModules(
            data=(DataMode(probability=1.0, mean_s=0.0, std_s=0.0),),
            forward_s=0.1,
            backward_s=0.2,
            update_s=0.01,
            parameters=25e6,
            pattern=1,
            iterations=30,
        ),
    )


def type_estimated(
    job_id: str = JOB, *, at: float = 0.0, gpu_type: GpuType = K80, single_gpu: float = 5.0
) -> JobTypeEstimated:
    return JobTypeEstimated(at=at, job_id=JobId(job_id), gpu_type=gpu_type, single_gpu=single_gpu)


def queued(
    job_id: str = JOB,
    *,
    at: float = 0.0,
    age_s: float = 100.0,
    single_gpu: dict[GpuType, float] | None = None,
) -> JobQueued:
    speeds = {V100: 10.0} if single_gpu is None else single_gpu
    return JobQueued(at=at, job_id=JobId(job_id), age_s=age_s, sensitivity=1.0, single_gpu=speeds)


def started(
    job_id: str = JOB, *, at: float = 0.0, place: str = PLACE, on: Configuration | Gang | None = None
) -> JobStarted:
    return JobStarted(
        at=at,
        job_id=JobId(job_id),
        placement_id=PlacementId(place),
        gang=on if isinstance(on, Gang) else Gang.of(on or config(node_1=1)),
        learning_rate=None,
        global_batch=64,
    )


def preempted(
    job_id: str = JOB,
    *,
    at: float = 0.0,
    place: str = PLACE,
    reason: PreemptReason = PreemptReason.PLAN,
    samples_done: float = 0.0,
) -> JobPreempted:
    return JobPreempted(
        at=at, job_id=JobId(job_id), placement_id=PlacementId(place), reason=reason, samples_done=samples_done
    )


def completed(
    job_id: str = JOB, *, at: float = 0.0, place: str = PLACE, samples_done: float = 1000.0
) -> JobCompleted:
    return JobCompleted(
        at=at, job_id=JobId(job_id), placement_id=PlacementId(place), samples_done=samples_done
    )


def failed(job_id: str = JOB, *, at: float = 0.0, place: str = PLACE, reason: str = "exit 1") -> JobFailed:
    return JobFailed(at=at, job_id=JobId(job_id), placement_id=PlacementId(place), reason=reason)


def cancelled(job_id: str = JOB, *, at: float = 0.0) -> JobCancelled:
    return JobCancelled(at=at, job_id=JobId(job_id))


def priority_changed(job_id: str = JOB, *, at: float = 0.0, priority: float = 2.0) -> JobPriorityChanged:
    return JobPriorityChanged(at=at, job_id=JobId(job_id), priority=priority)


def held(job_id: str = JOB, *, at: float = 0.0) -> JobHeld:
    return JobHeld(at=at, job_id=JobId(job_id))


def released(job_id: str = JOB, *, at: float = 0.0) -> JobReleased:
    return JobReleased(at=at, job_id=JobId(job_id))


def in_queue(job_id: str = JOB, *, at: float = 0.0, **spec: Any) -> list[Event]:  # noqa: ANN401 - as above
    """A job from its submission to the queue, at once."""
    return [submitted(job_id, at=at, **spec), profiled(job_id, at=at), queued(job_id, at=at)]


# ---- plans


def opened(*runs: ProfileRun, at: float = 0.0, number: int = 0) -> ProfilingPlanned:
    return ProfilingPlanned(at=at, round=number, runs=runs)


def profile_run(job_id: str = JOB, *, place: str = "pf-1", node_id: str = NODE) -> ProfileRun:
    return ProfileRun(
        placement_id=PlacementId(place), job_id=JobId(job_id), gpu_type=V100, node_id=NodeId(node_id)
    )


def refused(
    job_id: str = JOB, *, at: float = 0.0, place: str = PLACE, late: bool = False
) -> PlacementRefused:
    return PlacementRefused(
        at=at,
        placement_id=PlacementId(place),
        plan_id=PlanId("plan-1"),
        job_id=JobId(job_id),
        reason="not up within 60 s" if late else "taken back before it started",
        late=late,
    )


def placement(job_id: str = JOB, *, place: str = PLACE, on: Configuration | None = None) -> Placement:
    return Placement(
        placement_id=PlacementId(place),
        job_id=JobId(job_id),
        gang=Gang.of(on or config(node_1=1)),
        throughput=10.0,
        layer=Layer.THEORY,
    )


def left_out(
    job_id: str = JOB, reason: Waiting = Waiting.OUTWEIGHED, *, held_by: Sequence[str] = ()
) -> LeftOut:
    return LeftOut(job_id=JobId(job_id), reason=reason, detail="so it is", held_by=tuple(map(JobId, held_by)))


def plan(*placements: Placement, **fields: Any) -> PlanPublished:  # noqa: ANN401 - any field of the plan
    defaults: dict[str, Any] = {
        "at": 0.0,
        "plan_id": PlanId("plan-1"),
        "kind": PlanKind.FIRST,
        "round": 0,
        "policy": "hops",
        "token": 1,
        "made_from": 0,
        "left_out": (),
        "idle_gpus": 0,
        "stage": Stage.OPTIMAL,
        "objective": 1.0,
        "bound": 1.0,
        "gap": 0.0,
        "decision_s": 0.5,
        "solve_s": 0.25,
        "configurations": 10,
    }
    return PlanPublished(placements=placements, **{**defaults, **fields})


# ---- workers


def start_ordered(
    job_id: str = JOB,
    *,
    at: float = 0.0,
    place: str = PLACE,
    node_id: str = NODE,
    profile_iterations: int = 0,
    samples_done: float = 0.0,
    until: float | None = None,
) -> StartOrdered:
    """`until`: of a copy."""
    return StartOrdered(
        at=at,
        job_id=JobId(job_id),
        placement_id=PlacementId(place),
        node_id=NodeId(node_id),
        spec=a_spec(),
        gang=Gang.of({NodeId(node_id): 1}),
        nodes=(a_node(node_id),),
        samples_done=samples_done,
        learning_rate=None,
        profile_iterations=profile_iterations,
        until=until,
    )


def stop_ordered(
    job_id: str = JOB, *, at: float = 0.0, place: str = PLACE, node_id: str = NODE
) -> StopOrdered:
    return StopOrdered(at=at, job_id=JobId(job_id), placement_id=PlacementId(place), node_id=NodeId(node_id))


def gang_formed(job_id: str = JOB, *, at: float = 0.0, place: str = PLACE, node_id: str = NODE) -> GangFormed:
    return GangFormed(at=at, job_id=JobId(job_id), placement_id=PlacementId(place), node_id=NodeId(node_id))


def worker_started(
    job_id: str = JOB,
    *,
    at: float = 0.0,
    place: str = PLACE,
    node_id: str = NODE,
    gpu_indices: Sequence[int] = (0,),
    samples_restored: float | None = None,
) -> WorkerStarted:
    return WorkerStarted(
        at=at,
        job_id=JobId(job_id),
        placement_id=PlacementId(place),
        node_id=NodeId(node_id),
        gpu_indices=tuple(gpu_indices),
        samples_restored=samples_restored,
    )


def checkpointed(
    job_id: str = JOB,
    *,
    at: float = 0.0,
    place: str = PLACE,
    node_id: str = NODE,
    samples_done: float = 500.0,
) -> WorkerCheckpointed:
    return WorkerCheckpointed(
        at=at,
        job_id=JobId(job_id),
        placement_id=PlacementId(place),
        node_id=NodeId(node_id),
        samples_done=samples_done,
    )


def worker_stopped(
    job_id: str = JOB,
    *,
    at: float = 0.0,
    place: str = PLACE,
    node_id: str = NODE,
    outcome: Outcome = Outcome.COMPLETED,
    samples_done: float = 1000.0,
    leads: bool = True,
    reason: str = "",
    exit_code: int | None = None,
    signal: int | None = None,
) -> WorkerStopped:
    return WorkerStopped(
        at=at,
        job_id=JobId(job_id),
        placement_id=PlacementId(place),
        node_id=NodeId(node_id),
        outcome=outcome,
        samples_done=samples_done,
        leads=leads,
        reason=reason,
        exit_code=exit_code,
        signal=signal,
    )


def whole_life(job_id: str = JOB, *, at: float = 0.0, place: str = PLACE) -> list[Event]:
    """The log of one job on one GPU of node-1, from its submission to its completion, all in order."""
    return [
        joined(at=at),
        *in_queue(job_id, at=at),
        type_profiled(job_id, at=at),
        type_estimated(job_id, at=at),
        plan(placement(job_id, place=place), at=at, made_from=6),
        start_ordered(job_id, at=at + 10, place=place),
        worker_started(job_id, at=at + 20, place=place),
        started(job_id, at=at + 20, place=place),
        gang_formed(job_id, at=at + 20, place=place),
        worker_stopped(job_id, at=at + 120, place=place),
        completed(job_id, at=at + 120, place=place),
    ]
