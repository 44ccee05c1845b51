"""A process goes by the clock of NATS, whatever its machine's clock says."""

import pytest

from schemas.codec import encode
from schemas.events import PolicyChosen
from shared.runtime.clock import ScaledClock
from shared.runtime.process.clock_sync import TOLERATED_S, clock_troubles, correct_clock, go_on_from_newest
from tests.bus_nets import JetStreamNet
from tests.shared.runtime.shell.stages import drained


@pytest.mark.parametrize("ahead_s", [120.0, -120.0])
async def test_a_clock_that_is_wrong_is_set_right(live: JetStreamNet, ahead_s: float) -> None:
    right, wrong = ScaledClock(), ScaledClock()
    wrong.set_right(-ahead_s)
    assert abs(wrong.unix() - right.unix()) > abs(ahead_s) - 1
    await correct_clock(wrong, await live.client())
    assert abs(wrong.unix() - right.unix()) < abs(ahead_s) / 2


async def test_a_clock_that_is_nearly_right_is_left_alone(live: JetStreamNet) -> None:
    clock, same = ScaledClock(), ScaledClock()
    clock.set_right(TOLERATED_S / 10)
    apart_s = same.unix() - clock.unix()
    await correct_clock(clock, await live.client())
    assert same.unix() - clock.unix() == pytest.approx(apart_s, abs=TOLERATED_S / 20)


async def test_cluster_time_does_not_go_back_with_the_clock_of_nats(live: JetStreamNet) -> None:
    clock, bus = ScaledClock(), await live.client()
    clock.set_right(-3600.0)
    reached = clock.now()
    await correct_clock(clock, bus)
    assert abs(clock.unix() - ScaledClock().unix()) < TOLERATED_S
    assert reached <= clock.now() < reached + 60.0
    assert clock.ahead_s() == pytest.approx(3600.0, abs=60.0)
    assert "goes at 0.5 of its speed" in " ".join(clock_troubles(clock))
    assert clock_troubles(ScaledClock()) == ()


async def test_a_service_begins_no_earlier_than_the_newest_fact(live: JetStreamNet) -> None:
    """As it does in its next life, after the clock of NATS was set back."""
    clock, bus = ScaledClock(), await live.client()
    ahead = ScaledClock().now() + 3600.0
    await bus.publish([PolicyChosen(at=ahead, policy="fifo", by="test"), drained("n-1", ahead - 1800.0)])
    await go_on_from_newest(clock, bus)
    assert ahead <= clock.now() < ahead + 60.0


@pytest.mark.parametrize("ahead_s", [-10.0, 0.0, TOLERATED_S / 10])
async def test_newest_facts_of_about_now_change_nothing(live: JetStreamNet, ahead_s: float) -> None:
    clock, bus = ScaledClock(), await live.client()
    await bus.publish([PolicyChosen(at=clock.now() + ahead_s, policy="fifo", by="test")])
    await go_on_from_newest(clock, bus)
    assert clock.ahead_s() == 0.0


async def test_an_agent_with_a_wrong_clock_moves_no_other(live: JetStreamNet) -> None:
    clock, bus = ScaledClock(), await live.client()
    await bus.publish([drained("n-1", clock.now() + 3600.0)])
    await go_on_from_newest(clock, bus)
    assert clock.ahead_s() == 0.0


async def test_a_fact_on_the_subject_of_another_moves_no_clock(live: JetStreamNet) -> None:
    """Services pass it over, so the time that it states is not the cluster's."""
    clock, bus = ScaledClock(), await live.client()
    misplaced = PolicyChosen(at=clock.now() + 3600.0, policy="fifo", by="test")
    await live.store("hopyard.placement.n-1.refused", encode(misplaced))
    await go_on_from_newest(clock, bus)
    assert clock.ahead_s() == 0.0


async def test_in_an_empty_stream_nothing_is_reached(live: JetStreamNet) -> None:
    assert await (await live.client()).reached() == 0.0
