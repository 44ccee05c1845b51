"""Linear programs on arrays, solved by HiGHS. Knows nothing of jobs.

    minimise    cost · x
    subject to  row_lower ≤ A x ≤ row_upper,   0 ≤ x ≤ upper

A program stays loaded: once its row bounds change or columns are dropped, the next solve begins from the
last basis and needs few iterations. With one thread and a fixed seed the same calls give the same answers,
unless a limit of seconds cuts a solve short.
"""

import math
from typing import Literal

import highspy
import msgspec
import numpy as np

from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats, Ints

SEED = 1
TOLERANCE = 1e-9
"""absolute tolerance of feasibility and optimality: a program should be scaled to numbers near 1"""
STEP_S = 1e-5
STEP_PER_NONZERO_S = 7e-9
"""modelled seconds of a simplex iteration beyond `STEP_S`, per nonzero, as measured on a common server"""
OPTIONS: dict[str, str | int | float | bool] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": SEED,
    "solver": "simplex",
    "presolve": "off",
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}


class Matrix(msgspec.Struct, frozen=True):
    """A sparse matrix by its entries; giving an entry twice is an error."""

    row: Ints
    column: Ints
    value: Floats


class LinearSolution(msgspec.Struct, frozen=True, kw_only=True):
    x: Floats
    objective: float
    dual: Floats
    """by row: change of the objective per unit of the bound that binds; 0 where none binds"""
    steps: int
    """simplex iterations"""
    state: Literal["optimal", "infeasible", "stopped"]
    """`stopped`: a limit was reached, and x is no solution"""


class LinearProgram:
    """One program, loaded; solved as often as its bounds change."""

    def __init__(
        self,
        *,
        cost: Floats,
        matrix: Matrix,
        row_lower: Floats,
        row_upper: Floats,
        upper: Floats | None = None,
    ) -> None:
        columns = len(cost)
        self.nonzeros = len(matrix.value)
        self._upper = np.full(columns, math.inf) if upper is None else upper.astype(np.float64)
        self._highs = highspy.Highs()
        for name, value in OPTIONS.items():
            self._highs.setOptionValue(name, value)
        self._highs.passModel(_model(cost, matrix, row_lower, row_upper, self._upper))

    def bound_rows(self, rows: Ints, lower: Floats, upper: Floats) -> None:
        self._highs.changeRowsBounds(len(rows), rows.astype(np.int32), lower, upper)

    def drop_columns(self, columns: Ints) -> None:
        """Fix these columns at 0, for good."""
        self._upper[columns] = 0.0
        nothing = np.zeros(len(columns))
        self._highs.changeColsBounds(len(columns), columns.astype(np.int32), nothing, nothing)

    def solve(self, *, steps: int | None = None, seconds: float | None = None) -> LinearSolution:
        """Solve from the last basis, within `steps` simplex iterations and `seconds`; None: no limit."""
        highs = self._highs
        highs.setOptionValue("simplex_iteration_limit", 2**31 - 1 if steps is None else max(steps, 0))
        past_s = highs.getRunTime()  # HiGHS' clock is not reset between solves
        highs.setOptionValue("time_limit", math.inf if seconds is None else past_s + max(seconds, 0.0))
        self._run()
        solution, info = highs.getSolution(), highs.getInfo()
        return LinearSolution(
            x=np.array(solution.col_value, dtype=np.float64),
            objective=float(info.objective_function_value),
            dual=np.array(solution.row_dual, dtype=np.float64),
            steps=max(int(info.simplex_iteration_count), 0),
            state=_state(highs.getModelStatus()),
        )

    def solve_within(self, budget: Budget) -> LinearSolution:
        """Solve from the last basis, within what is left of the budget, and charge it."""
        left_s = budget.left_s
        if math.isinf(left_s):
            answer = self.solve()
        elif budget.modelled:
            answer = self.solve(steps=affordable_steps(left_s, self.nonzeros))
        else:
            answer = self.solve(seconds=left_s)
        budget.charge(modelled_s(answer.steps, self.nonzeros))
        return answer

    def _run(self) -> None:
        """Run HiGHS; if it fails, once more with a new thread pool.

        HiGHS has one thread pool in a process, and fails where it was made with another number of threads.
        """
        if self._highs.run() != highspy.HighsStatus.kError:
            return
        self._highs.resetGlobalScheduler(True)
        if self._highs.run() == highspy.HighsStatus.kError:
            raise RuntimeError(f"HiGHS refuses the program: {self._highs.getModelStatus().name}")


def modelled_s(steps: int, nonzeros: int) -> float:
    """Seconds that `steps` simplex iterations take on a common server."""
    return steps * (STEP_S + STEP_PER_NONZERO_S * nonzeros)


def affordable_steps(seconds: float, nonzeros: int) -> int:
    """How many simplex iterations take `seconds`: the inverse of `modelled_s`."""
    return int(seconds / modelled_s(1, nonzeros))


def _model(
    cost: Floats, matrix: Matrix, row_lower: Floats, row_upper: Floats, upper: Floats
) -> highspy.HighsLp:
    order = np.lexsort((matrix.row, matrix.column))
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(cost), len(row_lower)
    program.col_cost_ = cost
    program.col_lower_, program.col_upper_ = np.zeros(len(cost)), upper
    program.row_lower_, program.row_upper_ = row_lower, row_upper
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.searchsorted(matrix.column[order], np.arange(len(cost) + 1)).astype(
        np.int32
    )
    program.a_matrix_.index_ = matrix.row[order].astype(np.int32)
    program.a_matrix_.value_ = matrix.value[order]
    return program


def _state(status: highspy.HighsModelStatus) -> Literal["optimal", "infeasible", "stopped"]:
    if status == highspy.HighsModelStatus.kOptimal:
        return "optimal"
    return "infeasible" if status == highspy.HighsModelStatus.kInfeasible else "stopped"
