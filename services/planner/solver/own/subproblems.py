"""Subproblems: some configurations of a problem, on some of its GPUs.

A subproblem is solved to complete a plan on the GPUs that it leaves free, or to plan a neighbourhood again
while all other jobs keep their configurations.
"""

import msgspec
import numpy as np

from services.planner.solver.own.columns import Columns
from services.planner.solver.problem import Problem, subset
from shared.domain.arrays import Flags, Ints


class Subproblem(msgspec.Struct, frozen=True):
    """A problem, and where its configurations are in the whole one."""

    problem: Problem
    rows: Ints
    """by configuration: its row in the whole problem"""


def subproblem_of(columns: Columns, jobs: Flags, free: Ints) -> Subproblem | None:
    """The subproblem of some jobs on the free GPUs; None: none of their configurations fits on these.

    It has only jobs and nodes that occur in its configurations.
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
    """By node: the GPUs that the configurations `rows` leave free."""
    free = problem.capacity.copy()
    _, cells = subset(problem.start, rows)
    np.subtract.at(free, problem.node[cells], problem.gpus[cells])
    return free
