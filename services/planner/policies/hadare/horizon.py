"""A bound on how soon any schedule can end a batch of jobs, forked or not. Pure."""

import msgspec
import numpy as np

from services.planner.policies.kit.linear import LinearProgram, Matrix
from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats, Ints

CELLS = 500
"""pairs of a job and a kind of place, up to which the program has all constraints"""


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
    """M*: no schedule of copies ends all jobs sooner; None: the budget was spent.

    M* is the optimum of a linear program in y (m, n), seconds of copies of each job on each kind, and M:

        minimise M    Σ_i X_ji y_ji = left_j,   Σ_j W_j y_ji ≤ capacity_i M,
                      y_ji ≤ most_on_ji M,   Σ_i y_ji ≤ most_j M

    With more than `CELLS` pairs the last two constraints are left out, which is faster and makes the bound
    weaker; the time that each job needs alone is then a bound besides. The program has z_ji = X_ji y_ji /
    left_j in place of y, and measures time in units of the longest y.
    """
    job, kind = (where.astype(np.int32) for where in np.nonzero(batch.speed > 0))
    takes_s = batch.left[job] / batch.speed[job, kind]
    if not len(job):
        return 0.0
    unit_s = float(takes_s.max())
    whole = len(job) <= CELLS
    answer = _program(batch, job, kind, takes_s / unit_s, whole=whole).solve_within(budget)
    if answer.state != "optimal":
        return None
    return max(answer.objective * unit_s, 0.0 if whole else _longest_alone_s(batch))


def _longest_alone_s(batch: Batch) -> float:
    """Seconds of the longest job if each is alone, with all the copies that it may have."""
    order = np.argsort(-batch.speed, axis=1, kind="stable")
    speed = np.take_along_axis(batch.speed, order, axis=1)
    before = np.cumsum(np.take_along_axis(batch.most_on, order, axis=1), axis=1)
    upto = np.minimum(before, batch.most[:, None])
    copies = np.diff(upto, axis=1, prepend=0)
    return float((batch.left / (speed * copies).sum(axis=1)).max())


def _program(batch: Batch, job: Ints, kind: Ints, takes: Floats, *, whole: bool) -> LinearProgram:
    """Columns: z by cell (a job and a kind that it runs on), then M."""
    jobs, kinds, cells = len(batch.left), len(batch.capacity), len(job)
    cell = np.arange(cells)
    tight = np.flatnonzero(batch.most_on[job, kind] * batch.gpus[job] < batch.capacity[kind])
    first = jobs + kinds  # rows of single cells, then of all copies of a job
    last = first + len(tight)
    row: list[Ints] = [job, (jobs + kind).astype(np.int32)]
    column = [cell, cell]
    value = [np.ones(cells), takes * batch.gpus[job]]
    limits = batch.capacity.astype(np.float64)
    if whole:
        row += [first + np.arange(len(tight), dtype=np.int32), last + job]
        column += [tight, cell]
        value += [takes[tight], takes]
        limits = np.concatenate([limits, batch.most_on[job, kind][tight], batch.most])
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
