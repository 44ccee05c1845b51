"""The driver of every back end: a quick start, a search in a thread, its best at the deadline.

A search says each better choice and each tighter bound at once, so that one which does not heed the
deadline can be left behind; the process that runs this is replaced when its thread outlives the call (see
`aside`). In modelled effort there is no clock and no thread: work limits end a search.
"""

import math
import threading
import time
from collections.abc import Callable

import msgspec
import numpy as np

from schemas.plans import Stage
from services.planner.configurations import Ints
from services.planner.greedy import beginning
from services.planner.problem import NOTHING, Problem, Solution, SolverFailed, best_by_job, restricted, worth
from services.planner.view import Effort

STOPPING_S = 0.02
"""before the deadline a search is told to stop, so that what it still says is heard"""
LARGEST_GAP = 0.999
ROUNDING = 1e-6
"""of a bound that a plan is worth, relative"""
NONE = 1e-6
"""a relative gap below it is none: solvers prove no more"""
TINY = 1e-9
"""a relative difference that is rounding: a bound of `Search.target` is tolerated in spite of it"""
SEED = 1
HALF = 0.5
"""tells the two values of a binary apart"""


class Search:
    """What a solver is given, and where it says what it has found."""

    def __init__(self, problem: Problem, effort: Effort, first: Solution, deadline: float) -> None:
        self.problem = problem
        self.effort = effort
        self.scale = float(problem.value.max())
        """values are divided by it, so that a solver's absolute tolerances mean something"""
        self.stopped = threading.Event()
        self.best = first
        """replaced, never changed: another thread may look"""
        self.work_s = 0.0
        """modelled seconds"""
        self._deadline = deadline
        self._stops: list[Callable[[], object]] = []

    def stop(self) -> None:
        """Called at the deadline, from another thread."""
        self.stopped.set()
        for stop in self._stops:
            stop()

    def on_stop(self, stop: Callable[[], object]) -> None:
        """For a solver that has a call for it; others look at `stopped`."""
        self._stops.append(stop)
        if self.stopped.is_set():
            stop()

    @property
    def left_s(self) -> float:
        """Seconds of the wall clock that are left; infinite in modelled effort."""
        return max(self._deadline - time.perf_counter(), 0.0)

    @property
    def done(self) -> bool:
        """Whether the gap is tolerated."""
        return self.best.gap <= self.effort.gap

    @property
    def target(self) -> float:
        """A choice must be worth more than this to be looked for: as a bound, it leaves a tolerated gap."""
        return self.best.objective * max((1.0 - TINY) * (1.0 + self.relative_gap), 1.0)

    @property
    def relative_gap(self) -> float:
        """The tolerated gap as solvers have it: (bound − objective) / objective."""
        gap = min(self.effort.gap, LARGEST_GAP)
        return gap / (1.0 - gap)

    def offer(self, rows: Ints) -> None:
        """A feasible choice: its configurations."""
        choice = self.best.choice.copy()
        choice[:] = NOTHING
        choice[self.problem.job[rows]] = rows
        objective = worth(self.problem, choice)
        if objective > self.best.objective:
            self._become(choice, objective, self.best.bound, Stage.INCUMBENT)

    def tighten(self, bound: float) -> None:
        """No choice is worth more. What a plan in hand refutes is no bound."""
        best = self.best
        if best.objective * (1.0 - ROUNDING) <= bound < best.bound:
            self._become(best.choice, best.objective, bound, best.stage)

    def _become(self, choice: Ints, objective: float, bound: float, stage: Stage) -> None:
        self.best = Solution(choice=choice, objective=objective, bound=max(bound, objective), stage=stage)


Run = Callable[[Search], None]


def drive(problem: Problem, effort: Effort, run: Run) -> Solution:
    """The best choice that `run` finds within the effort. Raises SolverFailed."""
    began = time.perf_counter()
    rows = fitting(problem)
    if len(rows) == len(problem):
        return _solved(problem, effort, run, began)
    return _unrestricted(_solved(restricted(problem, rows), effort, run, began), rows)


def _solved(problem: Problem, effort: Effort, run: Run, began: float) -> Solution:
    first = beginning(problem)
    deadline = math.inf if effort.modelled else began + effort.budget_s
    if effort.greedy or first.gap <= effort.gap or not best_by_job(problem).any():
        return _finished(first, effort, 0.0 if effort.modelled else time.perf_counter() - began)
    search = Search(problem, effort, first, deadline)
    failed: list[Exception] = []
    if effort.modelled:
        _guarded(search, run, failed)
        seconds = search.work_s
    else:
        _run_until(search, run, failed)
        seconds = time.perf_counter() - began
    if failed:
        raise SolverFailed(f"{effort.backend}: {type(failed[0]).__name__}: {failed[0]}") from failed[0]
    return _finished(search.best, effort, seconds)


def fitting(problem: Problem) -> Ints:
    """The configurations that fit the empty nodes: a search need not reckon with others."""
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
    except Exception as error:  # noqa: BLE001 - a solver is somebody else's code; told by the caller
        failed.append(error)


def _finished(solution: Solution, effort: Effort, seconds: float) -> Solution:
    solved = solution.gap <= max(effort.gap, NONE) and not effort.greedy
    return Solution(
        choice=solution.choice,
        objective=solution.objective,
        bound=solution.bound,
        stage=Stage.OPTIMAL if solved else solution.stage,
        seconds=seconds,
    )
