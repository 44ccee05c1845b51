"""Which job runs on which machine, and when in its turn: an assignment of least cost. Pure.

Machine i is free in d_i seconds, job j takes p_ij on it. As the k-th from last there, its time delays its own
end and those of the k − 1 jobs behind it, so that it costs

    k · p_ij + d_i                      Σ over jobs = Σ of their completion times, from now

Each job gets one place (i, k), each place one job. Machines of a kind are alike but for d_i, so the flow
below knows places by kind and k alone, and each of them has the same machines, the soonest free first. No
best assignment leaves out a k that a machine's later ones need, or takes a machine before one that is free
sooner.

A gang of W GPUs takes W places of one k; a flow may divide them, and the job is then where most of them are.
Each of its places costs k · p_ij / W, and d_i in parts of the mean W. So with gangs of one size it is the
same program.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from shared.domain.arrays import Floats, Ints
from shared.domain.sums import plain_sum

TICK_S = 1e-3
"""costs are whole ticks"""
TICKS_MOST = 1e12
"""of any cost; where one is larger, ticks are longer"""
LONGEST_S = 1e9
"""three decades; what takes longer counts as that long, else ticks would be too coarse for the others"""
LEVELS = 6
"""k goes so far at first, then to twice that, until no job has the last; never beyond the number of jobs"""


class ListPlace(msgspec.Struct, frozen=True):
    kind: int
    level: int
    """k: the k-th from last on a machine"""


class Matching(msgspec.Struct, frozen=True):
    places: tuple[ListPlace | None, ...]
    """by job; None: it can run on no machine"""
    cost_s: float


def matched(seconds: Floats, free_in_s: Sequence[Sequence[float]], widths: Ints | None = None) -> Matching:
    """`seconds` [J, C]: of each job on a machine of each kind, above 0; inf where it cannot run.

    `free_in_s`: d of each machine by kind, ascending. `widths` [J]: GPUs of each job, if not one; of a kind
    on which it can run there are as many. Of jobs alike on a kind the first ones come first there.
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
        """Places of each job [J, C, K]; None: so few levels have no room for all."""
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
        """Of whole jobs; machines of a kind are taken in order."""
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
