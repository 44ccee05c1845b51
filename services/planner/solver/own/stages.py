"""Our own back end: prices prove a bound, a dive finds a plan, and both improve up to the tolerated gap.

1. prices that minimise the Lagrangian, in legs: a bound within some tenths of a per cent of the best plan
   (`prices`), and after each leg a dive by these prices: a plan mostly within the tolerated gap
   (`priced_dive`);
2. the linear relaxation by column generation (`relaxation`), tightened by the facets of whole nodes
   (`facets`) and by cliques of configurations that exclude each other (`cliques`): a better bound;
3. a dive through this program: mostly a slightly better plan (`dive`);
4. neighbourhoods of the jobs that lose most, planned again, if many configurations are undecided (`improve`);
5. branch and bound over the configurations that could beat the plan by more than the gap tolerates
   (`branching`).

A problem of few configurations begins with 2; for a large cluster 2 and 3 are left out.

The search ends after the first stage with a tolerated gap. Each stage reports its plan and its bound at once,
so that both are there at a deadline.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence

import numpy.ma  # noqa: F401 - numpy imports it at the first `unique`, in the middle of a solve

from services.planner.solver.own.branching import branch, tightened, undecided
from services.planner.solver.own.columns import Columns, columns_of, in_units, least
from services.planner.solver.own.dive import dive, rounded
from services.planner.solver.own.improve import improvements
from services.planner.solver.own.meter import Meter, Spent
from services.planner.solver.own.priced_dive import priced_dive
from services.planner.solver.own.prices import BRIEF, FEW_NODES, LEGS, Leg, prices
from services.planner.solver.own.relaxation import Bounded, Relaxation, likely, sample
from services.planner.solver.problem import NOTHING, Problem
from services.planner.solver.search import Search
from shared.domain.arrays import Ints

FEW = 2_000
"""configurations up to which stage 1 is left out: the program of stage 2 is then solved sooner"""
LARGE = 64
"""nodes above which stages 2 and 3 are left out"""
SMALL = 1_000
"""undecided configurations up to which stage 4 is left out: branching is quicker, and neighbourhoods gained
nothing"""
UNDECIDED = 4_000
"""undecided configurations up to which all are branched over at once; with more, first over the likeliest
ones"""


def run(search: Search) -> None:
    """Search until the gap is tolerated or the effort is spent."""
    with contextlib.suppress(Spent):
        for _ in _stages(search):
            if search.done:
                return


def _stages(search: Search) -> Iterator[None]:
    columns, meter = columns_of(in_units(search.problem)), Meter(search)
    large = int((search.problem.capacity > 0).sum()) > LARGE
    if len(search.problem) <= FEW:
        found, held = yield from _from_programs(search, columns, sample(columns), meter)
    else:
        found = yield from _from_prices(
            search, columns, meter, _legs(len(search.problem.capacity), large=large)
        )
        held = least(found.best[columns.problem.job] - found.net, UNDECIDED)
        if not large:
            found, held = yield from _from_programs(search, columns, likely(columns, found), meter)
    yield from _improved(search, columns, found, meter)
    yield from _branched(search, columns, found, held, meter)


def _legs(nodes: int, *, large: bool) -> tuple[Leg, ...]:
    if nodes <= FEW_NODES:
        return (BRIEF, *LEGS[:-1])
    return LEGS if large else LEGS[:-1]


def _from_prices(
    search: Search, columns: Columns, meter: Meter, legs: Sequence[Leg]
) -> Generator[None, None, Bounded]:
    """Stage 1. Returns the prices with the lowest bound."""
    gpu = search.best.objective / float(columns.problem.capacity.sum())
    best: Bounded | None = None
    for priced in prices(columns, meter, gpu, legs):
        search.tighten(priced.found.bound)
        yield
        search.offer(priced_dive(columns, priced, meter))
        yield
        best = priced.found if best is None or priced.found.bound < best.bound else best
    assert best is not None, "there are legs"
    return best


def _from_programs(
    search: Search, columns: Columns, rows: Ints, meter: Meter
) -> Generator[None, None, tuple[Bounded, Ints]]:
    """Stages 2 and 3, beginning with the columns `rows`. Returns prices, and the columns at the end."""

    def enough(bound: float) -> bool:
        search.tighten(bound)
        return search.done

    relaxation = Relaxation(columns, rows, meter, gap=search.effort.gap, enough=enough)
    found = relaxation.relax()
    search.offer(rounded(columns, relaxation.master.rows, relaxation.shares(found)))
    yield
    found = relaxation.tighten(found)
    yield
    search.offer(dive(relaxation.master, found))
    yield
    return found, relaxation.master.rows


def _planned(problem: Problem, search: Search, meter: Meter) -> Ints:
    """A good plan of a small problem. Raises Spent."""
    columns = columns_of(problem)
    relaxation = Relaxation(columns, sample(columns), meter, gap=search.effort.gap, enough=lambda _: False)
    return dive(relaxation.master, relaxation.tighten(relaxation.relax()))


def _improved(search: Search, columns: Columns, found: Bounded, meter: Meter) -> Iterator[None]:
    if len(undecided(columns, found, search.target)) <= SMALL:
        return

    def plan(problem: Problem) -> Ints:
        return _planned(problem, search, meter)

    for choice in improvements(columns, found, search.best.choice, plan):
        search.offer(choice[choice != NOTHING])
        yield


def _branched(search: Search, columns: Columns, found: Bounded, held: Ints, meter: Meter) -> Iterator[None]:
    """Stage 5. `held`: the configurations to branch over first if too many are undecided."""
    nodes = search.effort.node_limit
    rows = undecided(columns, found, search.target)
    if len(rows) > UNDECIDED:
        branch(search, tightened(columns, held, meter), meter, nodes=nodes, whole=False)
        yield
        rows = undecided(columns, found, search.target)
    branch(search, tightened(columns, rows, meter), meter, nodes=nodes, whole=True)
    yield
