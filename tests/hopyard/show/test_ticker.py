import io

import pytest

from hopyard.show import ticker as module
from hopyard.show.ticker import ERASE, LINE_EVERY_S, Ticker
from tests.hopyard.lab.experiment_builders import Terminal


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_terminal_has_one_line_that_is_rewritten(clock: Clock) -> None:
    out = Terminal()
    ticker = Ticker(out)
    for share in (0.25, 0.5):
        clock.now += 10
        ticker.show("half of it", share)
    ticker.step("a part is done")
    ticker.say("this stays")
    assert out.getvalue() == (
        f"{ERASE}half of it, 25%, about 30s left{ERASE}half of it, 50%, about 20s left{ERASE}this stays\n"
    )


def test_the_line_is_erased_completely(clock: Clock) -> None:
    out = Terminal()
    ticker = Ticker(out)
    clock.now += 1
    ticker.show("work", 0.5)
    ticker.clear()
    assert out.getvalue().endswith(ERASE)
    ticker.clear()
    assert out.getvalue().count(ERASE) == 2


def test_a_pipe_has_a_line_now_and_then(clock: Clock) -> None:
    out = io.StringIO()
    ticker = Ticker(out)
    for _ in range(25):
        clock.now += 1
        ticker.show("work", (clock.now - 100) / 50)
    ticker.step("a part is done")
    assert out.getvalue().splitlines() == [
        "work, 20%, about 40s left",
        "work, 40%, about 30s left",
        "a part is done",
    ]
    assert LINE_EVERY_S == 10


def test_a_long_line_is_cut_and_not_folded(clock: Clock) -> None:
    out = Terminal()
    ticker = Ticker(out)
    clock.now += 1
    ticker.show("x" * 200, 0.5)
    assert len(out.getvalue().removeprefix(ERASE)) == 79


def test_before_any_progress_no_remaining_time_is_shown(clock: Clock) -> None:
    out = Terminal()
    ticker = Ticker(out)
    clock.now += 1
    ticker.show("work", 0.0)
    assert "left" not in out.getvalue()


def test_the_time_left_follows_the_pace_of_late(clock: Clock) -> None:
    """Half in ten seconds, then a tenth in ten: the rest is a matter of forty more."""
    out = Terminal()
    ticker = Ticker(out)
    for share in (0.5, 0.6):
        clock.now += 10
        ticker.show("work", share)
    assert out.getvalue().endswith("work, 60%, about 40s left")


def test_less_than_a_second_is_not_worth_saying(clock: Clock) -> None:
    out = Terminal()
    ticker = Ticker(out)
    clock.now += 1
    ticker.show("work", 0.9)
    assert out.getvalue().endswith("work, 90%")
