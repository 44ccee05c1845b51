"""Our own back end: prices prove a bound, a dive finds a plan, and both are improved where it pays.

1. the linear relaxation by column generation: a bound, and a price on every GPU (`relaxation`);
2. the relaxation rounded: a plan within some per cent;
3. facets of whole nodes: a bound within some tenths of a per cent of the best plan (`facets`);
4. a dive: a plan mostly within the tolerated gap (`dive`);
5. neighbourhoods of what lost most, planned anew, where much is undecided (`improve`);
6. branch and bound over what could beat the plan by more than the gap tolerates (`exact`).

A large cluster has the prices of 3 without a program (`prices`), and its dive too (`plunge`).

It ends with the first stage that leaves a tolerated gap. Each leaves its plan and its bound behind, so a
deadline finds what there is by then.
"""

import contextlib
from collections.abc import Generator, Iterator

from services.planner.configurations import Ints
from services.planner.problem import NOTHING, Problem
from services.planner.solver.clock import Clock, Spent
from services.planner.solver.columns import Columns, columns_of, least
from services.planner.solver.dive import dive, rounded
from services.planner.solver.exact import branch, tightened, undecided
from services.planner.solver.improve import improvements
from services.planner.solver.plunge import plunged
from services.planner.solver.prices import prices
from services.planner.solver.relaxation import Bounded, Relaxation
from services.planner.solver.search import Search

LARGE = 64
"""nodes, above which prices come without programs"""
SMALL = 1_000
"""undecided configurations with which branching is quicker than neighbourhoods, which gained nothing there"""
FEW = 4_000
"""undecided configurations that are branched over at once; else first the likeliest ones"""

Stages = Generator[None, None, tuple[Bounded, Ints]]
"""they end with prices, and the likeliest configurations at these"""


def run(search: Search) -> None:
    """Search until the gap is tolerated or the effort is spent."""
    with contextlib.suppress(Spent):
        for _ in _stages(search):
            if search.done:
                return


def _stages(search: Search) -> Iterator[None]:
    columns, clock = columns_of(search.problem), Clock(search)
    large = int((search.problem.capacity > 0).sum()) > LARGE
    found, rows = yield from (_from_prices if large else _from_programs)(search, columns, clock)
    yield from _improved(search, columns, found, clock)
    yield from _branched(search, columns, found, rows, clock)


def _from_programs(search: Search, columns: Columns, clock: Clock) -> Stages:
    def told(bound: float) -> bool:
        search.tighten(bound)
        return search.done

    relaxation = Relaxation(columns, clock, gap=search.effort.gap, told=told)
    found = relaxation.relax()
    search.offer(rounded(columns, relaxation.master.rows, relaxation.shares(found)))
    yield
    found = relaxation.tighten(found)
    yield
    search.offer(dive(relaxation.master, found))
    yield
    return found, relaxation.master.rows


def _from_prices(search: Search, columns: Columns, clock: Clock) -> Stages:
    gpu = search.best.objective / float(columns.problem.capacity.sum())
    for way in prices(columns, clock, gpu):
        search.tighten(way.found.bound)
        yield
        x = way.found.relaxed.x
        search.offer(plunged(columns, way, clock) if way.turns else rounded(columns, way.rows, x))
        yield
    loss = way.found.best[columns.problem.job] - way.found.net
    return way.found, least(loss, FEW)


def _planned(problem: Problem, search: Search, clock: Clock) -> Ints:
    """A good plan of a small problem. Raises Spent."""
    relaxation = Relaxation(columns_of(problem), clock, gap=search.effort.gap, told=lambda _: False)
    return dive(relaxation.master, relaxation.tighten(relaxation.relax()))


def _improved(search: Search, columns: Columns, found: Bounded, clock: Clock) -> Iterator[None]:
    if len(undecided(columns, found, search.target)) <= SMALL:
        return

    def plan(problem: Problem) -> Ints:
        return _planned(problem, search, clock)

    for choice in improvements(columns, found, search.best.choice, plan):
        search.offer(choice[choice != NOTHING])
        yield


def _branched(search: Search, columns: Columns, found: Bounded, held: Ints, clock: Clock) -> Iterator[None]:
    """`held`: what is branched over first, where too much is undecided."""
    nodes = search.effort.node_limit
    rows = undecided(columns, found, search.target)
    if len(rows) > FEW:
        branch(search, tightened(columns, held, clock), clock, nodes=nodes, whole=False)
        yield
        rows = undecided(columns, found, search.target)
    branch(search, tightened(columns, rows, clock), clock, nodes=nodes, whole=True)
    yield
