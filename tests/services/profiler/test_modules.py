"""From measured iterations to time modules."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from schemas.events import DataMode
from schemas.measurements import Measured
from services.profiler.modules import fitted, objection, one_mode, overlap_pattern
from services.profiler.work.mixture import bic_of_one, data_modes
from tests.services.profiler.profiler_builders import measurement


def test_stable_modules_are_means() -> None:
    numbers = Measured(
        data_s=(0.1, 0.3),
        forward_s=(1.0, 3.0),
        backward_s=(2.0, 4.0),
        update_s=(0.5, 0.7),
        iteration_s=(4.0, 7.0),
        parameters=9.0,
    )
    modules = fitted(numbers, one_mode(numbers.data_s))
    assert (modules.forward_s, modules.backward_s, modules.update_s) == (2.0, 3.0, 0.6)
    assert modules.data == (DataMode(probability=1.0, mean_s=0.2, std_s=0.1),)
    assert (modules.parameters, modules.iterations) == (9.0, 2)


@pytest.mark.parametrize(
    ("iteration_s", "pattern"),
    [(0.1 + 0.3, 1), (0.1 + 0.3 + 0.25, 2), (0.1 + 0.3 + 0.1, 1), (0.1 + 0.3 + 0.2, 2)],
)
def test_the_pattern_is_the_one_whose_prediction_is_nearer(iteration_s: float, pattern: int) -> None:
    """T_d 0.3, T_f 0.1, T_b + T_u 0.25: pattern 1 predicts 0.4, pattern 2 predicts 0.65."""
    numbers = measurement(data_s=(0.3,) * 4, iteration_s=iteration_s)
    assert overlap_pattern(numbers) == pattern


@pytest.mark.parametrize(
    "numbers",
    [
        measurement(data_s=()),
        measurement(data_s=(0.1, float("inf"))),
        measurement(forward_s=-1.0),
        measurement(forward_s=0.0, backward_s=0.0),
    ],
)
def test_unusable_numbers_are_named(numbers: Measured) -> None:
    assert objection(numbers)


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_stable_loader_has_one_component(seed: int) -> None:
    times = np.random.default_rng(seed).normal(0.05, 0.004, 50)
    [mode] = data_modes(times.tolist())
    assert mode.mean_s == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("count", [8, 30, 200])
def test_one_component_has_the_criterion_that_a_fit_of_one_has(count: int) -> None:
    times = np.random.default_rng(count).normal(0.05, 0.004, count)
    scaled = ((times - times.mean()) / times.std()).reshape(-1, 1)
    assert bic_of_one(count) == pytest.approx(GaussianMixture(1).fit(scaled).bic(scaled), rel=1e-4)


def test_a_constant_loader_has_one_component() -> None:
    assert data_modes([0.02] * 30) == (DataMode(probability=1.0, mean_s=0.02, std_s=0.0),)


def test_hits_and_misses_are_separated_in_the_order_of_their_means() -> None:
    draw = np.random.default_rng(2)
    times = np.concatenate([draw.normal(0.5, 0.02, 10), draw.normal(0.05, 0.005, 40)])
    hit, miss = data_modes(times.tolist())
    assert (hit.probability, miss.probability) == pytest.approx((0.8, 0.2), abs=0.01)
    assert (hit.mean_s, miss.mean_s) == pytest.approx((0.05, 0.5), rel=0.05)


def test_a_single_straggler_is_no_component() -> None:
    assert len(data_modes([0.05, 0.051, 0.049, 0.05, 0.052, 0.048, 0.9])) == 1


def test_the_same_times_give_the_same_components() -> None:
    times = np.random.default_rng(3).gamma(2.0, 0.05, 30).tolist()
    assert data_modes(times) == data_modes(times)
