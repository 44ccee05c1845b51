"""Problems cut from a problem: some of its configurations, on some of its GPUs.

A plan is completed with what still fits beside it, and improved by planning a neighbourhood anew, everything
else staying where it is.
"""

import msgspec
import numpy as np

from services.planner.solver.own.columns import Columns
from services.planner.solver.problem import Problem, subset
from shared.domain.arrays import Flags, Ints


class Subproblem(msgspec.Struct, frozen=True):
    problem: Problem
    rows: Ints
    """of each of its configurations, in the whole"""


def subproblem_of(columns: Columns, jobs: Flags, free: Ints) -> Subproblem | None:
    """The configurations of some jobs that fit the free GPUs; None if there is none.

    Only jobs and nodes that occur are in it.
    """
    whole = columns.problem
    rows = np.flatnonzero((free > 0)[columns.head] & jobs[whole.job]).astype(np.int32)
    rows = rows[columns.fits(rows, free)]
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
    return Subproblem(problem, rows)


def free_beside(problem: Problem, rows: Ints) -> Ints:
    """The GPUs that some configurations leave, by node."""
    free = problem.capacity.copy()
    _, cells = subset(problem.start, rows)
    np.subtract.at(free, problem.node[cells], problem.gpus[cells])
    return free
