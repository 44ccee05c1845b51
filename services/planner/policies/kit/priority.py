"""A job's priority by one of several rules, and the weight that follows from it in a plan. Pure.

A rule maps a job to its priority; larger is more urgent. Ties go to the earlier submission, then to the
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
"""the least age that is divided by"""
BIAS = 0.01
"""the weight of the least urgent job, for λ = 1, where not all priorities are positive (Hops eq. 11): above
0, so that the job is not left out for ever"""


def latency_ratio(job: ViewJob, _: View) -> float:
    """LR: wait_i / age_i (eq. 8)."""
    return job.wait_s / max(job.age_s, SHORTEST_AGE_S)


def finish_time_fairness(job: ViewJob, view: View) -> float:
    """ρ = T_shared / T_isolated, if the job runs on its fair share from now on.

    T_isolated is that of the metric (`shared.domain.metrics.fairness`) with N = the jobs present now;
    T_shared = time since submission + what is left of T_isolated. A job that can run on no GPU has ρ = 0,
    so it comes last.
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
    """SJF: the shorter the whole expected running time, the more urgent."""
    return -job.age_s


def shortest_remaining(job: ViewJob, _: View) -> float:
    """SRTF: the shorter the expected running time that is left, the more urgent."""
    return -job.age_s * left_share(job)


def first_come(job: ViewJob, _: View) -> float:
    """FIFO: the earlier the submission, the more urgent."""
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
"""by rule, the factor on the setting that gives λ; 1 for other rules (Hops section 4.4)"""


def ranked(view: View, rule: PriorityRule) -> list[tuple[ViewJob, float]]:
    """The queue: jobs with their priorities, the most urgent first."""
    urgency = RULES[rule]
    queue = [(job, urgency(job, view)) for job in view.jobs]
    return sorted(queue, key=lambda item: (-item[1], item[0].submitted_at, item[0].job_id))


def power_of(rule: PriorityRule, setting: float) -> float:
    """λ of a rule (eq. 11); `setting`: the option `priority_power`."""
    return setting * POWERS.get(rule, 1.0)


def weights(priorities: Sequence[float], power: float) -> Floats:
    """(prior_i + bias)^λ; bias = 0 if every priority is positive, else |min prior| + 0.01 (eq. 11)."""
    values = np.array(priorities, dtype=np.float64)
    lowest = float(values.min(initial=np.inf))
    bias = 0.0 if lowest > 0 else abs(lowest) + BIAS
    return (values + bias) ** power


def urgencies(view: View, jobs: Sequence[ViewJob], rule: PriorityRule, power: float) -> Floats:
    """By job: its weight by its priority among these jobs; `power`: the option `priority_power`."""
    priority = {job.job_id: value for job, value in ranked(view, rule)}
    return weights([priority[job.job_id] for job in jobs], power_of(rule, power))


def left_share(job: ViewJob) -> float:
    """The share of the job's samples that is still to do."""
    return max(1.0 - job.samples_done / job.samples, 0.0)
