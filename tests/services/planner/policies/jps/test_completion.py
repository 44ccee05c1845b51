"""How long a job takes on a gang, and how fair completion times are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.policies.jps.completion import completion_s, isolated_s, jain

positive = st.floats(1e-3, 1e6)


def test_time_is_that_of_samples_and_of_exchanges() -> None:
    assert completion_s(600.0, 40.0, 3.0, 2.5) == 15.0 + 7.5


@given(st.lists(positive, min_size=1, max_size=6), positive)
def test_fairness_is_between_1_over_n_and_1_and_independent_of_scale(
    ratios: list[float], factor: float
) -> None:
    found = jain(np.array(ratios))
    assert 1 / len(ratios) - 1e-9 <= found <= 1 + 1e-9
    assert jain(factor * np.array(ratios)) == pytest.approx(found)


@given(positive, positive, positive)
def test_more_speed_is_less_time_and_twice_the_speed_half_of_it(left: float, own: float, more: float) -> None:
    assert completion_s(left, own + more, 0.0, 0.0) < completion_s(left, own, 0.0, 0.0)
    assert completion_s(left, 2 * own, 0.0, 0.0) == pytest.approx(completion_s(left, own, 0.0, 0.0) / 2)


@pytest.mark.parametrize(
    ("ratios", "fairness"),
    [([2.0], 1.0), ([3.0, 3.0, 3.0], 1.0), ([1.0, 3.0], 0.8), ([1.0, 2.0, 5.0], 64 / 90)],
)
def test_fairness_by_hand(ratios: list[float], fairness: float) -> None:
    assert jain(np.array(ratios)) == pytest.approx(fairness)


def test_alone_on_a_share_of_every_gpu() -> None:
    assert isolated_s(100.0, 40.0, 0.25, 3.0, 2.0) == 100.0 / 10.0 + 6.0
