"""Assigns jobs to machines and to positions in their lists, so that completion times are least. Pure.

Machine i is free in d_i seconds, and job j takes p_ij seconds on it. If j is the k-th from last in its list,
these seconds delay the end of j and of the k − 1 jobs behind it. So this place (i, k) costs

    k · p_ij + d_i                      Σ over jobs = Σ of their completion times, from now

Each job gets one place, and each place one job. The machines of a kind differ only by d_i. So the flow below
has places by kind and k only; each of them has room for one job on each machine of the kind, and takes the
machines in the order in which they are free. This loses nothing: no best assignment skips a position in a
list, or uses a machine where one that is free sooner is unused.

A gang of W GPUs takes W places of one k. If the flow divides them over several k or kinds, the job is put
where most of them are. Each of its places costs k · p_ij / W + d_i / mean W, so with gangs of one size the
program is the same.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from shared.domain.arrays import Floats, Ints
from shared.domain.sums import plain_sum

TICK_S = 1e-3
"""costs are whole numbers of ticks of this length"""
TICKS_MOST = 1e12
"""the largest cost in ticks; ticks are longer where it would be exceeded"""
LONGEST_S = 1e9
"""thirty years; longer times count as this, else ticks would be too coarse for all others"""
LEVELS = 6
"""the largest k at first; it is doubled until no job has the largest, up to the number of jobs"""


class ListPlace(msgspec.Struct, frozen=True):
    kind: int
    level: int
    """k: the k-th from last on a machine"""


class Matching(msgspec.Struct, frozen=True):
    places: tuple[ListPlace | None, ...]
    """by job; None: it can run on no machine"""
    cost_s: float


def matched(seconds: Floats, free_in_s: Sequence[Sequence[float]], widths: Ints | None = None) -> Matching:
    """The best place of each job.

    `seconds` [J, C]: p by job and kind of machine, above 0; inf where the job cannot run. `free_in_s`: d of
    each machine by kind, ascending. `widths` [J]: W of each job, by default 1; each kind on which a job can
    run has as many machines. Of jobs that are alike on a kind, those given first come first in its lists.
    """
    able = np.flatnonzero(np.isfinite(seconds).any(axis=1))
    places: list[ListPlace | None] = [None] * len(seconds)
    if not len(able):
        return Matching(tuple(places), 0.0)
    own = np.where(np.isfinite(seconds[able]), np.minimum(seconds[able], LONGEST_S), np.inf)
    gpus = np.ones(len(able), dtype=np.int32) if widths is None else widths[able]
    program = _Program(own, free_in_s, gpus)
    levels, enough = LEVELS, max(LEVELS, len(able))
    while (units := program.solved(levels)) is None or (levels < enough and units[:, :, -1].any()):
        if levels == enough:
            raise ValueError("a job is wider than the machines of its kind")
        levels = min(2 * levels, enough)
    where = units.reshape(len(able), -1).argmax(axis=1)
    alike: dict[tuple[int, float, int], list[int]] = {}
    for job, place in enumerate(where.tolist()):
        kind = place // levels
        alike.setdefault((kind, float(own[job, kind]), int(gpus[job])), []).append(job)
    for (kind, _, _), jobs in alike.items():
        falling = sorted((int(where[job]) % levels + 1 for job in jobs), reverse=True)
        for job, level in zip(jobs, falling, strict=True):
            places[int(able[job])] = ListPlace(kind, level)
    return Matching(tuple(places), program.cost_s(units))


class _Program:
    def __init__(self, seconds: Floats, free_in_s: Sequence[Sequence[float]], widths: Ints) -> None:
        self._seconds, self._widths = seconds, widths
        self._job, self._kind = np.nonzero(np.isfinite(seconds))
        self._longest_s = float(seconds[self._job, self._kind].max())
        ends = [np.minimum(np.array(own, dtype=np.float64), LONGEST_S) for own in free_in_s]
        self._free = [np.unique(own, return_counts=True) for own in ends]

    def solved(self, levels: int) -> Ints | None:
        """How many of its W places each job has, by kind and k [J, C, K]; None: `levels` are too few."""
        jobs, kinds = self._seconds.shape
        sink = jobs + kinds * levels
        flow, level = SimpleMinCostFlow(), np.arange(levels)
        tick_s = max(TICK_S, levels * self._longest_s / TICKS_MOST)
        job, kind = np.repeat(self._job, levels), np.repeat(self._kind, levels)
        place = kind * levels + np.tile(level, len(self._job))
        each_s = (self._seconds / self._widths[:, None])[job, kind]
        arcs = flow.add_arcs_with_capacity_and_unit_cost(
            job, jobs + place, self._widths[job], _ticks((place % levels + 1) * each_s, tick_s)
        )
        mean = float(self._widths.mean())
        for number, (free_in_s, machines) in enumerate(self._free):
            flow.add_arcs_with_capacity_and_unit_cost(
                jobs + number * levels + np.repeat(level, len(machines)),
                np.full(levels * len(machines), sink),
                np.tile(machines, levels),
                np.tile(_ticks(free_in_s / mean, tick_s), levels),
            )
        flow.set_nodes_supplies(np.arange(jobs), self._widths)
        flow.set_node_supply(sink, -int(self._widths.sum()))
        status = flow.solve()
        if status == flow.INFEASIBLE:
            return None
        if status != flow.OPTIMAL:
            raise RuntimeError(f"the flow of jobs to machines is not solved: {status.name}")
        found = np.zeros((jobs, kinds * levels), dtype=np.int64)
        found[job, place] = flow.flows(arcs)
        return found.reshape(jobs, kinds, levels)

    def cost_s(self, units: Ints) -> float:
        """The cost of these places in seconds; the machines of a kind are taken in order."""
        k = np.arange(1, units.shape[2] + 1)
        finite = np.where(np.isfinite(self._seconds), self._seconds, 0.0)
        own = (units * k * (finite / self._widths[:, None])[:, :, None]).sum()
        ends = 0.0
        for (free_in_s, machines), taken in zip(self._free, units.sum(axis=0), strict=True):
            each = np.repeat(free_in_s, machines)
            ends += plain_sum(float(each[:count].sum()) for count in taken.tolist())
        return float(own + ends / self._widths.mean())


def _ticks(seconds: Floats, tick_s: float) -> Ints:
    return np.rint(seconds / tick_s).astype(np.int64)
