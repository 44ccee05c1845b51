"""Who does how much: the examples E4 and E5, the copies of a last round, and what always holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import NodeId
from schemas.placement import Forked, Gang
from services.planner.policies.hadare.dividing import fastest, shares, trimmed
from services.planner.policies.hadare.forking import Forking, nobody
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


def test_who_has_but_a_slow_node_still_gets_the_last_step() -> None:
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
    ("left", "start_s", "copy_s", "copies"),
    [
        (600.0, 0.0, 0.0, 3),  # 60, 42.9, 37.5 s
        (600.0, 20.0, 0.0, 3),  # 60, 62.9, 57.5 s
        (600.0, 30.0, 0.0, 1),
        (600.0, 0.0, 5.0, 3),  # 60, 52.9, 52.5 s: the third just pays
        (540.0, 0.0, 5.0, 2),  # 54, 48.6, 48.75 s
    ],
)
def test_the_last_round_takes_as_many_of_the_fastest_as_end_it_soonest(
    left: float, start_s: float, copy_s: float, copies: int
) -> None:
    assert fastest(np.array([4.0, 10.0, 2.0]), left, start_s, copy_s) == copies


def test_only_a_round_in_which_it_ends_is_a_job_s_last() -> None:
    """200 s of work on two nodes, and a start of 300 s: one node is enough if the round is long enough."""
    of = forking([[10.0, 5.0]], [3000.0], start_s=300.0)
    both = shared(forking([[10.0, 5.0]], [3000.0]), [0, 0])
    on, last = trimmed(of, both, 500.0)
    assert (on.tolist(), last.tolist()) == ([[True, False]], [True])
    on, last = trimmed(of, both, 499.0)
    assert (on.tolist(), last.tolist()) == ([[True, True]], [False])


@given(of=forkings(), round_s=st.sampled_from([10.0, 360.0, 1e6]))
@limits(max_examples=60, deadline=None)
def test_every_job_keeps_its_fastest_node(of: Forking, round_s: float) -> None:
    on = grown(of, nobody(of), Budget())
    kept, last = trimmed(of, on, round_s)
    assert (kept <= on).all()
    assert (kept[~last] == on[~last]).all()
    for job in np.flatnonzero(on.any(axis=1)):
        assert of.speed[job][kept[job]].max() == of.speed[job][on[job]].max()
