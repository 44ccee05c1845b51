"""First in, first out: strict arrival order, without preemption. Needs no solver; stands in for others.

Each job gets its smallest demand R_1, on the first node with that many idle GPUs (consolidated first),
else on the first run of adjacent nodes of one type. Strict: a job that does not fit now holds up all
that came after it, unless it would not fit the empty cluster either. A first plan keeps every job where
it is; only one whose GPUs went to profiling, or whose node drains, is placed anew.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from schemas.plans import Configuration, PlanKind, Waiting
from schemas.settings import Settings
from services.planner.configurations import Configurations, explicit, spread
from services.planner.estimates import Estimated
from services.planner.policies.contract import Choice, Decision, Left, Trigger
from services.planner.problem import Solve
from services.planner.view import View, ViewJob


class Fifo:
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {
        Trigger.ROUND: PlanKind.FIRST,
        Trigger.ARRIVAL: PlanKind.FRAGMENT,
        Trigger.FREED: PlanKind.FRAGMENT,
        Trigger.NODE: PlanKind.FRAGMENT,
    }

    def __init__(self, settings: Settings) -> None:
        pass

    def wants(self, view: View) -> Configurations:
        return explicit(list(_walk(view)[0].items()), view.nodes)

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve | None = None,  # noqa: ARG002 - order alone decides
    ) -> Decision:
        choices = tuple(
            Choice(
                job_id=job_id,
                configuration=wanted.at(row),
                throughput=float(np.nan_to_num(estimates.throughput[row])),
                layer=estimates.layer_at(row),
            )
            for row, job_id in enumerate(wanted.jobs)
        )
        return Decision(choices=choices, left=_walk(view)[1], configurations=len(wanted))


def _walk(view: View) -> tuple[dict[JobId, Configuration], tuple[Left, ...]]:
    """Who gets what, and why the others do not."""
    idle = {node.node_id: node.idle for node in view.nodes}
    placed = _stay(view, idle)
    left: list[Left] = []
    held_up_by: ViewJob | None = None
    for job in view.jobs:
        if job.job_id in placed:
            continue
        if not _fits_empty(view, job):
            left.append(Left(job_id=job.job_id, reason=Waiting.NO_CONFIGURATION))
        elif held_up_by is not None:
            detail = f"behind job {held_up_by.job_id}"
            left.append(Left(job_id=job.job_id, reason=Waiting.OUTWEIGHED, detail=detail))
        elif (place := _place(view, job, idle)) is not None:
            placed[job.job_id] = place
            _take(idle, place)
        else:
            held_up_by = job
            left.append(Left(job_id=job.job_id, reason=Waiting.NO_CONFIGURATION))
    return placed, tuple(left)


def _stay(view: View, idle: dict[NodeId, int]) -> dict[JobId, Configuration]:
    """The jobs that keep their place, in the order of arrival."""
    placed: dict[JobId, Configuration] = {}
    for job in view.jobs:
        place = job.present.configuration if job.present is not None else {}
        if place and all(gpus <= idle.get(node_id, 0) for node_id, gpus in place.items()):
            placed[job.job_id] = place
            _take(idle, place)
    return placed


def _place(view: View, job: ViewJob, idle: dict[NodeId, int]) -> Configuration | None:
    wanted = job.demand[0]
    for node in view.nodes:
        if node.gpu_type in job.gpu_types and idle[node.node_id] >= wanted:
            return {node.node_id: wanted}
    runs = (_run(view, gpu_type, idle, wanted) for gpu_type in job.gpu_types)
    return next((run for run in runs if run is not None), None)


def _run(view: View, gpu_type: GpuType, idle: dict[NodeId, int], wanted: int) -> Configuration | None:
    nodes = [node.node_id for node in view.nodes if node.gpu_type == gpu_type]
    free = np.array([idle[node_id] for node_id in nodes], dtype=np.int32)
    first = next(spread(free, wanted), None)
    return None if first is None else {nodes[index]: gpus for index, gpus in first.items()}


def _fits_empty(view: View, job: ViewJob) -> bool:
    gpus = dict.fromkeys(job.gpu_types, 0)
    for node in view.nodes:
        if node.gpu_type in gpus:
            gpus[node.gpu_type] += node.gpus
    return any(count >= job.demand[0] for count in gpus.values())


def _take(idle: dict[NodeId, int], place: Configuration) -> None:
    for node_id, gpus in place.items():
        idle[node_id] -= gpus
