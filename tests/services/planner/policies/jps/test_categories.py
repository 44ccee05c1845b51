"""Categories by their numbers: the paper's, and any demand's."""

from itertools import product
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.policies.jps.splits.categories import Categories
from services.planner.policies.jps.splits.sampling import best, drawn, rear

FIVE_OF_THREE = [(3, 1, 1), (2, 2, 1), (1, 3, 1), (2, 1, 2), (1, 2, 2), (1, 1, 3)]
PRINTED = {
    1: (12, 1, 1, 1),
    18: (6, 6, 2, 1),
    94: (6, 5, 2, 2),
    159: (5, 5, 2, 3),
    276: (2, 2, 6, 5),
    364: (1, 1, 1, 12),
}
demands = st.lists(st.sets(st.integers(1, 6), min_size=1, max_size=4).map(sorted), min_size=1, max_size=4)


def every(gpus: int, jobs: int) -> Categories:
    return Categories([range(1, gpus + 1)] * jobs, gpus)


def test_the_order_of_algorithm_1() -> None:
    found = every(5, 3)
    assert [found.at(number) for number in range(found.count)] == FIVE_OF_THREE


@pytest.mark.parametrize(("printed", "category"), PRINTED.items())
def test_the_numbers_that_the_paper_prints(printed: int, category: tuple[int, ...]) -> None:
    found = every(15, 4)
    assert found.count == 364
    assert found.at(printed - 1) == category


@given(gpus=st.integers(1, 40), jobs=st.integers(1, 6))
def test_without_bounds_there_are_binomially_many(gpus: int, jobs: int) -> None:
    if jobs <= gpus:
        assert every(gpus, jobs).count == comb(gpus - 1, jobs - 1)
    assert every(30, 4).count == 3654


@given(demands=demands, spare=st.integers(0, 12))
def test_all_categories_are_found_in_order_and_use_as_many_gpus_as_possible(
    demands: list[list[int]], spare: int
) -> None:
    gpus = sum(demand[0] for demand in demands) + spare
    found = Categories(demands, gpus)
    fits = [one for one in product(*demands) if sum(one) <= gpus]
    most = max(map(sum, fits))
    expected = sorted((one for one in fits if sum(one) == most), key=lambda one: one[::-1])
    assert found.gpus == most
    assert [found.at(number) for number in range(found.count)] == expected


def test_numbers_may_be_beyond_any_machine_word() -> None:
    found = every(64, 25)
    assert found.count == comb(63, 24)
    assert found.at(found.count - 1) == (1,) * 24 + (40,)
    last = drawn(found.count, alpha=0.7, samples=60, seed="s")
    assert len(set(last)) == 60
    assert min(last) >= found.count - rear(found.count, 0.7)
    assert all(sum(found.at(number)) == 64 for number in last)


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, 364), (0.7, 109), (0.9, 36)])
def test_the_rear_is_as_large_as_in_the_paper(alpha: float, expected: int) -> None:
    assert rear(364, alpha) == expected


@given(count=st.integers(1, 500), alpha=st.floats(0, 1), samples=st.integers(1, 60), seed=st.text(max_size=5))
def test_draws_are_of_the_rear_each_once_and_follow_from_the_seed(
    count: int, alpha: float, samples: int, seed: str
) -> None:
    found = drawn(count, alpha=alpha, samples=samples, seed=seed)
    rest = rear(count, alpha)
    assert len(set(found)) == len(found) == min(samples, rest)
    assert list(found) == sorted(found)
    assert all(count - rest <= number < count for number in found)
    assert found == drawn(count, alpha=alpha, samples=samples, seed=seed)


def test_draws_are_even() -> None:
    """Each of 20 is among 5 draws of 400 about a hundred times; five standard deviations are 43."""
    times = [0] * 20
    for seed in range(400):
        for number in drawn(20, alpha=0.0, samples=5, seed=str(seed)):
            times[number] += 1
    assert all(abs(each - 100) < 44 for each in times)


jct_and_fairness = st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.1, 1)), min_size=1, max_size=20)


@given(jct_and_fairness)
def test_beta_1_takes_the_lowest_jct_and_0_the_highest_fairness(
    found: list[tuple[float, float]],
) -> None:
    jct, fairness = zip(*found, strict=True)
    assert jct[best(jct, fairness, 1.0)] == min(jct)
    assert fairness[best(jct, fairness, 0.0)] == max(fairness)


def test_ties_go_to_the_lower_jct_then_to_the_lower_number() -> None:
    assert best([2.0, 1.0, 1.0], [0.5, 0.5, 0.5], 0.0) == 1
    assert best([1.0, 1.0], [0.5, 0.9], 1.0) == 0
