"""Hops eq. 9 and 10, against numbers worked out by hand."""

import pytest

from schemas.ids import GpuType
from services.estimator.theory.ageing import age_s, sensitivity, shares

A, B, C = GpuType("A"), GpuType("B"), GpuType("C")


def test_age_is_the_share_weighted_running_time() -> None:
    """A: 1800 / (10 · 3) = 60 s, B: 1800 / (40 · 3) = 15 s, three quarters of the GPUs are A's."""
    assert age_s(1800, (1, 2, 6), {A: 10.0, B: 40.0}, {A: 0.75, B: 0.25}) == pytest.approx(48.75)


def test_the_mean_of_a_demand_need_not_be_whole() -> None:
    assert age_s(1800, (1, 2), {A: 10.0}, {A: 1.0}) == pytest.approx(120.0)


def test_sensitivity_is_the_share_weighted_ratio() -> None:
    assert sensitivity({A: 10.0, B: 40.0}, {A: 5.0, B: 40.0}, {A: 0.5, B: 0.5}) == pytest.approx(1.5)


def test_types_the_job_cannot_use_leave_the_shares() -> None:
    assert shares([A, B], {A: 30, B: 10, C: 60}) == {A: 0.75, B: 0.25}


def test_a_type_without_gpus_at_the_moment_has_no_share() -> None:
    assert shares([A, B], {A: 30}) == {A: 1.0, B: 0.0}


def test_without_gpus_at_the_moment_all_types_count_alike() -> None:
    assert shares([A, B], {C: 60}) == {A: 0.5, B: 0.5}
