"""Whose turn it is on a GPU that jobs share."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import PlacementId
from services.agent.process.turns.order import CYCLE, PATIENCE_S, GpuMemory, Grant, TurnOrder

A, B, C = (PlacementId(name) for name in "abc")
FREE = GpuMemory()


def rota(**turns: int) -> TurnOrder:
    """Places in the order of the names."""
    order = TurnOrder()
    for place, (name, of) in enumerate(turns.items()):
        order.join(PlacementId(name), of, place)
        assert order.request(PlacementId(name), 1, FREE) == {}
    return order


def went_round(order: TurnOrder, times: int) -> str:
    """Who has its turn, where all are ready again at once."""
    had = ""
    for _ in range(times):
        grant = order.grant(0.0)
        assert grant is not None
        had += grant.placement_id
        assert order.give_back(grant.placement_id, grant.round)
        order.request(grant.placement_id, grant.round + 1, FREE)
    return had


@pytest.mark.parametrize(
    ("turns", "had"),
    [
        ({"a": 1}, "aaaaaa"),
        ({"a": 1, "b": 1}, "ababab"),
        ({"a": 1, "b": 3}, "babbbabb"),
        ({"a": 2, "b": 1, "c": 0}, "abaaba"),
    ],
)
def test_turns_go_round_as_the_cycle_has_them(turns: dict[str, int], had: str) -> None:
    assert went_round(rota(**turns), len(had)) == had


def test_only_one_worker_has_a_turn_at_a_time() -> None:
    order = rota(a=1, b=1)
    assert order.grant(0.0) == Grant(A, 1)
    assert order.grant(0.0) is None
    assert not order.give_back(B, 1)
    assert not order.give_back(A, 7)
    assert order.grant(0.0) is None
    order.leave(A)
    assert order.grant(0.0) == Grant(B, 1)


def test_a_worker_that_is_not_ready_is_skipped_after_a_short_wait() -> None:
    order = rota(a=1, b=1)
    assert order.grant(0.0) == Grant(A, 1)
    order.give_back(A, 1)
    assert order.grant(0.0) == Grant(B, 1)
    order.give_back(B, 1)
    order.request(B, 2, FREE)
    assert order.grant(5.0) is None
    assert order.wakeup() == 5.0 + PATIENCE_S
    assert order.grant(5.0 + PATIENCE_S) == Grant(B, 2)
    order.give_back(B, 2)
    order.request(B, 3, FREE)
    assert order.grant(7.0) == Grant(B, 3), "it is waited for once"
    order.give_back(B, 3)
    order.request(A, 2, FREE)
    order.request(B, 4, FREE)
    assert order.grant(8.0) == Grant(A, 2)


def test_a_worker_that_has_to_stop_comes_first_even_without_turns() -> None:
    order = rota(a=1, b=1, c=0)
    order.hurry(C)
    assert order.grant(0.0) == Grant(C, 1)


def test_a_changed_cycle_keeps_the_next_worker() -> None:
    order = rota(a=1, b=1, c=1)
    assert order.grant(0.0) == Grant(A, 1)
    order.reschedule(A, 2, 5)
    order.give_back(A, 1)
    assert order.grant(0.0) == Grant(B, 1)


def test_a_worker_with_other_turns_has_them_from_this_cycle_on() -> None:
    order = rota(a=1, b=1)
    went_round(order, 5)
    order.reschedule(B, 3, 0)
    assert went_round(order, 12) == "bbb" + "babb" + "babb" + "b"


def test_a_worker_that_joins_gets_no_turns_of_the_past() -> None:
    order = rota(a=1)
    went_round(order, 7)
    order.join(B, 1, 1)
    order.request(B, 1, FREE)
    assert went_round(order, 4) == "abab"


def test_a_worker_that_comes_back_gets_no_turns_of_the_time_in_which_it_was_away() -> None:
    order = rota(a=1, b=1)
    assert order.grant(0.0) == Grant(A, 1)
    order.give_back(A, 1)
    assert went_round(order, 1) == "b"
    assert order.grant(0.0) is None
    assert order.grant(PATIENCE_S) == Grant(B, 2), "A is away"
    order.give_back(B, 2)
    order.request(B, 3, FREE)
    assert went_round(order, 5) == "bbbbb"
    order.request(A, 2, FREE)
    assert went_round(order, 4) == "abab"


def test_a_turn_is_due_when_the_gang_says_but_no_rank_stops_the_clock() -> None:
    order = rota(a=1, b=1, c=1)
    assert went_round(order, 3) == "abc"
    assert order.grant(0.0) == Grant(A, 2)
    later = order.due(A) + 3 * CYCLE
    order.give_back(A, 2)
    order.request(A, 3, FREE, due=later)
    assert went_round(order, 9) == "bcbcbcbca"
    assert order.grant(0.0) == Grant(B, 6)
    order.give_back(B, 6)
    order.request(B, 7, FREE, due=2**53)
    order.leave(A)
    assert went_round(order, 4) == "cccc"
    order.leave(C)
    assert went_round(order, 2) == "bb"
    order.join(C, 1, 2)
    order.request(C, 1, FREE)
    assert went_round(order, 4) in {"bcbc", "cbcb"}


def test_after_an_agent_restart_no_turn_is_granted_before_all_workers_confirm() -> None:
    order = TurnOrder()
    order.join(A, 1, 0, unconfirmed=True)
    order.join(B, 1, 1, unconfirmed=True)
    order.confirm(A, holds=None)
    order.request(A, 4, FREE)
    assert order.grant(0.0) is None
    order.confirm(B, holds=7)
    assert order.grant(0.0) is None
    assert order.give_back(B, 7)
    assert order.grant(0.0) == Grant(A, 4)


def test_a_rota_has_to_fit_with_one_that_computes() -> None:
    order = TurnOrder()
    order.join(A, 1, 0)
    assert order.request(A, 1, GpuMemory(kept=2e9, peak=7e9, whole=10e9)) == {}
    order.join(B, 1, 1)
    assert order.request(B, 1, GpuMemory(kept=3e9, peak=4e9, whole=10e9)) == {}
    order.join(C, 1, 2)
    assert order.request(C, 1, GpuMemory(kept=1e9, peak=1e9, whole=10e9)) == {
        C: "3 jobs that take turns keep 6.0 GB on a GPU, and one that computes takes 5.0 GB more, of 10.0 GB"
    }
    assert order.grant(0.0) is None, "it keeps its memory until it has gone"
    assert order.request(C, 1, GpuMemory(kept=1e9, peak=1e9, whole=10e9)) == {}
    order.leave(C)
    assert order.grant(0.0) == Grant(A, 1)
    order.give_back(A, 1)
    assert order.request(A, 2, GpuMemory(kept=2e9, peak=7e9, whole=10e9)) == {}


def test_a_job_s_memory_is_known_after_its_first_turn_and_the_newest_leaves_where_it_does_not_fit() -> None:
    order = TurnOrder()
    for place, name in enumerate((A, B, C)):
        order.join(name, 1, place)
    for name in (C, A, B):  # B was ready last
        assert order.request(name, 1, GpuMemory(kept=1e9, peak=1e9, whole=10e9)) == {}
    assert order.grant(0.0) == Grant(A, 1)
    order.give_back(A, 1)
    assert order.grant(0.0) == Grant(B, 1)
    out = order.request(A, 2, GpuMemory(kept=1e9, peak=8.5e9, whole=10e9))
    assert set(out) == {B}
    assert "3 jobs that take turns keep 3.0 GB on a GPU" in out[B]
    assert order.give_back(B, 1)
    assert order.grant(0.0) is None
    order.leave(B)
    assert order.grant(0.0) == Grant(C, 1)
    order.give_back(C, 1)
    assert set(order.request(C, 2, GpuMemory(kept=9e9, peak=9e9, whole=10e9))) == {A}, "and so on"
    order.leave(A)
    assert order.grant(0.0) == Grant(C, 2), "one alone takes what it takes"


DO: dict[str, Callable[[TurnOrder, PlacementId, int], object]] = {
    "request": lambda order, key, number: order.request(key, number, FREE),
    "give back": lambda order, key, number: order.give_back(key, number),
    "leave": lambda order, key, _: order.leave(key),
    "confirm": lambda order, key, number: order.confirm(key, holds=number or None),
    "reschedule": lambda order, key, number: order.reschedule(key, number, number),
    "hurry": lambda order, key, _: order.hurry(key),
}
"""to one that is there; one that is not joins"""
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(DO)), st.sampled_from([A, B, C]), st.integers(0, 3)), max_size=60
)


@given(STEPS)
def test_the_turn_always_belongs_to_a_present_worker(steps: list[tuple[str, PlacementId, int]]) -> None:
    order, now = TurnOrder(), 0.0
    for what, key, number in steps:
        holder = order.holder
        if key in order:
            DO[what](order, key, number)
        else:
            order.join(key, number, number)
        now += 0.3
        before = order.holder
        grant = order.grant(now)
        assert grant is None or (before is None and order.holder == grant)
        assert order.holder is None or order.holder.placement_id in order
        if holder is not None and order.holder != holder:
            assert what in {"give back", "leave", "confirm"}, "its holder, or its end, ends a turn"
            assert key == holder.placement_id
