"""How soon a batch of jobs can end, forked or not, whatever the rounds: a bound on any schedule. Pure."""

import msgspec
import numpy as np

from services.planner.policies.kit.linear import LinearProgram, Matrix
from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats, Ints


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """m jobs, and n kinds of places for their copies: a node, or all nodes of a type."""

    speed: Floats
    """X (m, n), samples/s of a copy; 0 where none can run, above 0 somewhere for each job"""
    left: Floats
    """samples (m)"""
    gpus: Ints
    """W (m), of a copy"""
    capacity: Ints
    """GPUs (n)"""
    most: Ints
    """f (m), copies of a job at a time"""
    most_on: Ints
    """the same on each kind (m, n)"""


def earliest_end_s(batch: Batch, budget: Budget) -> float | None:
    """M*: no schedule of copies ends all jobs sooner; None: the budget was out.

    Wanted: y (m, n), seconds of copies of each job on each kind, and M:

        minimise M    Σ_i X_ji y_ji = left_j,   Σ_j W_j y_ji ≤ capacity_i M,
                      y_ji ≤ most_on_ji M,   Σ_i y_ji ≤ most_j M

    The program has z_ji = X_ji y_ji / left_j in place of y, and counts time in parts of the longest job.
    """
    job, kind = (where.astype(np.int32) for where in np.nonzero(batch.speed > 0))
    takes_s = batch.left[job] / batch.speed[job, kind]
    if not len(job):
        return 0.0
    unit_s = float(takes_s.max())
    answer = _program(batch, job, kind, takes_s / unit_s).solve_within(budget)
    return answer.objective * unit_s if answer.state == "optimal" else None


def _program(batch: Batch, job: Ints, kind: Ints, takes: Floats) -> LinearProgram:
    """Columns: z by cell (a job and a kind that it runs on), then M."""
    jobs, kinds, cells = len(batch.left), len(batch.capacity), len(job)
    cell = np.arange(cells)
    tight = np.flatnonzero(batch.most_on[job, kind] * batch.gpus[job] < batch.capacity[kind])
    first = jobs + kinds  # rows of single cells, then of all copies of a job
    last = first + len(tight)
    row = [job, jobs + kind, first + np.arange(len(tight)), last + job]
    column = [cell, cell, tight, cell]
    value = [np.ones(cells), takes * batch.gpus[job], takes[tight], takes]
    limits = np.concatenate([batch.capacity, batch.most_on[job, kind][tight], batch.most]).astype(np.float64)
    matrix = Matrix(
        row=np.concatenate([*row, jobs + np.arange(len(limits))]).astype(np.int32),
        column=np.concatenate([*column, np.full(len(limits), cells)]).astype(np.int32),
        value=np.concatenate([*value, -limits]),
    )
    return LinearProgram(
        cost=np.append(np.zeros(cells), 1.0),
        matrix=matrix,
        row_lower=np.concatenate([np.ones(jobs), np.full(len(limits), -np.inf)]),
        row_upper=np.concatenate([np.ones(jobs), np.zeros(len(limits))]),
    )
