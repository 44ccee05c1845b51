"""Prices for a large cluster: down the Lagrangian, in legs.

A leg steps over a sample: the configurations that are near their job's best at the prices so far, and of the
others the fewer the farther they are, so that no node is left without bidders. Then all of them are priced,
which proves a bound. No program is solved: for 8,192 GPUs a step takes some milliseconds, a leg half a second
to a second.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from services.planner.configurations import Ints
from services.planner.problem import Floats
from services.planner.solver.clock import Clock
from services.planner.solver.columns import Columns, least
from services.planner.solver.descent import descended
from services.planner.solver.lagrangian import Lagrangian, by_capacity, functions_of, price_of
from services.planner.solver.master import Relaxed
from services.planner.solver.relaxation import Bounded

NEAR = 0.01
"""of a job's largest value: a smaller loss is as good as none"""
TINY = 1e-12


class Leg(msgspec.Struct, frozen=True):
    """Of the way down."""

    each: int
    """configurations a job that it looks at, on average"""
    steps: int
    """at most"""
    softness: float
    """of what a job is worth on average"""
    turns: int = 0
    """of a plunge from its end, and as many steps in each turn; 0: its prices are not worth a plunge"""


LEGS = (
    Leg(70, 60, 0.02),
    Leg(140, 40, 0.005),
    Leg(280, 20, 0.005, turns=10),
    Leg(280, 60, 0.002, turns=20),
)


class Priced(msgspec.Struct, frozen=True):
    """Where a leg ended."""

    found: Bounded
    rows: Ints
    """the configurations that it looked at; `found.relaxed.x` is how much of each is in use"""
    turns: int


def prices(columns: Columns, clock: Clock, gpu: float) -> Iterator[Priced]:
    """Leg by leg; `gpu` is what every GPU costs to begin with. Raises Spent."""
    problem = columns.problem
    random = np.random.default_rng(1)
    functions = functions_of(problem.capacity, columns.sizes)
    w = by_capacity(functions, gpu * problem.capacity.astype(float))
    found = _bounded(columns, clock, functions, w, np.empty(0))
    for leg in LEGS:
        rows = _looked_at(columns, found, leg.each, random)
        lagrangian = Lagrangian(columns, rows, functions, leg.softness * found.bound / problem.jobs, clock)
        w = descended(lagrangian, w, leg.steps)
        found = _bounded(columns, clock, functions, w, lagrangian.shares(w))
        yield Priced(found, rows, leg.turns)


def _looked_at(columns: Columns, found: Bounded, each: int, random: np.random.Generator) -> Ints:
    """A sample whose density falls with what a configuration loses beside its job's best."""
    job = columns.problem.job
    unit = columns.best(columns.value)
    unit = np.maximum(unit, TINY * unit.max())
    late = ((found.best[job] - found.net) / unit[job] + NEAR) * random.random(len(job))
    return least(late, each * columns.problem.jobs)


def _bounded(columns: Columns, clock: Clock, functions: Floats, w: Floats, x: Floats) -> Bounded:
    clock.left_s()
    clock.charge_pricing(len(columns.problem))
    price = price_of(functions, w)
    net = columns.net(price)
    best = columns.best(net)
    whole = float(w.sum())
    return Bounded(Relaxed(whole + float(best.sum()), x, best, price, whole), net, best)
