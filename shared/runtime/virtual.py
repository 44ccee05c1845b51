"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it.

The clock starts at 0 and stands still while code runs, so a run depends on nothing but its inputs.
Threads and processes have no place here: the loop would jump past them.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

RESOLUTION_S = 1e-6
"""coarser than a float's steps at the end of a long run, or the clock could fail to reach a timer"""


class Deadlock(RuntimeError):
    """Every task waits for another one: there is no timer left to jump to."""


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits: it moves the clock on instead."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise Deadlock("nothing can ever happen again")
            self._jump(max(timeout, 0.0))
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual_now = 0.0
        super().__init__(_Jumping(self._forward))
        self._clock_resolution = RESOLUTION_S  # asyncio's: timers this close are due together

    def time(self) -> float:
        return self._virtual_now

    def _forward(self, seconds: float) -> None:
        self._virtual_now += max(seconds, RESOLUTION_S / 2)


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main()` to its end on a loop of its own, starting at time 0. Raises Deadlock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
