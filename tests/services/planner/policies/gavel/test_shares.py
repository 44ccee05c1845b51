"""Gavel's shares of time on cases small enough to work out by hand, and what must hold of any."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from services.planner.policies.gavel.filling import Curve, filled
from services.planner.policies.gavel.shares import (
    Demand,
    Shares,
    fifo,
    finish_time,
    isolated,
    makespan,
    max_min,
    max_sum,
    throughput,
)
from services.planner.policies.kit.linear import LinearProgram, Matrix
from services.planner.solver.budget import Budget
from tests.services.planner.policies.gavel.gavel_levels import normalised


def demand(
    *speed: tuple[float, ...], gpus: tuple[int, ...] = (1, 1), gang: int = 1, weight: tuple[float, ...] = ()
) -> Demand:
    return Demand(
        speed=np.array(speed, dtype=np.float64),
        gang=np.full(len(speed), float(gang)),
        gpus=np.array(gpus, dtype=np.float64),
        weight=np.array(weight or (1.0,) * len(speed)),
    )


# ---- linear programs


def program() -> LinearProgram:
    """Maximise x + 2y with x + y ≤ 1 and x ≤ 0.6."""
    return LinearProgram(
        cost=np.array([-1.0, -2.0]),
        matrix=Matrix(np.array([0, 0, 1], np.int32), np.array([0, 1, 0], np.int32), np.ones(3)),
        row_lower=np.full(2, -np.inf),
        row_upper=np.array([1.0, 0.6]),
    )


def test_a_program_is_solved_and_has_its_prices() -> None:
    answer = program().solve()
    assert (answer.state, answer.x.tolist(), answer.objective) == ("optimal", [0.0, 1.0], -2.0)
    assert answer.dual == pytest.approx([-2.0, 0.0])


def test_a_program_may_lose_columns_and_change_its_bounds() -> None:
    own = program()
    own.drop_columns(np.array([1], np.int32))
    assert own.solve().x == pytest.approx([0.6, 0.0])
    own.bound_rows(np.array([1], np.int32), np.array([-np.inf]), np.array([0.2]))
    assert own.solve().x == pytest.approx([0.2, 0.0])
    own.bound_rows(np.array([0], np.int32), np.array([2.0]), np.array([3.0]))
    assert own.solve().state == "infeasible"


def test_a_program_without_steps_left_is_stopped_silently(capfd: pytest.CaptureFixture[str]) -> None:
    assert program().solve(steps=0).state == "stopped"
    assert capfd.readouterr() == ("", "")


def test_a_program_is_solved_beside_another_pool_of_threads() -> None:
    other = program()
    other._highs.resetGlobalScheduler(True)
    other._highs.setOptionValue("threads", 2)
    assert other.solve().state == "optimal"
    assert program().solve().state == "optimal"


# ---- objectives


def test_each_job_gets_the_type_it_gains_most_on() -> None:
    """One is four times as fast on the second type, the other as fast on both."""
    shares = max_min(demand((1.0, 4.0), (1.0, 1.0)), Budget())
    assert shares.share == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]), abs=1e-8)
    assert shares.objective == pytest.approx(1.0)


def test_a_fair_share_scales_with_weight_and_gang_size() -> None:
    """One GPU; a weight of 3 gets three times the time of 1."""
    shares = max_min(demand((1.0,), (1.0,), gpus=(1,), weight=(3.0, 1.0)), Budget())
    assert shares.share[:, 0] == pytest.approx([0.75, 0.25])


def test_water_rises_where_the_worst_off_leave_room() -> None:
    """The first two can use the first type only; the third has the second to itself."""
    case = demand((1.0, 0.0), (1.0, 0.0), (1.0, 1.0))
    assert throughput(case, max_min(case, Budget()).share) == pytest.approx([0.5, 0.5, 1.0])


def test_finish_time_fairness_helps_the_one_that_is_late() -> None:
    """Two jobs of 100 s of work, one GPU, 1/2 each alone: due 200 s. One has waited for 100 s.

    100 + 100/x = 100/(1 − x) at x = (√5 − 1)/2.
    """
    case = demand((1.0,), (1.0,), gpus=(1,))
    shares = finish_time(case, np.full(2, 100.0), np.array([100.0, 0.0]), np.zeros(2), Budget())
    golden = (5**0.5 - 1) / 2
    assert shares.share[:, 0] == pytest.approx([golden, 1 - golden], rel=1e-6)
    assert shares.objective == pytest.approx((100 + 100 / golden) / 200, rel=1e-6)


def test_the_makespan_gives_time_by_work() -> None:
    shares = makespan(demand((1.0,), (1.0,), gpus=(1,)), np.array([30.0, 10.0]), Budget())
    assert shares.share[:, 0] == pytest.approx([0.75, 0.25])
    assert shares.objective == pytest.approx(40.0)


def test_a_job_that_is_as_good_as_done_is_no_bottleneck() -> None:
    shares = makespan(demand((1.0,), (1.0,), gpus=(1,)), np.array([1e5, 0.0]), Budget())
    assert shares.share[0, 0] == pytest.approx(1.0, rel=1e-5)
    assert shares.objective == pytest.approx(1e5, rel=1e-5)
    done = makespan(demand((1.0,), (1.0,), gpus=(1,)), np.zeros(2), Budget())
    assert np.isfinite(done.objective)


def test_the_largest_sum_starves_the_slow() -> None:
    shares = max_sum(demand((5.0,), (3.0,), gpus=(1,)), Budget())
    assert shares.share[:, 0].tolist() == [1.0, 0.0]
    assert shares.objective == pytest.approx(5.0)


def test_in_fifo_a_job_for_other_types_ends_the_queue_but_not_the_authors() -> None:
    stuck = demand((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), gpus=(1, 1))
    assert fifo(stuck).share.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert fifo(stuck, authors=True).share.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]


def test_in_fifo_the_first_without_room_ends_the_queue() -> None:
    shares = fifo(demand((1.0, 2.0), (1.0, 2.0), (2.0, 1.0), gpus=(1, 1)))
    assert shares.share.tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]


def test_alone_a_gang_gets_its_part_of_the_gpus() -> None:
    assert isolated(demand((1.0,), (1.0,), gpus=(4,), gang=4)).tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize("budget", [Budget(seconds=0.0), Budget(seconds=0.0, modelled=False)])
def test_without_time_each_gets_its_part_of_the_cluster(budget: Budget) -> None:
    case = demand((1.0, 4.0), (1.0, 1.0), (2.0, 0.0))
    shares = max_min(case, budget)
    assert not shares.complete
    assert shares.share == pytest.approx(isolated(case) * (case.speed > 0))
    assert shares.objective <= shares.bound


def test_time_that_runs_out_later_leaves_the_levels_found() -> None:
    """Thirty on one GPU, twenty on another: the lower level takes all the time there is."""
    case = demand(*[(1.0, 0.0)] * 30, *[(0.0, 1.0)] * 20)
    first = Budget()
    lowest = max_min(case, first, fill=False)
    part = max_min(case, Budget(seconds=first.work_s * 1.05))
    assert not part.complete
    assert part.objective == pytest.approx(lowest.bound)
    assert throughput(case, part.share)[:30] == pytest.approx([1 / 30] * 30)


# ---- properties


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    jobs, types = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    cell = st.one_of(st.just(0.0), st.floats(0.1, 10.0))
    speed = np.array([[draw(cell) for _ in range(types)] for _ in range(jobs)])
    speed[:, 0] = np.where(speed.any(axis=1), speed[:, 0], 1.0)
    return Demand(
        speed=speed,
        gang=np.array([float(draw(st.sampled_from([1, 2, 4]))) for _ in range(jobs)]),
        gpus=np.array([float(draw(st.integers(1, 8))) for _ in range(types)]),
        weight=np.array([draw(st.floats(0.5, 2.0)) for _ in range(jobs)]),
    )


OBJECTIVES: dict[str, Callable[[Demand], Shares]] = {
    "max-min": lambda case: max_min(case, Budget()),
    "finish-time": lambda case: finish_time(
        case, 50.0 * case.weight, 7.0 * case.weight, 3.0 * case.weight, Budget()
    ),
    "makespan": lambda case: makespan(case, 10.0 * case.weight, Budget()),
    "throughput": lambda case: max_sum(case, Budget()),
    "fifo": lambda case: fifo(case, authors=False),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(case=demands())
@limits(max_examples=40, deadline=None)
def test_shares_fit_the_cluster_and_reach_their_bound(objective: str, case: Demand) -> None:
    shares = OBJECTIVES[objective](case)
    assert (shares.share >= 0).all()
    assert (shares.share.sum(axis=1) <= 1 + 1e-7).all()
    assert (case.gang @ shares.share <= case.gpus + 1e-6).all()
    assert not shares.share[case.speed == 0].any()
    assert shares.objective == pytest.approx(shares.bound, rel=1e-6)


@given(case=demands())
@limits(max_examples=60, deadline=None)
def test_no_job_can_rise_without_one_lower_falling(case: Demand) -> None:
    """Lexicographic: the most that a job can get, if none at or below its level gets less, is its level."""
    level = normalised(case, max_min(case, Budget()).share)
    for job in range(len(level)):
        floor = np.where(level <= level[job] * (1 + 1e-7), level * (1 - 1e-8), 0.0)
        assert most_for(case, job, floor) <= level[job] * (1 + 1e-3)


@given(case=demands())
@limits(max_examples=60, deadline=None)
def test_there_are_no_more_levels_than_scarce_types_and_one(case: Demand) -> None:
    jobs = len(case.gang)
    even = Curve(due=np.ones(jobs), elapsed=np.zeros(jobs), work=np.ones(jobs))
    found = filled(even, speed=case.speed, gang=case.gang, gpus=case.gpus, budget=Budget())
    assert found.complete
    assert 1 <= found.levels <= len(case.gpus) + 1


def most_for(case: Demand, job: int, floor: np.ndarray) -> float:
    """The highest level of one job when the others keep theirs: a program of its own."""
    jobs, types = case.speed.shape
    worth = normalised(case, np.ones_like(case.speed))[:, None] * case.speed / case.speed.sum(axis=1)[:, None]
    row, kind = np.divmod(np.arange(jobs * types), types)
    cells = np.arange(jobs * types)
    cost = np.where(row == job, -worth.ravel(), 0.0)
    answer = LinearProgram(
        cost=cost,
        matrix=Matrix(
            np.concatenate([row, jobs + row, 2 * jobs + kind]).astype(np.int32),
            np.concatenate([cells] * 3).astype(np.int32),
            np.concatenate([worth.ravel(), np.ones(jobs * types), case.gang[row]]),
        ),
        row_lower=np.concatenate(
            [np.where(np.arange(jobs) == job, 0.0, floor), np.full(jobs + types, -np.inf)]
        ),
        row_upper=np.concatenate([np.full(jobs, np.inf), np.ones(jobs), case.gpus]),
    ).solve()
    assert answer.state == "optimal"
    return -answer.objective


def test_a_nearly_finished_job_keeps_a_share_of_the_makespan() -> None:
    """What it needs, a ten-millionth of the others' time, is below the tolerance of the solver."""
    asked = demand((10.0, 5.0), (10.0, 5.0), (10.0, 5.0))
    found = makespan(asked, np.array([0.1, 1e6, 1e6]), Budget())
    assert (found.share.sum(axis=1) > 1e-6).all()
