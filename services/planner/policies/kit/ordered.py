"""Base of the policies that decide by order alone. A subclass has an order and two flags.

`strict`: a job that does not fit holds up all behind it; else it is skipped. `preemptive`: a job may take the
GPUs of running jobs behind it. `serving` explains both.

A job asks for one GPU count of its demand, by the option `rigid_demand`, of those that fit the empty cluster.
It is placed as in `gangs`, on the type on which one GPU of it is fastest if there is room. A job that runs
keeps the GPUs it has, however many, unless it has to give them up. Ties go to the earlier submission, then to
the smaller id.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from schemas.ids import JobId
from schemas.placement import Gang
from schemas.plans import Measures, PlanKind, Standing, Waiting
from services.planner.policies.contract.configurations import Configurations, explicit
from services.planner.policies.contract.decision import ROUNDS, Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.gangs import Style
from services.planner.policies.kit.known_jobs import Cluster, KnownJob, KnownJobs
from services.planner.policies.kit.rigid import RigidOptions
from services.planner.policies.kit.serving import Served, served
from services.planner.solver.problem import Solve

EVENTS: Mapping[Trigger, PlanKind] = dict.fromkeys(Trigger, PlanKind.FIRST)
"""every event calls for a first plan; with `moves_for_waiting` only while idle GPUs do not serve every job"""

STEP_S = 4e-7
"""modelled seconds of the walk for each job and node, as measured on a common server"""


STANDARD = RigidOptions()

Staying = Mapping[JobId, KnownJob]
"""the jobs that run or are about to"""


class WalkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a walk down the queue, and what a subclass adds to the decision."""

    served: Served
    memory: bytes = b""
    again_at: float | None = None
    standings: Mapping[JobId, Standing] = {}


class Ordered(ABC):
    """See the module."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = ROUNDS
    sees_staying: ClassVar[bool] = True
    moves_for_waiting: bool = True
    """see `decision`: `served` moves a running job only where a waiting one finds no room otherwise"""
    strict: ClassVar[bool] = False
    preemptive: ClassVar[bool] = False
    measures: ClassVar[Measures] = Measures()
    """measures of the standings that `verdict` gives"""

    Options: ClassVar[type[msgspec.Struct]] = RigidOptions

    def __init__(self, options: RigidOptions = STANDARD) -> None:
        self.rigid_demand = options.rigid_demand
        self._jobs = KnownJobs(options.rigid_demand)
        self._looked_at: View | None = None
        self._shown: dict[JobId, KnownJob] = {}
        """the jobs of that view"""
        self._cluster: Cluster
        """the cluster of that view"""
        self._last: tuple[View, tuple[WalkResult, Staying]] | None = None

    @abstractmethod
    def order(self, view: View) -> Sequence[ViewJob]:
        """The queue, the first served first."""

    def verdict(self, view: View) -> WalkResult:
        """The walk in the policy's order.

        The memory is passed on unchanged: a stand-in has that of the policy it replaces.
        """
        return WalkResult(served=self.serve(view, self.order(view)), memory=view.memory)

    def serve(self, view: View, queue: Sequence[ViewJob]) -> Served:
        """The walk down `queue`, once the jobs that may not be moved have their places."""
        shown = self._look(view)
        stayers = [shown[job.job_id].queued for job in queue if job.stays]
        return served(
            stayers + [shown[job.job_id].queued for job in queue if not job.stays],
            self._cluster.pools,
            {node.node_id: node.idle for node in view.nodes},
            strict=self.strict,
            preemptive=self.preemptive,
        )

    def _look(self, view: View) -> Mapping[JobId, KnownJob]:
        """The cached entries of the view's jobs."""
        if self._looked_at is not view:
            cluster = self._cluster = self._jobs.cluster(view.nodes)
            self._shown = {job.job_id: self._known(job, cluster) for job in view.jobs}
            self._looked_at = view
        return self._shown

    def _known(self, job: ViewJob, cluster: Cluster) -> KnownJob:
        return self._jobs.of(job, cluster, self.style(job), self.line(job))

    def style(self, job: ViewJob) -> Style:  # noqa: ARG002 - for subclasses that look at the job
        """How the job is spread if no node has room for it."""
        return Style.FEWEST_NODES

    def line(self, job: ViewJob) -> str:  # noqa: ARG002 - for subclasses with several queues
        """The name of the job's queue, where a strict policy has several."""
        return ""

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        """The places of jobs that start or move; a job that stays keeps the estimate it was placed with."""
        verdict, staying = self._verdict(view)
        moving = [
            (job_id, place)
            for job_id, place in verdict.served.placed.items()
            if (known := staying.get(job_id)) is None
            or (place is not known.queued.held and place != known.queued.held)
        ]
        return explicit(moving, view.nodes)

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve | None = None,  # noqa: ARG002 - order alone decides
    ) -> Decision:
        verdict, staying = self._verdict(view)
        moved = {choice.job_id: choice for choice in choices(wanted, estimates)}
        chosen = [moved.get(one) or staying[one].stay for one in verdict.served.placed]
        return Decision(
            choices=tuple([choice for choice in chosen if choice is not None]),
            left=tuple([_left(job_id, by) for job_id, by in verdict.served.behind.items()]),
            solve_s=walk_s(view),
            configurations=len(wanted),
            memory=verdict.memory,
            again_at=verdict.again_at,
            measures=self.measures,
            standings=verdict.standings,
        )

    def _verdict(self, view: View) -> tuple[WalkResult, Staying]:
        """The walk for a view; `wants` computes it, and `decide` of the same view uses it again."""
        if self._last is None or self._last[0] is not view:
            shown = self._look(view)
            staying = {job.job_id: shown[job.job_id] for job in view.jobs if job.present is not None}
            self._last = view, (self.verdict(view), staying)
        return self._last[1]


class SmallestFirst(Ordered):
    """A policy that serves jobs in ascending order of a figure, in seconds or GPU-seconds."""

    @abstractmethod
    def figure(self, job: ViewJob, view: View) -> float:
        """The figure; `measures.priority` says in words what it is."""

    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: self.figure(job, view))

    def verdict(self, view: View) -> WalkResult:
        standings = {job.job_id: Standing(priority=self.figure(job, view)) for job in view.jobs}
        return msgspec.structs.replace(super().verdict(view), standings=standings)


def smallest_first(view: View, key: Callable[[ViewJob], float]) -> Sequence[ViewJob]:
    """The jobs in ascending order of `key`, in seconds or GPU-seconds, rounded to milliseconds."""
    return sorted(view.jobs, key=lambda job: round(key(job), 3))


def walk_s(view: View) -> float:
    """Modelled seconds of the walk; 0 where the wall clock measures them."""
    return STEP_S * len(view.jobs) * len(view.nodes) if view.effort.modelled else 0.0


def choices(wanted: Configurations, estimates: Estimated) -> tuple[Choice, ...]:
    """A choice for each job of `wanted`, which has one configuration a job."""
    return tuple(
        Choice(
            job_id=job_id,
            gang=Gang.of(wanted.at(row)),
            throughput=0.0 if math.isnan(throughput) else throughput,
            layer=estimates.layer_at(row),
        )
        for row, (job_id, throughput) in enumerate(
            zip(wanted.jobs, estimates.throughput.tolist(), strict=True)
        )
    )


def _left(job_id: JobId, held_up_by: JobId | None) -> Left:
    if held_up_by is None:
        return Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION)
    return Left(job_id=job_id, reason=Waiting.OUTWEIGHED, detail=f"behind job {held_up_by}")
