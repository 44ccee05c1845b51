"""The mixture of loading times, by hand, by its laws, and against scikit-learn's."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from schemas.measurements import DataMode
from services.profiler.work.mixture import (
    FLOOR,
    bic_of_one,
    data_modes,
    expected,
    maximised,
    two_components,
)
from shared.domain.iteration import Column
from tests.paths import data

TIMES = some.lists(some.floats(0.0, 1e6), min_size=1, max_size=60)


class Fitted(msgspec.Struct, frozen=True):
    """Of standardised times, as far climbed as we climb; given where no variance comes near the floor."""

    weight: list[float]
    mean: list[float]
    variance: list[float]
    log_likelihood: float


class Case(msgspec.Struct, frozen=True):
    name: str
    times: list[float]
    components: int
    fit: Fitted | None = None

    def __str__(self) -> str:
        return f"{self.name}, {len(self.times)}"


CASES = msgspec.json.decode(data("golden/mixtures.json").read_bytes(), type=list[Case])


def standardised(times: Sequence[float]) -> Column:
    column = np.sort(np.array(times))
    return np.asarray((column - column.mean()) / column.std())


# ---- against scikit-learn


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_many_components_as_scikit_learn_found(case: Case) -> None:
    assert len(data_modes(case.times)) == case.components


@pytest.mark.parametrize("case", [case for case in CASES if case.fit], ids=str)
def test_from_the_same_parts_scikit_learn_comes_to_the_same_mixture(case: Case) -> None:
    ours, theirs = two_components(standardised(case.times)), case.fit
    assert theirs is not None
    assert ours.converged
    assert ours.mixture.weight == pytest.approx(np.array(theirs.weight), rel=1e-5)
    assert ours.mixture.mean == pytest.approx(np.array(theirs.mean), rel=1e-5, abs=1e-6)
    assert ours.mixture.variance == pytest.approx(np.array(theirs.variance), rel=1e-5)
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, rel=1e-5)


# ---- by hand


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_stable_loader_has_one_component(seed: int) -> None:
    times = np.random.default_rng(seed).normal(0.05, 0.004, 50)
    [mode] = data_modes(times.tolist())
    assert mode.mean_s == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("times", [[0.02] * 30, [0.0] * 30, [0.02], [0.0], [0.02, 0.02]])
def test_a_constant_loader_has_one_component(times: list[float]) -> None:
    assert data_modes(times) == (DataMode(probability=1.0, mean_s=times[0], std_s=0.0),)


def test_three_times_are_too_few_for_two_components() -> None:
    assert len(data_modes([0.01, 0.01, 9.0])) == 1


def test_hits_and_misses_are_separated_in_the_order_of_their_means() -> None:
    draw = np.random.default_rng(2)
    times = np.concatenate([draw.normal(0.5, 0.02, 10), draw.normal(0.05, 0.005, 40)])
    hit, miss = data_modes(times.tolist())
    assert (hit.probability, miss.probability) == pytest.approx((0.8, 0.2), abs=0.01)
    assert (hit.mean_s, miss.mean_s) == pytest.approx((0.05, 0.5), rel=0.05)


def test_the_deviation_of_hits_is_their_own_however_far_the_misses_are() -> None:
    """It is below the floor, which bounds the likelihood and not what is found."""
    hits, misses = [0.001, 0.002, 0.003] * 6, [60.0, 70.0]
    hit, miss = data_modes([*hits, *misses])
    assert (hit.mean_s, hit.std_s) == pytest.approx((0.002, np.std(hits)), rel=1e-4)
    assert (miss.mean_s, miss.std_s) == pytest.approx((65.0, 5.0), rel=1e-4)


def test_two_values_are_two_components_without_deviation() -> None:
    hit, miss = data_modes([0.01] * 8 + [0.05] * 2)
    assert (hit.probability, hit.mean_s, hit.std_s) == pytest.approx((0.8, 0.01, 0.0))
    assert (miss.probability, miss.mean_s, miss.std_s) == pytest.approx((0.2, 0.05, 0.0))


def test_a_single_straggler_is_no_component() -> None:
    assert len(data_modes([0.05, 0.051, 0.049, 0.05, 0.052, 0.048, 0.9])) == 1


def test_two_stable_times_alike_by_chance_are_no_component() -> None:
    """A fit on these two alone would be the likelier one."""
    times = np.random.default_rng(1).normal(0.05, 0.004, 30).tolist()
    assert len(data_modes([*times, 0.057, 0.057])) == 1


def test_times_beyond_all_measure_are_one_component() -> None:
    assert len(data_modes([1e200] * 5 + [1e180] * 5)) == 1


# ---- by its laws


@pytest.mark.parametrize("count", [8, 30, 200])
def test_the_bic_of_one_component_is_that_of_a_fitted_normal(count: int) -> None:
    x = standardised(np.random.default_rng(count).normal(0.05, 0.004, count).tolist())
    likelihood = -0.5 * (np.log(2 * np.pi * x.var()) + (x - x.mean()) ** 2 / x.var()).sum()
    assert bic_of_one(count) == pytest.approx(2 * np.log(count) - 2 * likelihood)


@given(TIMES.flatmap(lambda times: some.tuples(some.just(times), some.permutations(times))))
def test_neither_the_order_nor_the_run_matters(both: tuple[list[float], list[float]]) -> None:
    times, shuffled = both
    assert data_modes(times) == data_modes(times) == data_modes(shuffled)


@given(TIMES)
def test_modes_are_a_mixture_with_the_mean_of_the_times(times: list[float]) -> None:
    modes = data_modes(times)
    assert sum(mode.probability for mode in modes) == pytest.approx(1.0, abs=1e-5)
    assert sum(mode.probability * mode.mean_s for mode in modes) == pytest.approx(
        np.mean(times), rel=1e-4, abs=1e-9
    )
    assert all(mode.mean_s >= 0 and mode.std_s >= 0 for mode in modes)
    assert [mode.mean_s for mode in modes] == sorted(mode.mean_s for mode in modes)


@given(some.lists(some.floats(-1e3, 1e3), min_size=4, max_size=40), some.integers(1, 39))
def test_no_step_makes_the_likelihood_smaller(values: list[float], cut: int) -> None:
    if np.std(values) < 1e-6:
        return
    x = standardised(values)
    lower = np.arange(len(x)) < min(cut, len(x) - 1)
    members, reached = np.stack((lower, ~lower)).astype(np.float64), -np.inf
    for _ in range(20):
        members, likelihood = expected(x, maximised(x, members))
        assert likelihood >= reached - 1e-9
        assert np.allclose(members.sum(axis=0), 1.0)
        reached = likelihood


@given(some.lists(some.floats(0.0, 1e3), min_size=4, max_size=40))
def test_no_fit_is_likelier_than_the_floor_lets_it_be(values: list[float]) -> None:
    if np.std(values) < 1e-6:
        return
    fit = two_components(standardised(values))
    assert np.isfinite(fit.log_likelihood)
    most = -0.5 * np.log(2 * np.pi * FLOOR)  # of one time
    assert fit.log_likelihood <= most * len(values)
    assert 0 <= fit.carried <= len(values) // 2
