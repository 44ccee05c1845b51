"""Drives every back end: begins with a greedy plan, searches in a thread, returns the best at the deadline.

A search reports each better choice and each tighter bound at once. So a search that does not stop at the
deadline can be abandoned: its thread goes on, and the process is replaced afterwards (see `policy_process`).
With modelled effort there is no clock and no thread; limits of work end a search.
"""

import math
import threading
from collections.abc import Callable

import msgspec
import numpy as np

from schemas.plans import Stage
from services.planner.solver.budget import Budget
from services.planner.solver.effort import Effort
from services.planner.solver.greedy import beginning
from services.planner.solver.problem import (
    NOTHING,
    Problem,
    Solution,
    SolverFailed,
    best_by_job,
    feasible,
    restricted,
    worth,
)
from services.planner.solver.staying import stayed
from shared.domain.arrays import Ints

STOPPING_S = 0.02
"""how long before the deadline a search is stopped, so that its last choice still arrives"""
LARGEST_GAP = 0.999
"""the largest gap that is passed to solvers"""
ROUNDING = 1e-6
"""relative difference by which a plan may exceed a proven bound"""
NONE = 1e-6
"""the relative gap at which a choice counts as optimal: solvers prove no smaller one"""
TINY = 1e-9
"""a relative difference taken for rounding: `Search.target` is lower by it, so that a bound at the target has
a tolerated gap"""
SEED = 1
HALF = 0.5
"""a binary variable above this is 1"""


class Search:
    """The input of a solver, and the object to which it reports what it finds."""

    def __init__(self, problem: Problem, effort: Effort, first: Solution, budget: Budget) -> None:
        self.problem = problem
        self.effort = effort
        self.scale = float(problem.value.max())
        """values are divided by it, so that a solver's absolute tolerances fit them"""
        self.budget = budget
        self.stopped = threading.Event()
        self.best = first
        """replaced, never changed, since another thread may read it"""
        self._stops: list[Callable[[], object]] = []
        self._listeners: list[Callable[[Solution], None]] = []

    def stop(self) -> None:
        """Tell the solver to stop. Called at the deadline, from another thread."""
        self.stopped.set()
        for stop in self._stops:
            stop()

    def on_stop(self, stop: Callable[[], object]) -> None:
        """Register a function that stops the solver. A solver without one has to look at `stopped`."""
        self._stops.append(stop)
        if self.stopped.is_set():
            stop()

    def on_better(self, listener: Callable[[Solution], None]) -> None:
        """The listener gets the best solution so far whenever its choice or its bound has improved."""
        self._listeners.append(listener)

    @property
    def left_s(self) -> float:
        """Seconds of the wall clock that are left; infinite in modelled effort."""
        return math.inf if self.budget.modelled else max(self.budget.left_s, 0.0)

    @property
    def done(self) -> bool:
        """Whether the gap is tolerated."""
        return self.best.gap <= self.effort.gap

    @property
    def target(self) -> float:
        """The worth above which choices are looked for: a bound of this value leaves a tolerated gap."""
        return self.best.objective * max((1.0 - TINY) * (1.0 + self.relative_gap), 1.0)

    @property
    def relative_gap(self) -> float:
        """The tolerated gap as solvers have it: (bound − objective) / objective."""
        gap = min(self.effort.gap, LARGEST_GAP)
        return gap / (1.0 - gap)

    def offer(self, rows: Ints) -> None:
        """Report a feasible choice: `rows`, its configurations."""
        choice = self.best.choice.copy()
        choice[:] = NOTHING
        choice[self.problem.job[rows]] = rows
        objective = worth(self.problem, choice)
        if objective > self.best.objective:
            assert feasible(self.problem, choice), "a choice that no cluster has room for"
            self._become(choice, objective, self.best.bound, Stage.INCUMBENT)

    def tighten(self, bound: float) -> None:
        """Report an upper bound on all choices. One that the best choice exceeds is ignored."""
        best = self.best
        if best.objective * (1.0 - ROUNDING) <= bound < best.bound:
            self._become(best.choice, best.objective, bound, best.stage)

    def _become(self, choice: Ints, objective: float, bound: float, stage: Stage) -> None:
        self.best = Solution(choice=choice, objective=objective, bound=max(bound, objective), stage=stage)
        for listener in self._listeners:
            listener(self.best)


Run = Callable[[Search], None]


def drive(problem: Problem, effort: Effort, run: Run) -> Solution:
    """The best choice that `run` finds within the effort. Raises SolverFailed."""
    budget = Budget(seconds=effort.budget_s, modelled=effort.modelled)
    rows = fitting(problem)
    if len(rows) == len(problem):
        solution = _solved(problem, effort, run, budget)
    else:
        solution = _unrestricted(_solved(restricted(problem, rows), effort, run, budget), rows)
    assert feasible(problem, solution.choice), "a choice that no cluster has room for"
    assert solution.objective * (1.0 - ROUNDING) <= solution.bound, "no choice is worth more than the bound"
    return solution


def _solved(problem: Problem, effort: Effort, run: Run, budget: Budget) -> Solution:
    first = beginning(problem)
    if effort.greedy or not best_by_job(problem).any():
        return finished(first, effort, budget.spent_s)
    if first.gap <= effort.gap:
        return finished(_staying(problem, first, effort, budget), effort, budget.spent_s)
    search = Search(problem, effort, first, budget)
    failed: list[Exception] = []
    if effort.modelled:
        _guarded(search, run, failed)
    else:
        _run_until(search, run, failed)
    if failed:
        raise SolverFailed(f"{effort.backend}: {type(failed[0]).__name__}: {failed[0]}") from failed[0]
    return finished(_staying(problem, search.best, effort, budget), effort, budget.spent_s)


def _staying(problem: Problem, solution: Solution, effort: Effort, budget: Budget) -> Solution:
    """The solution with fewer moved jobs.

    Its gap stays tolerated; if the gap is larger already, the objective does not fall.
    """
    least = solution.bound * (1.0 - effort.gap) if solution.gap <= effort.gap else solution.objective
    choice = stayed(problem, solution.choice, least * (1.0 + TINY), budget)
    objective = worth(problem, choice)
    if objective < least:
        return solution
    return msgspec.structs.replace(
        solution, choice=choice, objective=objective, bound=max(solution.bound, objective)
    )


def fitting(problem: Problem) -> Ints:
    """The configurations that fit `capacity` alone: a search need not consider the others."""
    if not len(problem):
        return np.empty(0, dtype=np.int32)
    over = problem.gpus > problem.capacity[problem.node]
    if not over.any():
        return np.arange(len(problem), dtype=np.int32)
    fits = ~np.logical_or.reduceat(over, problem.start[:-1])
    return np.flatnonzero(fits).astype(np.int32)


def _unrestricted(solution: Solution, rows: Ints) -> Solution:
    """The choice in terms of the whole problem, of which `rows` were solved."""
    choice = solution.choice.copy()
    chosen = choice != NOTHING
    choice[chosen] = rows[choice[chosen]]
    return msgspec.structs.replace(solution, choice=choice)


def _run_until(search: Search, run: Run, failed: list[Exception]) -> None:
    if search.left_s <= STOPPING_S:
        return
    thread = threading.Thread(target=_guarded, args=(search, run, failed), name="solve", daemon=True)
    thread.start()
    thread.join(max(search.left_s - STOPPING_S, 0.0))
    search.stop()
    thread.join(search.left_s)


def _guarded(search: Search, run: Run, failed: list[Exception]) -> None:
    try:
        run(search)
    except Exception as error:  # noqa: BLE001 - a solver is third-party code; the caller reports it
        failed.append(error)


def finished(solution: Solution, effort: Effort, seconds: float) -> Solution:
    """The solution as it is returned: its stage is `optimal` where the gap is tolerated."""
    solved = solution.gap <= max(effort.gap, NONE) and not effort.greedy
    return Solution(
        choice=solution.choice,
        objective=solution.objective,
        bound=solution.bound,
        stage=Stage.OPTIMAL if solved else solution.stage,
        seconds=seconds,
    )
