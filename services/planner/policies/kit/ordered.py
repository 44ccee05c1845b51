"""What the policies have in common that decide by order alone: the walk, the columns, the reasons.

Each of them is a queue and four words: strict or skipping, preemptive or not. Every job asks for one
GPU count (option `rigid_demand`, of those that fit the empty cluster) and gets it consolidated first, on the
type on which one GPU of it is fastest; a job that runs keeps the count it has. Ties go to the earlier
submission, then to the smaller id.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId
from schemas.placement import Configuration, Gang
from schemas.plans import Measures, PlanKind, Standing, Waiting
from services.planner.policies.contract.configurations import Configurations, explicit
from services.planner.policies.contract.decision import ROUNDS, Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.kit.gangs import Pool, Style, pools
from services.planner.policies.kit.rigid import Rigid, RigidOptions, rigid
from services.planner.policies.kit.serving import QueuedJob, Served, served
from services.planner.solver.problem import Solve

EVENTS: Mapping[Trigger, PlanKind] = dict.fromkeys(Trigger, PlanKind.FIRST)
"""a whole plan at every event"""

STEP_S = 4e-7
"""a job and a node, as measured on a common server: the modelled seconds"""


STANDARD = RigidOptions()


WISHES_KEPT = 10_000
"""jobs"""


class WalkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk down the queue comes to."""

    served: Served
    memory: bytes = b""
    again_at: float | None = None
    standings: Mapping[JobId, Standing] = {}


class Ordered(ABC):
    """A subclass says its order, and its variant."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = ROUNDS
    strict: ClassVar[bool] = False
    preemptive: ClassVar[bool] = False
    measures: ClassVar[Measures] = Measures()
    """of the standings that `verdict` gives"""

    Options: ClassVar[type[msgspec.Struct]] = RigidOptions

    def __init__(self, options: RigidOptions = STANDARD) -> None:
        self.rigid_demand = options.rigid_demand
        self._wishes: dict[JobId, tuple[object, object, object, tuple[int, tuple[GpuType, ...]]]] = {}
        self._nodes: tuple[ViewNode, ...] | None = None
        self._known: tuple[dict[GpuType, Pool], dict[GpuType, int]] = ({}, {})
        self._last: tuple[View, WalkResult] | None = None

    @abstractmethod
    def order(self, view: View) -> Sequence[ViewJob]:
        """The queue, the first served first."""

    def verdict(self, view: View) -> WalkResult:
        """It keeps no memory, and passes on what it got: as a stand-in, that of the policy it replaces."""
        return WalkResult(served=self.serve(view, self.order(view)), memory=view.memory)

    def serve(self, view: View, queue: Sequence[ViewJob]) -> Served:
        clusters, sizes = self._clusters(view)
        return served(
            [self._queued(job, sizes) for job in queue],
            clusters,
            {node.node_id: node.idle for node in view.nodes},
            strict=self.strict,
            preemptive=self.preemptive,
        )

    def _clusters(self, view: View) -> tuple[dict[GpuType, Pool], dict[GpuType, int]]:
        """Pools and all GPUs by type, computed anew only where the view's nodes are another tuple."""
        if self._nodes is not view.nodes:
            clusters = pools((node.node_id, node.gpu_type, node.gpus) for node in view.nodes)
            sizes = {gpu_type: sum(pool.sizes) for gpu_type, pool in clusters.items()}
            self._nodes, self._known = view.nodes, (clusters, sizes)
        return self._known

    def style(self, job: ViewJob) -> Style:  # noqa: ARG002 - for subclasses that look at the job
        return Style.FEWEST_NODES

    def line(self, job: ViewJob) -> str:  # noqa: ARG002 - for subclasses with several queues
        return ""

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        """Those of jobs that move: one that stays keeps the estimate it was placed with."""
        staying = _staying(view)
        placed = self._verdict(view).served.placed.items()
        return explicit([(one, place) for one, place in placed if staying.get(one) != place], view.nodes)

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve | None = None,  # noqa: ARG002 - order alone decides
    ) -> Decision:
        verdict = self._verdict(view)
        moved = {choice.job_id: choice for choice in choices(wanted, estimates)}
        presents = {job.job_id: job.present for job in view.jobs if job.present is not None}
        return Decision(
            choices=tuple([moved.get(one) or _stay(one, presents[one]) for one in verdict.served.placed]),
            left=tuple(_left(job_id, by) for job_id, by in verdict.served.behind.items()),
            solve_s=walk_s(view),
            configurations=len(wanted),
            memory=verdict.memory,
            again_at=verdict.again_at,
            measures=self.measures,
            standings=verdict.standings,
        )

    def _verdict(self, view: View) -> WalkResult:
        """The walk down the queue of a view, kept for the second step of the same plan."""
        if self._last is None or self._last[0] is not view:
            self._last = view, self.verdict(view)
        return self._last[1]

    def _wish(self, job: ViewJob, sizes: Mapping[GpuType, int]) -> tuple[int, tuple[GpuType, ...]]:
        """GPU count and types, the best first; for a job that looks as it did the last time, the same."""
        known = self._wishes.get(job.job_id)
        if (
            known is not None
            and known[0] is sizes
            and known[1] is job.single_gpu
            and known[2] is job.gpu_types
        ):
            return known[3]
        if len(self._wishes) > WISHES_KEPT:
            self._wishes.clear()
        wish = count(job, sizes, self.rigid_demand), fastest_first(job)
        self._wishes[job.job_id] = sizes, job.single_gpu, job.gpu_types, wish
        return wish

    def _queued(self, job: ViewJob, sizes: Mapping[GpuType, int]) -> QueuedJob:
        gpus, types = self._wish(job, sizes)
        return QueuedJob(
            job_id=job.job_id,
            gpus=gpus,
            types=types,
            held=held(job),
            style=self.style(job),
            line=self.line(job),
        )


class SmallestFirst(Ordered):
    """The queue by a figure in seconds or GPU-seconds."""

    @abstractmethod
    def figure(self, job: ViewJob, view: View) -> float:
        """What `measures.priority` names."""

    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: self.figure(job, view))

    def verdict(self, view: View) -> WalkResult:
        standings = {job.job_id: Standing(priority=self.figure(job, view)) for job in view.jobs}
        return msgspec.structs.replace(super().verdict(view), standings=standings)


def smallest_first(view: View, key: Callable[[ViewJob], float]) -> Sequence[ViewJob]:
    """The queue by a figure in seconds or GPU-seconds; differences below a millisecond are none."""
    return sorted(view.jobs, key=lambda job: round(key(job), 3))


def walk_s(view: View) -> float:
    """What the walk costs where seconds are computed from the work; elsewhere the clock measures them."""
    return STEP_S * len(view.jobs) * len(view.nodes) if view.effort.modelled else 0.0


def count(job: ViewJob, sizes: Mapping[GpuType, int], rule: Rigid) -> int:
    """The GPU count a job asks for; 0 where the empty cluster has room for none of its demand.

    `sizes`: all GPUs of each type.
    """
    most = max((sizes.get(gpu_type, 0) for gpu_type in job.gpu_types), default=0)
    possible = [gpus for gpus in job.demand if gpus <= most]
    return rigid(possible, rule) if possible else 0


def fastest_first(job: ViewJob) -> tuple[GpuType, ...]:
    return tuple(sorted(job.gpu_types, key=lambda name: (-job.single_gpu.get(name, 0.0), name)))


def held(job: ViewJob) -> Configuration:
    return job.present.gang.configuration if job.present is not None else {}


def choices(wanted: Configurations, estimates: Estimated) -> tuple[Choice, ...]:
    """All of `wanted`, one configuration a job."""
    return tuple(
        Choice(
            job_id=job_id,
            gang=Gang.of(wanted.at(row)),
            throughput=float(np.nan_to_num(estimates.throughput[row])),
            layer=estimates.layer_at(row),
        )
        for row, job_id in enumerate(wanted.jobs)
    )


def _staying(view: View) -> dict[JobId, Configuration]:
    return {job.job_id: held(job) for job in view.jobs if job.present is not None}


def _stay(job_id: JobId, present: Present) -> Choice:
    return Choice(job_id=job_id, gang=present.gang, throughput=present.throughput, layer=present.layer)


def _left(job_id: JobId, held_up_by: JobId | None) -> Left:
    if held_up_by is None:
        return Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION)
    return Left(job_id=job_id, reason=Waiting.OUTWEIGHED, detail=f"behind job {held_up_by}")
