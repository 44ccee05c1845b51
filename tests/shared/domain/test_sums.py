"""Floats are added one after another, by every Python."""

from shared.domain.sums import plain_sum


def test_every_step_is_rounded() -> None:
    assert plain_sum([1e16, 1.0, 1.0]) == 1e16, "from Python 3.12 on the built-in sum is 1e16 + 2"


def test_an_empty_sum_is_zero() -> None:
    assert plain_sum([]) == 0.0
