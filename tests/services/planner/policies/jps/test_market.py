"""P3: the printed market, the auction that ends, and the flow; all come to the same where they end."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from services.planner.policies.jps.splits.auction import auction, auctioned
from services.planner.policies.jps.splits.market import WorkerMarket, transported
from shared.domain.arrays import Floats, Ints
from tests.services.planner.policies.jps.printed_market import printed_market

TWO = np.array([[275.0, 644.0], [884.0, 1754.0]])
"""ResNet-18 and VGG-19 on T4 and V100"""
FOUR = np.repeat(TWO, 2, axis=1)


def market(
    rate: Floats, supply: list[int], left: list[float] | None = None, held: Ints | None = None, **more: bool
) -> WorkerMarket:
    return WorkerMarket(
        rate=rate,
        supply=np.array(supply, dtype=np.int32),
        left=np.array(left or [1.0] * len(rate)),
        held=np.zeros(rate.shape, dtype=np.int32) if held is None else held,
        **more,
    )


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int32)


@pytest.mark.parametrize(
    ("counts", "bids", "prices", "total"),
    [
        ((3, 1), 5, (0.2, 0.6, 369.4, 369.2), 2948),
        ((2, 2), 6, (0.2, 501.4, 870.2, 870.2), 4058),
        ((1, 3), 5, (0.2, 0.4, 870.2, 870.2), 4667),
    ],
)
def test_the_auction_on_two_jobs_and_four_workers(
    counts: tuple[int, ...], bids: int, prices: tuple[float, ...], total: float
) -> None:
    sale = auction(FOUR, counts)
    assert sale is not None
    assert sale.bids == bids
    assert sale.price == pytest.approx(prices)
    assert FOUR[sale.owner, np.arange(4)].sum() == total
    flow = transported(market(TWO, [2, 2]), ints(*counts))
    assert flow is not None
    assert (flow * TWO).sum() == total


def test_the_printed_market_ends_with_ties_to_the_last_worker() -> None:
    sold = printed_market(FOUR, (2, 2), last=True)
    assert sold is not None
    assert sold[0].tolist() == [0, 0, 1, 1]
    assert sold[1].tolist() == [0, 0, 870, 870]


def test_the_printed_market_need_not_end() -> None:
    assert printed_market(FOUR, (3, 1), last=False) is None
    assert printed_market(np.full((2, 2), 10.0), (1, 1), last=False) is None


def test_of_equal_sums_the_one_better_for_long_jobs_is_chosen() -> None:
    """1,000 samples each: {A on the first, B on the second} has a mean of 83.3 s, the other 125 s."""
    rate = np.array([[10.0, 5.0], [20.0, 15.0]])
    flow = transported(market(rate, [1, 1], [1000.0, 1000.0]), ints(1, 1))
    assert flow is not None
    assert flow.tolist() == [[1, 0], [0, 1]]


def test_among_equal_types_a_job_keeps_its_gpus() -> None:
    for first in (0, 1):
        held = np.eye(2, dtype=np.int32) if first == 0 else np.eye(2, dtype=np.int32)[::-1].copy()
        flow = transported(market(np.full((2, 2), 10.0), [1, 1], held=held), ints(1, 1))
        assert flow is not None
        assert (flow == held).all()


def test_a_category_without_room_on_its_types_is_skipped() -> None:
    rate = np.array([[5.0, 0.0], [5.0, 0.0]])
    assert transported(market(rate, [2, 4]), ints(2, 2)) is None
    assert auctioned(market(rate, [2, 4]), ints(2, 2)) is None


@st.composite
def markets(draw: st.DrawFn) -> tuple[WorkerMarket, Ints]:
    jobs, kinds = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    supply = draw(st.lists(st.integers(1, 3), min_size=kinds, max_size=kinds))
    speed = st.integers(0, 30)
    rate = draw(st.lists(st.lists(speed, min_size=kinds, max_size=kinds), min_size=jobs, max_size=jobs))
    each = max(sum(supply) // jobs, 1)  # so that they mostly find room
    counts = draw(st.lists(st.integers(1, each), min_size=jobs, max_size=jobs))
    left = draw(st.lists(st.floats(1, 1e6), min_size=jobs, max_size=jobs))
    weighted = draw(st.booleans())
    return market(np.array(rate, dtype=float), supply, left, weighted=weighted), ints(*counts)


@given(markets())
@limits(deadline=None)
def test_auction_and_flow_give_the_same_sum(case: tuple[WorkerMarket, Ints]) -> None:
    seen, counts = case
    flow, sale = transported(seen, counts), auctioned(seen, counts)
    assert (flow is None) == (sale is None)
    if flow is None or sale is None:
        return
    worth = seen.worth(counts)
    assert (flow * worth).sum() == pytest.approx((sale * worth).sum(), rel=3e-3, abs=1e-3)
    for found in (flow, sale):
        assert (found.sum(axis=1) == counts).all()
        assert (found.sum(axis=0) <= seen.supply).all()
        assert not found[seen.rate <= 0].any()


@given(markets())
@limits(deadline=None)
def test_no_exchange_of_two_gpus_is_worth_more(case: tuple[WorkerMarket, Ints]) -> None:
    seen, counts = case
    flow = transported(seen, counts)
    if flow is None:
        return
    worth = seen.worth(counts)
    step = float(worth.max()) * 1e-6 + 1e-3
    usable = seen.rate > 0
    cells = [tuple(cell) for cell in np.argwhere(flow > 0).tolist()]
    for one, here in cells:
        for other, there in cells:
            if usable[one, there] and usable[other, here]:
                now = worth[one, here] + worth[other, there]
                assert worth[one, there] + worth[other, here] <= now + step


@st.composite
def whole_markets(draw: st.DrawFn) -> tuple[WorkerMarket, Ints]:
    """Every job can use every GPU, and all of them are sold."""
    jobs, kinds = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    supply = draw(st.lists(st.integers(1 if kinds == 3 else 2, 3), min_size=kinds, max_size=kinds))
    supply[0] = max(supply[0], jobs - sum(supply[1:]))
    speed = st.integers(1, 30)
    rate = draw(st.lists(st.lists(speed, min_size=kinds, max_size=kinds), min_size=jobs, max_size=jobs))
    cuts = draw(st.lists(st.integers(1, sum(supply) - 1), min_size=jobs - 1, max_size=jobs - 1, unique=True))
    counts = np.diff([0, *sorted(cuts), sum(supply)])
    return market(np.array(rate, dtype=float), supply), ints(*counts.tolist())


@given(whole_markets())
@limits(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])
def test_where_the_printed_market_ends_no_sum_is_larger(case: tuple[WorkerMarket, Ints]) -> None:
    seen, counts = case
    workers = np.repeat(seen.rate, seen.supply, axis=1)
    sold, flow = printed_market(workers, counts.tolist(), last=True, steps=200), transported(seen, counts)
    assume(sold is not None)
    assert sold is not None
    assert flow is not None
    owner, _ = sold
    assert workers[owner, np.arange(len(owner))].sum() == pytest.approx((flow * seen.rate).sum())
