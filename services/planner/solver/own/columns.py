"""A problem's configurations as the columns of a linear program: what each uses, what each is worth. Pure.

Every configuration puts one *gang* of some size on each of its nodes. Prices stand in a table φ[node, size]:
what a gang of that size costs there. Facets (see `facets`) have a price, so φ is not linear in the size.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from services.planner.solver.problem import Problem, subset
from shared.domain.arrays import Flags, Floats, Ints


class Columns(msgspec.Struct, frozen=True):
    problem: Problem
    value: Floats
    """by configuration"""
    first: Ints
    """of each job that has any: its first configuration"""
    owner: Ints
    """of each job that has any: the job"""
    head: Ints
    """by configuration: its first node"""
    gang: Ints
    """by configuration: the size of its largest gang"""
    sizes: int
    """of a gang, 0 included"""
    place: npt.NDArray[np.intp]
    """by gang: where its price stands in φ, row after row"""

    def cells(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Row pointers, nodes and sizes of the gangs of some configurations."""
        start, cells = subset(self.problem.start, rows)
        return start, self.problem.node[cells], self.problem.gpus[cells]

    def fits(self, rows: Ints, free: Ints) -> Flags:
        """Whether each of some configurations fits the free GPUs, alone."""
        start, node, size = self.cells(rows)
        if not len(rows):
            return np.empty(0, dtype=bool)
        fits: Flags = np.logical_and.reduceat(size <= free[node], start[:-1])
        return fits

    def net(self, price: Floats) -> Floats:
        """What each configuration is worth beyond the price of its gangs."""
        problem = self.problem
        result: Floats = self.value - np.add.reduceat(price.ravel().take(self.place), problem.start[:-1])
        return result

    def best(self, net: Floats) -> Floats:
        """By job: the largest of its configurations, at least 0."""
        best = np.zeros(self.problem.jobs)
        best[self.owner] = np.maximum(np.maximum.reduceat(net, self.first), 0.0)
        return best

    def dearest(self) -> Ints:
        """Each job's most valuable configuration, the first of equals."""
        best = self.best(self.value)
        rows = np.flatnonzero(self.value >= best[self.problem.job])
        _, first = np.unique(self.problem.job[rows], return_index=True)
        return rows[first].astype(np.int32)


def in_units(problem: Problem) -> Problem:
    """The same program where GPUs are counted by the number that divides the size of every gang.

    What a node has beyond that serves nobody. Fewer sizes have fewer facets: of whole nodes, none.
    """
    sizes = np.flatnonzero(np.bincount(problem.gpus))
    unit = int(np.gcd.reduce(sizes))
    if unit == 1:
        return problem
    return msgspec.structs.replace(problem, capacity=problem.capacity // unit, gpus=problem.gpus // unit)


def columns_of(problem: Problem) -> Columns:
    """Of a problem with at least one configuration."""
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
    """About `each` configurations a job, taken at equal steps, every job from another one on.

    Neighbours are alike, so this has something of every type, size and node; without it all jobs would
    begin at the same best nodes, and prices would know nothing of the rest.
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
