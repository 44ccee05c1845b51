"""What tests do to processes."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

LEAVES_OPEN = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function StreamWriter.__del__:pytest.PytestUnraisableExceptionWarning"
)
"""NATS' client does not close what it has opened to a server that stands still"""
LOOK_S = 0.001
LIMIT_S = 10.0


@contextmanager
def standing_still(pid: int | None) -> Iterator[None]:
    """Within, it does nothing at all: after the signal its threads run on for a moment."""
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + LIMIT_S
    while _state(pid) != "T" and time.monotonic() < until:
        time.sleep(LOOK_S)
    assert _state(pid) == "T"
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    """As `ps` names it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
