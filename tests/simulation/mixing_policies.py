"""A policy for tests whose gangs take GPUs of any types: first come, first served, over what is idle."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration, Gang
from schemas.plans import PlanKind, Waiting
from services.planner.policies.contract.configurations import Configurations, listed
from services.planner.policies.contract.decision import ROUNDS, Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewNode
from services.planner.solver.problem import Solve


class Mixing:
    """Who runs stays; who waits gets the largest GPU count there is room for, over all types."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = ROUNDS

    def wants(self, view: View) -> Configurations:
        return listed([(job_id, (place,)) for job_id, place in _dealt(view)], view.nodes)

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:  # noqa: ARG002
        staying = {job.job_id: job.present for job in view.jobs if job.present is not None}
        choices = [
            Choice(job_id=job_id, gang=one.gang, throughput=one.throughput, layer=one.layer)
            for job_id, one in staying.items()
        ] + [
            Choice(
                job_id=job_id,
                gang=Gang.of(wanted.at(row)),
                throughput=float(np.nan_to_num(estimates.throughput[row])),
                layer=estimates.layer_at(row),
            )
            for row, job_id in enumerate(wanted.jobs)
        ]
        given = {choice.job_id for choice in choices}
        left = [job.job_id for job in view.jobs if job.job_id not in given]
        return Decision(
            choices=tuple(choices),
            left=tuple(Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION) for job_id in left),
        )


def _dealt(view: View) -> Iterator[tuple[JobId, Configuration]]:
    free = {node.node_id: node.idle for node in view.nodes}
    for job in view.jobs:
        for one in job.present.gang.members if job.present else ():
            free[one.node] -= one.gpus
    for job in view.jobs:
        nodes = [node for node in view.nodes if node.gpu_type in job.gpu_types]
        possible = [gpus for gpus in job.demand if gpus <= sum(max(free[node.node_id], 0) for node in nodes)]
        if job.present is None and possible:
            yield job.job_id, _dealt_to(possible[-1], nodes, free)


def _dealt_to(gpus: int, nodes: Sequence[ViewNode], free: dict[NodeId, int]) -> Configuration:
    """A GPU of each type in turns, of the node that has most."""
    place: Configuration = {}
    taken: Counter[GpuType] = Counter()
    for _ in range(gpus):
        idle = [node for node in nodes if free[node.node_id] > 0]
        node = min(idle, key=lambda one: (taken[one.gpu_type], -free[one.node_id]))
        place[node.node_id] = place.get(node.node_id, 0) + 1
        taken[node.gpu_type] += 1
        free[node.node_id] -= 1
    return place
