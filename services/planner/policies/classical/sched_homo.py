"""Sched_Homo: batches of doubling length, each of the jobs of most weight, as if all GPUs were alike.

Hare (IEEE TCC 2024) compares with it under this name. It minimises weighted completion time; tasks of a job
run in parallel, and no job is preempted. Of its source only the abstract is public, which says that jobs are
put into batches of most weight; the rest is ours. A batch takes, by weight over GPU time, the waiting jobs
that fit it:

    GPU time = rounds left · D · mean over types of a task's time        Σ GPU time ≤ length · GPUs
    rounds left · mean time of a task ≤ length                           length = 60, 120, 240, … s

The jobs of a batch start in this order on whatever GPUs are free, in the order of the nodes, with types mixed
in a gang, and run to their end. The next batch is made when the length of this one has passed, or when none
of its jobs waits or runs. A length for which no job is short enough is skipped; when no job waits, lengths
begin again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import msgspec

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from schemas.plans import Measures, PlanKind, Standing, Waiting
from services.planner.policies.contract.configurations import Configurations, explicit
from services.planner.policies.contract.decision import Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.keeping import kept
from services.planner.policies.kit.ordered import choices, walk_s
from services.planner.policies.kit.rigid import RigidOptions, rigid
from services.planner.solver.problem import Solve
from shared.domain.sums import plain_sum

SHORTEST_BATCH_S = 60.0
LONGEST_BATCH_S = 1e12
MEASURES = Measures(priority="weight over GPU-seconds left, times 1e6")


class SchedHomoOptions(RigidOptions, frozen=True, kw_only=True):
    sizes: Literal["known", "unit"] = "known"
    """how long jobs run: `known`, as estimated; `unit`, one round each, if running times must not be known"""


class JobBatch(msgspec.Struct, frozen=True):
    """The current batch, which is the policy's memory."""

    length_s: float
    until: float
    """cluster time at which its length has passed"""
    jobs: tuple[JobId, ...]
    """in order of weight over GPU time"""


NO_BATCH = JobBatch(0.0, 0.0, ())


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job that fits the empty cluster."""

    seen: ViewJob
    gpus: int
    run_s: float
    """seconds to its end on GPUs of mean speed"""

    @property
    def density(self) -> float:
        """Weight over the GPU-seconds that are left."""
        return self.seen.priority / (self.run_s * self.gpus)


class BatchStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan begins from: the batch, and the jobs of it that start."""

    view: View
    kept: tuple[Choice, ...]
    """the running jobs, which all stay"""
    waiting: tuple[BatchJob, ...]
    """in order of weight over GPU time"""
    batch: JobBatch
    places: tuple[tuple[JobId, Configuration], ...]
    """places of the jobs that start"""


class SchedHomo:
    """Jobs of most weight per GPU time first, in batches of doubling length, as if all GPUs were alike."""

    Options = SchedHomoOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {
        trigger: PlanKind.FIRST for trigger in Trigger if trigger is not Trigger.ROUND
    }
    sees_staying: ClassVar[bool] = True

    def __init__(self, options: SchedHomoOptions) -> None:
        self._options = options
        self._last: BatchStart | None = None

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        return explicit(self._seen(view).places, view.nodes)

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve,  # noqa: ARG002 - order alone decides
    ) -> Decision:
        seen = self._seen(view)
        chosen = (*seen.kept, *choices(wanted, estimates))
        waits = any(one.seen.job_id not in dict(seen.places) for one in seen.waiting)
        return Decision(
            choices=chosen,
            left=tuple(_left(seen, {choice.job_id for choice in chosen})),
            solve_s=walk_s(view),
            configurations=len(wanted),
            memory=msgspec.json.encode(seen.batch),
            again_at=seen.batch.until if waits and seen.batch.until > view.at else None,
            measures=MEASURES,
            standings={one.seen.job_id: Standing(priority=1e6 * one.density) for one in seen.waiting},
        )

    # ---- batches

    def _seen(self, view: View) -> BatchStart:
        """The start of a plan for the view; computed once for each view."""
        if self._last is None or self._last.view is not view:
            self._last = self._look(view)
        return self._last

    def _look(self, view: View) -> BatchStart:
        stayers, idle = kept(view, everything=True)
        running = {choice.job_id for choice in stayers}
        found = (self._job(job, view) for job in view.jobs if job.job_id not in running)
        waiting = sorted(
            (one for one in found if one is not None),
            key=lambda one: (-one.density, one.seen.submitted_at, one.seen.job_id),
        )
        batch = _remembered(view)
        there = running | {one.seen.job_id for one in waiting}
        if not waiting:
            batch = NO_BATCH
        elif batch.until <= view.at or there.isdisjoint(batch.jobs):
            batch = _next_batch(batch, waiting, view)
        return BatchStart(
            view=view,
            kept=stayers,
            waiting=tuple(waiting),
            batch=batch,
            places=tuple(_places([one for one in waiting if one.seen.job_id in batch.jobs], view, idle)),
        )

    def _job(self, job: ViewJob, view: View) -> BatchJob | None:
        types = tuple(name for name in job.gpu_types if _runs_on(job, name))
        usable = sum(node.gpus for node in view.nodes if node.gpu_type in types)
        possible = [gpus for gpus in job.demand if gpus <= usable]
        if not possible:
            return None
        gpus = rigid(possible, self._options.rigid_demand)
        task_s = plain_sum(job.batch_size / job.single_gpu[name] for name in types) / len(types)
        left = max((job.samples - job.samples_done) / (gpus * job.batch_size), 1.0)
        return BatchJob(seen=job, gpus=gpus, run_s=task_s * (left if self._options.sizes == "known" else 1.0))


def _remembered(view: View) -> JobBatch:
    try:
        batch = msgspec.json.decode(view.memory, type=JobBatch)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NO_BATCH
    return batch if 0.0 <= batch.length_s <= LONGEST_BATCH_S else NO_BATCH


def _next_batch(before: JobBatch, waiting: Sequence[BatchJob], view: View) -> JobBatch:
    """The next batch: of the first greater length for which some waiting job is short enough."""
    gpus, length_s = view.idle_gpus, before.length_s
    while length_s < LONGEST_BATCH_S:
        length_s = max(2.0 * length_s, SHORTEST_BATCH_S)
        if jobs := tuple(_fitting(waiting, length_s, length_s * gpus)):
            return JobBatch(length_s, view.at + length_s, jobs)
    return JobBatch(0.0, view.at + LONGEST_BATCH_S, tuple(one.seen.job_id for one in waiting))


def _fitting(waiting: Sequence[BatchJob], length_s: float, gpu_s: float) -> Iterator[JobId]:
    """The jobs that a batch of `length_s` seconds and `gpu_s` GPU-seconds takes."""
    for one in waiting:
        if one.run_s <= length_s and one.run_s * one.gpus <= gpu_s:
            gpu_s -= one.run_s * one.gpus
            yield one.seen.job_id


def _places(
    queue: Sequence[BatchJob], view: View, idle: dict[NodeId, int]
) -> Iterator[tuple[JobId, Configuration]]:
    """The places of the jobs for which enough GPUs are idle, in the order of the queue."""
    types: dict[NodeId, GpuType] = {node.node_id: node.gpu_type for node in view.nodes}
    for one in queue:
        place: Configuration = {}
        rest = one.gpus
        for node, free in idle.items():
            if rest and free > 0 and _runs_on(one.seen, types[node]):
                place[node] = min(free, rest)
                rest -= place[node]
        if not rest:
            idle |= {node: idle[node] - gpus for node, gpus in place.items()}
            yield one.seen.job_id, place


def _runs_on(job: ViewJob, gpu_type: GpuType) -> bool:
    return gpu_type in job.gpu_types and job.single_gpu.get(gpu_type, 0.0) > 0


def _left(seen: BatchStart, placed: set[JobId]) -> Iterator[Left]:
    """Why jobs get no GPUs: those of the queue in its order, then those that fit nowhere."""
    queued = [one.seen.job_id for one in seen.waiting if one.seen.job_id not in placed]
    for job_id in queued:
        detail = "" if job_id in seen.batch.jobs else "it is left for a later batch"
        yield Left(job_id=job_id, reason=Waiting.OUTWEIGHED, detail=detail)
    known = placed.union(queued)
    for job in seen.view.jobs:
        if job.job_id not in known:
            yield Left(job_id=job.job_id, reason=Waiting.NO_CONFIGURATION)
