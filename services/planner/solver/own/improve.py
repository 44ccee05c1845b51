"""Improves a plan where it loses most, by planning the neighbourhoods of some jobs again.

At the relaxation's prices, bound − (worth of the plan) is the sum of two things: what each job i loses, which
is best_i − (net value of its configuration), and the prices of idle GPUs. A few jobs lose most of it. The
neighbourhood of such a job is the nodes of its best configurations and of its present one, with all jobs
whose nodes lie within it and all jobs without GPUs. It is relaxed, tightened and dived into like a problem of
its own.
"""

from collections.abc import Callable, Iterator

import numpy as np

from services.planner.solver.own.columns import Columns
from services.planner.solver.own.relaxation import Bounded
from services.planner.solver.own.subproblems import free_beside, subproblem_of
from services.planner.solver.problem import NOTHING, Problem
from shared.domain.arrays import Flags, Ints

LOOKED_AT = 4
"""best configurations of a job whose nodes are in its neighbourhood"""
NODES = 16
"""nodes of a neighbourhood, about"""
WORTH = 0.005
"""share of (bound − plan) that a job must lose for its neighbourhood to be planned again"""

LEAST = 0.1
"""share of (bound − plan): a sweep over all such jobs that gains less is the last"""

Planned = Callable[[Problem], Ints]
"""the rows of a good plan for a small problem"""


def improvements(columns: Columns, found: Bounded, choice: Ints, plan: Planned) -> Iterator[Ints]:
    """Choices, each better than the one before, by job; ends when a sweep gains little. Raises Spent."""
    gain = np.inf
    while gain > LEAST * (found.bound - _value(columns, choice)):
        before = _value(columns, choice)
        for job in _losers(columns, found, choice):
            better = _replanned(columns, choice, _neighbourhood(columns, found, choice, job), plan)
            if better is not None:
                choice = better
                yield choice
        gain = _value(columns, choice) - before


def _losers(columns: Columns, found: Bounded, choice: Ints) -> list[int]:
    """The jobs that lose enough, those that lose most first."""
    loss = found.best - np.where(choice == NOTHING, 0.0, found.net[choice])
    distance = found.bound - _value(columns, choice)
    order = np.argsort(-loss, kind="stable")
    return [int(job) for job in order[loss[order] > WORTH * distance]]


def _neighbourhood(columns: Columns, found: Bounded, choice: Ints, job: int) -> Flags:
    """By node: whether it belongs to the neighbourhood of a job."""
    problem = columns.problem
    first, last = np.searchsorted(problem.job, [job, job + 1])
    rows = np.arange(first, last, dtype=np.int32)
    rows = rows[np.argsort(-found.net[rows], kind="stable")[:LOOKED_AT]]
    inside = np.zeros(len(problem.capacity), dtype=bool)
    inside[columns.cells(rows)[1]] = True
    if choice[job] != NOTHING:
        inside[columns.cells(choice[job : job + 1])[1]] = True
    return _widened(inside, free_beside(problem, choice[choice != NOTHING]))


def _widened(inside: Flags, free: Ints) -> Flags:
    """The neighbourhood, the nodes with most idle GPUs, and their neighbours, up to about `NODES`."""
    for node in np.argsort(-free, kind="stable")[: NODES // 4].tolist():
        inside[node] |= free[node] > 0
    while inside.any() and not inside.all() and inside.sum() < NODES:
        inside = inside | np.roll(inside, 1) | np.roll(inside, -1)
    return inside


def _replanned(columns: Columns, choice: Ints, inside: Flags, plan: Planned) -> Ints | None:
    """The choice with the neighbourhood planned again; None: the new plan is not worth more."""
    problem = columns.problem
    chosen = choice[choice != NOTHING]
    start, node, _ = columns.cells(chosen)
    within = np.logical_and.reduceat(inside[node], start[:-1])
    moving = choice == NOTHING
    moving[problem.job[chosen[within]]] = True
    free = np.where(inside, free_beside(problem, chosen[~within]), 0).astype(np.int32)
    part = subproblem_of(columns, moving, free)
    if part is None:
        return None
    rows = part.rows[plan(part.problem)]
    if _worth(columns, rows) <= _worth(columns, chosen[within]) * (1 + 1e-9):
        return None
    better = np.where(moving, NOTHING, choice).astype(np.int32)
    better[problem.job[rows]] = rows
    return better


def _value(columns: Columns, choice: Ints) -> float:
    return _worth(columns, choice[choice != NOTHING])


def _worth(columns: Columns, rows: Ints) -> float:
    return float(columns.value[rows].sum())
