"""Water filling: shares of time that maximise the lowest level of any job, then the second lowest, and so on.

Data, m jobs and n GPU types: `speed` T (m, n), throughput of the whole gang, 0 where it cannot run;
`gang` s (m), GPUs of a job; `gpus` N (n). The result is X (m, n), shares of time, with

    X ≥ 0,   Σ_j X_ij ≤ 1,   Σ_i s_i X_ij ≤ N_j                                (Gavel section 3.1)

A job's progress is x_i = Σ_j T_ij X_ij / max_j T_ij: the share of time that it needs on its best type for
the same work. What it is worth to the job is its level

    level_i(x) = due_i / (elapsed_i + work_i / x)

where due, elapsed and work are the columns of the job's `Curve`. Depending on them, the level is a normalised
throughput (elapsed 0), the inverse of a makespan, or the inverse of the finish-time fairness ρ.

Each level L is found from above. The linear program "least shortage z with x_i + z ≥ x_i(L)" either has z =
0, so L is reached; or its dual prices y, one for each job, prove Σ y_i x_i ≤ D for every feasible X, and the
next L to try is the highest at which the demands x_i(L) keep this. Only bounds of rows change, so the simplex
goes on from its last basis, and a few solves are enough.

The prices also tell which jobs cannot rise further: a job with y_i > 0 is settled at this level, and a type
with a price above 0 is closed to all jobs that are not settled. So there are at most n + 1 levels, however
many jobs: one for each type that becomes scarce, and one at which all other jobs have all their time on their
best type.
"""

import msgspec
import numpy as np

from services.planner.policies.kit.linear import LinearProgram, LinearSolution, Matrix
from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats, Ints

ENOUGH = 2e-9
"""a shortage z up to this counts as 0"""
PRICED = 1e-9
"""a price above this counts as above 0; that of a job is taken relative to the highest"""
ROUNDS_AT_MOST = 200
"""solves for one level; a handful is common"""
HALVINGS = 120
"""halvings of the interval that holds a level: more than a double can represent"""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """What the level of each job depends on; see the module."""

    due: Floats
    elapsed: Floats
    work: Floats

    def level(self, progress: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return self.due / (self.elapsed + self.work / progress)

    def progress(self, level: float) -> Floats:
        """The progress x_i that each job needs for the level; infinite where no progress is enough."""
        room = self.due - self.elapsed * level
        with np.errstate(divide="ignore"):
            return np.where(room > 0, self.work * level / np.maximum(room, 0.0), np.inf)


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    share: Floats | None
    """X (m, n); None: the budget was spent before the first level was found"""
    bound: float
    """the lowest level cannot be higher"""
    levels: int
    """how many levels were found, the lowest first"""
    complete: bool
    """false: the budget was spent before all levels were found"""


def filled(
    curve: Curve, *, speed: Floats, gang: Floats, gpus: Floats, budget: Budget, levels: int | None = None
) -> Filled:
    """The filled shares. Every job must be able to run somewhere. `levels`: how many to find; None: all."""
    filling = _Filling(curve, speed, gang, gpus, budget)
    complete = True
    while complete and filling.rising.any() and (levels is None or filling.levels < levels):
        complete = filling.raise_level()
    return Filled(share=filling.share, bound=filling.bound, levels=filling.levels, complete=complete)


class _Filling:
    def __init__(self, curve: Curve, speed: Floats, gang: Floats, gpus: Floats, budget: Budget) -> None:
        self.share: Floats | None = None
        self.bound = float(curve.level(np.ones(len(speed))).min())
        self.levels = 0
        self.rising = np.ones(len(speed), dtype=bool)
        self._curve, self._budget = curve, budget
        self._shape = speed.shape
        self._job, self._type = np.nonzero(speed > 0)
        self._relative = speed / speed.max(axis=1, keepdims=True)
        self._open = np.ones(len(gpus), dtype=bool)
        self._settled = np.zeros(len(speed))
        self._room = np.concatenate([np.ones(len(speed)), gpus])
        """upper bounds of the rows after those of the demands: the time of each job, the GPUs of each type"""
        self._program = self._build(gang)

    def raise_level(self) -> bool:
        """Find one more level; False if the budget is spent before it is found."""
        cap = np.where(self._open, self._relative, 0.0).max(axis=1)
        level = float(self._curve.level(cap)[self.rising].max())
        last: LinearSolution | None = None
        for _ in range(ROUNDS_AT_MOST):
            answer = self._shortage(self._demand(level, cap))
            if answer.state != "optimal":
                return False
            lower = level if answer.objective <= ENOUGH else self._affordable(answer, level, cap)
            if lower >= level:
                self._keep(answer)
                self._settle(level, cap, last)
                return True
            level, last = lower, answer
            if not self.levels:
                self.bound = min(self.bound, level)
        return False

    def _demand(self, level: float, cap: Floats) -> Floats:
        return np.where(self.rising, np.minimum(self._curve.progress(level), cap), self._settled)

    def _shortage(self, demand: Floats) -> LinearSolution:
        rows = np.arange(len(demand), dtype=np.int32)
        self._program.bound_rows(rows, demand, np.full(len(demand), np.inf))
        return self._program.solve_within(self._budget)

    def _affordable(self, answer: LinearSolution, level: float, cap: Floats) -> float:
        """The highest level below this one that the answer's prices do not rule out."""
        jobs = self._shape[0]
        price = np.maximum(answer.dual[:jobs], 0.0)
        most = float(-answer.dual[jobs:] @ self._room)
        low, high = 0.0, level
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            fits = price @ self._demand(middle, cap) <= most
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _keep(self, answer: LinearSolution) -> None:
        self.levels += 1
        share = np.zeros(self._shape)
        share[self._job, self._type] = np.clip(answer.x[:-1], 0.0, 1.0)
        self.share = share

    def _settle(self, level: float, cap: Floats, last: LinearSolution | None) -> None:
        """Settle the jobs that cannot rise above this level, and close scarce types to the others."""
        demand = self._demand(level, cap)
        at_cap = demand >= cap * (1 - ENOUGH)
        priced = np.zeros_like(at_cap)
        if last is not None:
            jobs = self._shape[0]
            price = last.dual[:jobs]
            priced = price > PRICED * max(price.max(), PRICED)
            self._open &= -last.dual[2 * jobs :] <= PRICED
        done = self.rising & (at_cap | priced)
        if not done.any():  # rounding hid which jobs cannot rise: all are settled
            done = self.rising
        self._settled = np.where(done, demand, self._settled)
        self.rising = self.rising & ~done
        self._close()

    def _close(self) -> None:
        shut = self.rising[self._job] & ~self._open[self._type]
        columns: Ints = np.flatnonzero(shut).astype(np.int32)
        self._program.drop_columns(columns)

    def _build(self, gang: Floats) -> LinearProgram:
        """Columns: X where there is a speed, row by row, then z. Rows: demand, time, GPUs."""
        (jobs, types), cells = self._shape, len(self._job)
        column = np.arange(cells)
        row = np.concatenate([self._job, np.arange(jobs), jobs + self._job, 2 * jobs + self._type])
        matrix = Matrix(
            row=row.astype(np.int32),
            column=np.concatenate([column, np.full(jobs, cells), column, column]).astype(np.int32),
            value=np.concatenate(
                [self._relative[self._job, self._type], np.ones(jobs), np.ones(cells), gang[self._job]]
            ),
        )
        cost = np.zeros(cells + 1)
        cost[-1] = 1.0
        return LinearProgram(
            cost=cost,
            matrix=matrix,
            row_lower=np.concatenate([np.zeros(jobs), np.full(jobs + types, -np.inf)]),
            row_upper=np.concatenate([np.full(jobs, np.inf), self._room]),
        )
