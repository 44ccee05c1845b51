"""FIND_ALLOC on the worked example, and what holds of its places always."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import NodeId
from services.planner.policies.hadar.prices import DualPrices
from tests.services.planner.planner_builders import place_on
from tests.services.planner.policies.hadar.hadar_builders import A, B, C, Case, Model, cluster
from tests.services.planner.policies.hadar.test_prices import MODELS

INTRODUCTION = Model(4, (1.0, 10.0), 40)


def test_places_of_the_worked_example() -> None:
    case = Case([A, B, C], cluster(v=2, k=2))
    found = [case.offers(index) for index in range(3)]
    assert [case.named(one.place) for one in found[0]][:2] == [{"v": 2}, {"k": 2}]
    assert [case.named(one.place) for one in found[1]] == [{"v": 1}, {"k": 1}]
    assert case.named(found[2][0].place) == {"v": 2, "k": 1}
    assert [found[0][0].rate, found[1][0].rate, found[2][0].rate] == [8.0, 3.0, 3.0]
    payoffs = [one.payoff for one in (*found[0][:2], *found[1], found[2][0])]
    assert payoffs == pytest.approx([7.998535, 1.998535, 2.999268, 1.999268, 2.997803], abs=1e-6)


WITH_SLOTS_OF_20 = DualPrices((1 / 240, 1 / 240), (40.0, 40.0), 20)
"""of the introduction's job alone, were T = 20; by its formula T is 17"""


def test_prices_of_the_introduction_s_case() -> None:
    """T = ⌈40 / 6 + 10⌉ = 17, η = 17 · 6 / 40, U(T) = 40 / 17."""
    prices = Case([INTRODUCTION], cluster(v=3, k=3)).prices
    assert prices.horizon == 17
    assert prices.high == (40.0, 40.0)
    assert prices.low == pytest.approx((40 / 17 / 40 / (4 * 17 * 6 / 40),) * 2)


@pytest.mark.parametrize(("walk", "place"), [("fastest", {"v": 3, "k": 1}), ("bottleneck", {"v": 1, "k": 3})])
def test_a_gang_that_no_type_holds_is_mixed(walk: str, place: dict[str, int]) -> None:
    """The case of the paper's introduction: both run like four K80, one of them on a single V100."""
    case = Case([INTRODUCTION], cluster(v=3, k=3), walk=walk, prices=WITH_SLOTS_OF_20)
    found = {tuple(sorted(case.named(one.place).items())): one for one in case.offers(0)}
    one = found[tuple(sorted(place.items()))]
    assert (one.rate, one.payoff) == pytest.approx((4.0, 3.983333), abs=1e-6)
    assert all(len(offer.place) == 2 for offer in found.values())


def test_gpus_that_were_taken_make_the_rest_dearer() -> None:
    case = Case([INTRODUCTION], cluster(v=3, k=3), walk="bottleneck", prices=WITH_SLOTS_OF_20)
    room = case.room.without(((case.levels.position[NodeId("v")], 1),))
    [offer] = [one for one in case.offers(0, room) if case.named(one.place) == {"v": 1, "k": 3}]
    assert 4.0 - offer.payoff == pytest.approx(0.101055, abs=1e-6)
    other = 2 * case.price[case.levels.base[1] + 2] + 2 * case.price[case.levels.base[0] + 3]
    assert other == pytest.approx(0.185443, abs=1e-6)


def test_gpus_are_multiplied_by_the_speed_of_the_slowest() -> None:
    """Speeds are of one GPU; the whole of a gang's would be the rate as it is."""
    case = Case([Model(4, (1.0, 10.0), 40)], cluster(v=4, k=4))
    assert {one.rate for one in case.offers(0)} == {40.0, 4.0}


def test_a_new_allocation_costs_a_restart() -> None:
    case = Case([A], cluster(v=2, k=2), present={0: place_on(k=2)}, restart_s=2.0)
    payoff = {tuple(case.named(one.place)): one.payoff for one in case.offers(0)}
    assert payoff["v",] == pytest.approx(16 / 4, abs=0.02)
    assert payoff["k",] == pytest.approx(16 / 8, abs=0.02)
    assert [one.stays for one in case.offers(0)] == [False, True]


@pytest.mark.parametrize(("to_finish", "slots"), [(False, 1), (True, 8)])
def test_gpus_are_paid_for_one_round_or_to_the_end(to_finish: bool, slots: int) -> None:  # noqa: FBT001 - a parameter
    case = Case([A], cluster(k=2, v=2), to_finish=to_finish)
    [slow] = [one for one in case.offers(0) if case.named(one.place) == {"k": 2}]
    assert 2.0 - slow.payoff == pytest.approx(2 * case.prices.low[0] * slots)


def test_a_network_price_is_paid_by_further_node() -> None:
    free, priced = (Case([C], cluster(v=2, k=2), network_price=one).offers(0)[0] for one in (0.0, 0.5))
    assert free.payoff - priced.payoff == pytest.approx(0.5)
    assert free.place == priced.place


def test_consolidated_places_take_the_emptiest_nodes_of_any_type() -> None:
    """Six GPUs, four of them on the slow node: two nodes do, where fastest first takes three."""
    model = Model(6, (1.0, 2.0), 60)
    case = Case([model], cluster(k0=4, v0=2, v1=2))
    places = [case.named(one.place) for one in case.offers(0)]
    assert {"k0": 4, "v0": 2} in places
    assert {"v0": 2, "v1": 2, "k0": 2} in places


@given(
    models=MODELS,
    idle=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    walk=st.sampled_from(["fastest", "bottleneck"]),
)
def test_every_place_is_whole_and_priced_as_it_is(models: list[Model], idle: list[int], walk: str) -> None:
    case = Case(models, cluster(k0=4, k1=4, v0=4, v1=4), walk=walk)
    room = case.room
    for node, free in enumerate(idle):
        room = room.without(((node, 4 - free),)) if free < 4 else room
    for index, job in enumerate(case.jobs):
        offers = case.offers(index, room)
        assert len({offer.place for offer in offers}) == len(offers)
        assert [offer.payoff for offer in offers] == sorted((one.payoff for one in offers), reverse=True)
        for offer in offers:
            kinds = [case.levels.kind[node] for node, _ in offer.place]
            assert sum(gpus for _, gpus in offer.place) == job.gpus
            assert room.has(offer.place)
            assert offer.rate == job.gpus * min(models[index].speed[kind] for kind in kinds) > 0


@given(models=MODELS, node=st.integers(0, 3))
def test_a_gpu_less_makes_no_place_cheaper(models: list[Model], node: int) -> None:
    case = Case(models, cluster(k0=4, k1=4, v0=4, v1=4))
    less = case.room.without(((node, 1),))
    for index in range(len(models)):
        before = {one.place: one.payoff for one in case.offers(index)}
        after = {one.place: one.payoff for one in case.offers(index, less)}
        assert all(after[place] <= before[place] for place in before.keys() & after.keys())
        fastest = max((one.rate for one in case.offers(index)), default=0.0)
        assert fastest >= max((one.rate for one in case.offers(index, less)), default=0.0)
