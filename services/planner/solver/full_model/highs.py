"""The full model solved by HiGHS, through its own interface with compressed columns.

HiGHS does not get the greedy plan to start from: a plan so far from the best makes it slower. MathOpt's
interface to HiGHS is not used: it ignores interrupts, overshoots short limits and sometimes prints to stdout.
"""

import highspy
import numpy as np
import numpy.typing as npt

from services.planner.solver.full_model.proto import modelled_s
from services.planner.solver.highs_event import HighsEvent
from services.planner.solver.problem import Problem
from services.planner.solver.search import HALF, SEED, Search
from shared.domain.arrays import Floats, Ints

OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "random_seed": SEED,
    "threads": 1,
    "mip_abs_gap": 0.0,
    # Presolve removes no row of these programs, and few of their columns are alike, so presolve and symmetry
    # detection take longer than they save. Heuristics on sub-problems around the relaxation matter most.
    "presolve": "off",
    "mip_detect_symmetry": False,
    "mip_heuristic_effort": 0.3,
}


def run(search: Search) -> None:
    """Search with HiGHS."""
    highs = highspy.Highs()
    for name, value in (OPTIONS | _limits(search)).items():
        highs.setOptionValue(name, value)
    _pass(highs, search.problem, search.scale)
    _listen(highs, search)
    highs.run()
    _conclude(highs, search)


def _limits(search: Search) -> dict[str, float | int]:
    effort = search.effort
    limits: dict[str, float | int] = {"mip_rel_gap": search.relative_gap}
    if not effort.modelled:
        limits["time_limit"] = search.left_s
    if effort.node_limit is not None:
        limits["mip_max_nodes"] = effort.node_limit
    return limits


def _listen(highs: highspy.Highs, search: Search) -> None:
    """Have HiGHS report choices and bounds as it finds them, and stop when the search is stopped."""

    def improved(event: HighsEvent) -> None:
        search.offer(_rows(event.data_out.mip_solution))
        search.tighten(event.data_out.mip_dual_bound * search.scale)

    def asked(event: HighsEvent) -> None:
        search.tighten(event.data_out.mip_dual_bound * search.scale)
        event.interrupt(search.stopped.is_set())

    def asked_within_simplex(event: HighsEvent) -> None:
        event.interrupt(search.stopped.is_set())

    highs.cbMipImprovingSolution += improved
    if not search.effort.modelled:
        highs.cbMipInterrupt += asked
        highs.cbSimplexInterrupt += asked_within_simplex


def _conclude(highs: highspy.Highs, search: Search) -> None:
    info = highs.getInfo()
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        search.offer(_rows(highs.getSolution().col_value))
    search.tighten(info.mip_dual_bound * search.scale)
    search.budget.charge(modelled_s(max(info.simplex_iteration_count, 0), len(search.problem)))


def _pass(highs: highspy.Highs, problem: Problem, scale: float) -> None:
    """Pass the program to HiGHS. Column c has 1 in row job_c, and its GPUs on node n in row jobs + n."""
    count, rows = len(problem), problem.jobs + len(problem.capacity)
    start, row, value = _columns(problem)
    highs.passModel(
        count,
        rows,
        len(row),
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMaximize),
        0.0,
        problem.value / scale,
        np.zeros(count),
        np.ones(count),
        np.full(rows, -highspy.kHighsInf),
        np.concatenate([np.ones(problem.jobs), problem.capacity]),
        start,
        row,
        value,
        np.full(count, int(highspy.HighsVarType.kInteger), dtype=np.int32),
    )


def _columns(problem: Problem) -> tuple[Ints, Ints, Floats]:
    start = problem.start + np.arange(len(problem) + 1, dtype=np.int32)
    of_job = np.zeros(start[-1], dtype=bool)
    of_job[start[:-1]] = True
    row = np.empty(start[-1], dtype=np.int32)
    row[of_job], row[~of_job] = problem.job, problem.jobs + problem.node
    value = np.ones(start[-1])
    value[~of_job] = problem.gpus
    return start.astype(np.int32), row, value


def _rows(values: npt.ArrayLike) -> Ints:
    return np.flatnonzero(np.asarray(values) > HALF).astype(np.int32)
