"""First prices for a large cluster: its nodes in blocks of neighbours, a sample of its configurations.

Neighbours of equal capacity are alike but for their traits, so a program over blocks knows nearly all that
prices have to say, at an eighth of the rows. Any prices give a bound for the whole cluster.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from services.planner.configurations import Ints
from services.planner.problem import Floats, Problem, restricted
from services.planner.solver.clock import Clock
from services.planner.solver.columns import Columns, columns_of, largest
from services.planner.solver.master import Relaxed
from services.planner.solver.relaxation import Bounded, Relaxation, beginning
from services.planner.solver.search import Search

BLOCK = 8
"""nodes"""
BEGIN = 24
"""columns a job begins with in the whole program: its best at these prices"""
SPREAD = 0.02
"""of a job's largest value: as much as nodes of a block may differ"""


class Coarse(msgspec.Struct, frozen=True):
    found: Bounded
    """the whole cluster at these prices"""
    rows: Ints
    """configurations that the program over blocks held"""
    x: Floats
    """how much of each is in use"""


def coarse(columns: Columns, clock: Clock, search: Search) -> Coarse:
    """Raises Spent."""
    problem = columns.problem
    block = (np.cumsum(problem.capacity > 0) - 1).clip(0) // BLOCK
    rows = _sample(problem)
    small = columns_of(_merged(restricted(problem, rows), block))
    relaxation = Relaxation(
        small, clock, gap=search.effort.gap, told=_nobody, begin=beginning(small), interior=True
    )
    priced = relaxation.relax()
    held = rows[relaxation.master.rows]
    return Coarse(_priced(columns, clock, priced.relaxed, block), held, relaxation.shares(priced))


def _priced(columns: Columns, clock: Clock, relaxed: Relaxed, block: npt.NDArray[np.int64]) -> Bounded:
    """All configurations at the prices of their blocks."""
    problem = columns.problem
    clock.charge_pricing(len(problem))
    gpu = relaxed.price[block, 1]
    price: Floats = gpu[:, None] * np.arange(float(problem.gpus.max() + 1))
    net = columns.net(price)
    whole = msgspec.structs.replace(relaxed, price=price, whole=float(gpu @ problem.capacity))
    return Bounded(whole, net, columns.best(net))


def spread(columns: Columns, found: Bounded) -> Ints:
    """Columns for the program over nodes to begin with: each job's best at these prices.

    Among nearly as good ones every job has others, so that no node is crowded.
    """
    job, net = columns.problem.job, found.net
    worth = columns.best(columns.value) * SPREAD
    near = np.flatnonzero(net >= (found.best - worth)[job]).astype(np.int32)
    noise = np.random.default_rng(1).random(len(near))
    return near[largest(net[near] + noise * worth[job[near]], job[near], BEGIN)]


def _nobody(_: float) -> bool:
    """The bound of a sample proves nothing."""
    return False


def _sample(problem: Problem) -> Ints:
    """One configuration in `BLOCK`, of every job another one."""
    first = problem.node[problem.start[:-1]]
    return np.flatnonzero(first % BLOCK == problem.job % BLOCK).astype(np.int32)


def _merged(problem: Problem, block: npt.NDArray[np.int64]) -> Problem:
    """The program with blocks for nodes."""
    count = int(block.max()) + 1
    owner = np.repeat(np.arange(len(problem)), np.diff(problem.start))
    cells, cell = np.unique(owner * count + block[problem.node], return_inverse=True)
    ends = np.searchsorted(cells, np.arange(len(problem) + 1) * count)
    return msgspec.structs.replace(
        problem,
        capacity=np.bincount(block, weights=problem.capacity).astype(np.int32),
        start=ends.astype(np.int32),
        node=(cells % count).astype(np.int32),
        gpus=np.bincount(cell, weights=problem.gpus).astype(np.int32),
    )
