"""Policies for tests: every job on as many GPUs as it can have, over all nodes, each by its speed.

`BySpeed`: a part of every batch. `ByTasks`: whole batches, one after another.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from schemas.ids import JobId, NodeId
from schemas.placement import Configuration, Gang, Mode, Proportional, Relaxed
from schemas.plans import PlanKind, Waiting
from services.planner.policies.contract.configurations import Configurations, listed
from services.planner.policies.contract.decision import ROUNDS, Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob
from services.planner.solver.problem import Solve
from shared.domain import gangs


class BySpeed:
    """First come, first served; who runs stays."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = ROUNDS
    modes: ClassVar[frozenset[type[Mode]]] = frozenset({Proportional})

    def wants(self, view: View) -> Configurations:
        made = self._gangs(view)
        jobs = {job.job_id: job for job in view.jobs}
        rows = listed([(job_id, [gang.configuration]) for job_id, gang in made.items()], view.nodes)
        taken = [one for job_id, gang in made.items() for one in gangs.samples(gang, jobs[job_id].batch_size)]
        return replace(rows, samples=np.array(taken, dtype=np.int32))

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:  # noqa: ARG002
        made = self._gangs(view)
        choices = [
            Choice(
                job_id=job_id,
                gang=gang,
                throughput=self._throughput(view, job_id, gang, float(estimates.throughput[row])),
                layer=estimates.layer_at(row),
            )
            for row, (job_id, gang) in enumerate(made.items())
            if estimates.throughput[row] > 0
        ]
        chosen = {choice.job_id for choice in choices}
        left = [
            Left(job_id=job.job_id, reason=Waiting.OUTWEIGHED)
            for job in view.jobs
            if job.job_id not in chosen
        ]
        return Decision(choices=tuple(choices), left=tuple(left))

    def _gangs(self, view: View) -> dict[JobId, Gang]:
        idle = {node.node_id: node.idle for node in view.nodes}
        made: dict[JobId, Gang] = {}
        for job in sorted(view.jobs, key=lambda job: job.present is None):
            gang = job.present.gang if job.present is not None else self._gang(view, job, idle)
            if gang is not None and all(one.gpus <= idle.get(one.node, 0) for one in gang.members):
                made[job.job_id] = gang
                for one in gang.members:
                    idle[one.node] -= one.gpus
        return made

    def _throughput(self, view: View, job_id: JobId, gang: Gang, estimated: float) -> float:  # noqa: ARG002
        return estimated

    def _gang(self, view: View, job: ViewJob, idle: Configuration) -> Gang | None:
        speed = _speeds(view, job)
        for gpus in reversed(job.demand):
            place, left = Configuration(), gpus
            for node in speed:
                if taken := min(idle[node], left):
                    place[node] = taken
                    left -= taken
            if not left:
                return gangs.proportional(place, speed, job.batch_size)
        return None


class ByTasks(BySpeed):
    """As many batches a round as the largest demand has GPUs, each where it is done first."""

    modes: ClassVar[frozenset[type[Mode]]] = frozenset({Relaxed})

    def wants(self, view: View) -> Configurations:
        made = self._gangs(view)
        return listed([(job_id, [gang.configuration]) for job_id, gang in made.items()], view.nodes)

    def _throughput(self, view: View, job_id: JobId, gang: Gang, estimated: float) -> float:  # noqa: ARG002
        """Relaxed gangs are what no estimator answers for."""
        job = next(job for job in view.jobs if job.job_id == job_id)
        speed = _speeds(view, job)
        return gangs.throughput(gang, [speed[node] for node in gang.nodes], job.batch_size)

    def _gang(self, view: View, job: ViewJob, idle: Configuration) -> Gang | None:
        speed = _speeds(view, job)
        tasks = {(node, gpu): 0 for node in speed for gpu in range(idle[node])}
        for _ in range(max(job.demand) if tasks else 0):
            tasks[min(tasks, key=lambda gpu: (tasks[gpu] + 1) / speed[gpu[0]])] += 1
        busy = {node: tuple(tasks[gpu] for gpu in tasks if gpu[0] == node and tasks[gpu]) for node in speed}
        place = {node: of_node for node, of_node in busy.items() if of_node}
        if not place:
            return None
        counts = {node: len(of_node) for node, of_node in place.items()}
        return Gang.of(counts, Relaxed(tasks=tuple(place[node] for node in sorted(place))))


def _speeds(view: View, job: ViewJob) -> dict[NodeId, float]:
    types = {node.node_id: node.gpu_type for node in view.nodes if node.gpu_type in job.single_gpu}
    return {node: job.single_gpu[gpu_type] for node, gpu_type in types.items()}
