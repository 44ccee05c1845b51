"""An upper bound on the worth of any plan: the fractional knapsack over the free GPUs. Pure.

A job's payoff is at most V at its best pace, without a restart, less W times the least price of a free GPU
that it can use, since prices only rise as GPUs are taken. It is 0 where fewer than W such GPUs are free. For
the bound all free GPUs are one knapsack, and a job may be taken in part.
"""

from collections.abc import Sequence

import numpy as np

from services.planner.policies.hadar.jobs import HadarJob, value
from services.planner.policies.hadar.offers import Finder
from services.planner.policies.hadar.room import FreeGpus
from shared.domain.arrays import Floats


class Knapsack:
    """The bound for the jobs that are left in a queue, as they leave it one by one."""

    def __init__(self, queue: Sequence[HadarJob], room: FreeGpus, finder: Finder) -> None:
        """`room`: the free GPUs before the first job takes any."""
        least, free = _least_prices(room, finder.price)
        most = np.array([_most(job, least, free, finder.terms.delay_s) for job in queue], dtype=np.float64)
        gpus = np.array([job.gpus for job in queue], dtype=np.float64)
        order = np.argsort(-most / np.maximum(gpus, 1.0), kind="stable")
        self._most, self._gpus = most[order], gpus[order]
        self._left = np.ones(len(queue), dtype=np.bool_)
        self._place = np.empty(len(queue), dtype=np.int64)
        self._place[order] = np.arange(len(queue))
        self._counts = np.arange(room.total + 1, dtype=np.float64)

    def drop(self, turn: int) -> None:
        """Take the job of this turn out of the queue."""
        self._left[self._place[turn]] = False

    def bounds(self) -> Floats:
        """The bound by number of free GPUs, from 0."""
        gpus = np.concatenate(([0.0], np.cumsum(self._gpus[self._left])))
        most = np.concatenate(([0.0], np.cumsum(self._most[self._left])))
        result: Floats = np.interp(self._counts, gpus, most)
        return result


def _least_prices(room: FreeGpus, price: Sequence[float]) -> tuple[list[float], list[int]]:
    """By type: the least price of a free GPU (infinite if none is free), and how many are free."""
    levels = room.levels
    least, free = [np.inf] * len(levels.types), [0] * len(levels.types)
    for level, nodes in enumerate(room.by_level):
        kind, gpus = levels.kind_of[level], levels.free_of[level]
        if nodes and gpus:
            least[kind] = min(least[kind], price[level])
            free[kind] += len(nodes) * gpus
    return least, free


def _most(job: HadarJob, least: Sequence[float], free: Sequence[int], delay_s: float) -> float:
    """The largest payoff that the job can have."""
    usable = [kind for kind, speed in enumerate(job.speeds) if speed > 0]
    if sum(free[kind] for kind in usable) < job.gpus:
        return 0.0
    soonest_s = job.elapsed_s + job.left / (job.gpus * max(job.known_paces))
    cost = job.gpus * min(least[kind] for kind in usable)
    return max(value(job.worth, soonest_s, delay_s) - cost, 0.0)
