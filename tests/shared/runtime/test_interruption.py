"""A signal that meets a query."""

import signal
from collections.abc import Iterator

import duckdb
import pytest

from shared.runtime.interruption import interruptible

SOON_S = 0.05
ENDLESS = "SELECT count(*) FROM range(100_000_000_000) AS a, range(1_000) AS b"


@pytest.fixture
def _stopped_soon() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, SOON_S)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.usefixtures("_stopped_soon")
def test_a_signal_that_meets_a_query_interrupts_the_program() -> None:
    with duckdb.connect(config={"threads": 1}) as table, pytest.raises(KeyboardInterrupt), interruptible():
        table.execute(ENDLESS).fetchall()


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="another"), interruptible():
        raise RuntimeError("another")
