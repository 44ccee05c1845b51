"""The proven bound: the linear relaxation by column generation, tightened by facets and cliques.

The GPUs of every node have a price, and so has every facet (see `facets`). The net value of a configuration
is its value less the prices of what it uses. For any prices that are not negative

    bound = price of all GPUs and facets + Σ_i max(0, max_c (value_c − Σ φ[node, size]))

is not below the optimum (Lagrange), so every round of column generation proves a bound. A round solves the
master over its few columns, prices all configurations, and lets each job's best ones join. Rounds end when
the bound and the master's objective meet.
"""

from collections.abc import Callable

import msgspec
import numpy as np

from services.planner.solver.own.columns import Columns, largest, sampled
from services.planner.solver.own.master import Master, RelaxedSolution
from services.planner.solver.own.meter import Meter
from shared.domain.arrays import Floats, Ints

SAMPLE = 40
"""columns that a job begins with if no prices are known"""
LIKELY = 24
"""columns that a job begins with if prices are known"""
JOIN = 8
"""columns that a job may add in one round"""
NEAR = 0.5
"""a column joins only if its net value is above this part of the way from its job's price to the job's best
net value"""
ROUNDS = 30
"""rounds of facets, at most; the first few bring most"""
MET = 0.1
"""bound and objective meet if their relative difference is at most this share of the tolerated gap, or
`FINEST`"""
FINEST = 1e-4
TINY = 1e-7
"""by how much a column must beat its job's price to join, relative to the largest value"""

Enough = Callable[[float], bool]
"""called with every bound that is found: returns whether the relaxation may stop there"""


class Bounded(msgspec.Struct, frozen=True):
    """Prices that a relaxation found, and the bound that they prove; any prices prove one."""

    relaxed: RelaxedSolution
    net: Floats
    """by configuration: its net value at these prices"""
    best: Floats
    """by job: the best net value of its configurations, at least 0"""

    @property
    def bound(self) -> float:
        return self.relaxed.whole + float(self.best.sum())


class Relaxation:
    """A master that grows: by columns, then by facets."""

    def __init__(self, columns: Columns, rows: Ints, meter: Meter, *, gap: float, enough: Enough) -> None:
        """`rows`: the configurations to begin with; `gap`: the tolerated relative gap."""
        self.columns = columns
        self.master = Master(columns, meter)
        self._meter = meter
        self._met = max(gap * MET, FINEST)
        self._enough = enough
        self._ended = False
        self.master.join(rows)

    def relax(self) -> Bounded:
        """Generate columns until bound and objective meet. Raises Spent."""
        least = np.inf
        while True:
            relaxed = self.master.solve()
            found = self.bounded(relaxed)
            least = min(least, found.bound)
            met = least - relaxed.objective <= self._met * least
            self._ended = self._enough(least)
            if self._ended or met or not self._price_in(found):
                return found

    def tighten(self, found: Bounded, rounds: int = ROUNDS) -> Bounded:
        """Add the facets that the relaxation breaks, until it breaks none or the bound is good enough.

        Raises Spent.
        """
        for _ in range(rounds):
            if self._ended:
                break
            x = self.shares(found)
            facets = self.master.cut(x, self.columns.problem.capacity, np.ones(len(x), dtype=bool))
            if not facets and not self.master.exclude(x):
                break
            found = self.relax()
        return found

    def shares(self, found: Bounded) -> Floats:
        """By column of the master: its x in the relaxation; 0 for columns that joined since."""
        return np.pad(found.relaxed.x, (0, len(self.master.rows) - len(found.relaxed.x)))

    def bounded(self, relaxed: RelaxedSolution) -> Bounded:
        """The net values of all configurations at the prices of `relaxed`, and the bound that they prove."""
        self._meter.charge_pricing(len(self.columns.problem))
        net = self.columns.net(relaxed.price)
        if relaxed.extra is not None:
            net -= relaxed.extra
        return Bounded(relaxed, net, self.columns.best(net))

    def _price_in(self, found: Bounded) -> int:
        """Let each job's best configurations join if they beat the job's price; returns how many joined."""
        job, price = self.columns.problem.job, found.relaxed.dual
        lead = np.maximum(found.best - price, 0.0) * NEAR
        least = price + np.maximum(lead, TINY * float(self.columns.value.max()))
        rows = np.flatnonzero(found.net > least[job]).astype(np.int32)
        rows = rows[~self.master.joined(rows)]
        return self.master.join(rows[largest(found.net[rows], job[rows], JOIN)])


def likely(columns: Columns, found: Bounded) -> Ints:
    """Each job's best configurations at some prices, and its most valuable one."""
    return np.union1d(largest(found.net, columns.problem.job, LIKELY), columns.most_valuable()).astype(
        np.int32
    )


def sample(columns: Columns) -> Ints:
    """A sample of every job's configurations, and its most valuable one."""
    return np.union1d(sampled(columns, SAMPLE), columns.most_valuable()).astype(np.int32)
