"""Solves a program of few, large nodes (here: Sia's GPU types) by finding prices of their GPUs first.

If a GPU of node n costs π_n and each job takes the configuration that is worth most beyond its price, no plan
is worth more than

    L(π) = Σ_n π_n capacity_n + Σ_i max(0, max_c (value_c − π · use_c))

L is convex and has as many variables as there are nodes. Its cutting-plane model, a linear program of that
size, is minimised within some twenty rounds, however many jobs there are.

The *loss* of a configuration is how much less it is worth, beyond its price, than its job's best one. A plan
is worth at most L minus the losses in it. So a configuration whose loss exceeds L − (the worth of a known
plan) is in no better plan. The solver first gets the configurations of small loss, one or two a job; if the
gap is then too large, it gets all that a better plan could hold.
"""

import msgspec
import numpy as np

from schemas.plans import Stage
from services.planner.policies.kit.linear import LinearProgram, Matrix
from services.planner.solver.budget import Budget
from services.planner.solver.effort import Effort
from services.planner.solver.problem import NOTHING, Problem, Solution, Solve, restricted
from shared.domain.arrays import Floats

ROUNDS = 60
TOLERANCE = 1e-6
"""relative error of the least L"""
FIRST_LOSS = 0.1
"""the largest loss in the first solve, relative to the largest value of a configuration"""
PRICING_SHARE = 0.25
"""share of the budget that pricing takes at most"""
ROUND_S = 1e-3
ROUND_PER_CONFIGURATION_S = 5e-8
"""modelled seconds of a round of pricing, as measured on a common server"""


class Pricing(msgspec.Struct, frozen=True):
    bound: float
    """L at the best prices"""
    loss: Floats
    """by configuration, not negative"""
    rounds: int


def solve_priced(problem: Problem, effort: Effort, solve: Solve) -> Solution:
    """The plan that `solve` finds over few configurations, and a bound for all. Each uses one node."""
    if effort.greedy or not len(problem):
        return solve(problem, effort)
    budget = Budget(seconds=effort.budget_s, modelled=effort.modelled)
    priced = prices(problem, affordable_rounds(effort.budget_s * PRICING_SHARE, len(problem)))
    budget.charge(modelled_s(priced.rounds, len(problem)))
    reach = FIRST_LOSS * float(problem.value.max())
    found = _solved_within(problem, priced, reach, _remaining(effort, budget.spent_s), solve)
    budget.charge(found.seconds)
    if found.gap > effort.gap and budget.left_s > 0:
        rest = _remaining(effort, budget.spent_s)
        wider = _solved_within(problem, priced, priced.bound - found.objective, rest, solve)
        budget.charge(wider.seconds)
        found = _better(found, wider, effort)
    return msgspec.structs.replace(found, seconds=budget.spent_s)


def prices(problem: Problem, rounds: int = ROUNDS) -> Pricing:
    """The least L, by cutting planes.

    Each round tries the prices midway between the best so far and those where the model is least.
    """
    demand = _Demand(problem)
    top = np.full(len(problem.capacity), (problem.value / problem.gpus).max())
    cuts: list[tuple[Floats, float]] = []
    at = best_at = top / 2
    best = np.inf
    for _ in range(rounds):
        value, slope = demand.at(at)
        cuts.append((slope, value - float(slope @ at)))
        if value < best:
            best, best_at = value, at
        least, where = _model_minimum(cuts, top, best)
        if best - least <= TOLERANCE * best:
            break
        at = (where + best_at) / 2
    return Pricing(best, demand.losses(best_at), len(cuts))


def modelled_s(rounds: int, configurations: int) -> float:
    """Seconds that `rounds` of pricing take on a common server."""
    return rounds * (ROUND_S + ROUND_PER_CONFIGURATION_S * configurations)


def affordable_rounds(seconds: float, configurations: int) -> int:
    return min(max(int(seconds / modelled_s(1, configurations)), 1), ROUNDS)


class _Demand:
    """The GPUs that all jobs together take at given prices."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._value = problem.value
        self._node = problem.node
        """by configuration: it uses one node"""
        self._first = np.flatnonzero(np.diff(problem.job, prepend=-1))
        """the first configuration of each job that has any"""
        self._counts = np.diff(np.append(self._first, len(problem)))

    def at(self, price: Floats) -> tuple[float, Floats]:
        """L, and a subgradient: by node, its GPUs less those that jobs take."""
        problem = self._problem
        worth = self._worth(price)
        best = np.maximum.reduceat(worth, self._first)
        taken = np.flatnonzero(worth >= np.repeat(np.where(best > 0, best, np.inf), self._counts))
        one_each = taken[np.flatnonzero(np.diff(problem.job[taken], prepend=-1))]
        use = np.bincount(self._node[one_each], problem.gpus[one_each], len(problem.capacity))
        idle: Floats = (problem.capacity - use).astype(np.float64)
        return float(price @ problem.capacity + np.maximum(best, 0.0).sum()), idle

    def losses(self, price: Floats) -> Floats:
        worth = self._worth(price)
        best = np.maximum(np.maximum.reduceat(worth, self._first), 0.0)
        losses: Floats = np.repeat(best, self._counts) - worth
        return losses

    def _worth(self, price: Floats) -> Floats:
        worth: Floats = self._value - price[self._node] * self._problem.gpus
        return worth


def _model_minimum(cuts: list[tuple[Floats, float]], top: Floats, scale: float) -> tuple[float, Floats]:
    """The least z with z ≥ slope · π + constant for every cut, 0 ≤ π ≤ `top`, and where it is."""
    slopes = np.array([slope * top for slope, _ in cuts]) / scale
    table = np.hstack([np.ones((len(cuts), 1)), -slopes])
    row, column = np.indices(table.shape, dtype=np.int32)
    model = LinearProgram(
        cost=np.eye(1, table.shape[1])[0],
        matrix=Matrix(row.ravel(), column.ravel(), table.ravel()),
        row_lower=np.array([constant for _, constant in cuts]) / scale,
        row_upper=np.full(len(cuts), np.inf),
        upper=np.append(np.inf, np.ones(len(top))),
    )
    answer = model.solve()
    where: Floats = answer.x[1:] * top
    return float(answer.x[0]) * scale, where


def _solved_within(problem: Problem, priced: Pricing, reach: float, effort: Effort, solve: Solve) -> Solution:
    """The solution over the configurations whose loss is within `reach`, with a bound for all.

    A plan with any other configuration is worth less than L − `reach`.
    """
    rows = np.flatnonzero(priced.loss <= reach + TOLERANCE * priced.bound).astype(np.int32)
    found = solve(restricted(problem, rows), effort)
    choice = np.where(found.choice == NOTHING, NOTHING, rows[found.choice]).astype(np.int32)
    bound = min(priced.bound, max(found.bound, priced.bound - reach))
    return _with_bound(msgspec.structs.replace(found, choice=choice), bound, effort)


def _better(one: Solution, other: Solution, effort: Effort) -> Solution:
    best = other if other.objective >= one.objective else one
    return _with_bound(best, min(one.bound, other.bound), effort)


def _with_bound(found: Solution, bound: float, effort: Effort) -> Solution:
    """The solution with this bound, and with the stage that follows from the bound."""
    judged = msgspec.structs.replace(found, bound=max(bound, found.objective))
    if judged.gap <= effort.gap:
        return msgspec.structs.replace(judged, stage=Stage.OPTIMAL)
    stage = Stage.INCUMBENT if found.stage == Stage.OPTIMAL else found.stage
    return msgspec.structs.replace(judged, stage=stage)


def _remaining(effort: Effort, spent_s: float) -> Effort:
    return msgspec.structs.replace(effort, budget_s=max(effort.budget_s - spent_s, 0.0))
