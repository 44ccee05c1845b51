"""Back ends by name, behind `problem.Solve`: ours, and others that are given the full model.

Each is a module with a function `run`, which `search` drives; imported when it is first asked for.
"""

from importlib import import_module
from types import ModuleType

from services.planner.problem import Problem, Solution, Solve
from services.planner.solver.search import drive
from services.planner.view import Effort

MODULES = {"hopyard": "hopyard", "highs": "highs", "scip": "scip", "cp-sat": "cp_sat"}


def solve(problem: Problem, effort: Effort) -> Solution:
    """The best choice found within the effort, by the back end it names. Raises KeyError for another."""
    return BACKENDS[effort.backend](problem, effort)


def load(backend: str) -> ModuleType:
    """Import a back end: half a second to two, better spent before a deadline runs. Raises KeyError."""
    return import_module(f"{__name__}.{MODULES[backend]}")


def _back_end(name: str) -> Solve:
    def solved(problem: Problem, effort: Effort) -> Solution:
        return drive(problem, effort, load(name).run)

    return solved


BACKENDS: dict[str, Solve] = {name: _back_end(name) for name in MODULES}
