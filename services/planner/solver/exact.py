"""Whole numbers, by branch and bound: HiGHS on the configurations that can still beat the incumbent.

At the relaxation's prices a choice that holds configuration c is worth at most bound − (best_i − net_c). One
for which that is not above the incumbent, by as much as the gap tolerates, is left out: without it the gap
is proven all the same. With the facets in it the program is so tight that HiGHS needs few branches. It
stops as soon as the gap is tolerated.
"""

from itertools import count
from typing import Protocol

import highspy
import numpy as np

from services.planner.configurations import Ints
from services.planner.problem import NOTHING, Floats
from services.planner.solver.clock import Clock
from services.planner.solver.columns import Columns
from services.planner.solver.master import Master
from services.planner.solver.relaxation import Bounded
from services.planner.solver.search import HALF, TINY, Search

PROVING: dict[str, bool | int | float] = {
    "mip_heuristic_effort": 0.0,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_rins": False,
    "mip_pool_age_limit": 5,
    "mip_allow_restart": False,
}
"""a good plan is known, and the program is small: half the time went into what these leave out"""
STEPS_A_LOOK = 10
"""simplex iterations between two times that HiGHS asks whether to go on, about; it tells them at the end"""


class _Event(Protocol):
    data_out: highspy.cb.HighsCallbackOutput

    def interrupt(self, interrupt_value: bool = True) -> None: ...  # noqa: FBT001, FBT002 - theirs


def undecided(columns: Columns, found: Bounded, target: float) -> Ints:
    """The configurations that a choice worth more than `target` may hold."""
    reach = found.bound - found.best[columns.problem.job] + found.net
    return np.flatnonzero(reach > target + TINY * found.bound).astype(np.int32)


def tightened(columns: Columns, rows: Ints, clock: Clock) -> Master:
    """A master over some configurations, with all facets that its relaxation breaks. Raises Spent."""
    master = Master(columns, clock)
    master.join(rows)
    while master.cut(master.solve().x, columns.problem.capacity, np.ones(len(rows), dtype=bool)):
        pass
    return master


def branch(search: Search, master: Master, clock: Clock, *, nodes: int | None, whole: bool) -> None:
    """Branch over the columns of a master. `whole`: it holds all that is undecided, so its bound counts.

    Raises Spent.
    """
    highs, rows = master.integer(), master.rows
    _limit(highs, search, clock, nodes)
    if whole:
        for name, value in PROVING.items():
            highs.setOptionValue(name, value)
    _listen(highs, search, clock, rows, whole=whole)
    start = highspy.HighsSolution()
    start.col_value = np.isin(rows, search.best.choice[search.best.choice != NOTHING]).astype(float)
    highs.setSolution(start)
    highs.run()
    info = highs.getInfo()
    clock.charge_lp(max(info.simplex_iteration_count, 0), len(rows))
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        search.offer(_chosen(rows, highs.getSolution().col_value))
    if whole:
        search.tighten(_bound(search, info.mip_dual_bound))


def _limit(highs: highspy.Highs, search: Search, clock: Clock, nodes: int | None) -> None:
    highs.setOptionValue("mip_rel_gap", search.relative_gap)
    limit_s = clock.left_s()
    if limit_s is not None:
        highs.setOptionValue("time_limit", limit_s)
    if nodes is not None:
        highs.setOptionValue("mip_max_nodes", nodes)


def _listen(highs: highspy.Highs, search: Search, clock: Clock, rows: Ints, *, whole: bool) -> None:
    """Hear of choices and bounds as they are found; stop it when told to, or when that is enough."""
    steps = count(STEPS_A_LOOK, STEPS_A_LOOK)

    def improved(event: _Event) -> None:
        search.offer(_chosen(rows, event.data_out.mip_solution))

    def asked(event: _Event) -> None:
        if whole:
            search.tighten(_bound(search, event.data_out.mip_dual_bound))
        spent = not clock.affords_lp(next(steps), len(rows))
        event.interrupt(search.stopped.is_set() or search.done or spent)

    def asked_within_simplex(event: _Event) -> None:
        event.interrupt(search.stopped.is_set())

    highs.cbMipImprovingSolution += improved
    highs.cbMipInterrupt += asked
    highs.cbSimplexInterrupt += asked_within_simplex


def _bound(search: Search, dual_bound: float) -> float:
    """What was left out is worth no more than the target, so above it the program's bound holds for all."""
    bound = -dual_bound * search.scale
    return max(bound, search.target) if np.isfinite(bound) else np.inf


def _chosen(rows: Ints, value: Floats) -> Ints:
    return rows[np.flatnonzero(np.asarray(value) > HALF)]
