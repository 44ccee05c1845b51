"""Equations 5 to 7 on the worked example, and what holds of them always."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.policies.hadar.jobs import slots, value
from services.planner.policies.hadar.prices import DualPrices
from tests.services.planner.policies.hadar.hadar_builders import A, B, C, Case, Model, cluster

MODELS = st.lists(
    st.builds(
        Model,
        gpus=st.integers(1, 4),
        speed=st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([1.0, 2.0, 7.0])),
        work=st.floats(1e-6, 1e9),
    ),
    min_size=1,
    max_size=6,
)


def test_the_worked_example() -> None:
    case = Case([A, B, C], cluster(v=2, k=2))
    k, v = range(2)
    assert [slots(job.left / (job.gpus * max(job.known_paces)), 1.0) for job in case.jobs] == [2, 2, 2]
    assert [slots(job.left / (job.gpus * min(job.known_paces)), 1.0) for job in case.jobs] == [8, 3, 4]
    assert case.prices.horizon == 16
    assert case.prices.high == (8.0, 8.0)
    assert case.prices.low == pytest.approx((0.000732422, 0.000732422), abs=1e-9)
    for kind in (k, v):
        found = [case.prices.at(kind, given, 2) for given in range(3)]
        assert found == pytest.approx([0.000732, 0.076547, 8.0], abs=1e-6)
    assert math.log(8.0 / case.prices.low[v]) == pytest.approx(9.298595, abs=1e-6)
    dual = case.prices.horizon * 4 * case.prices.low[v]
    assert dual == pytest.approx(0.046875)
    assert dual <= 6.0 / 2  # half of the best ΣU, which is 10 or more


def test_the_price_of_the_last_gpu_may_be_that_of_a_whole_gang_s_gpu() -> None:
    """A's 8 are those of two GPUs, B's 3 those of one."""
    assert Case([A, B, C], cluster(v=2, k=2), top="gang").prices.high == (4.0, 4.0)


def test_a_last_job_that_needs_all_gpus_for_a_moment_can_pay() -> None:
    """With fractions of a slot in place of whole ones nothing below 1/8 slot ever starts."""
    case = Case([Model(4, (1.0, 1.0), 0.1)], cluster(v=2, k=2))
    assert case.prices.horizon == 2
    [*_, best] = sorted(offer.payoff for offer in case.offers(0))
    assert best > 0


def test_prices_follow_the_stake() -> None:
    """A job of two slots loses a third of its 8 by one slot of delay."""
    model = Model(2, (4.0,), 16)
    whole, delay = (Case([model], cluster(v=2), delay_s=one) for one in (math.inf, 1.0))
    assert whole.prices.high == (8.0,)
    assert delay.prices.high == pytest.approx((8.0 - 16 / 3,))
    assert 0.0 < delay.prices.low[0] < whole.prices.low[0]


@given(models=MODELS)
def test_prices_rise_and_admit_every_job_to_an_empty_cluster(models: list[Model]) -> None:
    case = Case(models, cluster(v=4, k=4))
    prices = case.prices
    for kind, (low, high) in enumerate(zip(prices.low, prices.high, strict=True)):
        able = [job for job in case.jobs if job.speeds[kind] > 0]
        if not able:
            assert (low, high) == (0.0, 0.0)
            continue
        found = [prices.at(kind, given, 4) for given in range(5)]
        assert found == sorted(found)
        assert found[0] == pytest.approx(low)
        assert found[-1] == pytest.approx(high)
        assert all(math.isfinite(one) and one > 0 for one in found)
        for job in able:
            soonest = slots(job.left / (job.gpus * max(job.known_paces)), 1.0)
            assert value(job.worth, soonest, math.inf) <= found[-1] * (1 + 1e-9)
            latest = value(job.worth, prices.horizon, math.inf)
            assert job.gpus * low <= latest / 4 * (1 + 1e-9)
    latest_of_all = [value(job.worth, prices.horizon, math.inf) for job in case.jobs]
    dual = prices.horizon * sum(low * 4 for low in prices.low)
    everywhere = all(speed > 0 for job in case.jobs for speed in job.speeds)
    assert dual <= (min if everywhere else max)(latest_of_all) / 4 * (1 + 1e-9)


def test_no_constant_holds_for_demands_of_many_gpus() -> None:
    """Theorem 2's relation, k Δγ ≥ (c / α) Δk, needs a larger α than ln 1000 = 6.9."""
    prices = DualPrices((1.0,), (1000.0,), 1)
    needed = [4 * (prices.at(0, gpus, 4) - 1.0) / gpus for gpus in (1, 2, 4)]
    assert needed == pytest.approx([18.4937, 61.2456, 999.0], abs=1e-4)
