"""The proven bound: the linear relaxation by column generation, tightened by facets.

Prices on the GPUs of every node (and on facets, see `facets`) say what each configuration is worth net of
them. For any prices that are not negative

    bound = what all GPUs and facets cost + Σ_i max(0, max_c (value_c − Σ φ[node, size]))

is not below the optimum (Lagrange), so every round of the loop proves something. It solves the master over
the few columns it holds, prices all configurations at once, and lets each job's best ones join, until the
bound and the master's objective meet.
"""

from collections.abc import Callable

import msgspec
import numpy as np

from services.planner.configurations import Ints
from services.planner.problem import Floats
from services.planner.solver.clock import Clock
from services.planner.solver.columns import Columns, largest, sampled
from services.planner.solver.master import Master, Relaxed

SAMPLE = 40
"""columns a job begins with"""
JOIN = 8
"""columns a job may add in one round"""
NEAR = 0.5
"""of the way from a job's price to its best net value: a column below that is not worth adding"""
ROUNDS = 30
"""of facets, at most; the first few bring most"""
MET = 0.1
"""the bound is met within this share of the tolerated gap"""
FINEST = 1e-4
TINY = 1e-7

Told = Callable[[float], bool]
"""hears of every bound, and says whether it is good enough"""


class Bounded(msgspec.Struct, frozen=True):
    """Where a relaxation ended: any prices prove a bound, these the least that was found."""

    relaxed: Relaxed
    net: Floats
    """by configuration, at these prices"""
    best: Floats
    """by job, at these prices"""

    @property
    def bound(self) -> float:
        return self.relaxed.whole + float(self.best.sum())


class Relaxation:
    """A master that grows: by columns, then by facets."""

    def __init__(self, columns: Columns, clock: Clock, *, gap: float, told: Told) -> None:
        """`gap`: the tolerated relative gap."""
        self.columns = columns
        self.master = Master(columns, clock)
        self._clock = clock
        self._met = max(gap * MET, FINEST)
        self._told = told
        self.master.join(beginning(columns))

    def relax(self) -> Bounded:
        """Generate columns until bound and objective meet. Raises Spent."""
        least = np.inf
        while True:
            relaxed = self.master.solve()
            found = self.bounded(relaxed)
            least = min(least, found.bound)
            met = least - relaxed.objective <= self._met * least
            if self._told(least) or met or not self._price_in(found):
                return found

    def tighten(self, found: Bounded, rounds: int = ROUNDS) -> Bounded:
        """Add the facets that the relaxation breaks, until it breaks none. Raises Spent."""
        for _ in range(rounds):
            x = self.shares(found)
            if not self.master.cut(x, self.columns.problem.capacity, np.ones(len(x), dtype=bool)):
                break
            found = self.relax()
        return found

    def shares(self, found: Bounded) -> Floats:
        """By column of the master: how much of it is in use; nothing of those that joined since."""
        return np.pad(found.relaxed.x, (0, len(self.master.rows) - len(found.relaxed.x)))

    def bounded(self, relaxed: Relaxed) -> Bounded:
        """What all configurations are worth at these prices."""
        self._clock.charge_pricing(len(self.columns.problem))
        net = self.columns.net(relaxed.price)
        return Bounded(relaxed, net, self.columns.best(net))

    def _price_in(self, found: Bounded) -> int:
        """Let each job's best configurations join, where they beat the job's price; how many do."""
        job, price = self.columns.problem.job, found.relaxed.dual
        lead = np.maximum(found.best - price, 0.0) * NEAR
        least = price + np.maximum(lead, TINY * float(self.columns.value.max()))
        rows = np.flatnonzero(found.net > least[job]).astype(np.int32)
        rows = rows[~self.master.joined(rows)]
        return self.master.join(rows[largest(found.net[rows], job[rows], JOIN)])


def beginning(columns: Columns) -> Ints:
    """A sample of every job's configurations, and its most valuable one."""
    return np.union1d(sampled(columns, SAMPLE), columns.dearest()).astype(np.int32)
