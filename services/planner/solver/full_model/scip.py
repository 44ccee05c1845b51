"""The full model solved by SCIP, through MathOpt.

SCIP reports nothing before it ends, since MathOpt's interrupter and callbacks do not work with it. A search
that runs beyond the deadline is abandoned.
"""

import datetime as dt

import numpy as np
from ortools.math_opt.python import mathopt

from services.planner.solver.full_model.proto import model_of, modelled_s
from services.planner.solver.search import HALF, SEED, Search

BUILDING_S = 1.5e-5
"""seconds for each configuration to build the model. Python's lock is held meanwhile, so no thread can watch
the deadline: if less time is left, the search is not begun"""


def run(search: Search) -> None:
    """Search with SCIP."""
    problem, scale = search.problem, search.scale
    if search.left_s < BUILDING_S * len(problem):
        return
    model = model_of(problem, scale, integer=True)
    result = mathopt.solve(
        model,
        mathopt.SolverType.GSCIP,
        params=_parameters(search),
    )
    search.tighten(result.termination.objective_bounds.dual_bound * scale)
    search.budget.charge(modelled_s(result.solve_stats.simplex_iterations, len(problem)))
    if result.has_primal_feasible_solution():
        values = np.fromiter(result.variable_values().values(), dtype=np.float64, count=len(problem))
        search.offer(np.flatnonzero(values > HALF).astype(np.int32))


def _parameters(search: Search) -> mathopt.SolveParameters:
    effort = search.effort
    return mathopt.SolveParameters(
        relative_gap_tolerance=search.relative_gap,
        absolute_gap_tolerance=0.0,
        node_limit=effort.node_limit,
        random_seed=SEED,
        time_limit=None if effort.modelled else dt.timedelta(seconds=search.left_s),
    )
