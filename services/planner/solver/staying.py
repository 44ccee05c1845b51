"""Changes a plan so that it moves fewer jobs and stays good enough. Pure.

A plan within the tolerated gap may become worth a little less. One after the other, jobs that the plan moves
are put back to their present configurations. Jobs that are then in the way, and would move anyway, get their
best configurations that are still free. Servers of a type are nearly alike, so most such exchanges cost
almost nothing: the solver had no reason to prefer one server to another.

The plan stays worth at least `least`, and no exchange moves a job that stayed before it.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from services.planner.solver.budget import Budget
from services.planner.solver.greedy import first_fit
from services.planner.solver.problem import NOTHING, Problem
from shared.domain.arrays import Ints
from shared.domain.sums import plain_sum

SWEEPS = 3
"""passes over all jobs that move, at most"""
IN_THE_WAY = 4
"""jobs that may give way to one job, at most"""
FIT_S = 2e-8
"""modelled seconds of checking whether a configuration fits"""

_Free = npt.NDArray[np.int64]
"""GPUs by node"""


def stayed(problem: Problem, choice: Ints, least: float, budget: Budget) -> Ints:
    """The choice with jobs put back, worth `least` or more; exchanges end when the budget is spent."""
    if not len(problem.present):
        return choice
    plan = _Plan(problem, choice, budget)
    for _ in range(SWEEPS):
        movers = plan.movers()
        spare = plan.worth - least
        if not movers or spare < 0:
            break
        # First come exchanges that cost no more than an equal share of what the plan may lose, then any that
        # it can afford.
        back = plain_sum(plan.put_back(job, spare / len(movers)) for job in movers)
        back += plain_sum(plan.put_back(job, plan.worth - least) for job in plan.movers())
        if not back:
            break
    return plan.choice


class _Exchange(msgspec.Struct, frozen=True):
    rows: dict[int, int]
    """by job: its new configuration"""
    cost: float
    """what the plan loses by it"""


class _Plan:
    def __init__(self, problem: Problem, choice: Ints, budget: Budget) -> None:
        self._problem = problem
        self._budget = budget
        self._value = problem.value
        self._home: dict[int, int] = dict(
            zip(problem.job[problem.present].tolist(), problem.present.tolist(), strict=True)
        )
        self._edges = np.searchsorted(problem.job, np.arange(problem.jobs + 1)).tolist()
        self._free = problem.capacity.astype(np.int64)
        self._on: list[set[int]] = [set() for _ in problem.capacity]
        """jobs, by node"""
        self.choice = np.full_like(choice, NOTHING)
        self.worth = 0.0
        for job in np.flatnonzero(choice != NOTHING).tolist():
            self._give(job, int(choice[job]))

    def movers(self) -> list[int]:
        """Jobs whose present configuration is not the chosen one, those with most GPUs first."""
        moving = [job for job, row in self._home.items() if self.choice[job] != row]
        return sorted(moving, key=lambda job: (-self._gpus(self._home[job]), job))

    def put_back(self, job: int, most: float) -> bool:
        """Put a job back if that costs no more than `most`; returns whether it was put back."""
        if self.choice[job] == self._home[job] or self._budget.left_s <= 0:
            return False
        exchange = self._exchange(job)
        if exchange is None or exchange.cost > most:
            return False
        for other in exchange.rows:
            self._take(other)
        for other, row in exchange.rows.items():
            self._give(other, row)
        return True

    def _exchange(self, job: int) -> _Exchange | None:
        """The exchange that puts a job back; None: there is none."""
        free, home = self._free.copy(), self._home[job]
        self._shift(free, int(self.choice[job]), 1)
        self._shift(free, home, -1)
        giving_way: list[int] = []
        while (free < 0).any():
            other = self._in_the_way(job, int(free.argmin()), int(-free.min()), giving_way)
            if other is None or len(giving_way) == IN_THE_WAY:
                return None
            self._shift(free, int(self.choice[other]), 1)
            giving_way.append(other)
        rows = {job: home}
        for other in sorted(giving_way, key=lambda one: (-self._gpus(int(self.choice[one])), one)):
            row = self._best(other, free)
            if row == NOTHING:
                return None
            self._shift(free, row, -1)
            rows[other] = row
        cost = plain_sum([self._worth_of(one) - float(self._value[row]) for one, row in rows.items()])
        return _Exchange(rows, cost)

    def _in_the_way(self, job: int, node: int, lacking: int, others: list[int]) -> int | None:
        """A job on the node that moves anyway: the smallest that frees `lacking` GPUs, else the largest."""
        found = [
            (self._held(one, node), one)
            for one in self._on[node]
            if one != job and one not in others and self.choice[one] != self._home.get(one)
        ]
        enough = [one for one in found if one[0] >= lacking]
        chosen = min(enough) if enough else max(found, default=None)
        return None if chosen is None else chosen[1]

    def _best(self, job: int, free: _Free) -> int:
        """The job's present configuration if it is free, else its most valuable free one, or NOTHING."""
        home = self._home.get(job)
        if home is not None and all(gpus <= free[node] for node, gpus in self._cells(home)):
            return home
        begin, end = self._edges[job], self._edges[job + 1]
        self._budget.charge((end - begin) * FIT_S)
        return int(first_fit(self._problem, free, begin, end))

    # ---- one job

    def _take(self, job: int) -> None:
        row = int(self.choice[job])
        if row != NOTHING:
            self._shift(self._free, row, 1)
            for node, _ in self._cells(row):
                self._on[node].discard(job)
            self.worth -= float(self._value[row])
            self.choice[job] = NOTHING

    def _give(self, job: int, row: int) -> None:
        self._shift(self._free, row, -1)
        for node, _ in self._cells(row):
            self._on[node].add(job)
        self.worth += float(self._value[row])
        self.choice[job] = row

    def _worth_of(self, job: int) -> float:
        return float(self._value[self.choice[job]]) if self.choice[job] != NOTHING else 0.0

    def _held(self, job: int, node: int) -> int:
        return dict(self._cells(int(self.choice[job])))[node]

    def _gpus(self, row: int) -> int:
        return sum(gpus for _, gpus in self._cells(row))

    def _cells(self, row: int) -> Iterator[tuple[int, int]]:
        problem = self._problem
        part = slice(problem.start[row], problem.start[row + 1])
        return zip(problem.node[part].tolist(), problem.gpus[part].tolist(), strict=True)

    def _shift(self, free: _Free, row: int, sign: int) -> None:
        if row != NOTHING:
            for node, gpus in self._cells(row):
                free[node] += sign * gpus
