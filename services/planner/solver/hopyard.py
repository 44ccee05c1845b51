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
from services.planner.solver.coarse import Coarse, coarse, spread
from services.planner.solver.columns import Columns, columns_of
from services.planner.solver.dive import completed, dive, rounded
from services.planner.solver.exact import branch, tightened, undecided
from services.planner.solver.improve import improvements
from services.planner.solver.parts import divided, free_beside, part_of
from services.planner.solver.relaxation import Bounded, Relaxation, beginning
from services.planner.solver.search import Search

LARGE = 128
"""nodes, above which a cluster is planned in parts"""
FIRST_ROUNDS = 5
"""of facets, for a large cluster"""
COARSEST = 0.015
"""tolerated gap, from which on parts are dived into without the facets of whole nodes"""
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
    large = int((search.problem.capacity > 0).sum()) > LARGE
    begin = beginning(columns)

    def told(bound: float) -> bool:
        search.tighten(bound)
        return search.done

    if large:
        rough = coarse(columns, clock, search)
        search.tighten(rough.found.bound)
        search.offer(rounded(columns, rough.rows, rough.x))
        yield
        search.offer(_in_parts(search, columns, rough, clock))
        yield
        begin = np.union1d(begin, spread(columns, rough.found)).astype(np.int32)
    relaxation = Relaxation(columns, clock, gap=search.effort.gap, told=told, begin=begin, interior=large)
    found = relaxation.relax()
    search.offer(rounded(columns, relaxation.master.rows, relaxation.shares(found)))
    yield
    if large:
        yield from _improved(search, columns, found, clock)
        found = relaxation.tighten(found, FIRST_ROUNDS)
        yield
    else:
        found = relaxation.tighten(found)
        yield
        search.offer(dive(relaxation.master, found))
        yield
    yield from _improved(search, columns, found, clock)
    yield from _branched(search, relaxation, found, clock)


def _in_parts(search: Search, columns: Columns, rough: Coarse, clock: Clock) -> Ints:
    """Every part dived into by itself; then what is left of all parts together."""
    chosen = np.empty(0, dtype=np.int32)
    with contextlib.suppress(Spent):
        tight = search.effort.gap < COARSEST
        for part in divided(columns, rough.rows, rough.x):
            chosen = np.append(chosen, part.rows[_planned(part.problem, search, clock, tight=tight)])
        waiting = np.ones(columns.problem.jobs, dtype=bool)
        waiting[columns.problem.job[chosen]] = False
        rest = part_of(columns, waiting, free_beside(columns.problem, chosen))
        if rest is not None:
            chosen = np.append(chosen, rest.rows[_planned(rest.problem, search, clock, tight=True)])
    return completed(columns, chosen)


def _planned(problem: Problem, search: Search, clock: Clock, *, tight: bool) -> Ints:
    """A good plan of a small problem. Raises Spent."""
    columns = columns_of(problem)
    relaxation = Relaxation(
        columns, clock, gap=search.effort.gap, told=lambda _: False, begin=beginning(columns)
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
