from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from services.planner.policies.sia.outcome import Placer
from services.planner.policies.sia.placement import Grant, Place, in_turns, placed
from services.planner.policies.sia.utilities import power_sizes


def at(gpus: int, node: int) -> Grant:
    """A job that runs there and keeps its count."""
    return Grant(gpus=gpus, present={node: gpus})


def fresh(*gpus: int) -> list[Grant]:
    return [Grant(gpus=count) for count in gpus]


def on(claims: list[Grant], *idle: int, node_gpus: int = 8, placer: Placer = placed) -> list[Place]:
    return placer(claims, idle, node_gpus)


def test_larger_jobs_come_first_and_take_whole_free_nodes() -> None:
    assert on(fresh(4, 16), 8, 8, 8) == [{2: 4}, {0: 8, 1: 8}]


def test_less_than_a_node_goes_where_it_leaves_least() -> None:
    assert on(fresh(2), 8, 3, 2, 4) == [{2: 2}]


def test_in_turns_each_job_begins_after_the_one_before() -> None:
    assert on(fresh(2, 2, 2, 2), 4, 4, 4, placer=in_turns, node_gpus=4) == [{0: 2}, {1: 2}, {2: 2}, {0: 2}]
    assert on(fresh(4, 8, 2), 8, 8, 8, placer=in_turns) == [{1: 4}, {0: 8}, {2: 2}]


def test_in_turns_only_pinned_jobs_stay() -> None:
    pinned = Grant(gpus=2, present={0: 2}, pinned=True)
    assert on([at(2, 1), pinned], 4, 4, placer=in_turns, node_gpus=4) == [{0: 2}, {0: 2}]


def test_in_turns_less_than_a_node_is_split_where_no_node_has_it() -> None:
    assert on(fresh(3, 3, 2), 4, 4, placer=in_turns, node_gpus=4) == [{0: 3}, {1: 3}, {0: 1, 1: 1}]


def test_in_turns_a_large_job_takes_whole_nodes_before_parts() -> None:
    assert on(fresh(10), 3, 8, 2, placer=in_turns) == [{1: 8, 2: 2}]
    assert on(fresh(16), 8, 7, 3, placer=in_turns) == [{0: 8, 1: 7, 2: 1}]
    assert on(fresh(16, 8), 8, 8, 4, placer=in_turns) == [{0: 8, 1: 8}, {}]


def test_less_than_a_node_is_not_split() -> None:
    assert on(fresh(3, 3, 2), 4, 4, node_gpus=4) == [{0: 3}, {1: 3}, {}]


def test_a_rest_of_whole_nodes_is_kept_together() -> None:
    assert on(fresh(10), 1, 8, 2) == [{1: 8, 2: 2}]


def test_without_enough_whole_nodes_a_large_job_fills_nodes_one_by_one() -> None:
    assert on(fresh(16), 8, 7, 3) == [{0: 8, 1: 7, 2: 1}]


def test_the_same_count_stays_where_it_is() -> None:
    assert on([*fresh(8), at(2, 0)], 8, 8) == [{1: 8}, {0: 2}]


def test_a_smaller_job_is_evicted_and_placed_again() -> None:
    assert on([*fresh(8), at(2, 0), at(2, 1)], 8, 8) == [{0: 8}, {1: 2}, {1: 2}]
    assert on([*fresh(4), at(2, 0), at(1, 1)], 4, 4, node_gpus=4) == [{1: 4}, {0: 2}, {0: 1}]


def test_a_pinned_job_is_not_evicted() -> None:
    pinned = Grant(gpus=2, present={0: 2}, pinned=True)
    assert on([*fresh(8), pinned, at(2, 1)], 8, 8) == [{1: 8}, {0: 2}, {0: 2}]


def test_where_there_is_no_room_the_present_place_is_not_given() -> None:
    assert on([at(4, 1)], 8, 3) == [{0: 4}]


PLACERS = st.sampled_from([placed, in_turns])
every_placer = pytest.mark.parametrize("placer", [placed, in_turns])


@st.composite
def rounds(draw: st.DrawFn, *, regular: bool) -> tuple[list[int], list[Grant], int]:
    """Nodes, and claims whose sum they hold: some of them stay from a round before."""
    node_gpus = draw(st.sampled_from([2, 4, 8]))
    nodes = draw(st.integers(1, 5))
    idle = (
        [node_gpus] * nodes if regular else draw(st.lists(st.integers(0, node_gpus), min_size=1, max_size=5))
    )
    sizes = power_sizes(node_gpus, nodes) if regular else range(1, sum(idle) + 1)
    before = _fitting(draw(st.lists(st.sampled_from([*sizes] or [1]), max_size=12)), sum(idle))
    present = draw(PLACERS)(fresh(*before), idle, node_gpus)
    stays = [draw(st.booleans()) and bool(place) for place in present]
    kept = [Grant(gpus=gpus, present=present[i]) for i, gpus in enumerate(before) if stays[i]]
    more = draw(st.lists(st.sampled_from([*sizes] or [1]), max_size=12))
    left = sum(idle) - sum(claim.gpus for claim in kept)
    return idle, draw(st.permutations(kept + fresh(*_fitting(more, left)))), node_gpus


def _fitting(gpus: list[int], room: int) -> list[int]:
    kept = []
    for count in gpus:
        if count <= room:
            kept.append(count)
            room -= count
    return kept


@every_placer
@given(case=rounds(regular=False))
@limits(max_examples=80, deadline=None)
def test_gangs_are_whole_and_nodes_never_over_allocated(
    placer: Placer,
    case: tuple[list[int], list[Grant], int],
) -> None:
    idle, claims, node_gpus = case
    places = placer(claims, idle, node_gpus)
    used = sum((Counter(place) for place in places), Counter[int]())
    assert all(used[node] <= idle[node] for node in used)
    for claim, place in zip(claims, places, strict=True):
        assert not place or sum(place.values()) == claim.gpus
        if placer is placed:
            assert len(place) <= 1 or claim.gpus >= node_gpus or place == claim.present


@every_placer
@given(case=rounds(regular=True))
@limits(max_examples=80, deadline=None)
def test_with_the_papers_counts_every_job_finds_a_place(
    placer: Placer,
    case: tuple[list[int], list[Grant], int],
) -> None:
    idle, claims, node_gpus = case
    assert all(placer(claims, idle, node_gpus))
