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
from services.planner.solver.direct import Search
from services.planner.solver.relaxation import Relaxation, beginning

BLOCK = 8
"""nodes"""
BEGIN = 24
"""columns a job begins with in the whole program: its best at these prices"""
SPREAD = 1e-3
"""of a job's best net value: columns that differ by less are as good as each other"""
NEAR = 0.9
"""of a job's best net value: what is below is no column to begin with"""


def coarse_prices(columns: Columns, clock: Clock, search: Search) -> Ints:
    """The configurations to begin with; tells the search the bound that the prices prove. Raises Spent."""
    problem = columns.problem
    block = (np.cumsum(problem.capacity > 0) - 1).clip(0) // BLOCK
    small = columns_of(_merged(restricted(problem, _sample(problem)), block))
    relaxation = Relaxation(small, clock, gap=search.effort.gap, told=_nobody, begin=beginning(small))
    price = relaxation.relax().relaxed.price[:, 1][block][:, None] * np.arange(problem.gpus.max() + 1)
    clock.charge_pricing(len(problem))
    net = columns.net(price)
    best = columns.best(net)
    search.tighten(float(price[:, 1] @ problem.capacity + best.sum()))
    return _spread(columns, net, best)


def _nobody(_: float) -> None:
    """The bound of a sample proves nothing."""


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


def _spread(columns: Columns, net: Floats, best: Floats) -> Ints:
    """Each job's best configurations; among as good ones of every job others, so that none are crowded."""
    job = columns.problem.job
    near = np.flatnonzero(net >= best[job] * NEAR).astype(np.int32)
    noise = np.random.default_rng(1).random(len(near)) * SPREAD
    key = net[near] + noise * best[job[near]]
    return np.union1d(near[largest(key, job[near], BEGIN)], columns.dearest()).astype(np.int32)
