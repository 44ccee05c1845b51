"""Round after round of one cluster, without running it: a first view, and the view after a decision. Pure.

What a policy decides is done: jobs advance by the throughput that was estimated, those that are done leave,
some new ones come, and the policy's memory comes back. Moving costs nothing but a count.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from hopyard.lab.bench.planning.instances import Scene, running
from schemas.ids import GpuType, NodeId
from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.build import effort_of
from services.planner.policies.contract.decision import Choice, Decision
from services.planner.policies.contract.view import View, ViewJob

STEPS = (0, 1, 1, 4)
"""rounds from each plan to the next; from the first to the last one Gavel's `reset_s` goes by"""
NEW = 0.02
"""share of the jobs that come for each plan"""


def opening(scene: Scene) -> tuple[View, list[tuple[ViewJob, ...]]]:
    """A round in which most jobs run or wait, and those that come for each plan."""
    before = scene.plan(scene.view(PlanKind.FIRST, {}))[0]
    view = scene.view(PlanKind.FIRST, {choice.job_id: choice for choice in before.choices})
    size = max(round(len(view.jobs) * NEW), 1)
    edges = [len(view.jobs) - size * count for count in range(len(STEPS), -1, -1)]
    batches = [view.jobs[begin:end] for begin, end in pairwise(edges)]
    effort = effort_of(Settings())
    return msgspec.structs.replace(view, jobs=view.jobs[: edges[0]], effort=effort), batches


def after(view: View, decision: Decision, rounds: int, come: Sequence[ViewJob]) -> View:
    """What a policy sees `rounds` rounds after it decided; jobs that are done are gone."""
    passed_s = rounds * view.round_s
    at, chosen = view.at + passed_s, {choice.job_id: choice for choice in decision.choices}
    types = {node.node_id: node.gpu_type for node in view.nodes}
    there = (_aged(job, chosen.get(job.job_id), passed_s, types) for job in view.jobs)
    jobs = (*(job for job in there if job.samples_done < job.samples), *(_fresh(job, at) for job in come))
    return msgspec.structs.replace(
        view, at=at, round=view.round + rounds, jobs=jobs, jobs_present=len(jobs), memory=decision.memory
    )


def _aged(job: ViewJob, choice: Choice | None, passed_s: float, types: Mapping[NodeId, GpuType]) -> ViewJob:
    gang = None if choice is None else choice.gang
    place = {} if gang is None else gang.configuration
    received = dict(job.received_s)
    for gpu_type in sorted({types[node_id] for node_id in place}):
        received[gpu_type] = received.get(gpu_type, 0.0) + passed_s
    aged = msgspec.structs.replace(
        job,
        wait_s=job.wait_s + (0.0 if place else passed_s),
        attained_gpu_s=job.attained_gpu_s + sum(place.values()) * passed_s,
        received_s=received,
        restarts=job.restarts + (job.present is not None and job.present.gang != gang),
        samples_done=job.samples_done + (0.0 if choice is None else choice.throughput * passed_s),
        present=None,
    )
    return running(aged, choice)


def _fresh(job: ViewJob, at: float) -> ViewJob:
    return msgspec.structs.replace(
        job, submitted_at=at, wait_s=0.0, attained_gpu_s=0.0, received_s={}, samples_done=0.0, present=None
    )
