"""Cluster time never goes back once it was read: where it is ahead it goes slower until it is right."""

import time

import pytest

from shared.runtime.clock import SLOWED, ScaledClock

HOUR_S = 3600.0


class Machine:
    """A machine whose time passes as a test says."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def clock(self, speed: float = 1.0) -> ScaledClock:
        return ScaledClock(origin=time.time(), speed=speed, since_boot=lambda: self.now_s)


@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_a_clock_that_was_read_goes_slower_until_it_is_right(speed: float) -> None:
    machine = Machine()
    clock = machine.clock(speed)
    right, before = clock.now(), clock.now()
    clock.set_right(HOUR_S)
    assert clock.now() == pytest.approx(before)
    for _ in range(3):
        machine.now_s += HOUR_S / 2
        assert clock.now() == pytest.approx(before + SLOWED * HOUR_S / 2 * speed)
        before = clock.now()
    machine.now_s += HOUR_S
    assert clock.now() == pytest.approx(right + (2.5 - 1.0) * HOUR_S * speed)
    assert clock.ahead_s() == 0.0


def test_a_clock_that_was_not_read_is_right_at_once() -> None:
    clock = Machine().clock()
    clock.set_right(-HOUR_S)
    clock.set_right(HOUR_S)
    assert clock.now() == pytest.approx(0.0, abs=1.0)


def test_a_clock_that_is_behind_goes_forward_at_once() -> None:
    clock = Machine().clock()
    before = clock.now()
    clock.set_right(-HOUR_S)
    assert clock.now() == pytest.approx(before + HOUR_S)


def test_a_clock_that_is_set_back_and_forward_again_stays_where_it_was() -> None:
    clock = Machine().clock()
    before = clock.now()
    clock.set_right(HOUR_S)
    clock.set_right(-HOUR_S)
    assert clock.now() == pytest.approx(before)
    assert clock.ahead_s() == 0.0


def test_a_clock_goes_on_from_what_was_reached() -> None:
    machine = Machine()
    clock = machine.clock(speed=60.0)
    clock.go_on_from(100.0)
    assert clock.now() == pytest.approx(100.0)
    clock.go_on_from(50.0)
    machine.now_s += 1.0
    assert clock.now() == pytest.approx(100.0 + SLOWED * 60.0)
