"""When plans are due: rounds, grace, and what one plan spares another."""

import pytest

from schemas.settings import Settings
from services.planner.core.schedule import Call, Schedule

ROUND_S, SETTLE_S, GRACE_S = 100.0, 2.0, 10.0
SETTINGS = Settings(round_s=ROUND_S, fragment_settle_s=SETTLE_S)


def schedule(grace_s: float = GRACE_S) -> Schedule:
    return Schedule(SETTINGS, grace_s)


def opening(one: Schedule, now: float, *, planned: int = -1, opened: int = -1) -> float | None:
    return one.opening(now, planned=planned, opened=opened)


def test_a_round_opens_at_once_when_the_profiler_has_opened_it() -> None:
    assert opening(schedule(), 150.0, planned=0, opened=1) == 150.0
    assert opening(schedule(), 150.0, planned=0, opened=2) == 150.0


def test_a_round_that_the_profiler_has_not_opened_opens_after_the_grace() -> None:
    assert opening(schedule(), 101.0, planned=0, opened=0) == 110.0
    assert opening(schedule(), 0.0) == 10.0


def test_the_grace_is_at_most_half_a_round() -> None:
    assert opening(schedule(1e6), 101.0, planned=0, opened=0) == 150.0
    assert opening(Schedule(Settings(round_s=25.0), 1e6), 26.0, planned=0, opened=0) == 37.5


@pytest.mark.parametrize("planned", [1, 2])
def test_a_round_has_one_opening(planned: int) -> None:
    assert opening(schedule(), 150.0, planned=planned, opened=1) is None


def test_an_opening_is_put_off_as_all_plans_are() -> None:
    one = schedule()
    one.hold(150.0)
    assert opening(one, 150.0, planned=0, opened=1) == 152.0
    one.hold(109.0)
    assert opening(one, 109.0, planned=0, opened=0) == 111.0
    assert one.next(109.0, 109.0) == (111.0, Call.FIRST)


def test_without_a_call_the_next_plan_is_that_of_the_next_round() -> None:
    assert schedule().next(150.0, None) == (200.0, Call.FIRST)
    assert schedule().next(150.0, 210.0) == (210.0, Call.FIRST)


def test_a_round_without_a_first_plan_gets_that_before_anything_else() -> None:
    one = schedule()
    one.expect(Call.FRAGMENT, 102.0)
    assert one.next(103.0, 110.0) == (110.0, Call.FIRST)


def test_a_call_after_the_present_rounds_first_plan_is_due_at_its_time() -> None:
    one = schedule()
    one.expect(Call.FRAGMENT, 160.0)
    assert one.next(150.0, None) == (160.0, Call.FRAGMENT)
    assert one.next(150.0, 205.0) == (160.0, Call.FRAGMENT)
    assert one.next(150.0, 200.0) == (160.0, Call.FRAGMENT)
    one.hold(170.0)
    assert one.next(170.0, None) == (172.0, Call.FRAGMENT)


def test_the_earlier_of_two_calls_of_one_kind_counts() -> None:
    one = schedule()
    for at in (170.0, 160.0, 180.0):
        one.expect(Call.HELP, at)
    assert one.next(150.0, None) == (160.0, Call.HELP)


def test_the_earliest_call_is_next_and_of_two_at_one_time_the_first_plan() -> None:
    one = schedule()
    one.expect(Call.FRAGMENT, 170.0)
    one.expect(Call.HELP, 160.0)
    assert one.next(150.0, None) == (160.0, Call.HELP)
    one.expect(Call.FRAGMENT, 160.0)
    assert one.next(150.0, None) == (160.0, Call.FRAGMENT)
    one.expect(Call.FIRST, 160.0)
    assert one.next(150.0, None) == (160.0, Call.FIRST)


def test_the_next_round_comes_before_a_later_call() -> None:
    one = schedule()
    one.expect(Call.FRAGMENT, 201.0)
    assert one.next(150.0, None) == (200.0, Call.FIRST)


@pytest.mark.parametrize(
    ("begun", "left"),
    [
        (Call.FIRST, []),
        (Call.HELP, [Call.FIRST]),
        (Call.FRAGMENT, [Call.FIRST, Call.HELP]),
    ],
)
def test_a_plan_that_is_begun_replaces_those_it_makes_needless(begun: Call, left: list[Call]) -> None:
    one = schedule()
    for call in Call:
        one.expect(call, 160.0)
    one.begun(begun)
    found = []
    while (due := one.next(150.0, None)) != (200.0, Call.FIRST):
        found.append(due[1])
        one.skip(due[1])
    assert found == left


def test_what_is_not_due_may_be_skipped() -> None:
    one = schedule()
    one.skip(Call.HELP)
    assert one.next(150.0, None) == (200.0, Call.FIRST)


@pytest.mark.parametrize("round_s", [0.1, 0.7, 360.0])
def test_the_next_round_begins_later_than_now(round_s: float) -> None:
    """At every boundary itself, and just before it, for lengths that no float holds."""
    one = Schedule(Settings(round_s=round_s), 0.0)
    now = 0.0
    for _ in range(1_000):
        after = one.boundary(now)
        assert now < after <= now + round_s * (1 + 1e-6)
        now = after
