import pytest

from hopyard.lab.report.statistics import difference, paired, student_quantile, summary


def test_mean_spread_and_interval_of_three_values() -> None:
    found = summary([1.0, 2.0, 6.0])  # s = √7, t(0.975, 2) = 4.30265
    assert found.mean == 3.0
    assert found.std == pytest.approx(2.6457513)
    assert found.half_width == pytest.approx(4.3026527 * 2.6457513 / 3**0.5)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        (1, 12.706204736174694),
        (2, 4.302652729749464),
        (3, 3.1824463052837078),
        (4, 2.7764451051977934),
        (5, 2.570581835636315),
        (9, 2.2621571627982053),
        (10, 2.228138851986274),
        (29, 2.045229642132703),
        (30, 2.0422724563012378),
        (100, 1.983971518523552),
        (999, 1.9623414611334493),
        (100_000, 1.9599877075346095),
    ],
)
def test_the_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, rel=1e-12)


def test_five_equal_values_have_an_interval_of_zero() -> None:
    assert summary([2.0] * 5).half_width == 0.0


def test_one_value_has_no_interval() -> None:
    assert summary([2.0]).half_width is None


def test_no_values_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no values"):
        summary([])


def test_a_paired_difference_is_averaged_by_seed_first() -> None:
    mine = {1: {"a": 5.0, "b": 1.0}, 2: {"a": 4.0}}
    others = {1: {"a": 3.0, "b": 2.0}, 2: {"a": 4.0}}
    found = paired(mine, others)
    assert found is not None
    assert found.difference.values == (0.5, 0.0)  # seed 1: (2 − 1) / 2, seed 2: 0
    assert found.median == 0.0  # of −1, 0, 2
    assert found.smaller == 0.5  # one smaller, one equal, of three
    assert found.jobs == 3


def test_jobs_that_differ_by_rounding_are_even() -> None:
    found = paired({1: {"a": 1000.0, "b": 5.0}}, {1: {"a": 1000.0 + 3e-6, "b": 6.0}})
    assert found is not None
    assert (found.smaller, found.difference.mean) == (0.75, -0.5)


@pytest.mark.parametrize(
    ("value", "other", "found"),
    [(1e-7, 0.0, 0.0), (1e-3, 0.0, 1e-3), (1e9, 1e9 + 1.0, 0.0), (1e9, 1e9 + 1e6, -1e6)],
)
def test_a_difference_below_the_resolution_is_none(value: float, other: float, found: float) -> None:
    assert difference(value, other) == found


def test_jobs_that_only_one_side_has_are_left_out() -> None:
    found = paired({1: {"a": 5.0, "b": 9.0}}, {1: {"a": 3.0, "c": 9.0}, 2: {"a": 1.0}})
    assert found is not None
    assert (found.jobs, found.difference.mean) == (1, 2.0)


def test_without_common_jobs_there_is_no_comparison() -> None:
    assert paired({1: {"a": 1.0}}, {2: {"a": 1.0}}) is None
