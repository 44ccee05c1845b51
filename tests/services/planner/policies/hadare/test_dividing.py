"""Who does how much: the examples E4 and E5, the copies of a last round, and what always holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import NodeId
from schemas.placement import Forked, Gang
from services.planner.policies.hadare.dividing import fastest, shares, trimmed
from services.planner.policies.hadare.forking import Forking, no_copies
from services.planner.policies.hadare.growing import grown
from services.planner.solver.budget import Budget
from shared.domain import gangs
from tests.services.planner.policies.hadare.forking_builders import forking, forkings, shared

BELIEVED = [10.0, 4.0, 0.5, 8.0, 3.0]
TRUE = [9.0, 4.0, 0.6, 8.0, 2.5]
"""steps/s on nodes a … e (E4)"""
SLOT_S = 360.0

speeds_of = st.lists(st.floats(0.01, 1e4), min_size=1, max_size=8)


def quotas(steps: float, speeds: list[float], others: float = 0.0) -> list[float]:
    """Steps of each copy, as the placer divides them by the shares of a plan."""
    divided = shares(np.array(speeds), others, int(steps))
    gang = Gang.of({NodeId(f"n{index}"): 1 for index in range(len(speeds))}, Forked(shares=divided))
    return list(gangs.quotas(gang, steps, 1).values())


def ran(quota: list[float], speeds: list[float]) -> list[float]:
    """Steps done when the slot ends."""
    return [min(each, SLOT_S * speed) for each, speed in zip(quota, speeds, strict=True)]


def test_e4_the_first_round() -> None:
    quota = quotas(9000, BELIEVED)
    assert quota == [3529, 1412, 176, 2824, 1059]
    done = ran(quota, TRUE)
    assert done == [3240, 1412, 176, 2824, 900]
    busy_s = [steps / speed for steps, speed in zip(done, TRUE, strict=True)]
    assert busy_s == pytest.approx([360, 353, 293.33, 353, 360], abs=0.005)
    assert sum(busy_s) / (5 * SLOT_S) == pytest.approx(0.9552, abs=5e-5)
    assert gangs.merged(0.0, done, 9000.0) == 8552


def test_e4_the_second_round() -> None:
    """Speeds are now those that were seen."""
    quota = quotas(448, TRUE)
    assert quota == [167, 74, 11, 149, 47]
    assert max(steps / speed for steps, speed in zip(quota, TRUE, strict=True)) == pytest.approx(
        18.80, abs=5e-3
    )


def test_e5_among_the_nodes_that_were_given() -> None:
    three = [BELIEVED[0], BELIEVED[1], BELIEVED[3]]
    quota = quotas(3000, three)
    assert quota == [1364, 545, 1091]
    assert max(steps / speed for steps, speed in zip(quota, three, strict=True)) == pytest.approx(136.4)


def test_e5_among_all_as_printed() -> None:
    three, others = [BELIEVED[0], BELIEVED[1], BELIEVED[3]], BELIEVED[2] + BELIEVED[4]
    assert quotas(3000, three, others) == [1176, 471, 941]
    left = [3000.0]
    while left[-1]:
        left.append(left[-1] - sum(quotas(left[-1], three, others)))
    assert left == [3000, 412, 56, 8, 1, 0]


def test_all_nodes_take_part_in_the_division_if_any_copy_gets_a_step() -> None:
    """Of two steps none is for the first or the last of the copies."""
    for speeds in ([0.1, 5.0], [5.0, 0.1], [0.1, 5.0, 0.1]):
        found = shares(np.array(speeds), 5.0, 2)
        assert found == pytest.approx([speed / (sum(speeds) + 5.0) for speed in speeds])


def test_a_job_with_only_a_slow_node_still_gets_the_last_step() -> None:
    """A fiftieth of one step, rounded, would be none for ever."""
    assert quotas(1, [0.5], 25.0) == [1]
    assert quotas(1, [0.5, 0.4], 25.0) == [1, 0]


@given(steps=st.integers(1, 100_000), speeds=speeds_of)
@limits(max_examples=100, deadline=None)
def test_all_steps_are_divided_in_proportion(steps: int, speeds: list[float]) -> None:
    quota = quotas(steps, speeds)
    exact = [steps * speed / sum(speeds) for speed in speeds]
    assert sum(quota) == steps
    assert min(quota) >= 0
    assert all(abs(one - each) < 1 + 1e-6 for one, each in zip(quota, exact, strict=True))
    for first, then in zip(np.argsort(speeds)[:-1], np.argsort(speeds)[1:], strict=True):
        assert quota[first] <= quota[then] or speeds[first] == speeds[then]


@given(steps=st.integers(1, 100_000), speeds=speeds_of)
@limits(max_examples=50, deadline=None)
def test_with_true_speeds_all_end_within_a_step_of_the_slowest(steps: int, speeds: list[float]) -> None:
    ends = [one / speed for one, speed in zip(quotas(steps, speeds), speeds, strict=True)]
    assert max(ends) - min(ends) <= (1 / min(speeds)) * 2 * (1 + 1e-6)


@given(steps=st.integers(1, 100_000), speeds=st.lists(st.integers(1, 1000), min_size=1, max_size=8))
@limits(max_examples=50, deadline=None)
def test_only_the_ratio_of_speeds_counts(steps: int, speeds: list[int]) -> None:
    assert quotas(steps, [float(one) for one in speeds]) == quotas(steps, [8.0 * one for one in speeds])


@pytest.mark.parametrize(
    ("left", "start_s", "copy_s", "stays", "moves"),
    [
        (600.0, 0.0, 0.0, 3, 3),  # 60, 42.9, 37.5 s
        (600.0, 20.0, 0.0, 3, 3),  # 60 where it stays, else 80, 62.9, 57.5 s
        (600.0, 30.0, 0.0, 1, 3),  # 60 or 90, 72.9, 67.5 s: a start is due on one node too
        (600.0, 0.0, 5.0, 3, 3),  # 60 or 65, 52.9, 52.5 s: the third just pays
        (540.0, 0.0, 5.0, 2, 2),  # 54 or 59, 48.6, 48.75 s
    ],
)
def test_a_round_takes_as_many_of_the_fastest_as_end_the_job_soonest(
    left: float, start_s: float, copy_s: float, stays: int, moves: int
) -> None:
    speeds = [4.0, 10.0, 2.0]
    of = forking([speeds], [left], start_s=start_s, copy_s=copy_s)
    assert fastest(of.of(0), np.array(speeds), home=True) == stays
    assert fastest(of.of(0), np.array(speeds), home=False) == moves


def test_a_round_in_which_it_ends_is_a_job_s_last() -> None:
    """606 samples: 15 s for a start, 3 s for each copy and 40.4 s on both nodes, or 60.6 s on one."""
    of = forking([[10.0, 5.0]], [606.0], start_s=15.0, copy_s=3.0)
    for round_s, ends in ((61.5, True), (61.3, False)):
        on, content = trimmed(of, shared(of, [0, 0]), round_s)
        assert (on.tolist(), content.tolist()) == ([[True, True]], [ends])


@pytest.mark.parametrize(("home", "copies"), [(0, 1), (1, 2), (-1, 2)])
def test_only_on_the_fastest_of_its_nodes_may_a_job_stay(home: int, copies: int) -> None:
    """60 s on the first, if it need not start there, else 90 s; 61.6 s on both."""
    of = forking([[10.0, 9.0]], [600.0], start_s=30.0, home=[home])
    kept, _ = trimmed(of, shared(of, [0, 0]), 10.0)
    assert kept.tolist() == [[True, copies == 2]]


@pytest.mark.parametrize(("slow", "copies"), [(0.5, 1), (5.0, 2)])
def test_a_slow_node_does_not_make_a_job_slower_in_any_round(slow: float, copies: int) -> None:
    """36,000 samples at 10 a second: an hour. With copies 15 s of each 90 pass without training."""
    of = forking([[10.0, slow]], [36_000.0], start_s=15.0, period_s=90.0)
    kept, content = trimmed(of, shared(of, [0, 0]), 90.0)
    assert kept.sum() == copies
    assert content.tolist() == [copies == 1]
    assert grown(of, no_copies(of), Budget()).sum() == copies


def test_a_round_that_is_all_overhead_forks_no_job() -> None:
    of = forking([[10.0, 10.0]], [36_000.0], start_s=15.0, period_s=15.0)
    assert trimmed(of, shared(of, [0, 0]), 15.0)[0].sum() == 1
    assert grown(of, no_copies(of), Budget()).sum() == 1


@given(of=forkings(), round_s=st.sampled_from([10.0, 360.0, 1e6]))
@limits(max_examples=60, deadline=None)
def test_every_job_keeps_its_fastest_nodes_and_ends_no_later(of: Forking, round_s: float) -> None:
    on = grown(of, no_copies(of), Budget())
    kept, content = trimmed(of, on, round_s)
    assert (kept <= on).all()
    assert (kept[~content] == on[~content]).all()
    for job in np.flatnonzero(on.any(axis=1)):
        assert of.speed[job][kept[job]].max() == of.speed[job][on[job]].max()
        assert of.values(kept)[job] >= of.values(on)[job] * (1 - 1e-9)
