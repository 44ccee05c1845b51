"""The back ends by name, each called as a `problem.Solve`: ours, and solvers of the full model.

A back end is a module with a function `run`, which `search` drives. It is imported when it is first used.
"""

from importlib import import_module
from types import ModuleType

import msgspec

from services.planner.solver.budget import Budget
from services.planner.solver.effort import Effort
from services.planner.solver.problem import Problem, Solution, Solve
from services.planner.solver.search import drive

MODULES = {
    "hopyard": "own.stages",
    "highs": "full_model.highs",
    "scip": "full_model.scip",
    "cp-sat": "full_model.cp_sat",
}


def solve(problem: Problem, effort: Effort) -> Solution:
    """The best choice that the effort's back end finds within it. Raises KeyError for an unknown back end."""
    return BACKENDS[effort.backend](problem, effort)


def solving_from_now(plan: Effort) -> Solve:
    """`solve`, limited to what is left of the plan's seconds on the wall clock.

    The seconds run from this call on, also while the policy itself computes.
    """
    budget = Budget(seconds=plan.budget_s, modelled=plan.modelled)

    def solved(problem: Problem, effort: Effort) -> Solution:
        if not effort.modelled:
            left_s = max(budget.left_s, 0.0)
            effort = msgspec.structs.replace(effort, budget_s=min(effort.budget_s, left_s))
        return solve(problem, effort)

    return solved


def load(backend: str) -> ModuleType:
    """Import a back end, which takes 0.5 to 2 s: better before a deadline runs. Raises KeyError."""
    return import_module(f"{__name__}.{MODULES[backend]}")


def _back_end(name: str) -> Solve:
    def solved(problem: Problem, effort: Effort) -> Solution:
        return drive(problem, effort, load(name).run)

    return solved


BACKENDS: dict[str, Solve] = {name: _back_end(name) for name in MODULES}
