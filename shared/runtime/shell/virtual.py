"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it.

The clock starts at 0 and stands still while code runs, so a run depends on nothing but its inputs.
Threads and processes cannot be used: the loop would jump past them. Before the clock jumps, each service that
waits for its turn gets it, one at a time (`shared.runtime.shell.turns`).
"""

import asyncio
import contextvars
import heapq
import itertools
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

RESOLUTION_S = 1e-6
"""timers this close are due together"""
SETTLED = -1
"""a rank before every service's"""
LAST = 1 << 30
"""a rank after every service's"""


class Deadlock(RuntimeError):
    """Every task waits for another one: there is no timer left to jump to."""


class _NeverWaitingSelector(selectors.DefaultSelector):
    """A selector that calls `go_on` where it would wait: nothing outside the loop can become ready."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        super().__init__()
        self._go_on = go_on

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout != 0:
            self._go_on()
        return []


class _Timer(asyncio.TimerHandle):
    """A timer; among timers at one time the one that was set first rings first."""

    def __init__(self, serial: int, when: float, *rest: Any) -> None:  # noqa: ANN401 - asyncio's own
        super().__init__(when, *rest)
        self.place = (when, serial)

    def __lt__(self, other: "_Timer") -> bool:  # type: ignore[override] # a heap has no others
        return self.place < other.place


class VirtualLoop(asyncio.SelectorEventLoop):
    _scheduled: list[_Timer]  # asyncio's own heap of timers

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._serials = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        super().__init__(_NeverWaitingSelector(self._go_on))
        self._clock_resolution = RESOLUTION_S  # asyncio's

    def time(self) -> float:
        return self._virtual_now

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(next(self._serials), when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined] # noqa: SLF001 - as asyncio marks it
        return timer

    def turn(self, rank: int) -> asyncio.Future[None]:
        """A future that is done when nothing else is under way at this instant and no lower rank waits."""
        waiting: asyncio.Future[None] = self.create_future()
        heapq.heappush(self._waiting, (rank, next(self._serials), waiting))
        return waiting

    def _go_on(self) -> None:
        """Grant the next turn, else move the clock to the next timer. Raises Deadlock."""
        if self._scheduled and self._scheduled[0].when() < self._virtual_now + RESOLUTION_S:
            return  # asyncio rings it next
        while self._waiting:
            _, _, waiting = heapq.heappop(self._waiting)
            if not waiting.done():  # the waiting task may have been cancelled
                waiting.set_result(None)
                return
        if not self._scheduled or self._scheduled[0].when() == math.inf:
            raise Deadlock("nothing can ever happen again")
        self._virtual_now = max(self._virtual_now, self._scheduled[0].when())


class LoopTurns:
    """Implements `Turns` on the virtual loop that runs. `rank`: the service's place in its stack."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    async def mine(self) -> None:
        await turn(self._rank)

    async def settled(self) -> None:
        await turn(SETTLED)


def turn(rank: int) -> asyncio.Future[None]:
    """See `VirtualLoop.turn`, of the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "turns are taken on virtual time"
    return loop.turn(rank)


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main()` to its end on a loop of its own, starting at time 0. Raises Deadlock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
