"""From measured iterations to time modules."""

import pytest

from schemas.measurements import DataMode, Measured
from services.profiler.modules import fitted, objection, one_mode, overlap_pattern
from shared.domain.iteration import law_of
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


@pytest.mark.parametrize(("iteration_s", "pattern"), [(0.1 + 0.3 + 0.2, 2), (0.1 + 0.3 + 0.09, 1)])
def test_to_the_letter_pattern_2_is_recognised_without_an_update(iteration_s: float, pattern: int) -> None:
    """T_d 0.3, T_f 0.1, T_b 0.2, T_u 0.05: pattern 1 predicts 0.4, pattern 2 predicts 0.6."""
    numbers = measurement(data_s=(0.3,) * 4, iteration_s=iteration_s)
    assert overlap_pattern(numbers, law_of("update")) == pattern
    assert fitted(numbers, one_mode(numbers.data_s), law_of("update")).pattern == pattern


@pytest.mark.parametrize(
    "numbers",
    [
        measurement(data_s=()),
        measurement(data_s=(0.1, float("inf"))),
        measurement(forward_s=-1.0),
        measurement(forward_s=0.0, backward_s=0.0),
        measurement(forward_s=1e-30, backward_s=1e-30),
        measurement(update_s=1e29),
    ],
)
def test_unusable_numbers_are_named(numbers: Measured) -> None:
    assert objection(numbers)
