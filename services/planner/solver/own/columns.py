"""A problem's configurations as the columns of a linear program: what each uses and is worth. Pure.

In this package a *gang* is the part of a configuration on one node, and its *size* is its GPUs there. φ[node,
size] is the price of a gang of that size on that node. Facets (see `facets`) have prices, too, so φ is not
linear in the size.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from services.planner.solver.problem import Problem, subset
from shared.domain.arrays import Flags, Floats, Ints


class Columns(msgspec.Struct, frozen=True):
    problem: Problem
    value: Floats
    """by configuration: what it adds to the objective"""
    first: Ints
    """by job that has configurations: the first of them"""
    owner: Ints
    """by job that has configurations: the job"""
    head: Ints
    """by configuration: its first node"""
    gang: Ints
    """by configuration: the size of its largest gang"""
    sizes: int
    """number of sizes of a gang, from 0 to the largest node"""
    place: npt.NDArray[np.intp]
    """by gang: the position of its price in φ, row by row"""

    def cells(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Row pointers, nodes and sizes of the gangs of some configurations."""
        start, cells = subset(self.problem.start, rows)
        return start, self.problem.node[cells], self.problem.gpus[cells]

    def fits(self, rows: Ints, free: Ints) -> Flags:
        """By configuration of `rows`: whether it alone fits the free GPUs."""
        start, node, size = self.cells(rows)
        if not len(rows):
            return np.empty(0, dtype=bool)
        fits: Flags = np.logical_and.reduceat(size <= free[node], start[:-1])
        return fits

    def net(self, price: Floats) -> Floats:
        """By configuration: its value less the prices of its gangs."""
        problem = self.problem
        result: Floats = self.value - np.add.reduceat(price.ravel().take(self.place), problem.start[:-1])
        return result

    def best(self, net: Floats) -> Floats:
        """By job: the largest net value of its configurations, at least 0."""
        best = np.zeros(self.problem.jobs)
        best[self.owner] = np.maximum(np.maximum.reduceat(net, self.first), 0.0)
        return best

    def most_valuable(self) -> Ints:
        """Each job's most valuable configuration, the first of equals."""
        best = self.best(self.value)
        rows = np.flatnonzero(self.value >= best[self.problem.job])
        _, first = np.unique(self.problem.job[rows], return_index=True)
        return rows[first].astype(np.int32)


def in_units(problem: Problem) -> Problem:
    """The same program with GPUs counted in units of the greatest common divisor of all sizes of gangs.

    GPUs of a node beyond whole units are of no use. Fewer sizes have fewer facets; if all gangs are whole
    nodes, there are none.
    """
    sizes = np.flatnonzero(np.bincount(problem.gpus))
    unit = int(np.gcd.reduce(sizes))
    if unit == 1:
        return problem
    return msgspec.structs.replace(problem, capacity=problem.capacity // unit, gpus=problem.gpus // unit)


def columns_of(problem: Problem) -> Columns:
    """The columns of a problem with at least one configuration."""
    first = np.flatnonzero(np.diff(problem.job, prepend=-1)).astype(np.int32)
    sizes = int(problem.capacity.max()) + 1
    return Columns(
        problem=problem,
        value=problem.value,
        first=first,
        owner=problem.job[first],
        head=problem.node[problem.start[:-1]],
        gang=np.maximum.reduceat(problem.gpus, problem.start[:-1]),
        sizes=sizes,
        place=problem.node.astype(np.intp) * sizes + problem.gpus,
    )


def sampled(columns: Columns, each: int) -> Ints:
    """About `each` configurations of each job, at equal steps, beginning with a different one for each job.

    Neighbouring configurations are alike, so the sample has some of every type, size and node. If each job
    began with its best configurations, all would be on the same nodes, and prices would say nothing of the
    others.
    """
    problem = columns.problem
    count = np.diff(np.append(columns.first, len(problem)))
    step = np.maximum(count // each, 1)
    place = np.arange(len(problem)) - np.repeat(columns.first, count)
    offset = np.arange(len(count)) * 7 % step
    return np.flatnonzero(place % np.repeat(step, count) == np.repeat(offset, count)).astype(np.int32)


def least(key: Floats, count: int) -> Ints:
    """The positions of the `count` smallest keys, in ascending order."""
    found = np.argpartition(key, min(count, len(key)) - 1)[:count]
    return np.sort(found).astype(np.int32)


def largest(key: Floats, job: Ints, each: int) -> Ints:
    """The positions of each job's `each` largest keys."""
    order = np.lexsort((-key, job))
    sorted_job = job[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_job, sorted_job)
    return order[rank < each].astype(np.int32)
