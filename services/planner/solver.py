"""The one door to OR-tools: the integer program, solved by MathOpt with HiGHS and GLOP.

In stages, each leaving an incumbent behind, so that a deadline always finds one:

1. greedy, in milliseconds;
2. the linear relaxation: a proven bound, and a reduced cost for every configuration;
3. the integer program over each job's few best configurations by reduced cost, then over more;
4. over all that can still beat the incumbent: one whose bound + reduced cost is not above it cannot be
   part of a better plan, so leaving it out loses nothing.

It stops as soon as the proven gap is tolerated. One thread, a fixed seed: the same program and limits
give the same answer, unless a wall clock cuts the solve short.
"""

import datetime as dt
import math
import threading
import time

import msgspec
import numpy as np
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from schemas.plans import Stage
from services.planner.configurations import Ints
from services.planner.greedy import greedy
from services.planner.problem import NOTHING, Floats, Problem, Solution, restricted, worth
from services.planner.view import Effort

SEED = 1
WIDTHS = (8, 32)
"""configurations a job in the restricted programs"""
WHOLE_BELOW = 2_000
"""configurations under which restricting does not pay"""
STEP_S = 2.5e-4
STEP_PER_CONFIGURATION_S = 5.5e-8
"""what a simplex iteration costs, as measured on a common server: the modelled seconds"""
SAFETY = 0.8
"""HiGHS overshoots short limits, so a solve is given this share of the time that is left"""
TINY = 1e-9


class Relaxed(msgspec.Struct, frozen=True):
    bound: float
    reduced: Floats
    """by configuration: what forcing it in changes the bound by; not above 0 unless it is chosen whole"""
    steps: int


class Solved(msgspec.Struct, frozen=True):
    choice: Ints | None
    bound: float
    steps: int


def solve(problem: Problem, effort: Effort) -> Solution:
    """The best choice found within the effort. Raises nothing for the want of time: see `stage`."""
    began = time.perf_counter()
    first = greedy(problem)
    if effort.greedy or first.gap <= effort.gap:
        return _finished(first, began, 0.0, effort)
    search = _Search(problem, effort, first)
    if effort.modelled:
        search.run()
    else:
        _run_until(search, began + effort.budget_s)
    return _finished(search.best, began, search.work_s, effort)


def _run_until(search: "_Search", deadline: float) -> None:
    """Search in a thread, which the solver leaves free to run beside; abandon it at the deadline.

    HiGHS in MathOpt cannot be interrupted. The process that runs this is replaced when its thread
    outlives the call (see `aside`).
    """
    search.deadline = deadline
    thread = threading.Thread(target=search.run, name="solve", daemon=True)
    thread.start()
    thread.join(max(deadline - time.perf_counter(), 0.0))


class _Search:
    """The stages, and the best that they have come to: `best` is replaced, never changed."""

    def __init__(self, problem: Problem, effort: Effort, first: Solution) -> None:
        self.best = first
        self.work_s = 0.0
        self.deadline = math.inf
        self._problem = problem
        self._effort = effort
        self._scale = float(problem.value.max())

    def run(self) -> None:
        relaxed = _relax(self._problem, self._scale)
        self._charge(relaxed.steps, len(self._problem))
        self._improve(None, relaxed.bound)
        widths = WIDTHS if len(self._problem) > WHOLE_BELOW else ()
        for width in widths:
            if not self._goes_on():
                return
            self._solve_over(_promising(self._problem, relaxed.reduced, width), bounds=False)
        if self._goes_on():
            self._solve_over(self._undecided(relaxed), bounds=True)

    def _undecided(self, relaxed: Relaxed) -> Ints:
        """The configurations that a choice better than the incumbent may hold."""
        reach = relaxed.bound + np.minimum(relaxed.reduced, 0.0)
        return np.flatnonzero(reach > self.best.objective - TINY * self._scale).astype(np.int32)

    def _solve_over(self, rows: Ints, *, bounds: bool) -> None:
        part = restricted(self._problem, rows)
        if self._expected_s(len(part)) > self._effort.budget_s - self.work_s:
            return
        solved = _solve_integer(part, self._effort, self._scale, self._left_s())
        self._charge(solved.steps, len(part))
        # What was left out cannot beat the incumbent, so the part's bound holds for the whole.
        bound = max(solved.bound, self.best.objective) if bounds else math.inf
        chosen = solved.choice
        if chosen is not None:
            chosen = np.where(chosen == NOTHING, NOTHING, rows[chosen]).astype(np.int32)
        self._improve(chosen, bound)

    def _improve(self, choice: Ints | None, bound: float) -> None:
        best = self.best
        objective, stage = best.objective, best.stage
        if choice is not None and worth(self._problem, choice) >= objective:
            objective, stage = worth(self._problem, choice), Stage.INCUMBENT
        else:
            choice = best.choice
        bound = max(min(best.bound, bound), objective)
        if bound - objective <= self._effort.gap * bound:
            stage = Stage.OPTIMAL
        self.best = Solution(choice=choice, objective=objective, bound=bound, stage=stage)

    def _goes_on(self) -> bool:
        return self.best.stage != Stage.OPTIMAL and self._left_s() > 0

    def _left_s(self) -> float:
        if self._effort.modelled:
            return self._effort.budget_s - self.work_s
        return self.deadline - time.perf_counter()

    def _expected_s(self, configurations: int) -> float:
        """A guess at the modelled cost, on the low side: half a simplex iteration a configuration."""
        return modelled_s(configurations // 2, configurations) if self._effort.modelled else 0.0

    def _charge(self, steps: int, configurations: int) -> None:
        self.work_s += modelled_s(steps, configurations)


def modelled_s(steps: int, configurations: int) -> float:
    """Seconds that so many simplex iterations take on a common server."""
    return steps * (STEP_S + STEP_PER_CONFIGURATION_S * configurations)


def _finished(solution: Solution, began: float, work_s: float, effort: Effort) -> Solution:
    seconds = work_s if effort.modelled else time.perf_counter() - began
    stage = Stage.OPTIMAL if solution.gap <= effort.gap and not effort.greedy else solution.stage
    return msgspec.structs.replace(solution, seconds=seconds, stage=stage)


def _promising(problem: Problem, reduced: Floats, width: int) -> Ints:
    """Each job's `width` configurations of the largest reduced cost.

    Nodes alike give rows alike. Among equals every job begins at another node, or all jobs would be
    left with the same few nodes to choose from.
    """
    nodes = len(problem.capacity)
    shifted = (problem.node[problem.start[:-1]] - 7 * problem.job) % nodes
    order = np.lexsort((shifted, np.round(-reduced / problem.value.max(), 9), problem.job))
    first = np.searchsorted(problem.job, problem.job)  # position of the job's first row
    rank = np.empty(len(problem), dtype=np.int64)
    rank[order] = np.arange(len(problem))
    return np.flatnonzero(rank - first < width).astype(np.int32)


def _relax(problem: Problem, scale: float) -> Relaxed:
    model = _model(problem, scale, integer=False)
    result = mathopt.solve(model, mathopt.SolverType.GLOP, params=mathopt.SolveParameters(random_seed=SEED))
    reduced = np.fromiter(result.reduced_costs().values(), dtype=np.float64, count=len(problem))
    steps = result.solve_stats.simplex_iterations
    return Relaxed(result.objective_value() * scale * (1 + TINY), reduced * scale, steps)


def _solve_integer(problem: Problem, effort: Effort, scale: float, left_s: float) -> Solved:
    params = mathopt.SolveParameters(
        relative_gap_tolerance=effort.gap / 2,  # HiGHS divides by the objective, and the LP bound counts
        node_limit=effort.node_limit,
        random_seed=SEED,
        time_limit=None if effort.modelled else dt.timedelta(seconds=left_s * SAFETY),
    )
    result = mathopt.solve(_model(problem, scale, integer=True), mathopt.SolverType.HIGHS, params=params)
    steps = result.solve_stats.simplex_iterations
    bound = result.termination.objective_bounds.dual_bound * scale
    if not result.has_primal_feasible_solution():
        return Solved(None, bound, steps)
    values = np.fromiter(result.variable_values().values(), dtype=np.float64, count=len(problem))
    choice = np.full(problem.jobs, NOTHING, dtype=np.int32)
    rows = np.flatnonzero(values > 0.5).astype(np.int32)  # noqa: PLR2004 - of a binary
    choice[problem.job[rows]] = rows
    return Solved(choice, bound, steps)


def _model(problem: Problem, scale: float, *, integer: bool) -> mathopt.Model:
    """The program as a proto filled with arrays: ten times as fast as with objects.

    Row i < jobs: one configuration a job. Row jobs + n: the GPUs of node n. Values are divided by
    `scale`, so that the solver's absolute tolerances mean something.
    """
    count, rows = len(problem), problem.jobs + len(problem.capacity)
    proto = model_pb2.ModelProto()
    proto.variables.ids.extend(range(count))
    proto.variables.lower_bounds.extend(np.zeros(count))
    proto.variables.upper_bounds.extend(np.ones(count))
    proto.variables.integers.extend([integer] * count)
    proto.objective.maximize = True
    proto.objective.linear_coefficients.ids.extend(range(count))
    proto.objective.linear_coefficients.values.extend(problem.value / scale)
    proto.linear_constraints.ids.extend(range(rows))
    proto.linear_constraints.lower_bounds.extend(np.full(rows, -np.inf))
    proto.linear_constraints.upper_bounds.extend(np.concatenate([np.ones(problem.jobs), problem.capacity]))
    _fill_matrix(proto, problem)
    return mathopt.Model.from_model_proto(proto)


def _fill_matrix(proto: model_pb2.ModelProto, problem: Problem) -> None:
    one = np.arange(len(problem))
    column = np.concatenate([one, np.repeat(one, np.diff(problem.start))])
    row = np.concatenate([problem.job, problem.jobs + problem.node])
    value = np.concatenate([np.ones(len(problem)), problem.gpus])
    order = np.lexsort((column, row))
    matrix = proto.linear_constraint_matrix
    matrix.row_ids.extend(row[order])
    matrix.column_ids.extend(column[order])
    matrix.coefficients.extend(value[order])
