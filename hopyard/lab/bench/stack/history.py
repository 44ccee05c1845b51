"""A log of jobs that came, ran and completed: valid to the last fact, and as long as one likes.

Jobs come `EVERY_S` apart and take nodes in turn. Each trains on one node for less than the time until
its node's turn comes again, so no GPU ever has two owners.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TypedDict

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    GangFormed,
    JobCompleted,
    JobProfiled,
    JobQueued,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    Outcome,
    PlanPublished,
    ProfilingPlanned,
    StartOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import DataMode, TimeModules
from schemas.placement import Gang
from schemas.plans import Layer, Placement, PlanKind, Stage

EVERY_S = 30.0
ROUND_S = 360.0
FACTS_PER_JOB = 11
SAMPLES = 50_000.0

WORKLOAD = Workload(model="resnet18", dataset="cifar10", batch_size=256)
MODULES = TimeModules(
    data=(DataMode(probability=1.0, mean_s=0.01, std_s=0.001),),
    forward_s=0.02,
    backward_s=0.04,
    update_s=0.005,
    parameters=11.18e6,
    pattern=1,
    iterations=30,
)


def history(nodes: Sequence[Node], jobs: int) -> list[Event]:
    """The facts of `jobs` completed jobs, in the order of a stream that saw them happen.

    The last one is a job's completion, at `end_s`.
    """
    rounds = range(int(end_s(nodes, jobs) // ROUND_S) + 1)
    facts = chain(
        (NodeJoined(at=0.0, node_id=node.node_id, node=node, life="1") for node in nodes),
        (ProfilingPlanned(at=number * ROUND_S, round=number, runs=()) for number in rounds),
        *(life(number, nodes) for number in range(jobs)),
    )
    return sorted(facts, key=attrgetter("at"))


def end_s(nodes: Sequence[Node], jobs: int) -> float:
    """When the last of `jobs` jobs is complete, cluster seconds."""
    return jobs * EVERY_S + turn_s(nodes)


def turn_s(nodes: Sequence[Node]) -> float:
    """How long a job may take: its node's next job comes then."""
    return EVERY_S * (len(nodes) - 1)


def life(number: int, nodes: Sequence[Node]) -> Iterator[Event]:
    """One job from its submission to its completion: FACTS_PER_JOB facts."""
    at, job_id = (number + 1) * EVERY_S, JobId(f"past-{number}")
    node = nodes[number % len(nodes)]
    types = sorted({each.gpu_type for each in nodes})
    spec = JobSpec(name="past", workload=WORKLOAD, demand=(min(4, node.gpus),), samples=SAMPLES)
    yield from _arrival(job_id, spec, types, at)
    yield from _run(job_id, spec, node, at + 2.0, at + turn_s(nodes))


def _arrival(job_id: JobId, spec: JobSpec, types: Sequence[GpuType], at: float) -> Iterator[Event]:
    yield JobSubmitted(at=at, job_id=job_id, spec=spec, key=job_id)
    modules = dict.fromkeys(types, MODULES)
    yield JobProfiled(at=at, job_id=job_id, workload=WORKLOAD, modules=modules, known=True)
    speeds = dict.fromkeys(types, 1000.0)
    yield JobQueued(at=at, job_id=job_id, age_s=50.0, sensitivity=1.0, single_gpu=speeds)


def _run(job_id: JobId, spec: JobSpec, node: Node, at: float, end_at: float) -> Iterator[Event]:
    (gpus,) = spec.demand
    node_id, place, up_at = node.node_id, PlacementId(f"{job_id}-1"), at + 1.0
    here = Gang.of({node_id: gpus})
    yield _plan(job_id, place, here, at)
    yield StartOrdered(
        at=at,
        node_id=node_id,
        placement_id=place,
        job_id=job_id,
        spec=spec,
        gang=here,
        nodes=(node,),
        samples_done=0.0,
        learning_rate=None,
    )
    worker = _Worker(node_id=node_id, placement_id=place, job_id=job_id)
    yield WorkerStarted(at=up_at, gpu_indices=tuple(range(gpus)), **worker)
    yield JobStarted(
        at=up_at,
        job_id=job_id,
        placement_id=place,
        gang=here,
        learning_rate=None,
        global_batch=gpus * WORKLOAD.batch_size,
    )
    yield GangFormed(at=up_at, **worker)
    yield WorkerCheckpointed(at=(up_at + end_at) / 2, samples_done=SAMPLES / 2, **worker)
    yield WorkerStopped(at=end_at, outcome=Outcome.COMPLETED, samples_done=SAMPLES, leads=True, **worker)
    yield JobCompleted(at=end_at, job_id=job_id, placement_id=place, samples_done=SAMPLES)


class _Worker(TypedDict):
    node_id: NodeId
    placement_id: PlacementId
    job_id: JobId


def _plan(job_id: JobId, place: PlacementId, here: Gang, at: float) -> PlanPublished:
    placement = Placement(placement_id=place, job_id=job_id, gang=here, throughput=1000.0, layer=Layer.THEORY)
    return PlanPublished(
        at=at,
        plan_id=PlanId(f"plan-of-{job_id}"),
        kind=PlanKind.FRAGMENT,
        round=int(at // ROUND_S),
        policy="hops",
        token=1,
        made_from=0,
        placements=(placement,),
        left_out=(),
        idle_gpus=0,
        stage=Stage.OPTIMAL,
        objective=1.0,
        bound=1.0,
        gap=0.0,
        decision_s=0.1,
        solve_s=0.01,
        configurations=10,
    )
