"""The full model solved by CP-SAT, through its own interface, with the greedy plan as a hint.

CP-SAT computes in whole numbers: values are scaled to at most `UNITS` and rounded up, so that its bound holds
for the unrounded values, too.
"""

from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from services.planner.solver.problem import NOTHING, Problem
from services.planner.solver.search import SEED, Search
from shared.domain.arrays import Ints

UNITS = 10_000_000
"""units of the largest value; rounding changes the worth of a job's configuration by one unit at most"""
MODELLED = 1.0
"""modelled seconds for one second of CP-SAT's deterministic time"""


def run(search: Search) -> None:
    """Search with CP-SAT."""
    model, chosen = _model(search)
    solver = cp_model.CpSolver()
    _limit(solver, search)
    search.on_stop(solver.stop_search)
    listener = None if search.effort.modelled else _Listener(search, chosen)
    status = solver.solve(model, listener)
    search.budget.charge(MODELLED * solver.deterministic_time)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        search.offer(_rows([solver.boolean_value(one) for one in chosen]))
        search.tighten(_worth(search, solver.best_objective_bound))


def _limit(solver: cp_model.CpSolver, search: Search) -> None:
    effort, parameters = search.effort, solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = SEED
    parameters.relative_gap_limit = search.relative_gap
    parameters.absolute_gap_limit = 0.0
    if effort.modelled:
        parameters.max_deterministic_time = effort.budget_s / MODELLED
    else:
        parameters.max_time_in_seconds = search.left_s


class _Listener(cp_model.CpSolverSolutionCallback):
    """Reports every better choice to the search."""

    def __init__(self, search: Search, chosen: list[cp_model.IntVar]) -> None:
        super().__init__()
        self._search = search
        self._chosen = chosen

    def on_solution_callback(self) -> None:
        self._search.offer(_rows([self.boolean_value(one) for one in self._chosen]))
        self._search.tighten(_worth(self._search, self.best_objective_bound))


def _worth(search: Search, units: float) -> float:
    return units / UNITS * search.scale


def _rows(values: list[bool]) -> Ints:
    return np.flatnonzero(values).astype(np.int32)


def _model(search: Search) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
    """The program, and the variable of each configuration."""
    problem = search.problem
    model = cp_model.CpModel()
    chosen = [model.new_bool_var("") for _ in range(len(problem))]
    for begin, end in _spans(problem.job, problem.jobs):
        model.add_at_most_one(chosen[begin:end])
    _limit_nodes(model, chosen, problem)
    units = np.ceil(problem.value / search.scale * UNITS).astype(np.int64)
    model.maximize(cp_model.LinearExpr.weighted_sum(chosen, units.tolist()))
    for row in search.best.choice[search.best.choice != NOTHING].tolist():
        model.add_hint(chosen[row], True)
    return model, chosen


def _limit_nodes(model: cp_model.CpModel, chosen: list[cp_model.IntVar], problem: Problem) -> None:
    order = np.argsort(problem.node, kind="stable")
    owner = np.repeat(np.arange(len(problem)), np.diff(problem.start))[order]
    gpus = problem.gpus[order].tolist()
    users = [chosen[row] for row in owner.tolist()]
    spans = _spans(problem.node[order], len(problem.capacity))
    for capacity, (begin, end) in zip(problem.capacity.tolist(), spans, strict=True):
        model.add(cp_model.LinearExpr.weighted_sum(users[begin:end], gpus[begin:end]) <= capacity)


def _spans(owner: Ints, count: int) -> list[tuple[int, int]]:
    """Where each owner's entries begin and end; `owner` ascends."""
    edges = np.searchsorted(owner, np.arange(count + 1)).tolist()
    return list(pairwise(edges))
