"""Hops with a queue of its own: who would lose most by waiting comes first, and not who has waited longest.

The program and its configurations are those of Hops. A job's priority is

    prior = (wait + head_start + slow · lag) / (age · max(left, left_least))

    lag   s by which it is behind the pace of its age, beyond its waiting: its GPUs were slow or few
    left  share of the job that is still to do: one that is nearly through is soon out of the way

`head_start` lets short jobs come first even before anybody has waited. With `head_start_s` and `slow` at 0
and `left_least` at 1 it is the latency ratio of Hops (eq. 8). In the program a job weighs

    weight = (prior + bias) · (1 + critical · c)

    c     max(0, s to its end in the best of its places / s in which all jobs could be through − 1/2),
          at most 4: a job that outlasts all others decides the makespan, and no GPU given later makes up
          for it

Beside its gain a place counts for every GPU that it takes:

    worth_ij = weight_i · G_ij + fill · v · g_ij,   v = Σ_i max_j weight_i · G_ij / GPUs of the cluster

With all GPUs in use that is the same for every plan, so it decides between plans that leave GPUs idle and
plans that do not. And a job that comes and is not served by idle GPUs calls for a whole plan at once,
and not for the next round (`moves_for_waiting`).
"""

from collections.abc import Mapping
from math import fsum
from statistics import fmean
from typing import Annotated

import numpy as np
from msgspec import Meta

from schemas.plans import PlanKind
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import ROUNDS, Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.hops.policy import GAIN, Outlook, ProgramOptions, ProgramPolicy, gains
from services.planner.policies.kit.priority import SHORTEST_AGE_S, left_share
from shared.domain.arrays import Floats

AT_ARRIVALS: Mapping[Trigger, PlanKind] = {**ROUNDS, Trigger.ARRIVAL: PlanKind.FIRST}
"""a whole plan also where a job comes that idle GPUs do not serve"""
CRITICAL_FROM = 0.5
CRITICAL_AT_MOST = 4.0

Factor = Annotated[float, Meta(ge=0, le=100)]


class HopyardOptions(ProgramOptions, frozen=True, kw_only=True):
    head_start_s: Annotated[float, Meta(ge=0, le=1e8)] = 1000.0
    """added to what every job has waited"""
    slow: Factor = 0.3
    """what a second of slow running counts, in seconds of waiting"""
    left_least: Annotated[float, Meta(gt=0, le=1)] = 0.15
    """the share of a job that is left is taken for no less; 1: what is left does not count"""
    critical: Factor = 1.0
    """how much the jobs that decide the makespan are preferred; 0: not at all"""
    fill: Factor = 2.0
    """what a GPU in use counts, in shares of what GPUs are worth; 0: nothing"""
    moves_for_waiting: bool = True
    """running jobs are moved for one that comes at once; else when a round begins, as in Hops"""
    window_factor: Annotated[float, Meta(gt=0, le=100)] = 2.0
    """service window, in multiples of the GPUs the plan may use"""


class Hopyard(ProgramPolicy):
    Options = HopyardOptions
    priority_in_words = "waiting and lagging time over what is left of the expected running time"
    gain_in_words = f"{GAIN}, and what its GPUs count"

    def __init__(self, options: HopyardOptions) -> None:
        super().__init__(options)
        self._own = options
        self.moves_for_waiting = options.moves_for_waiting
        self.calls = AT_ARRIVALS if options.moves_for_waiting else ROUNDS

    def _ranks(self, view: View) -> list[tuple[ViewJob, float]]:
        queue = [(job, self._prior(job, view)) for job in view.jobs]
        return sorted(queue, key=lambda item: (-item[1], item[0].submitted_at, item[0].job_id))

    def _prior(self, job: ViewJob, view: View) -> float:
        own, age_s, left = self._own, max(job.age_s, SHORTEST_AGE_S), left_share(job)
        lag_s = max(view.at - job.submitted_at - job.wait_s - (1.0 - left) * age_s, 0.0)
        delay_s = job.wait_s + own.head_start_s + own.slow * lag_s
        return delay_s / (age_s * max(left, own.left_least))

    def _weights(self, outlook: Outlook, wanted: Configurations, throughput: Floats) -> Floats:
        weight = super()._weights(outlook, wanted, throughput)
        if self._own.critical:
            weight *= 1.0 + self._own.critical * outlasting(outlook, wanted, throughput)
        return weight

    def _gains(self, view: View, wanted: Configurations, throughput: Floats, weight: Floats) -> Floats:
        gain = gains(wanted, throughput)
        if self._own.fill and len(wanted):
            gpus = sum(node.gpus for node in view.nodes)
            gain += self._own.fill * counted(wanted, weight, gain, gpus)
        return gain


def counted(wanted: Configurations, weight: Floats, gain: Floats, gpus: int) -> Floats:
    """By configuration: what the GPUs that it takes count, as gain; v is what each of `gpus` is worth."""
    best = np.nan_to_num(wanted.of_each_job(np.fmax, weight[wanted.job] * gain))
    taken = np.add.reduceat(wanted.gpus, wanted.start[:-1])
    result: Floats = taken * (best.sum() / gpus) / weight[wanted.job]
    return result


def outlasting(outlook: Outlook, wanted: Configurations, throughput: Floats) -> Floats:
    """c, by job of the window; 0 where there is no estimate."""
    drain_s = _drain_s(outlook.view)
    if not drain_s:
        return np.zeros(len(outlook.window))
    samples = np.array([left_share(job) * job.samples for job in outlook.window])
    fastest = np.nan_to_num(wanted.of_each_job(np.fmax, throughput))
    ends_s = np.divide(samples, fastest, out=np.zeros(len(samples)), where=fastest > 0)
    result: Floats = np.clip(ends_s / drain_s - CRITICAL_FROM, 0.0, CRITICAL_AT_MOST)
    return result


def _drain_s(view: View) -> float:
    """In which all jobs shown would be through, each on single GPUs of mean speed and none idle."""
    gpus = sum(node.gpus for node in view.nodes)
    speeds = [(job, fmean(job.single_gpu.values())) for job in view.jobs if job.single_gpu]
    work = fsum(left_share(job) * job.samples / speed for job, speed in speeds)
    return work / gpus if gpus else 0.0
