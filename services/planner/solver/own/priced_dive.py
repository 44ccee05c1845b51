"""A dive by prices, without linear programs.

It goes in turns. Each turn first continues the descent of prices for the jobs and GPUs that are left, by as
many steps as there are turns. This descent begins with the price of all free GPUs of each node together, put
on the node's capacity. Then the turn places an equal part of the jobs, a quarter to a twentieth of all by the
number of turns, the surest first (see `dive.surest`).
"""

import contextlib

import numpy as np

from services.planner.solver.own.columns import Columns, columns_of
from services.planner.solver.own.descent import descended
from services.planner.solver.own.dive import Placing, completed, surest
from services.planner.solver.own.lagrangian import Lagrangian, by_capacity, functions_of, price_of
from services.planner.solver.own.meter import Meter, Spent
from services.planner.solver.own.prices import Priced
from services.planner.solver.problem import NOTHING, restricted
from shared.domain.arrays import Floats, Ints

SOFTNESS = 0.007
"""m of the Lagrangian, relative to the mean worth of a job"""


def priced_dive(columns: Columns, priced: Priced, meter: Meter) -> Ints:
    """The configurations of a plan, from the sample of a leg; completed greedily from all configurations."""
    placing = Placing(columns_of(restricted(columns.problem, priced.rows)))
    with contextlib.suppress(Spent):
        _dive(placing, priced, meter)
    return completed(columns, priced.rows[placing.chosen])


def _dive(placing: Placing, priced: Priced, meter: Meter) -> None:
    columns, price = placing.columns, priced.found.relaxed.price
    rows, nodes = np.arange(len(columns.problem), dtype=np.int32), np.arange(len(price))
    softness = SOFTNESS * priced.found.bound / columns.problem.jobs
    for left in range(priced.turns, 0, -1):
        rows = rows[placing.choice[columns.problem.job[rows]] == NOTHING]
        rows = rows[columns.fits(rows, placing.free)]
        if not len(rows):
            return
        functions = functions_of(placing.free, columns.sizes)
        lagrangian = Lagrangian(columns, rows, functions, softness, meter)
        w = descended(lagrangian, by_capacity(functions, price[nodes, placing.free]), priced.turns)
        price = price_of(functions, w)
        x = lagrangian.shares(w)
        _take(placing, rows, x, most=float(x.sum()) / left)


def _take(placing: Placing, rows: Ints, x: Floats, *, most: float) -> None:
    """Take the surest configurations, up to `most` of them."""
    taken = 0
    for position in surest(placing.columns, rows, x).tolist():
        if taken >= most:
            return
        taken += placing.take(int(rows[position]))
