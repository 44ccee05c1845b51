"""The integer program of one plan, as plain arrays, and its solution. Pure.

Data: GPUs per node `capacity`; per job its `weight` (prior_i + bias)^λ; configurations as compressed
sparse rows (see `configurations`), each with its `gain` G_ij.

    maximise    Σ_c weight_{job c} · gain_c · x_c                                 (eq. 11)
    subject to  Σ_{c of job i} x_c ≤ 1                 for every job i            (eq. 12)
                Σ_c gpus_{c,n} x_c ≤ capacity_n        for every node n           (eq. 13)
                x_c ∈ {0, 1}
"""

from collections.abc import Callable

import msgspec
import numpy as np

from schemas.plans import Stage
from services.planner.solver.effort import Effort
from shared.domain.arrays import Floats, Ints

NO_ROWS = np.empty(0, dtype=np.int32)
NOTHING = -1
"""a job's choice when it gets no configuration"""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    capacity: Ints
    """GPUs, by node"""
    weight: Floats
    """by job, not negative"""
    job: Ints
    """by configuration, in ascending order"""
    start: Ints
    node: Ints
    gpus: Ints
    gain: Floats
    """by configuration, above 0"""
    present: Ints = NO_ROWS
    """the configurations that jobs hold now, in ascending order: a plan to begin with"""

    def __len__(self) -> int:
        return len(self.job)

    @property
    def jobs(self) -> int:
        return len(self.weight)

    @property
    def value(self) -> Floats:
        """What each configuration adds to the objective."""
        return self.weight[self.job] * self.gain


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    choice: Ints
    """by job: the configuration, or NOTHING"""
    objective: float
    bound: float
    """no choice is worth more"""
    stage: Stage
    seconds: float = 0.0
    """seconds that the solver took; modelled seconds if the effort is modelled"""

    @property
    def gap(self) -> float:
        """(bound − objective) / bound."""
        return max(self.bound - self.objective, 0.0) / self.bound if self.bound > 0 else 0.0


Solve = Callable[[Problem, Effort], Solution]


class SolverFailed(RuntimeError):
    """A back end raised an exception; the text names them. A plan can still be made without solving."""


def restricted(problem: Problem, rows: Ints) -> Problem:
    """The same program with these configurations only."""
    start, cells = subset(problem.start, rows)
    present = np.zeros(len(problem), dtype=bool)
    present[problem.present] = True
    return Problem(
        capacity=problem.capacity,
        weight=problem.weight,
        job=problem.job[rows],
        start=start,
        node=problem.node[cells],
        gpus=problem.gpus[cells],
        gain=problem.gain[rows],
        present=np.flatnonzero(present[rows]).astype(np.int32),
    )


def subset(start: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Row pointers and cell positions of some rows of compressed sparse rows."""
    first = start[rows]
    lengths = start[rows + 1] - first
    pointers = np.zeros(len(rows) + 1, dtype=np.int32)
    lengths.cumsum(dtype=np.int32, out=pointers[1:])
    cells = (first - pointers[:-1]).repeat(lengths)
    cells += np.arange(len(cells), dtype=np.int32)
    return pointers, cells


def worth(problem: Problem, choice: Ints) -> float:
    """The objective of a choice."""
    rows = choice[choice != NOTHING]
    return float((problem.weight[problem.job[rows]] * problem.gain[rows]).sum())


def feasible(problem: Problem, choice: Ints) -> bool:
    """Whether every job has a configuration of its own, or nothing, and no node is overfilled."""
    jobs = np.flatnonzero(choice != NOTHING)
    _, cells = subset(problem.start, choice[jobs])
    used = np.bincount(problem.node[cells], problem.gpus[cells], len(problem.capacity))
    return bool((problem.job[choice[jobs]] == jobs).all() and (used <= problem.capacity).all())


def best_by_job(problem: Problem) -> Floats:
    """What each job's best configuration is worth; 0 without any."""
    best = np.zeros(problem.jobs)
    edges = np.searchsorted(problem.job, np.arange(problem.jobs + 1))
    has = edges[:-1] < edges[1:]
    best[has] = np.maximum.reduceat(problem.value, edges[:-1][has]) if has.any() else 0.0
    return best
