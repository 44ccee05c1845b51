"""Branch and bound by HiGHS, over the configurations that can still beat the incumbent.

At the relaxation's prices, a choice that has configuration c of job i is worth at most bound − (best_i −
net_c). If this exceeds the incumbent by no more than the gap tolerates, c is left out: the gap can be proven
without it. The program has the facets, so it is tight and HiGHS needs few branches. HiGHS stops as soon as
the gap is tolerated.
"""

from itertools import count

import highspy
import numpy as np

from services.planner.solver.highs_event import HighsEvent
from services.planner.solver.own.columns import Columns
from services.planner.solver.own.master import Master
from services.planner.solver.own.meter import Meter
from services.planner.solver.own.relaxation import Bounded
from services.planner.solver.problem import NOTHING
from services.planner.solver.search import HALF, TINY, Search
from shared.domain.arrays import Floats, Ints

PROVING: dict[str, bool | int | float] = {
    "mip_abs_gap": 0.0,
    "mip_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
    "mip_heuristic_effort": 0.0,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_rins": False,
    "mip_pool_age_limit": 5,
    "mip_allow_restart": False,
}
"""HiGHS' options for proving the bound. A good plan is known and the program is small, so heuristics are off:
they took half the time. Tolerances are a thousandth of HiGHS' defaults, since policies break ties by a
millionth of a weight"""
STEPS_A_LOOK = 10
"""simplex iterations that are assumed between two calls of HiGHS' interrupt callback: HiGHS reports their
number only at the end"""


def undecided(columns: Columns, found: Bounded, target: float) -> Ints:
    """The configurations that a choice worth more than `target` may contain."""
    reach = found.bound - found.best[columns.problem.job] + found.net
    return np.flatnonzero(reach > target + TINY * found.bound).astype(np.int32)


def tightened(columns: Columns, rows: Ints, meter: Meter) -> Master:
    """A master over some configurations, with all facets that its relaxation breaks. Raises Spent."""
    master = Master(columns, meter)
    master.join(rows)
    while master.cut(master.solve().x, columns.problem.capacity, np.ones(len(rows), dtype=bool)):
        pass
    return master


def branch(search: Search, master: Master, meter: Meter, *, nodes: int | None, whole: bool) -> None:
    """Branch over the columns of a master, and report what is found to the search. Raises Spent.

    `whole`: the master has all undecided configurations, so its bound holds for every choice.
    """
    highs, rows = master.integer(), master.rows
    _limit(highs, search, meter, nodes)
    if whole:
        for name, value in PROVING.items():
            highs.setOptionValue(name, value)
    _listen(highs, search, meter, rows, whole=whole)
    start = highspy.HighsSolution()
    start.col_value = np.isin(rows, search.best.choice[search.best.choice != NOTHING]).astype(float)
    highs.setSolution(start)
    highs.run()
    info = highs.getInfo()
    meter.charge_lp(max(info.simplex_iteration_count, 0), len(rows))
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        search.offer(_chosen(rows, highs.getSolution().col_value))
    if whole:
        search.tighten(_bound(search, info.mip_dual_bound))


def _limit(highs: highspy.Highs, search: Search, meter: Meter, nodes: int | None) -> None:
    highs.setOptionValue("mip_rel_gap", search.relative_gap)
    limit_s = meter.left_s()
    if limit_s is not None:
        highs.setOptionValue("time_limit", limit_s)
    if nodes is not None:
        highs.setOptionValue("mip_max_nodes", nodes)


def _listen(highs: highspy.Highs, search: Search, meter: Meter, rows: Ints, *, whole: bool) -> None:
    """Have HiGHS report choices and bounds as it finds them.

    It stops when the search is stopped or done, or the effort is spent.
    """
    steps = count(STEPS_A_LOOK, STEPS_A_LOOK)

    def improved(event: HighsEvent) -> None:
        search.offer(_chosen(rows, event.data_out.mip_solution))

    def asked(event: HighsEvent) -> None:
        if whole:
            search.tighten(_bound(search, event.data_out.mip_dual_bound))
        spent = not meter.affords_lp(next(steps), len(rows))
        event.interrupt(search.stopped.is_set() or search.done or spent)

    def asked_within_simplex(event: HighsEvent) -> None:
        event.interrupt(search.stopped.is_set())

    highs.cbMipImprovingSolution += improved
    highs.cbMipInterrupt += asked
    if (
        not search.effort.modelled
    ):  # modelled effort stops no search from outside; this is called at each step
        highs.cbSimplexInterrupt += asked_within_simplex


def _bound(search: Search, dual_bound: float) -> float:
    """An upper bound on every choice: one with a configuration that was left out is within the target."""
    bound = -dual_bound * search.scale
    return max(bound, search.target) if np.isfinite(bound) else np.inf


def _chosen(rows: Ints, value: Floats) -> Ints:
    return rows[np.flatnonzero(np.asarray(value) > HALF)]
