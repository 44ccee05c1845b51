"""A process goes by the clock of NATS, whatever its machine's clock says."""

import pytest

from shared.runtime.clock import ScaledClock
from shared.runtime.process.clock_sync import TOLERATED_S, correct_clock
from tests.bus_nets import JetStreamNet


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
