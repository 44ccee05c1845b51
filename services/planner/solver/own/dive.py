"""Dives from the relaxation to a plan: take what it is surest of, tighten what is left, solve again.

Every step takes the column of the largest share × value × largest gang and those that come near it, closes
what no longer fits, adds the facets of the GPUs that are *left* on each node, prices new columns in, and
solves the small program again from where it was. Without the facets of what is left a dive ends 2–5 %
short; with them, and with new columns, mostly within 0.5 %. The order matters as much: a column that is
whole need not be taken soon. Small gangs are whole on whatever node they are, and if they are taken first
there is no empty node left for the large gangs that are still half here and half there.
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
"""relative to the urgency of a step's first column: a column with less waits for the next step"""
ROUNDS = 6
"""of pricing and facets, at most, in one step"""
JOIN = 3
"""columns a job may add in one of them"""
POOL = 200
"""configurations a job that may be priced in: its best at the relaxation's prices"""
WORTH = 1e-4
"""of the largest value: a smaller lead is not worth a column"""
TINY = 1e-6


def dive(master: Master, found: Bounded) -> Ints:
    """The configurations of a plan; the master is spent by it. Out of effort, the rest is greedy."""
    diving = _Dive(master, found)
    try:
        diving.run()
    except Spent:
        diving.place_all()
    return completed(master.columns, diving.chosen)


def rounded(columns: Columns, rows: Ints, x: Floats) -> Ints:
    """A plan at once: the surest columns as long as they fit, the rest greedy."""
    placing = Placing(columns)
    placing.place(rows[surest(columns, rows, x)])
    return completed(columns, placing.chosen)


def completed(columns: Columns, rows: Ints) -> Ints:
    """The plan with whatever still fits beside it."""
    waiting = np.ones(columns.problem.jobs, dtype=bool)
    waiting[columns.problem.job[rows]] = False
    rest = subproblem_of(columns, waiting, free_beside(columns.problem, rows))
    if rest is None:
        return rows
    choice = greedy(rest.problem).choice
    return np.sort(np.append(rows, rest.rows[choice[choice != NOTHING]]))


def surest(columns: Columns, rows: Ints, x: Floats) -> npt.NDArray[np.intp]:
    """Positions of the columns that are in use, by `urgency`."""
    used = np.flatnonzero(x > TINY)
    return used[np.argsort(-urgency(columns, rows[used], x[used]), kind="stable")]


def urgency(columns: Columns, rows: Ints, x: Floats) -> Floats:
    """Share × value × largest gang: what is sure, matters, and is hard to find a place for later."""
    urgent: Floats = x * columns.value[rows] * columns.gang[rows]
    return urgent


class Placing:
    """Configurations taken one by one."""

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
        for row in rows.tolist():
            self.take(row)

    def take(self, row: int) -> bool:
        """Take a configuration if its job has none yet and it fits; whether it was taken."""
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
        """Raises Spent; what was taken by then stands."""
        while True:
            taken = self._take()
            if not len(taken):
                return
            self._master.fix(taken, 1.0)
            self._close()
            self._settle()

    def place_all(self) -> None:
        """Take what the last relaxation is surest of, as long as it fits."""
        x = self._x()
        self.place(self._master.rows[surest(self.columns, self._master.rows, x)])

    def _x(self) -> Floats:
        """Share by column; 0 for columns that joined since the last solve."""
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
        """Close what does not fit any more, and what belongs to jobs that have a place."""
        rows = self._master.rows
        job = self.columns.problem.job[rows]
        fits = self.columns.fits(rows, self.free) & (self.choice[job] == NOTHING)
        closing = np.flatnonzero(self._open & ~fits & (self.choice[job] != rows)).astype(np.int32)
        self._master.fix(closing, 0.0)
        self._open &= fits
        pool = self._pool[self.choice[self.columns.problem.job[self._pool]] == NOTHING]
        self._pool = pool[self.columns.fits(pool, self.free)]

    def _settle(self) -> None:
        """Solve, tighten and price until nothing new joins."""
        for _ in range(ROUNDS):
            self._relaxed = self._master.solve()
            tightened = self._master.cut(self._relaxed.x, self.free, self._open)
            if not self._price_in() and not tightened:
                return

    def _price_in(self) -> int:
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
