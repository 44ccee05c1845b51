"""The dynamic program on the worked example, against exhaustive search, and for any beam and budget."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import NodeId
from schemas.placement import Configuration
from schemas.plans import Stage
from services.planner.policies.hadar.program import Chosen
from services.planner.policies.hadar.room import FreeGpus, Occupants
from tests.services.planner.policies.hadar.hadar_builders import (
    PRINTED,
    A,
    B,
    C,
    Case,
    Model,
    cluster,
    run_out,
)
from tests.services.planner.policies.hadar.test_prices import MODELS

NODES = cluster(k0=2, k1=2, v0=2, v1=2)
HELD = st.dictionaries(st.integers(0, 3), st.sampled_from(["k0", "k1", "v0", "v1"]))
SMALL = MODELS.filter(lambda models: len(models) <= 4)


def placed(case: Case, answer: Chosen, order: Sequence[int] = ()) -> dict[int, dict[str, int]]:
    """By job."""
    jobs = order or range(len(case.jobs))
    return {jobs[turn]: case.named(offer.place) for turn, offer in answer.offers.items()}


def exhausted(case: Case) -> float:
    """The largest Σφ over the places offered in the order of the queue, nothing left out or merged."""
    occupants, states = Occupants(len(case.nodes), case.jobs), [(0.0, case.room)]
    for job in case.jobs:
        occupants.passed(job)
        grown = list(states)
        for value, room in states:
            offers = case.finder.offers(job, case.finder.routes(job), room, occupants)
            grown += [
                (value + offer.payoff, room.without(offer.place)) for offer in offers if offer.payoff > 0
            ]
        states = grown
    return max(value for value, _ in states)


def with_held(models: Sequence[Model], held: dict[int, str], *, every_occupied: bool = True) -> Case:
    """Some jobs have a place; nobody checks that all of them fit."""
    own: dict[int, Configuration] = {
        index: {NodeId(name): models[index].gpus}
        for index, name in held.items()
        if index < len(models) and models[index].gpus <= 2
    }
    return Case(models, NODES, present=own, restart_s=0.1, every_occupied=every_occupied)


def test_the_best_place_of_each_job_in_the_order_of_the_example() -> None:
    case = Case([A, B, C], cluster(v=2, k=2))
    answer = case.solved(branches=1)
    assert placed(case, answer) == {0: {"v": 2}, 1: {"k": 1}}
    assert answer.value == pytest.approx(9.997803, abs=1e-6)
    assert answer.bound == pytest.approx(12.997070, abs=1e-6)


def test_the_best_place_alone_can_cost_a_job() -> None:
    """B first: on the V100 it would leave A the K80s, so A alone is better, and a K80 stays idle."""
    case = Case([A, B, C], cluster(v=2, k=2))
    order = (1, 0, 2)
    answer = case.solved(branches=1, order=order)
    assert placed(case, answer, order) == {0: {"v": 2}}
    assert answer.value == pytest.approx(7.998535, abs=1e-6)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_with_all_places_the_order_does_not_matter_here(order: tuple[int, ...]) -> None:
    case = Case([A, B, C], cluster(v=2, k=2))
    answer = case.solved(order=order)
    assert placed(case, answer, order) == {0: {"v": 2}, 1: {"k": 1}}
    assert answer.value == pytest.approx(9.997803, abs=1e-6)


def test_the_program_maximises_payoff_since_the_least_cost_places_no_job() -> None:
    """The paper's words, "minimum cost", name the empty set: every place costs something."""
    case = Case([A, B, C], cluster(v=2, k=2))
    worth = [model.work / (model.work / offer.rate) for model, offer in ((A, case.offers(0)[0]),)]
    assert worth[0] - case.offers(0)[0].payoff > 0
    assert case.solved().offers


def splits(gpus: int) -> Iterator[tuple[int, int]]:
    """(V100, K80) of a gang on two of each."""
    return ((v, gpus - v) for v in range(3) if 0 <= gpus - v <= 2)


def rate(model: Model, split: tuple[int, int]) -> float:
    used = [speed for speed, gpus in zip(model.speed, reversed(split), strict=True) if gpus]
    return model.gpus * min(used)


def rounds(models: Sequence[Model]) -> list[tuple[tuple[int, int] | None, ...]]:
    """All that two V100 and two K80 can run at once."""
    own = [[None, *splits(model.gpus)] for model in models]
    return [
        choice
        for choice in product(*own)
        if all(sum(one[kind] for one in choice if one) <= 2 for kind in range(2))
    ]


def test_ten_is_the_most_that_one_round_can_be_worth() -> None:
    models = (A, B, C)
    assert max(
        sum(rate(model, one) for model, one in zip(models, choice, strict=True) if one)
        for choice in rounds(models)
    ) == pytest.approx(10.0)


def optimum(models: Sequence[Model], horizon: int) -> float:
    """P1 by exhaustion: the largest Σ work / (end − arrival), a job ending with a whole slot."""
    choices = rounds(models)

    @cache
    def best(slot: int, left: tuple[float, ...]) -> float:
        if slot == horizon or not any(left):
            return 0.0
        return max(after(slot, left, choice) for choice in choices)

    def after(slot: int, left: tuple[float, ...], choice: tuple[tuple[int, int] | None, ...]) -> float:
        rest, gained = [], 0.0
        for model, own, one in zip(models, left, choice, strict=True):
            now = max(own - rate(model, one), 0.0) if one else own
            gained += model.work / (slot + 1) if own > 0 and not now else 0.0
            rest.append(now)
        return gained + best(slot + 1, tuple(rest))

    return best(0, tuple(model.work for model in models))


def test_slot_by_slot_the_example_comes_to_the_optimum_of_p1() -> None:
    models = {"a": A, "b": B, "c": C}
    ends = run_out(models, cluster(v=2, k=2), "hadar-literal", **PRINTED)
    assert ends == {"a": 2.0, "b": 3.0, "c": 6.0}
    total = sum(model.work / ends[name] for name, model in models.items())
    assert total == optimum([A, B, C], 8) == pytest.approx(12.0)


def test_in_another_order_of_arrival_the_printed_rule_misses_it() -> None:
    models = {"1b": B, "2a": A, "3c": C}
    ends = run_out(models, cluster(v=2, k=2), "hadar-literal", **PRINTED)
    assert ends == {"2a": 2.0, "1b": 4.0, "3c": 6.0}
    assert sum(model.work / ends[name] for name, model in models.items()) == pytest.approx(11.5)
    again = run_out(models, cluster(v=2, k=2), "hadar-literal", **{**PRINTED, "branches": 0})
    assert sum(model.work / again[name] for name, model in models.items()) == pytest.approx(12.0)


@given(models=SMALL, held=HELD)
@limits(max_examples=60, deadline=None)
def test_without_a_beam_it_is_the_best_of_all_choices(models: list[Model], held: dict[int, str]) -> None:
    """Merging states, and dropping those that cannot win, loses nothing."""
    case = with_held(models, held)
    best = exhausted(case)
    answer = case.solved()
    assert answer.value == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert answer.bound >= best * (1 - 1e-9)
    assert case.solved(branches=1).value <= best * (1 + 1e-9)


@given(
    models=MODELS, held=HELD, beam=st.integers(1, 8), branches=st.integers(0, 3), seconds=st.floats(0.0, 2e-4)
)
@limits(max_examples=60, deadline=None)
def test_gangs_are_whole_and_gpus_given_once_for_any_beam_and_budget(
    models: list[Model], held: dict[int, str], beam: int, branches: int, seconds: float
) -> None:
    case = with_held(models, held, every_occupied=False)
    answer = case.solved(beam=beam, branches=branches, seconds=seconds)
    room: FreeGpus = case.room
    for turn, offer in answer.offers.items():
        assert sum(gpus for _, gpus in offer.place) == models[turn].gpus
        assert room.has(offer.place)
        room = room.without(offer.place)
    assert room.by_node == answer.room.by_node
    assert answer.value <= answer.bound * (1 + 1e-9)
    assert answer.value == pytest.approx(sum(offer.payoff for offer in answer.offers.values()))


def test_without_time_the_queue_is_served_by_best_payoff() -> None:
    case = Case([A, B, C], cluster(v=2, k=2))
    answer = case.solved(order=(1, 0, 2), seconds=0.0)
    assert answer.stage is Stage.GREEDY
    assert placed(case, answer, (1, 0, 2)) == {1: {"v": 1}, 0: {"k": 2}}


@given(models=MODELS)
@limits(max_examples=40, deadline=None)
def test_a_job_alone_gets_its_best_place(models: list[Model]) -> None:
    case = Case(models[:1], NODES)
    offers, answer = case.offers(0), case.solved(beam=64)
    assert [one.payoff for one in answer.offers.values()] == [offers[0].payoff][: len(offers)]
