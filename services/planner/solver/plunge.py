"""A large cluster's plan: a dive by prices, in place of programs.

Jobs are taken in turns, a tenth or a twentieth of them each, those of the largest share × value first; then
prices go on down for the jobs and GPUs that are left, from what all free GPUs of a node cost together, by as
many steps as there are turns.
"""

import contextlib

import numpy as np

from services.planner.configurations import Ints
from services.planner.problem import NOTHING, Floats, restricted
from services.planner.solver.clock import Clock, Spent
from services.planner.solver.columns import Columns, columns_of
from services.planner.solver.descent import descended
from services.planner.solver.dive import WHOLE, Placing, completed, surest
from services.planner.solver.lagrangian import Lagrangian, by_capacity, functions_of, price_of
from services.planner.solver.prices import Priced

SOFTNESS = 0.007
"""of what a job is worth on average"""


def plunged(columns: Columns, way: Priced, clock: Clock) -> Ints:
    """The configurations of a plan, of those that `way` looked at; the rest is greedy."""
    placing = Placing(columns_of(restricted(columns.problem, way.rows)))
    with contextlib.suppress(Spent):
        _plunge(placing, way, clock)
    return completed(columns, way.rows[placing.chosen])


def _plunge(placing: Placing, way: Priced, clock: Clock) -> None:
    columns, price = placing.columns, way.found.relaxed.price
    rows, nodes = np.arange(len(columns.problem), dtype=np.int32), np.arange(len(price))
    softness = SOFTNESS * way.found.bound / columns.problem.jobs
    for left in range(way.turns, 0, -1):
        rows = rows[placing.choice[columns.problem.job[rows]] == NOTHING]
        rows = rows[columns.fits(rows, placing.free)]
        if not len(rows):
            return
        functions = functions_of(placing.free, columns.sizes)
        lagrangian = Lagrangian(columns, rows, functions, softness, clock)
        w = descended(lagrangian, by_capacity(functions, price[nodes, placing.free]), way.turns)
        price = price_of(functions, w)
        x = lagrangian.shares(w)
        _take(placing, rows, x, most=float(x.sum()) / left)


def _take(placing: Placing, rows: Ints, x: Floats, *, most: float) -> None:
    """All that are nearly whole; then the surest, until so many are taken."""
    taken = 0
    for position in surest(placing.columns, rows, x).tolist():
        if taken >= most and x[position] < WHOLE:
            return
        taken += placing.take(int(rows[position]))
