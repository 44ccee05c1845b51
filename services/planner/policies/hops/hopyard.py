"""Hops with another queue: jobs that are short, nearly done or run slowly come earlier than under Hops.

The program and its configurations are those of Hops. A job's priority is

    prior = (wait + head_start + slow · lag) / (age · max(left, left_least))

    lag   seconds that it has lost, beyond its waiting, since its GPUs were slower or fewer than its age
          expects
    left  share of the job that is still to do: a job that is nearly done soon frees its GPUs

`head_start` lets short jobs come first even before any job has waited. With `head_start_s` and `slow` at 0
and `left_least` at 1 the priority is the latency ratio of Hops (eq. 8). In the program a job weighs

    weight = (prior + bias) · (1 + critical · c)

    c      max(0, t_job / t_all − 1/2), at most 4
    t_job  seconds to its end in the fastest of its configurations
    t_all  seconds in which all jobs could be done, with no GPU idle

A job that outlasts all others decides the makespan, and GPUs given to it later cannot make up for that.

A configuration is worth its gain, and something for each of its g_ij GPUs:

    worth_ij = weight_i · G_ij + fill · v · g_ij,   v = Σ_i max_j weight_i · G_ij / GPUs of the cluster

The second term is equal for all plans that use every GPU, so it decides only whether GPUs are left idle.

A job that arrives and finds too few idle GPUs calls for a first plan at once (`moves_for_waiting`); under
Hops it waits for the next round.
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
"""a first plan also when a job arrives; with `moves_for_waiting` only if idle GPUs do not serve it"""
CRITICAL_FROM = 0.5
CRITICAL_AT_MOST = 4.0
"""the limits of c: t_job / t_all above which it is not 0, and its largest value"""

Factor = Annotated[float, Meta(ge=0, le=100)]


class HopyardOptions(ProgramOptions, frozen=True, kw_only=True):
    head_start_s: Annotated[float, Meta(ge=0, le=1e8)] = 1000.0
    """added to what every job has waited"""
    slow: Factor = 0.3
    """how many seconds of waiting a second counts as that a job has lost by slow or few GPUs"""
    left_least: Annotated[float, Meta(ge=1e-6, le=1)] = 0.15
    """the least value of `left`, the share of a job still to do; 1: that share does not count"""
    critical: Factor = 1.0
    """how much the jobs that decide the makespan are preferred; 0: not at all"""
    fill: Factor = 2.0
    """what each GPU in use adds to a configuration's worth, in units of the mean worth of a GPU; 0:
    nothing"""
    moves_for_waiting: bool = True
    """running jobs are moved for a new job as soon as it arrives; else only when a round begins, as in
    Hops"""
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
    """By configuration: g_ij · v in units of its gain; `gpus`: of the cluster."""
    best = np.nan_to_num(wanted.of_each_job(np.fmax, weight.take(wanted.job) * gain))
    taken = np.add.reduceat(wanted.gpus, wanted.start[:-1])
    result: Floats = taken * (best.sum() / gpus) / weight.take(wanted.job)
    return result


def outlasting(outlook: Outlook, wanted: Configurations, throughput: Floats) -> Floats:
    """The factor c by job of the window; 0 where there is no estimate."""
    drain_s = _drain_s(outlook.view)
    if not drain_s:
        return np.zeros(len(outlook.window))
    samples = np.array([left_share(job) * job.samples for job in outlook.window])
    fastest = np.nan_to_num(wanted.of_each_job(np.fmax, throughput))
    ends_s = np.divide(samples, fastest, out=np.zeros(len(samples)), where=fastest > 0)
    result: Floats = np.clip(ends_s / drain_s - CRITICAL_FROM, 0.0, CRITICAL_AT_MOST)
    return result


def _drain_s(view: View) -> float:
    """t_all: seconds in which all jobs of the view would be done, on single GPUs of mean speed, none idle."""
    gpus = sum(node.gpus for node in view.nodes)
    speeds = [(job, fmean(job.single_gpu.values())) for job in view.jobs if job.single_gpu]
    work = fsum(left_share(job) * job.samples / speed for job, speed in speeds)
    return work / gpus if gpus else 0.0
