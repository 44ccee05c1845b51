"""What the policies have in common that decide by order alone: the walk, the columns, the reasons.

Each of them is a queue and four words: strict or skipping, preemptive or not. Every job asks for one
GPU count (`rigid_demand`, of those that fit the empty cluster) and gets it consolidated first, on the
type on which one GPU of it is fastest; a job that runs keeps the count it has. Ties go to the earlier
submission, then to the smaller id.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId
from schemas.plans import Configuration, PlanKind, Waiting
from schemas.settings import Settings
from services.planner.configurations import Configurations, explicit
from services.planner.estimates import Estimated
from services.planner.policies.contract import Choice, Decision, Left, Trigger
from services.planner.problem import Solve
from services.planner.programs.placing import Style, pools
from services.planner.programs.rigid import rigid
from services.planner.programs.serving import Client, Served, served
from services.planner.view import View, ViewJob

ROUNDS: Mapping[Trigger, PlanKind] = {
    Trigger.ROUND: PlanKind.FIRST,
    Trigger.ARRIVAL: PlanKind.FRAGMENT,
    Trigger.FREED: PlanKind.FRAGMENT,
    Trigger.NODE: PlanKind.FRAGMENT,
}
"""whole plans at round boundaries; between them idle GPUs are filled at once"""

EVENTS: Mapping[Trigger, PlanKind] = dict.fromkeys(Trigger, PlanKind.FIRST)
"""a whole plan at every event"""

STEP_S = 4e-7
"""a job and a node, as measured on a common server: the modelled seconds"""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk down the queue comes to."""

    served: Served
    memory: bytes = b""
    again_at: float | None = None


class Ordered(ABC):
    """A subclass says its order, and its variant."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = ROUNDS
    strict: ClassVar[bool] = False
    preemptive: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def order(self, view: View) -> Sequence[ViewJob]:
        """The queue, the first served first."""

    def verdict(self, view: View) -> Verdict:
        """Without memory of its own it hands on what it got: another policy's, for which it stands in."""
        return Verdict(served=self.serve(view, self.order(view)), memory=view.memory)

    def serve(self, view: View, queue: Sequence[ViewJob]) -> Served:
        clusters = pools((node.node_id, node.gpu_type, node.gpus) for node in view.nodes)
        sizes = {gpu_type: sum(pool.sizes) for gpu_type, pool in clusters.items()}
        return served(
            [self._client(job, sizes) for job in queue],
            clusters,
            {node.node_id: node.idle for node in view.nodes},
            strict=self.strict,
            preemptive=self.preemptive,
        )

    def style(self, job: ViewJob) -> Style:  # noqa: ARG002 - for subclasses that look at the job
        return Style.FEWEST_NODES

    def line(self, job: ViewJob) -> str:  # noqa: ARG002 - for subclasses with several queues
        return ""

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        return explicit(list(self.verdict(view).served.placed.items()), view.nodes)

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve | None = None,  # noqa: ARG002 - order alone decides
    ) -> Decision:
        verdict = self.verdict(view)
        return Decision(
            choices=choices(wanted, estimates),
            left=tuple(_left(job_id, by) for job_id, by in verdict.served.behind.items()),
            solve_s=walk_s(view),
            configurations=len(wanted),
            memory=verdict.memory,
            again_at=verdict.again_at,
        )

    def _client(self, job: ViewJob, sizes: Mapping[GpuType, int]) -> Client:
        return Client(
            job_id=job.job_id,
            gpus=count(job, sizes, self.settings),
            types=fastest_first(job),
            held=held(job),
            style=self.style(job),
            line=self.line(job),
        )


def smallest_first(view: View, key: Callable[[ViewJob], float]) -> Sequence[ViewJob]:
    """The queue by a figure in seconds or GPU-seconds; differences below a millisecond are none."""
    return sorted(view.jobs, key=lambda job: round(key(job), 3))


def walk_s(view: View) -> float:
    """What the walk costs where seconds are reckoned from the work; elsewhere the clock tells."""
    return STEP_S * len(view.jobs) * len(view.nodes) if view.effort.modelled else 0.0


def count(job: ViewJob, sizes: Mapping[GpuType, int], settings: Settings) -> int:
    """The GPU count a job asks for; 0 where the empty cluster has room for none of its demand.

    `sizes`: all GPUs of each type.
    """
    most = max((sizes.get(gpu_type, 0) for gpu_type in job.gpu_types), default=0)
    possible = [gpus for gpus in job.demand if gpus <= most]
    return rigid(possible, settings.rigid_demand) if possible else 0


def fastest_first(job: ViewJob) -> tuple[GpuType, ...]:
    return tuple(sorted(job.gpu_types, key=lambda name: (-job.single_gpu.get(name, 0.0), name)))


def held(job: ViewJob) -> Configuration:
    return job.present.configuration if job.present is not None else {}


def choices(wanted: Configurations, estimates: Estimated) -> tuple[Choice, ...]:
    """All of `wanted`, one configuration a job."""
    return tuple(
        Choice(
            job_id=job_id,
            configuration=wanted.at(row),
            throughput=float(np.nan_to_num(estimates.throughput[row])),
            layer=estimates.layer_at(row),
        )
        for row, job_id in enumerate(wanted.jobs)
    )


def _left(job_id: JobId, held_up_by: JobId | None) -> Left:
    if held_up_by is None:
        return Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION)
    return Left(job_id=job_id, reason=Waiting.OUTWEIGHED, detail=f"behind job {held_up_by}")
