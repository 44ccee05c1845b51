"""Logs which step of its start or its end holds a process up, and where in the code it waits.

A thread logs it, since a disk that does not answer may hold up the event loop itself.
"""

import asyncio
import selectors
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import structlog

LATE_REAL_S = 5.0
"""how long a step takes before it is logged; then again each time that its time has doubled"""
LONGEST_REAL_S = 300.0
PLACES_MAX = 10
TOP = Path(__file__).parents[3]
PACKAGES = frozenset({"hopyard", "schemas", "services", "shared"})
"""our packages, which are installed beside those of others"""

_Call = tuple[CodeType, int]


class StepWatch:
    """Watches the event loop of the thread in which it is made."""

    def __init__(self, service: str, late_real_s: float = LATE_REAL_S) -> None:
        self._log = structlog.get_logger().bind(service=service)
        self._late_real_s = late_real_s
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._over = threading.Event()

    def begin(self, step: str) -> None:
        """The step before is over, and this one begins."""
        self.end()
        self._over = threading.Event()
        threading.Thread(target=self._watch, args=(step, self._over), name="step-watch", daemon=True).start()

    def end(self) -> None:
        """The last step is over: the process serves, or has ended."""
        self._over.set()

    def _watch(self, step: str, over: threading.Event) -> None:
        pause_s = took_s = self._late_real_s
        while not over.wait(pause_s):
            self._log.warning("held up", by=step, for_s=took_s, at=self._places())
            pause_s = min(took_s, LONGEST_REAL_S)
            took_s += pause_s

    def _places(self) -> list[str]:
        """Where in our code tasks wait, and where the event loop itself is."""
        found = {_place_of(_waiting(task.get_coro())) for task in asyncio.all_tasks(self._loop)}
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the only way to another thread's
        found.add(_place_of(_running(frame)))
        return sorted(found - {""})[:PLACES_MAX]


def _waiting(coroutine: Any) -> Iterator[_Call]:  # noqa: ANN401 - a coroutine, or what one awaits
    """From the outermost call to the innermost of a coroutine that waits."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame.f_code, frame.f_lineno
        coroutine = coroutine.cr_await


def _running(frame: FrameType | None) -> Iterator[_Call]:
    """From the outermost call to the innermost of a thread; none while its event loop has nothing to do."""
    inner: list[_Call] = []
    while frame is not None:
        inner.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    if not any(code.co_filename == selectors.__file__ for code, _ in inner):
        yield from reversed(inner)


def _place_of(calls: Iterator[_Call]) -> str:
    """The innermost call of our own; empty: there is none."""
    ours = [place for place in map(_shown, calls) if place]
    return ours[-1] if ours else ""


def _shown(place: _Call) -> str:
    """Empty: of a library."""
    code, line = place
    path = Path(code.co_filename)
    if not path.is_relative_to(TOP) or path.relative_to(TOP).parts[0] not in PACKAGES:
        return ""
    return f"{path.relative_to(TOP)}:{line} {code.co_name}"
