"""Dual prices of GPUs, eq. 5 to 7, rebuilt from the paper's text (our copy lacks its formulas). Pure.

    k(γ)  = low · (high / low)^(γ / c)        γ of the c GPUs of a node are in use              (5)
    high  = max_j V_j(elapsed + L · t_min)    over the jobs that can use the type               (6)
    low   = 1 / (4η) · min_j V_j(elapsed + L · T) / (t_max · W)    over the same                (7)
    η     = max_j T · C / (t_max · W)         over all jobs
    T     = ⌈Σ_j t_max · W / C + max_j t_max⌉

t_min and t_max are the slots that the job still needs at its fastest and its slowest pace; C is the number of
all GPUs, L the seconds of a slot. Times are whole slots, at least one: with fractions, a job that needs all
GPUs for an eighth of a slot could never pay for them, even in an empty cluster. With whole slots it can,
since low ≤ V_j(elapsed + L · T) / (4 T C).
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from services.planner.policies.hadar.jobs import HadarJob, slots, value
from shared.domain.sums import plain_sum

PriceTop = Literal["job", "gang"]
"""what V_j in (6) is: `job`, the job's whole value; `gang`, its value divided by W"""


class DualPrices(msgspec.Struct, frozen=True):
    """The prices of one GPU, by type."""

    low: tuple[float, ...]
    """price on a node without jobs"""
    high: tuple[float, ...]
    """price on a node whose GPUs are all in use"""
    horizon: int
    """T, in slots"""

    def at(self, kind: int, given: int, gpus: int) -> float:
        """k(γ): with `given` of a node's `gpus` in use."""
        low, high = self.low[kind], self.high[kind]
        return low * (high / low) ** (given / gpus) if low > 0 else 0.0


def dual_prices(
    jobs: Sequence[HadarJob], gpus: Sequence[int], *, round_s: float, delay_s: float, top: PriceTop = "job"
) -> DualPrices:
    """The prices for these jobs, each of which has a known pace. `gpus`: of the cluster, by type."""
    total, kinds = sum(gpus), range(len(gpus))
    if not jobs or not total:
        return DualPrices((0.0,) * len(gpus), (0.0,) * len(gpus), 1)
    fewest, most = _slots_left(jobs, round_s)
    horizon = math.ceil(
        plain_sum(t_max * job.gpus for t_max, job in zip(most, jobs, strict=True)) / total + max(most)
    )
    scale = max(horizon * total / (t_max * job.gpus) for t_max, job in zip(most, jobs, strict=True))
    highest = [_value(job, t_min * round_s, delay_s, top) for t_min, job in zip(fewest, jobs, strict=True)]
    lowest = [
        value(job.worth, job.elapsed_s + horizon * round_s, delay_s) / (t_max * job.gpus)
        for t_max, job in zip(most, jobs, strict=True)
    ]
    able = [[index for index, job in enumerate(jobs) if job.speeds[kind] > 0] for kind in kinds]
    return DualPrices(
        low=tuple(min((lowest[index] for index in able[kind]), default=0.0) / (4 * scale) for kind in kinds),
        high=tuple(max((highest[index] for index in able[kind]), default=0.0) for kind in kinds),
        horizon=horizon,
    )


def _slots_left(jobs: Sequence[HadarJob], round_s: float) -> tuple[list[int], list[int]]:
    """t_min and t_max of each job."""
    paces = [job.known_paces for job in jobs]
    fewest = [slots(job.left / (job.gpus * max(own)), round_s) for job, own in zip(jobs, paces, strict=True)]
    most = [slots(job.left / (job.gpus * min(own)), round_s) for job, own in zip(jobs, paces, strict=True)]
    return fewest, most


def _value(job: HadarJob, seconds: float, delay_s: float, top: PriceTop) -> float:
    whole = value(job.worth, job.elapsed_s + seconds, delay_s)
    return whole / job.gpus if top == "gang" else whole
