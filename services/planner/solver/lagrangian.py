"""What a plan is worth at most at given prices, softened so that it has a slope.

Every node has a price w ≥ 0 on its capacity and on each of its facets, all of them Σ f(size) ≤ 1. A gang
costs φ[node, size] = Σ_f w_f f(size), and for any such prices

    Σ w + Σ_i max(0, max_c net_c),     net_c = value_c − Σ φ[node, size],

is not below the optimum; the least of it is the bound of the relaxation with all facets of all nodes. With
m ln(1 + Σ_c exp(net_c / m)) for the maximum of every job it is smooth (Nesterov 2005): every configuration
gets a share of its job, and the slope is what these shares leave of every Σ f ≤ 1.
"""

import numpy as np

from services.planner.configurations import Ints
from services.planner.problem import Floats, subset
from services.planner.solver.clock import Clock
from services.planner.solver.columns import Columns
from services.planner.solver.facets import facets


class Lagrangian:
    """Over some configurations. Calls take w as one column: by node and f."""

    def __init__(
        self, columns: Columns, rows: Ints, functions: Floats, softness: float, clock: Clock
    ) -> None:
        """`functions`: see `functions_of`; `softness`: m, in units of the objective."""
        self._functions, self._softness, self._clock = functions, softness, clock
        start, cells = subset(columns.problem.start, rows)
        self._start, self._gangs = start[:-1], np.diff(start)
        self._place = columns.place[cells]
        self._value = columns.value[rows]
        self._first = np.flatnonzero(np.diff(columns.problem.job[rows], prepend=-1))
        count = np.diff(np.append(self._first, len(rows)))
        self._owner = np.repeat(np.arange(len(count)), count)

    def __call__(self, w: Floats) -> tuple[float, Floats]:
        """Value and slope. Raises Spent."""
        self._clock.left_s()
        self._clock.charge_descent(len(self._place))
        worth, share = self._softened(w)
        nodes, _, sizes = self._functions.shape
        held = np.bincount(self._place, np.repeat(share, self._gangs), nodes * sizes).reshape(nodes, sizes)
        slope = 1.0 - np.einsum("ns,nfs->nf", held, self._functions)
        return float(w.sum()) + worth, slope.ravel()

    def shares(self, w: Floats) -> Floats:
        """By configuration: how much of it is in use, by its job's softened choice."""
        return self._softened(w)[1]

    def _softened(self, w: Floats) -> tuple[float, Floats]:
        price = price_of(self._functions, w).ravel()
        net = (self._value - np.add.reduceat(price[self._place], self._start)) / self._softness
        best = np.maximum(np.maximum.reduceat(net, self._first), 0.0)
        share = np.exp(net - best[self._owner])
        total = np.add.reduceat(share, self._first) + np.exp(-best)
        return self._softness * float((best + np.log(total)).sum()), share / total[self._owner]


def functions_of(capacity: Ints, sizes: int) -> Floats:
    """By node, function and size: f(size), the capacity's first; 0 where a node has fewer functions."""
    found = {gpus: _functions(gpus) for gpus in np.unique(capacity).tolist()}
    most = max(len(rows) for rows in found.values())
    result = np.zeros((len(capacity), most, sizes))
    for gpus, rows in found.items():
        result[capacity == gpus, : len(rows), : gpus + 1] = rows
    return result


def _functions(gpus: int) -> Floats:
    return np.vstack([np.arange(gpus + 1) / max(gpus, 1), facets(gpus)])


def by_capacity(functions: Floats, price: Floats) -> Floats:
    """w: `price` on the capacity of every node, nothing on facets."""
    w = np.zeros(functions.shape[:2])
    w[:, 0] = price
    return w.ravel()


def price_of(functions: Floats, w: Floats) -> Floats:
    """φ, by node and size."""
    price: Floats = np.einsum("nf,nfs->ns", w.reshape(functions.shape[:2]), functions)
    return price
