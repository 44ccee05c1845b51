"""Signals end a command once, in good order."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from hopyard.failures import Died
from hopyard.local.signals import run_until_stopped, to_its_end


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def stopped_by(number: signal.Signals) -> str:
    signal.raise_signal(number)
    await asyncio.sleep(0.05)
    return "went on"


def test_a_hang_up_stops_a_command_unless_it_was_started_to_outlive_it() -> None:
    """As by `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert run_until_stopped(stopped_by(signal.SIGHUP)) is None
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert run_until_stopped(stopped_by(signal.SIGHUP)) == "went on"


def test_a_signal_that_meets_a_clean_up_neither_cuts_it_short_nor_hides_why_it_is() -> None:
    done: list[str] = []

    async def clean_up() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.05)
        done.append("cleaned up")

    async def dies() -> None:
        try:
            raise Died("the planner")
        finally:
            await to_its_end(clean_up())

    with pytest.raises(Died, match="the planner"):
        run_until_stopped(dies())
    assert done == ["cleaned up"]


def test_afterwards_signals_do_what_they_did_before() -> None:
    """Or SIGTERM would cut short what a command does once its coroutine has ended."""

    def kept(*_: object) -> None: ...

    signal.signal(signal.SIGTERM, kept)
    assert run_until_stopped(stopped_by(signal.SIGTERM)) is None
    assert signal.getsignal(signal.SIGTERM) is kept
