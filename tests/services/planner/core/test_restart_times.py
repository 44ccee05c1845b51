"""What restarts and switches are learnt to take."""

import msgspec
import pytest

from loadgen.world.switching import switch_s
from schemas.base import Event
from schemas.events import PreemptReason
from schemas.ids import Fingerprint, GpuType
from schemas.placement import Forked, Gang
from schemas.settings import Switching
from services.planner.core.folds import fold
from services.planner.core.restart_times import (
    REMEMBERED,
    SWITCH_S,
    WORKLOADS_REMEMBERED,
    Mean,
    Restart,
    RestartTimes,
)
from services.planner.core.state import State
from shared.domain import gangs
from tests.fact_builders import (
    a_spec,
    config,
    in_queue,
    joined,
    lost,
    placement,
    plan,
    preempted,
    start_ordered,
    started,
    stop_ordered,
)

A, B = GpuType("a"), GpuType("b")
OURS, THEIRS = Fingerprint("ours"), Fingerprint("theirs")


def test_a_mean_is_that_of_all_observations_while_they_are_few() -> None:
    mean = Mean()
    for count, (seconds, expected) in enumerate([(4.0, 4.0), (7.0, 5.5), (4.0, 5.0)], 1):
        mean = mean.with_one(seconds)
        assert mean.seconds == pytest.approx(expected)
        assert mean.count == count


def test_a_mean_of_many_observations_gives_the_newest_a_fixed_weight() -> None:
    mean = Mean()
    for _ in range(REMEMBERED + 5):
        mean = mean.with_one(10.0)
    later = mean.with_one(10.0 + REMEMBERED)
    assert later.seconds == pytest.approx(11.0)
    assert later.count == REMEMBERED


def test_the_time_expected_before_counts_as_one_observation() -> None:
    assert Mean().believed(15.0) == 15.0
    assert Mean(4.0, 1).believed(8.0) == 6.0
    assert Mean(4.0, 3).believed(8.0) == 5.0


def test_two_thirds_of_an_unobserved_restart_are_its_start() -> None:
    assert Restart().expected_s(15.0) == pytest.approx(15.0)
    assert Restart(start=Mean(10.0, 1)).expected_s(15.0) == pytest.approx((10 + 10) / 2 + 5)
    assert Restart(stop=Mean(10.0, 1)).expected_s(15.0) == pytest.approx(10 + (5 + 10) / 2)
    assert Restart(switch=Mean(10.0, 1)).expected_s(15.0) == pytest.approx(15.0)


def test_the_stop_before_a_switch_takes_nothing_until_it_is_observed() -> None:
    assert Restart().expected_switch_s(2.0) == 2.0
    assert Restart(switch=Mean(4.0, 1)).expected_switch_s(2.0) == 3.0
    assert Restart(stop=Mean(4.0, 1)).expected_switch_s(2.0) == 2.0 + 2.0
    assert Restart(start=Mean(40.0, 1)).expected_switch_s(2.0) == 2.0


def test_each_workload_has_times_of_its_own_by_type() -> None:
    times = RestartTimes()
    times.started(OURS, [A], 40.0)
    times.stopped(OURS, [B], 7.0)
    times.switched(OURS, [A, B], 1.0)
    assert times.known == {
        OURS: {
            A: Restart(start=Mean(40.0, 1), switch=Mean(1.0, 1)),
            B: Restart(stop=Mean(7.0, 1), switch=Mean(1.0, 1)),
        }
    }
    assert times.expected_s(OURS, 15.0) == {A: pytest.approx(30.0), B: pytest.approx(16.0)}
    assert times.expected_switches_s(OURS, 3.0) == {A: 2.0, B: 2.0 + 3.5}
    assert times.expected_s(THEIRS, 15.0) == times.expected_switches_s(THEIRS, 15.0) == {}


def test_a_gang_restarts_as_slowly_as_the_slowest_of_its_types() -> None:
    times = RestartTimes()
    times.started(OURS, [A], 40.0)
    times.switched(OURS, [B], 9.0)
    assert times.cost_s(OURS, [A, B], 15.0) == pytest.approx(30.0)
    assert times.cost_s(OURS, [B], 15.0) == times.cost_s(THEIRS, [A], 15.0) == pytest.approx(15.0)
    assert times.switch_cost_s(OURS, [A, B], 3.0) == 6.0
    assert times.switch_cost_s(OURS, [A], 3.0) == times.switch_cost_s(THEIRS, [B], 3.0) == 3.0


def test_without_types_a_restart_takes_what_was_expected_before() -> None:
    times = RestartTimes()
    times.started(OURS, [A], 40.0)
    assert times.cost_s(OURS, [], 15.0) == 15.0
    assert times.switch_cost_s(OURS, [], 3.0) == 3.0


def test_no_restart_is_expected_to_exceed_the_longest_start_and_stop_together() -> None:
    times = RestartTimes()
    assert times.at_most_s(15.0) == 15.0
    for seconds in (40.0, 30.0):
        times.started(OURS, [A], seconds)
        times.stopped(THEIRS, [B], seconds / 10)
    times.switched(OURS, [A], 1e3)
    assert times.at_most_s(15.0) == 15.0 + 40.0 + 4.0


def test_an_entry_is_replaced_and_never_changed() -> None:
    times = RestartTimes()
    times.started(OURS, [A], 40.0)
    before = times.known[OURS]
    times.started(OURS, [B], 40.0)
    assert list(before) == [A]
    assert times.known[OURS] is not before


def test_the_oldest_workload_is_forgotten_where_there_are_too_many() -> None:
    times = RestartTimes(known={Fingerprint(str(number)): {} for number in range(WORKLOADS_REMEMBERED)})
    times.started(Fingerprint("1"), [A], 1.0)
    assert len(times.known) == WORKLOADS_REMEMBERED
    times.started(OURS, [A], 1.0)
    assert len(times.known) == WORKLOADS_REMEMBERED
    assert Fingerprint("0") not in times.known
    assert {OURS, Fingerprint("1")} <= times.known.keys()


@pytest.mark.parametrize("column", list(SWITCH_S))
def test_the_default_time_of_a_switch_is_the_mean_of_the_papers_column(column: Switching) -> None:
    assert switch_s(a_spec().workload, column) == pytest.approx(SWITCH_S[column], rel=2e-3)


# ---- stops that are learnt from


def learnt(*facts: Event) -> RestartTimes:
    state = State()
    for fact in [joined(), joined("node-2"), *in_queue(demand=(4,)), *facts]:
        fold(state, fact)
    return state.restarts


ON_BOTH = config(node_1=2, node_2=2)


def longest_stop_s(*facts: Event) -> float:
    return learnt(*facts).longest_stop_s


def runs(gang: Gang) -> list[Event]:
    """The job of the facts runs since 20."""
    until = 500.0 if gangs.merges(gang) else None
    placed = msgspec.structs.replace(placement(), gang=gang)
    return [
        plan(placed),
        *(start_ordered(at=10.0, node_id=node, until=until) for node in gang.nodes),
        msgspec.structs.replace(started(at=20.0), gang=gang),
    ]


def test_a_stop_lasts_from_the_order_to_the_end_of_the_run() -> None:
    stop = stop_ordered(at=60.0), preempted(at=65.0, reason=PreemptReason.PLAN)
    assert longest_stop_s(*runs(Gang.of(ON_BOTH)), *stop) == 5.0


def test_a_run_that_had_ended_when_its_stop_was_ordered_took_no_time_to_stop() -> None:
    """Its workers' ends waited while the bus was away."""
    stop = stop_ordered(at=180.0), preempted(at=65.0, reason=PreemptReason.PLAN)
    [by_type] = learnt(*runs(Gang.of(ON_BOTH)), *stop).known.values()
    assert {one.stop for one in by_type.values()} == {Mean(0.0, 1)}


def test_the_order_to_stop_a_lost_copy_is_none_to_the_others() -> None:
    copies = runs(Gang.of(ON_BOTH, Forked(shares=(0.5, 0.5))))
    gone = lost(at=30.0), stop_ordered(at=30.0)
    stop = stop_ordered(at=360.0, node_id="node-2"), preempted(at=365.0, reason=PreemptReason.MERGE)
    assert longest_stop_s(*copies, *gone, *stop) == 5.0


def test_the_order_to_stop_a_worker_of_an_old_placement_is_none_to_the_present_one() -> None:
    stale = stop_ordered(at=25.0, place="old")
    stop = stop_ordered(at=9_000.0), preempted(at=9_005.0, reason=PreemptReason.PLAN)
    assert longest_stop_s(*runs(Gang.of(ON_BOTH)), stale, *stop) == 5.0
