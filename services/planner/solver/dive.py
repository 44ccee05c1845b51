"""From the relaxation to a plan: take what it is surest of, tighten what is left, solve again.

Every step takes the columns that are (nearly) whole, or else the one of the largest share × value, closes
what no longer fits, adds the facets of the GPUs that are *left* on each node, prices new columns in, and
solves the small program again from where it was. Without the facets of what is left a dive ends 2–5 %
short; with them, and with new columns, mostly within 0.6 %. Taking valuable jobs first matters too: late in
a dive there is no room left for a gang that spans nodes.
"""

import numpy as np
import numpy.typing as npt

from services.planner.configurations import Ints
from services.planner.greedy import greedy
from services.planner.problem import NOTHING, Floats
from services.planner.solver.clock import Spent
from services.planner.solver.columns import Columns, Flags, largest
from services.planner.solver.master import Master
from services.planner.solver.parts import free_beside, part_of
from services.planner.solver.relaxation import Bounded

WHOLE = 0.95
"""a column with so much is taken at once"""
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
    """A plan at once: columns by share × value as long as they fit, the rest greedy."""
    placing = Placing(columns)
    placing.place(rows[surest(columns, rows, x)])
    return completed(columns, placing.chosen)


def completed(columns: Columns, rows: Ints) -> Ints:
    """The plan with whatever still fits beside it."""
    waiting = np.ones(columns.problem.jobs, dtype=bool)
    waiting[columns.problem.job[rows]] = False
    rest = part_of(columns, waiting, free_beside(columns.problem, rows))
    if rest is None:
        return rows
    choice = greedy(rest.problem).choice
    return np.sort(np.append(rows, rest.rows[choice[choice != NOTHING]]))


def surest(columns: Columns, rows: Ints, x: Floats) -> npt.NDArray[np.intp]:
    """Positions of the columns that are in use: whole ones, then by share × value."""
    used = np.flatnonzero(x > TINY)
    key = np.where(x[used] >= WHOLE, np.inf, x[used] * columns.value[rows[used]])
    return used[np.lexsort((-x[used], -key))]


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
        """Whether the job had none, and it fits."""
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
        """Whatever the last relaxation is surest of."""
        x = self._x()
        self.place(self._master.rows[surest(self.columns, self._master.rows, x)])

    def _x(self) -> Floats:
        """By column; those that joined since the last solve have nothing."""
        return np.pad(self._relaxed.x, (0, len(self._master.rows) - len(self._relaxed.x)))

    def _take(self) -> Ints:
        """The positions of the next columns: all nearly whole ones, or the surest."""
        rows = self._master.rows
        x = np.where(self._open, self._x(), 0.0)
        taken: list[int] = []
        for position in surest(self.columns, rows, x).tolist():
            if taken and x[position] < WHOLE:
                break
            if self.take(int(rows[position])):
                taken.append(position)
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
        job = columns.problem.job[pool]
        leads = np.flatnonzero((net > relaxed.dual[job] + self._worth) & ~self._master.joined(pool))
        count = self._master.join(pool[leads[largest(net[leads], job[leads], JOIN)]])
        self._open = np.append(self._open, np.ones(count, dtype=bool))
        return count
