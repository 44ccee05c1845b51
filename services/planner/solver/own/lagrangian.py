"""The upper bound that prices prove (the Lagrangian), smoothed so that it has a gradient.

Every node has a price w ≥ 0 for its capacity and for each of its facets; each of these is an inequality
Σ f(size) ≤ 1. A gang costs φ[node, size] = Σ_f w_f f(size), and for any such prices

    Σ w + Σ_i max(0, max_c net_c),     net_c = value_c − Σ φ[node, size],

is not below the optimum. Its least value is the bound of the relaxation with all facets of all nodes. With
m ln(1 + Σ_c exp(net_c / m)) in place of each job's maximum it is smooth (Nesterov 2005). Then every
configuration has a share of its job, and the slope in w_f is 1 − Σ f(size) · share over the gangs of the
node.
"""

import numpy as np

from services.planner.solver.own.columns import Columns
from services.planner.solver.own.facets import facets
from services.planner.solver.own.meter import Meter
from services.planner.solver.problem import subset
from shared.domain.arrays import Floats, Ints


class Lagrangian:
    """The smoothed bound over some configurations, as a function of w, an array by node and f, row by row."""

    def __init__(
        self, columns: Columns, rows: Ints, functions: Floats, softness: float, meter: Meter
    ) -> None:
        """`functions`: see `functions_of`; `softness`: m, in units of the objective."""
        self._functions, self._softness, self._meter = functions, softness, meter
        self._gangs = _Gangs(columns, rows)
        self._value = columns.value[rows]
        self._first = np.flatnonzero(np.diff(columns.problem.job[rows], prepend=-1))
        count = np.diff(np.append(self._first, len(rows)))
        self._owner = np.repeat(np.arange(len(count)), count)

    def __call__(self, w: Floats) -> tuple[float, Floats]:
        """Value and slope. Raises Spent."""
        self._meter.left_s()
        self._meter.charge_descent(self._gangs.count)
        worth, share = self._softened(w)
        nodes, _, sizes = self._functions.shape
        held = self._gangs.held(share, nodes * sizes).reshape(nodes, sizes)
        slope = 1.0 - np.einsum("ns,nfs->nf", held, self._functions)
        return float(w.sum()) + worth, slope.ravel()

    def shares(self, w: Floats) -> Floats:
        """By configuration: its share of its job at these prices."""
        return self._softened(w)[1]

    def _softened(self, w: Floats) -> tuple[float, Floats]:
        price = price_of(self._functions, w).ravel()
        net = (self._value - self._gangs.cost(price)) / self._softness
        best = np.maximum(np.maximum.reduceat(net, self._first), 0.0)
        share = np.exp(net - best[self._owner])
        total = np.add.reduceat(share, self._first) + np.exp(-best)
        return self._softness * float((best + np.log(total)).sum()), share / total[self._owner]


class _Gangs:
    """The gangs of some configurations. The first gang of each is kept apart, since few have several."""

    def __init__(self, columns: Columns, rows: Ints) -> None:
        start, cells = subset(columns.problem.start, rows)
        place = columns.place[cells]
        gangs = np.diff(start)
        self.count = len(place)
        self._first = place[start[:-1]]
        self._several = np.flatnonzero(gangs > 1)
        others = gangs[self._several] - 1
        further = np.ones(len(place), dtype=bool)
        further[start[:-1]] = False
        self._other = place[further]
        self._other_start = np.cumsum(others) - others
        self._owner = np.repeat(self._several, others)

    def cost(self, price: Floats) -> Floats:
        """By configuration: the cost of all its gangs. `price`: φ, row by row."""
        cost = price.take(self._first)
        if len(self._other):
            cost[self._several] += np.add.reduceat(price.take(self._other), self._other_start)
        return cost

    def held(self, share: Floats, places: int) -> Floats:
        """By place in φ (node and size): the sum of the shares of its gangs."""
        held: Floats = np.bincount(self._first, share, places).astype(np.float64)
        if len(self._other):
            held += np.bincount(self._other, share.take(self._owner), places)
        return held


def functions_of(capacity: Ints, sizes: int) -> Floats:
    """By node, function and size: f(size). The first function is the capacity; missing ones are 0."""
    found = {gpus: _functions(gpus) for gpus in np.unique(capacity).tolist()}
    most = max(len(rows) for rows in found.values())
    result = np.zeros((len(capacity), most, sizes))
    for gpus, rows in found.items():
        result[capacity == gpus, : len(rows), : gpus + 1] = rows
    return result


def _functions(gpus: int) -> Floats:
    return np.vstack([np.arange(gpus + 1) / max(gpus, 1), facets(gpus)])


def by_capacity(functions: Floats, price: Floats) -> Floats:
    """The prices w with `price` for the capacity of every node, and 0 for all facets."""
    w = np.zeros(functions.shape[:2])
    w[:, 0] = price
    return w.ravel()


def price_of(functions: Floats, w: Floats) -> Floats:
    """The price φ of a gang by node and size, from w."""
    price: Floats = np.einsum("nf,nfs->ns", w.reshape(functions.shape[:2]), functions)
    return price
