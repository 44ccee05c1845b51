import numpy as np
import pytest

from services.planner.policies.sia.utilities import (
    discounted,
    in_reach,
    normalised,
    power_sizes,
    projected,
    restart_factor,
    single_precision,
    utilities,
    with_first_gains,
)

NAN = np.nan


def table(*rows: list[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """One job; a row a type."""
    return np.array([rows], dtype=np.float64)


@pytest.mark.parametrize(
    ("node_gpus", "nodes", "sizes"),
    [(8, 3, (1, 2, 4, 8, 16, 24)), (4, 2, (1, 2, 4, 8)), (6, 2, (1, 2, 4, 6, 12)), (1, 3, (1, 2, 3))],
)
def test_sizes_are_powers_of_two_within_a_node_and_then_whole_nodes(
    node_gpus: int, nodes: int, sizes: tuple[int, ...]
) -> None:
    assert power_sizes(node_gpus, nodes) == sizes


def test_a_job_at_most_doubles_but_its_next_size_is_always_in_reach() -> None:
    assert in_reach((1, 2, 4, 8), 2, 2.0) == (1, 2, 4)
    assert in_reach(range(1, 9), 3, 2.0) == (1, 2, 3, 4, 5, 6)
    assert in_reach(range(1, 9), 3, 1.5) == (1, 2, 3, 4)
    assert in_reach((2, 3, 16), 3, 2.0) == (2, 3, 16)
    assert in_reach((8, 16), 1, 2.0) == (8,)
    assert in_reach((), 1, 2.0) == ()


def test_goodput_is_relative_to_the_jobs_smallest_of_all_types() -> None:
    assert normalised(table([4.0, 6.0], [2.0, NAN]))[0].tolist()[0] == [2.0, 3.0]
    assert normalised(table([4.0, 6.0], [2.0, NAN]), 8.0)[0, 1, 0] == 8.0


def test_an_unknown_type_has_the_curve_of_the_first_known_one_by_single_gpu_speed() -> None:
    known = table([NAN, NAN], [10.0, 18.0], [7.0, 9.0])
    assert projected(known, np.array([[3.0, 2.0, 1.0]]), [0, 1, 2])[0].tolist() == [
        [15.0, 27.0],
        [10.0, 18.0],
        [7.0, 9.0],
    ]


def test_the_first_known_type_follows_the_order_given() -> None:
    known = table([NAN], [10.0], [7.0])
    assert projected(known, np.array([[3.0, 2.0, 1.0]]), [2, 0, 1])[0, 0].tolist() == [21.0]


def test_a_type_of_which_something_is_known_is_not_projected() -> None:
    result = projected(table([1.0, 2.0], [5.0, NAN]), np.array([[1.0, 1.0]]), [0, 1])
    assert np.isnan(result[0, 1, 1])


def test_the_smallest_count_of_an_unknown_job_is_worth_1_on_every_type() -> None:
    valid = np.array([[[True, True], [False, True]]])
    result = with_first_gains(table([NAN, NAN], [NAN, NAN]), valid)
    assert np.nan_to_num(result[0]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_first_gain_is_for_jobs_of_which_nothing_is_known() -> None:
    """Of the second, one cell is known; the third has a floor of its own."""
    gain = np.array([[[NAN, NAN]], [[NAN, 3.0]], [[NAN, NAN]]])
    result = with_first_gains(gain, np.ones(gain.shape, dtype=bool), np.array([1.0, 1.0, 8.0]))
    assert np.nan_to_num(result).tolist() == [[[1.0, 0.0]], [[0.0, 3.0]], [[8.0, 0.0]]]


def test_a_job_as_old_as_a_restart_takes_has_lost_half_of_its_age() -> None:
    assert restart_factor(np.array([25.0, 24.0]), np.zeros(2), 25.0).tolist() == [0.5, 1.0]
    assert restart_factor(np.array([0.5]), np.zeros(1), 0.125).tolist() == [0.8]


def test_the_restart_factor_is_the_share_of_the_age_that_was_not_restarting() -> None:
    ages, restarts = np.array([100.0, 100.0, 20.0, 0.0]), np.array([2.0, 9.0, 5.0, 0.0])
    assert restart_factor(ages, restarts, 25.0).tolist() == [0.4, 0.0, 1.0, 1.0]


def test_without_a_cost_restarting_is_free() -> None:
    assert restart_factor(np.array([0.0, 50.0]), np.array([3.0, 3.0]), 0.0).tolist() == [1.0, 1.0]


def test_only_the_present_place_of_a_job_keeps_its_value() -> None:
    gain, present = table([6.0, 2.0]), np.array([[[False, True]]])
    assert discounted(gain, np.array([0.5]), np.array([True]), present)[0].tolist() == [[3.0, 2.0]]
    assert discounted(gain, np.array([0.5]), np.array([False]), present)[0].tolist() == [[6.0, 2.0]]


def test_single_precision_breaks_ties_of_hundredths() -> None:
    ones, others = single_precision(table([0.01, 0.26])), single_precision(table([0.09, 0.18]))
    assert ones.sum() != others.sum()
    assert ones.sum() == pytest.approx(others.sum(), abs=1e-7)


def test_utilities_are_clipped_and_on_request_rounded() -> None:
    gain = table([3.0, 1e-9, 0.0])
    assert utilities(gain, -0.5)[0, 0].tolist() == [3.0**-0.5, 3000.0, 3000.0]
    assert utilities(gain, -0.5, rounded=True)[0, 0, 0] == 0.58


@pytest.mark.parametrize("power", [-10.0, -0.5, 0.0, 1.0])
def test_what_is_no_configuration_has_no_utility(power: float) -> None:
    """Without that, at a power of 0 a job could get a GPU count that it does not list."""
    assert np.isnan(utilities(table([3.0, NAN]), power))[0, 0].tolist() == [False, True]
