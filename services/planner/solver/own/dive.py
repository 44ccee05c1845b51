"""Dives from the relaxation to a plan: fixes the surest columns, tightens the rest, and solves again.

The *share* of a column is its x in the relaxation. Each step takes the column of the largest share × value ×
size of its largest gang, and those that come near it. It then excludes columns that no longer fit, adds the
facets of the GPUs that are *left* on each node, lets new columns join, and solves the program again from its
last basis. Without the facets of the GPUs left, a dive ends 2–5 % below the bound; with them and with new
columns mostly within 0.5 %.

The order matters as much. A column with share 1 need not be taken soon. Small gangs have share 1 on whatever
nodes they are, and if they are taken first, no empty node is left for large gangs whose shares are still
divided among nodes.
"""

import numpy as np
import numpy.typing as npt

from services.planner.solver.greedy import greedy
from services.planner.solver.own.columns import Columns, largest
from services.planner.solver.own.master import Master
from services.planner.solver.own.meter import Spent
from services.planner.solver.own.relaxation import Bounded
from services.planner.solver.own.subproblems import free_beside, subproblem_of
from services.planner.solver.problem import NOTHING
from shared.domain.arrays import Flags, Floats, Ints

NEXT = 0.5
"""a column whose urgency is less than this, relative to that of the step's first column, waits for the next
step"""
ROUNDS = 6
"""rounds of pricing and facets in one step, at most"""
JOIN = 3
"""columns that a job may add in a round"""
POOL = 200
"""configurations of a job that may join: its best at the relaxation's prices"""
WORTH = 1e-4
"""by how much a configuration must beat its job's price to join, relative to the largest value"""
TINY = 1e-6
"""a share up to this counts as 0"""


def dive(master: Master, found: Bounded) -> Ints:
    """The configurations of a plan; if the effort is spent, the rest is greedy. Fixes columns of `master`."""
    diving = _Dive(master, found)
    try:
        diving.run()
    except Spent:
        diving.place_all()
    return completed(master.columns, diving.chosen)


def rounded(columns: Columns, rows: Ints, x: Floats) -> Ints:
    """The configurations of a plan without solving again: the surest columns that fit, the rest greedy."""
    placing = Placing(columns)
    placing.place(rows[surest(columns, rows, x)])
    return completed(columns, placing.chosen)


def completed(columns: Columns, rows: Ints) -> Ints:
    """The plan, with configurations added greedily for jobs that have none."""
    waiting = np.ones(columns.problem.jobs, dtype=bool)
    waiting[columns.problem.job[rows]] = False
    rest = subproblem_of(columns, waiting, free_beside(columns.problem, rows))
    if rest is None:
        return rows
    choice = greedy(rest.problem).choice
    return np.sort(np.append(rows, rest.rows[choice[choice != NOTHING]]))


def surest(columns: Columns, rows: Ints, x: Floats) -> npt.NDArray[np.intp]:
    """Positions of the columns with a share above 0, those of largest `urgency` first."""
    used = np.flatnonzero(x > TINY)
    return used[np.argsort(-urgency(columns, rows[used], x[used]), kind="stable")]


def urgency(columns: Columns, rows: Ints, x: Floats) -> Floats:
    """By column, share × value × size of its largest gang: sure, valuable, and hard to place later."""
    urgent: Floats = x * columns.value[rows] * columns.gang[rows]
    return urgent


class Placing:
    """A plan while configurations are added to it."""

    def __init__(self, columns: Columns) -> None:
        problem = columns.problem
        self.columns = columns
        self.choice = np.full(problem.jobs, NOTHING, dtype=np.int32)
        self.free = problem.capacity.copy()

    @property
    def chosen(self) -> Ints:
        chosen: Ints = self.choice[self.choice != NOTHING]
        return chosen

    def place(self, rows: Ints) -> None:
        """Take each of these configurations that still can be taken, in this order."""
        for row in rows.tolist():
            self.take(row)

    def take(self, row: int) -> bool:
        """Take a configuration if its job has none yet and it fits; returns whether it was taken."""
        problem = self.columns.problem
        cells = slice(problem.start[row], problem.start[row + 1])
        node, size = problem.node[cells], problem.gpus[cells]
        if self.choice[problem.job[row]] != NOTHING or (size > self.free[node]).any():
            return False
        self.free[node] -= size
        self.choice[problem.job[row]] = row
        return True


class _Dive(Placing):
    def __init__(self, master: Master, found: Bounded) -> None:
        super().__init__(master.columns)
        self._master = master
        self._relaxed = found.relaxed
        self._pool = largest(found.net, master.columns.problem.job, POOL)
        self._open: Flags = np.ones(len(master.rows), dtype=bool)
        self._worth = WORTH * float(master.columns.value.max())

    def run(self) -> None:
        """Take columns until none can be taken. Raises Spent; columns taken by then stay taken."""
        while True:
            taken = self._take()
            if not len(taken):
                return
            self._master.fix(taken, 1.0)
            self._close()
            self._settle()

    def place_all(self) -> None:
        """Take the surest columns of the last relaxation that fit."""
        x = self._x()
        self.place(self._master.rows[surest(self.columns, self._master.rows, x)])

    def _x(self) -> Floats:
        """The share of each column; 0 for columns that joined since the last solve."""
        return np.pad(self._relaxed.x, (0, len(self._master.rows) - len(self._relaxed.x)))

    def _take(self) -> Ints:
        """The positions of the next columns: the most urgent, and those nearly as urgent."""
        rows = self._master.rows
        x = np.where(self._open, self._x(), 0.0)
        urgent, least = urgency(self.columns, rows, x), 0.0
        taken: list[int] = []
        for position in surest(self.columns, rows, x).tolist():
            if urgent[position] < least:
                break
            if self.take(int(rows[position])):
                taken.append(position)
                least = max(least, NEXT * urgent[position])
        return np.array(taken, dtype=np.int32)

    def _close(self) -> None:
        """Exclude columns that do not fit any more, and those of jobs that have a configuration."""
        rows = self._master.rows
        job = self.columns.problem.job[rows]
        fits = self.columns.fits(rows, self.free) & (self.choice[job] == NOTHING)
        closing = np.flatnonzero(self._open & ~fits & (self.choice[job] != rows)).astype(np.int32)
        self._master.fix(closing, 0.0)
        self._open &= fits
        pool = self._pool[self.choice[self.columns.problem.job[self._pool]] == NOTHING]
        self._pool = pool[self.columns.fits(pool, self.free)]

    def _settle(self) -> None:
        """Solve, add facets and let columns join, until there are no new ones, or for `ROUNDS`."""
        for _ in range(ROUNDS):
            self._relaxed = self._master.solve()
            tightened = self._master.cut(self._relaxed.x, self.free, self._open)
            if not self._price_in() and not tightened:
                return

    def _price_in(self) -> int:
        """Let configurations of the pool join that beat their job's price; returns how many joined."""
        pool, columns, relaxed = self._pool, self.columns, self._relaxed
        if not len(pool):
            return 0
        start, node, size = columns.cells(pool)
        net = columns.value[pool] - np.add.reduceat(relaxed.price[node, size], start[:-1])
        if relaxed.extra is not None:
            net -= relaxed.extra[pool]
        job = columns.problem.job[pool]
        leads = np.flatnonzero((net > relaxed.dual[job] + self._worth) & ~self._master.joined(pool))
        count = self._master.join(pool[leads[largest(net[leads], job[leads], JOIN)]])
        self._open = np.append(self._open, np.ones(count, dtype=bool))
        return count
