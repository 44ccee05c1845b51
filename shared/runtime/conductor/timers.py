"""Alarms in the order of their times, and at one time in the order in which they were set."""

import heapq
import itertools
import math
from collections.abc import Callable


class TimerAlarm:
    """Implements `Alarm`."""

    __slots__ = ("do", "when")

    def __init__(self, when: float, do: Callable[[], None] | None) -> None:
        self.when = when
        self.do = do
        """None: it was cancelled, or has gone off"""

    def cancel(self) -> None:
        self.do = None


class Timers:
    def __init__(self) -> None:
        self._alarms: list[tuple[float, int, TimerAlarm]] = []
        """a heap; the number in the middle counts the alarms as they are set"""
        self._serials = itertools.count()
        self.soonest = math.inf
        """time of the first alarm in the heap, which may be cancelled"""

    def at(self, when: float, do: Callable[[], None]) -> TimerAlarm:
        alarm = TimerAlarm(when, do)
        heapq.heappush(self._alarms, (when, next(self._serials), alarm))
        self.soonest = min(self.soonest, when)
        return alarm

    def first(self) -> float | None:
        """Time of the next alarm that is not cancelled; None: there is none."""
        while self._alarms and self._alarms[0][2].do is None:
            self._take()
        return self._alarms[0][0] if self._alarms else None

    def run_next(self) -> None:
        """Run the next alarm, or drop it where it was cancelled; there must be one."""
        alarm = self._take()
        do, alarm.do = alarm.do, None
        if do is not None:
            do()

    def _take(self) -> TimerAlarm:
        alarms = self._alarms
        _, _, alarm = heapq.heappop(alarms)
        self.soonest = alarms[0][0] if alarms else math.inf
        return alarm
