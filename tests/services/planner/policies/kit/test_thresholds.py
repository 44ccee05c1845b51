"""Which thresholds of queues users may write."""

import pytest

from services.planner.policies.kit.thresholds import ascending
from services.planner.policies.registry import Registry, UnfitPolicy

OPTIONS = pytest.mark.parametrize("option", ["tiresias+thresholds", "hlas+hlas_thresholds"])


@OPTIONS
@pytest.mark.parametrize("value", ["0", "60 0", "0.0 60", "00", "", "1e3", "-1", "60,240", "9" * 400])
def test_a_threshold_that_is_not_a_finite_positive_number_is_refused(option: str, value: str) -> None:
    with pytest.raises(UnfitPolicy):
        Registry().find(f"{option}={value}")


@OPTIONS
@pytest.mark.parametrize("value", ["60", "0.5", "0.05 10", "100 7  30.25", "10.0"])
def test_numbers_above_zero_are_taken_in_any_order(option: str, value: str) -> None:
    Registry().find(f"{option}={value}")
    assert list(ascending(value)) == sorted(ascending(value))
