"""Our own back end: prices prove a bound, a dive finds a plan, and both are improved where it pays.

1. the linear relaxation by column generation: a bound, and a price on every GPU (`relaxation`);
2. the relaxation rounded: a plan within some per cent;
3. facets of whole nodes: a bound within some tenths of a per cent of the best plan (`facets`);
4. a dive: a plan mostly within the tolerated gap (`dive`); a large cluster is dived into in `parts`;
5. neighbourhoods of what lost most, planned anew (`improve`);
6. branch and bound over what is still undecided, to the end (`exact`).

It ends with the first stage that leaves a tolerated gap. Each leaves its plan and its bound behind, so a
deadline finds what there is by then.
"""

import contextlib
from collections.abc import Iterator

import numpy as np

from services.planner.configurations import Ints
from services.planner.problem import NOTHING, Problem
from services.planner.solver.clock import Clock, Spent
from services.planner.solver.coarse import coarse_prices
from services.planner.solver.columns import Columns, columns_of
from services.planner.solver.direct import Search
from services.planner.solver.dive import completed, dive, rounded
from services.planner.solver.exact import branch, tightened, undecided
from services.planner.solver.improve import improvements
from services.planner.solver.parts import divided, free_beside, part_of
from services.planner.solver.relaxation import Bounded, Relaxation, beginning

LARGE = 128
"""nodes, above which a cluster is planned in parts"""
FEW = 4_000
"""undecided configurations that are branched over at once; else first those that the relaxation holds"""


def run(search: Search) -> None:
    """Search until the gap is tolerated or the effort is spent."""
    with contextlib.suppress(Spent):
        for _ in _stages(search):
            if search.done:
                return


def _stages(search: Search) -> Iterator[None]:
    columns, clock = columns_of(search.problem), Clock(search)
    nodes = int((search.problem.capacity > 0).sum())
    begin = beginning(columns) if nodes <= LARGE else coarse_prices(columns, clock, search)
    relaxation = Relaxation(columns, clock, gap=search.effort.gap, told=search.tighten, begin=begin)
    found = relaxation.relax()
    search.offer(rounded(columns, relaxation.master.rows, relaxation.shares(found)))
    yield
    if nodes <= LARGE:
        found = relaxation.tighten(found)
        yield
        search.offer(dive(relaxation.master, found))
    else:
        search.offer(_in_parts(search, relaxation, found, clock))
        yield
        yield from _improved(search, columns, found, clock)
        found = relaxation.tighten(found)
    yield
    yield from _improved(search, columns, found, clock)
    yield from _branched(search, relaxation, found, clock)


def _in_parts(search: Search, relaxation: Relaxation, found: Bounded, clock: Clock) -> Ints:
    """Every part dived into by itself; then what is left of all parts together."""
    columns = relaxation.columns
    chosen = np.empty(0, dtype=np.int32)
    parts = divided(columns, relaxation.master.rows, relaxation.shares(found))
    try:
        for jobs, free in parts:
            part = part_of(columns, jobs, free)
            if part is not None:
                chosen = np.append(chosen, part.rows[_planned(part.problem, search, clock, tight=False)])
        waiting = np.ones(columns.problem.jobs, dtype=bool)
        waiting[columns.problem.job[chosen]] = False
        rest = part_of(columns, waiting, free_beside(columns.problem, chosen))
        if rest is not None:
            chosen = np.append(chosen, rest.rows[_planned(rest.problem, search, clock, tight=True)])
    except Spent:
        pass
    return completed(columns, chosen)


def _planned(problem: Problem, search: Search, clock: Clock, *, tight: bool) -> Ints:
    """A good plan of a small problem. Raises Spent."""
    columns = columns_of(problem)
    relaxation = Relaxation(
        columns, clock, gap=search.effort.gap, told=lambda _: None, begin=beginning(columns)
    )
    found = relaxation.relax()
    return dive(relaxation.master, relaxation.tighten(found) if tight else found)


def _improved(search: Search, columns: Columns, found: Bounded, clock: Clock) -> Iterator[None]:
    def plan(problem: Problem) -> Ints:
        return _planned(problem, search, clock, tight=True)

    for choice in improvements(columns, found, search.best.choice, plan):
        search.offer(choice[choice != NOTHING])
        yield


def _branched(search: Search, relaxation: Relaxation, found: Bounded, clock: Clock) -> Iterator[None]:
    columns, nodes = relaxation.columns, search.effort.node_limit
    rows = undecided(columns, found, search.best.objective)
    if len(rows) > FEW:
        branch(search, tightened(columns, relaxation.master.rows, clock), clock, nodes=nodes, whole=False)
        yield
        rows = undecided(columns, found, search.best.objective)
    branch(search, tightened(columns, rows, clock), clock, nodes=nodes, whole=True)
    yield
