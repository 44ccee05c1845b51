"""Sia's integer program (SOSP '23), written as a `Problem` of our solver. Pure.

Data: utilities U [J, T, K] from `utilities`, weights w [J] (1 in the paper), GPUs by type, p and λ.

    p < 0: minimise   Σ w U x + λ Σ_i w_i (1 − Σ_j x_ij)
    p > 0: maximise   Σ w U x − λ Σ_i w_i (1 − Σ_j x_ij)
    subject to        one configuration a job, GPUs of every type ≤ capacity, x ∈ {0, 1}

If the gain of a configuration is λ − U (p < 0) or λ + U (p > 0), both are: maximise Σ w · gain · x. Each GPU
type is a node of `problem.Problem`, which `prices` solves. Configurations of no gain are left out. The cells
of a job's table are numbered row by row: cell = type · K + size.
"""

import msgspec
import numpy as np

from services.planner.policies.sia.prices import solve_priced
from services.planner.solver.effort import Effort
from services.planner.solver.problem import NOTHING, Problem, Solution, Solve
from shared.domain.arrays import Floats, Ints


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of the objective; the defaults are the paper's."""

    power: float = -0.5
    """p, the power of the utilities"""
    penalty: float = 1.1
    """|λ|, the cost of a job without GPUs"""


class Market(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs to allocate."""

    capacity: Ints
    """GPUs by type"""
    sizes: Ints
    """the GPU counts of the last axis of the tables, ascending"""


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    cell: Ints
    """by job: the number of its cell, which is a type and a size; or NOTHING"""
    solution: Solution


def gains(utility: Floats, goal: Goal) -> Floats:
    """By how much a configuration is worth more than no GPUs."""
    return goal.penalty - utility if goal.power < 0 else goal.penalty + utility


def allocate(
    gain: Floats, market: Market, *, weight: Floats, pinned: Ints, solve: Solve, effort: Effort
) -> Allocation:
    """The cell of each job in the best plan. `pinned` [J]: the cell that a job must keep, or NOTHING."""
    stays = pinned != NOTHING
    cells = gain.reshape(len(gain), -1).copy()
    cells[stays] = np.nan
    problem, rows = _program(cells, msgspec.structs.replace(market, capacity=_rest(market, pinned)), weight)
    solution = solve_priced(problem, effort, solve)
    cell = np.where(stays, pinned, NOTHING).astype(np.int32)
    chosen = solution.choice != NOTHING
    cell[chosen] = rows[solution.choice[chosen]]
    return Allocation(cell=cell, solution=solution)


def _program(cells: Floats, market: Market, weight: Floats) -> tuple[Problem, Ints]:
    """The program over the cells with a gain that fit the market, and the cell of each configuration."""
    job, cell = np.nonzero(cells > 0)
    kind, size = np.divmod(cell, max(len(market.sizes), 1))
    fits = market.sizes[size] <= market.capacity[kind]
    job, cell, kind, size = job[fits], cell[fits], kind[fits], size[fits]
    problem = Problem(
        capacity=market.capacity,
        weight=weight,
        job=job.astype(np.int32),
        start=np.arange(len(job) + 1, dtype=np.int32),
        node=kind.astype(np.int32),
        gpus=market.sizes[size],
        gain=cells[job, cell],
    )
    return problem, cell.astype(np.int32)


def _rest(market: Market, pinned: Ints) -> Ints:
    """GPUs by type that no pinned job holds."""
    kind, size = np.divmod(pinned[pinned != NOTHING], max(len(market.sizes), 1))
    taken = np.bincount(kind, weights=market.sizes[size], minlength=len(market.capacity))
    rest: Ints = np.maximum(market.capacity - taken, 0).astype(np.int32)
    return rest
