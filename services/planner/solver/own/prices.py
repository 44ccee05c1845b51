"""Finds prices without a linear program: minimises the Lagrangian, in legs.

A leg minimises it over a sample of the configurations: those that are near their job's best at the prices so
far, and fewer of the others, the farther they are from it. So every node is in some configuration of the
sample. Then all configurations are priced, which proves a bound. A step takes a tenth of a millisecond for
512 GPUs and some milliseconds for 8,192; for 8,192 GPUs a leg takes half a second to a second.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from services.planner.solver.own.columns import Columns, least
from services.planner.solver.own.descent import descended
from services.planner.solver.own.lagrangian import Lagrangian, by_capacity, functions_of, price_of
from services.planner.solver.own.master import RelaxedSolution
from services.planner.solver.own.meter import Meter
from services.planner.solver.own.relaxation import Bounded
from shared.domain.arrays import Floats, Ints

NEAR = 0.01
"""added to the loss of every configuration, relative to its job's largest value: below it losses matter
little"""
TINY = 1e-12
"""the least value, relative to the largest of all, that losses are divided by"""


class Leg(msgspec.Struct, frozen=True):
    """Parameters of one leg of the descent."""

    each: int
    """configurations in its sample, per job on average"""
    steps: int
    """descent steps at most"""
    softness: float
    """m of the Lagrangian, relative to the mean worth of a job"""
    turns: int
    """turns of the priced dive after this leg, each with as many descent steps"""


LEGS = (
    Leg(24, 40, 0.02, turns=6),
    Leg(70, 40, 0.01, turns=8),
    Leg(140, 40, 0.005, turns=10),
    Leg(280, 60, 0.002, turns=20),
)

BRIEF = Leg(10, 20, 0.03, turns=4)
"""the first leg where nodes are few, so that there are few prices to find"""
FEW_NODES = 16
"""nodes up to which the legs begin with `BRIEF`"""


class Priced(msgspec.Struct, frozen=True):
    """The result of a leg."""

    found: Bounded
    rows: Ints
    """its sample of configurations; `found.relaxed.x` has the share of each"""
    turns: int


def prices(columns: Columns, meter: Meter, gpu: float, legs: Sequence[Leg] = LEGS) -> Iterator[Priced]:
    """The result of each leg. `gpu`: the price of every GPU to begin with. Raises Spent."""
    problem = columns.problem
    random = np.random.default_rng(1)
    functions = functions_of(problem.capacity, columns.sizes)
    w = by_capacity(functions, gpu * problem.capacity.astype(float))
    found = _bounded(columns, meter, functions, w, np.empty(0))
    for leg in legs:
        rows = _looked_at(columns, found, leg.each, random)
        lagrangian = Lagrangian(columns, rows, functions, leg.softness * found.bound / problem.jobs, meter)
        w = descended(lagrangian, w, leg.steps)
        found = _bounded(columns, meter, functions, w, lagrangian.shares(w))
        yield Priced(found, rows, leg.turns)


def _looked_at(columns: Columns, found: Bounded, each: int, random: np.random.Generator) -> Ints:
    """A random sample: the more a configuration's net value is below its job's best, the rarer it is."""
    job = columns.problem.job
    unit = columns.best(columns.value)
    unit = np.maximum(unit, TINY * unit.max())
    late = ((found.best[job] - found.net) / unit[job] + NEAR) * random.random(len(job))
    return least(late, each * columns.problem.jobs)


def _bounded(columns: Columns, meter: Meter, functions: Floats, w: Floats, x: Floats) -> Bounded:
    meter.left_s()
    meter.charge_pricing(len(columns.problem))
    price = price_of(functions, w)
    net = columns.net(price)
    best = columns.best(net)
    whole = float(w.sum())
    return Bounded(RelaxedSolution(whole + float(best.sum()), x, best, price, whole), net, best)
