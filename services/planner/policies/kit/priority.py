"""How urgent a job is: one table of rules, and the weight a plan gives it. Pure.

A rule maps a job to a number; larger is more urgent. Ties go to the earlier submission, then to the
smaller id.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from schemas.ids import GpuType
from services.planner.policies.contract.view import View, ViewJob
from shared.domain.arrays import Floats
from shared.domain.metrics.fairness import isolated_s

PriorityRule = Literal["lr", "ftf", "las", "sjf", "srtf", "fifo"]
Rule = Callable[[ViewJob, View], float]

SHORTEST_AGE_S = 1e-3
"""so that a job of no length does not divide by zero"""
BIAS = 0.01
"""Hops: what the least urgent job keeps, so that it is not left out for good"""


def latency_ratio(job: ViewJob, _: View) -> float:
    """LR: wait_i / age_i (eq. 8)."""
    return job.wait_s / max(job.age_s, SHORTEST_AGE_S)


def finish_time_fairness(job: ViewJob, view: View) -> float:
    """ρ = T_shared / T_isolated, were the job to run on its fair share from now on.

    T_isolated as the metric has it (`shared.domain.metrics.fairness`), N = the jobs present now; T_shared
    = time since submission + what is left of T_isolated. A job that no GPU is there for comes last.
    """
    gpus: dict[GpuType, int] = {}
    for node in view.nodes:
        gpus[node.gpu_type] = gpus.get(node.gpu_type, 0) + node.gpus
    alone_s = isolated_s(
        samples=job.samples,
        largest=job.demand[-1],
        single_gpu=job.single_gpu,
        gpus=gpus,
        sharers=max(view.jobs_present, 1),
    )
    return (view.at - job.submitted_at) / alone_s + left_share(job) if alone_s else 0.0


def least_attained_service(job: ViewJob, _: View) -> float:
    """LAS: the fewer GPU-seconds held, the more urgent."""
    return -job.attained_gpu_s


def shortest_job(job: ViewJob, _: View) -> float:
    """SJF: by the whole expected running time."""
    return -job.age_s


def shortest_remaining(job: ViewJob, _: View) -> float:
    """SRTF: by the expected running time that is left."""
    return -job.age_s * left_share(job)


def first_come(job: ViewJob, _: View) -> float:
    """FIFO."""
    return -job.submitted_at


RULES: dict[PriorityRule, Rule] = {
    "lr": latency_ratio,
    "ftf": finish_time_fairness,
    "las": least_attained_service,
    "sjf": shortest_job,
    "srtf": shortest_remaining,
    "fifo": first_come,
}

NAMES: dict[PriorityRule, str] = {
    "lr": "latency ratio, waiting time over expected running time",
    "ftf": "finish-time fairness, time shared over time alone",
    "las": "GPU-seconds held so far, negative",
    "sjf": "expected running seconds, negative",
    "srtf": "expected running seconds left, negative",
    "fifo": "time of submission, negative",
}
"""what the priorities are, in words; the largest first"""

POWERS: dict[PriorityRule, float] = {"ftf": 2.0}
"""λ is this times the setting; 1 for the rules not named (Hops section 4.4)"""


def ranked(view: View, rule: PriorityRule) -> list[tuple[ViewJob, float]]:
    """The queue: jobs with their priorities, the most urgent first."""
    urgency = RULES[rule]
    queue = [(job, urgency(job, view)) for job in view.jobs]
    return sorted(queue, key=lambda item: (-item[1], item[0].submitted_at, item[0].job_id))


def power_of(rule: PriorityRule, setting: float) -> float:
    """λ."""
    return setting * POWERS.get(rule, 1.0)


def weights(priorities: Sequence[float], power: float) -> Floats:
    """(prior_i + bias)^λ; bias = 0 if every priority is positive, else |min prior| + 0.01 (eq. 11)."""
    values = np.array(priorities, dtype=np.float64)
    lowest = float(values.min(initial=np.inf))
    bias = 0.0 if lowest > 0 else abs(lowest) + BIAS
    return (values + bias) ** power


def urgencies(view: View, jobs: Sequence[ViewJob], rule: PriorityRule, power: float) -> Floats:
    """By job: what its priority makes it weigh among these, λ being `power`."""
    priority = {job.job_id: value for job, value in ranked(view, rule)}
    return weights([priority[job.job_id] for job in jobs], power_of(rule, power))


def left_share(job: ViewJob) -> float:
    """Share of the job that is still to do."""
    return max(1.0 - job.samples_done / job.samples, 0.0)
