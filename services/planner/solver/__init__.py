"""Back ends by name, behind `problem.Solve`: ours, and others that are given the full model.

Each is a module with a function `run`, which `search` drives; imported when it is first asked for.
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
    """The best choice found within the effort, by the back end it names. Raises KeyError for another."""
    return BACKENDS[effort.backend](problem, effort)


def solving_from_now(plan: Effort) -> Solve:
    """`solve`, where no solve has more than is left of the plan's seconds.

    They run from now on, while the policy itself computes, too.
    """
    budget = Budget(seconds=plan.budget_s, modelled=plan.modelled)

    def solved(problem: Problem, effort: Effort) -> Solution:
        if not effort.modelled:
            left_s = max(budget.left_s, 0.0)
            effort = msgspec.structs.replace(effort, budget_s=min(effort.budget_s, left_s))
        return solve(problem, effort)

    return solved


def load(backend: str) -> ModuleType:
    """Import a back end: half a second to two, better spent before a deadline runs. Raises KeyError."""
    return import_module(f"{__name__}.{MODULES[backend]}")


def _back_end(name: str) -> Solve:
    def solved(problem: Problem, effort: Effort) -> Solution:
        return drive(problem, effort, load(name).run)

    return solved


BACKENDS: dict[str, Solve] = {name: _back_end(name) for name in MODULES}
