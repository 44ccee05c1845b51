"""What restarts and switches are learnt to take."""

import pytest

from loadgen.world.switching import switch_s
from schemas.ids import Fingerprint, GpuType
from schemas.settings import Switching
from services.planner.core.restart_times import (
    REMEMBERED,
    SWITCH_S,
    WORKLOADS_REMEMBERED,
    Mean,
    Restart,
    RestartTimes,
)
from tests.fact_builders import a_spec

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
