"""Problems cut from a problem: some of its configurations, on some of its GPUs.

A large cluster is planned in parts of neighbouring nodes, every job in the part where the relaxation has most
of it; and a plan is improved by planning a neighbourhood anew, everything else staying where it is.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from services.planner.configurations import Ints
from services.planner.problem import Problem, subset
from services.planner.solver.columns import Columns, Flags

PART = 64
"""nodes"""


class Part(msgspec.Struct, frozen=True):
    problem: Problem
    rows: Ints
    """of each of its configurations, in the whole"""


def part_of(columns: Columns, jobs: Flags, free: Ints) -> Part | None:
    """The configurations of some jobs that fit the free GPUs; None if there is none."""
    whole = columns.problem
    rows = np.flatnonzero((free > 0)[columns.head] & jobs[whole.job]).astype(np.int32)
    return _part(columns, rows[columns.fits(rows, free)], free)


def _part(columns: Columns, rows: Ints, free: Ints) -> Part | None:
    """A program of its own over some configurations: only jobs and nodes that occur are in it."""
    whole = columns.problem
    if not len(rows):
        return None
    start, cells = subset(whole.start, rows)
    present, job = np.unique(whole.job[rows], return_inverse=True)
    nodes, node = np.unique(whole.node[cells], return_inverse=True)
    problem = Problem(
        capacity=free[nodes],
        weight=whole.weight[present],
        job=job.astype(np.int32),
        start=start,
        node=node.astype(np.int32),
        gpus=whole.gpus[cells],
        gain=whole.gain[rows],
    )
    return Part(problem, rows)


def free_beside(problem: Problem, rows: Ints) -> Ints:
    """The GPUs that some configurations leave, by node."""
    free = problem.capacity.copy()
    _, cells = subset(problem.start, rows)
    np.subtract.at(free, problem.node[cells], problem.gpus[cells])
    return free


def divided(columns: Columns, rows: Ints, x: npt.NDArray[np.float64]) -> Iterator[Part]:
    """The parts of a cluster. `rows`, `x`: a relaxation's columns, and how much of each is in use."""
    problem = columns.problem
    part = ((np.cumsum(problem.capacity > 0) - 1).clip(0) // PART).astype(np.int16)
    count = int(part.max()) + 1
    mass = np.zeros((problem.jobs, count))
    np.add.at(mass, (problem.job[rows], part[columns.head[rows]]), x)
    home = np.where(mass.any(axis=1), mass.argmax(axis=1), -1).astype(np.int16)
    at_home = np.flatnonzero(part[columns.head] == home[problem.job]).astype(np.int32)
    of = home[problem.job[at_home]]
    for index in range(count):
        free = np.where(part == index, problem.capacity, 0).astype(np.int32)
        mine = at_home[of == index]
        found = _part(columns, mine[columns.fits(mine, free)], free)
        if found is not None:
            yield found
