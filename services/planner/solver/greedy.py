"""A plan without a solver: by weight, each job takes the best of what still fits. Pure.

It is the optimum for λ → ∞, takes milliseconds, and is used whenever a solver has found no plan.
"""

import numpy as np
import numpy.typing as npt

from schemas.plans import Stage
from services.planner.solver.problem import NOTHING, Problem, Solution, best_by_job, subset, worth
from shared.domain.arrays import Ints


def greedy(problem: Problem, chosen: Ints | None = None) -> Solution:
    """The greedy plan: by descending weight, each job gets the configuration of largest gain that fits.

    Of equal weights the earlier job comes first. A job with a configuration in `chosen` gets that one.
    """
    free = problem.capacity.astype(np.int64)
    choice = np.full(problem.jobs, NOTHING, dtype=np.int32)
    if chosen is not None:
        choice[problem.job[chosen]] = chosen
        _, taken = subset(problem.start, chosen)
        np.subtract.at(free, problem.node[taken], problem.gpus[taken])
    edges = np.searchsorted(problem.job, np.arange(problem.jobs + 1)).tolist()
    open_ = choice == NOTHING
    left = int(free.sum())
    for job in [job for job in np.argsort(-problem.weight, kind="stable").tolist() if open_[job]]:
        if left <= 0:
            break
        row = first_fit(problem, free, edges[job], edges[job + 1])
        if row != NOTHING:
            choice[job] = row
            cells = slice(problem.start[row], problem.start[row + 1])
            free[problem.node[cells]] -= problem.gpus[cells]
            left -= int(problem.gpus[cells].sum())
    assert free.min(initial=0) >= 0, "no node gives more GPUs than it has"
    return Solution(
        choice=choice,
        objective=worth(problem, choice),
        bound=float(best_by_job(problem).sum()),
        stage=Stage.GREEDY,
    )


def beginning(problem: Problem) -> Solution:
    """The better of two plans: greedy with all GPUs, and greedy beside the present configurations."""
    alone = greedy(problem)
    if not len(problem.present):
        return alone
    beside = greedy(problem, _jointly_fitting(problem, problem.present))
    return beside if beside.objective > alone.objective else alone


def _jointly_fitting(problem: Problem, rows: Ints) -> Ints:
    """The configurations without those on nodes that all of them together would overfill."""
    start, cells = subset(problem.start, rows)
    node, gpus = problem.node[cells], problem.gpus[cells]
    used = np.bincount(node, gpus, len(problem.capacity))
    over = (used > problem.capacity)[node]
    return rows[~np.logical_or.reduceat(over, start[:-1])]


def first_fit(problem: Problem, free: npt.NDArray[np.int64], begin: int, end: int) -> int:
    """The row of largest gain among those of begin … end − 1 that fit, the first of equals; or NOTHING."""
    if begin == end:
        return NOTHING
    cells = slice(problem.start[begin], problem.start[end])
    short = (problem.gpus[cells] > free[problem.node[cells]]).astype(np.int32)
    misfits = np.add.reduceat(short, problem.start[begin:end] - problem.start[begin])
    value = np.where(misfits == 0, problem.gain[begin:end], -np.inf)
    row = int(value.argmax())
    return begin + row if value[row] > 0 else NOTHING
