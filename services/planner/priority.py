"""How urgent a job is: one table of rules, and the weight a plan gives it. Pure.

A rule maps a job to a number; larger is more urgent. Ties go to the earlier submission, then to the
smaller id.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from services.planner.view import View, ViewJob

Floats = npt.NDArray[np.float64]
Rule = Callable[[ViewJob, View], float]

SHORTEST_AGE_S = 1e-3
"""keeps a job that is over in no time from dividing by zero"""
BIAS = 0.01
"""Hops: what the least urgent job keeps, so that it is not left out for good"""


def latency_ratio(job: ViewJob, _: View) -> float:
    """LR: wait_i / age_i (eq. 8)."""
    return job.wait_s / max(job.age_s, SHORTEST_AGE_S)


def finish_time_fairness(job: ViewJob, view: View) -> float:
    """ρ = T_shared / T_isolated, were the job to run on its fair share from now on.

    The fair share is 1/N of every type, N = jobs present, bounded by the job's demand:
    g = clamp(GPUs / N, R_1, R_n). T_isolated = age · R_avg / g, because `age` is the running time on
    R_avg GPUs with types mixed by their share. T_shared = time since submission + what is left of
    T_isolated.
    """
    share = sum(node.gpus for node in view.nodes) / max(view.jobs_present, 1)
    gpus = min(max(share, job.demand[0]), job.demand[-1])
    mean_demand = sum(job.demand) / len(job.demand)
    isolated_s = max(job.age_s * mean_demand / gpus, SHORTEST_AGE_S)
    return (view.at - job.submitted_at + _left(job) * isolated_s) / isolated_s


def least_attained_service(job: ViewJob, _: View) -> float:
    """LAS: the fewer GPU-seconds held, the more urgent."""
    return -job.attained_gpu_s


def shortest_job(job: ViewJob, _: View) -> float:
    """SJF: by the whole expected running time."""
    return -job.age_s


def shortest_remaining(job: ViewJob, _: View) -> float:
    """SRTF: by the expected running time that is left."""
    return -job.age_s * _left(job)


def first_come(job: ViewJob, _: View) -> float:
    """FIFO."""
    return -job.submitted_at


RULES: dict[str, Rule] = {
    "lr": latency_ratio,
    "ftf": finish_time_fairness,
    "las": least_attained_service,
    "sjf": shortest_job,
    "srtf": shortest_remaining,
    "fifo": first_come,
}

POWERS = {"ftf": 2.0}
"""λ is this times the setting; 1 for the rules not named (Hops section 4.4)"""


def ranked(view: View, rule: str) -> list[tuple[ViewJob, float]]:
    """The queue: jobs with their priorities, the most urgent first."""
    urgency = RULES[rule]
    queue = [(job, urgency(job, view)) for job in view.jobs]
    return sorted(queue, key=lambda item: (-item[1], item[0].submitted_at, item[0].job_id))


def power_of(rule: str, setting: float) -> float:
    """λ."""
    return setting * POWERS.get(rule, 1.0)


def weights(priorities: Sequence[float], power: float) -> Floats:
    """(prior_i + bias)^λ; bias = 0 if every priority is positive, else |min prior| + 0.01 (eq. 11)."""
    values = np.array(priorities, dtype=np.float64)
    lowest = float(values.min(initial=np.inf))
    bias = 0.0 if lowest > 0 else abs(lowest) + BIAS
    return (values + bias) ** power


def _left(job: ViewJob) -> float:
    """Share of the job that is still to do."""
    return max(1.0 - job.samples_done / job.samples, 0.0)
