"""The queue of alarms: by time, and at one time in the order in which they were set."""

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
        """None: cancelled, or it went off"""

    def cancel(self) -> None:
        self.do = None


class Timers:
    def __init__(self) -> None:
        self._alarms: list[tuple[float, int, TimerAlarm]] = []
        """a heap; the number in the middle is that of their setting"""
        self._serials = itertools.count()
        self.soonest = math.inf
        """no alarm is earlier; the next may be later, where some were cancelled"""

    def at(self, when: float, do: Callable[[], None]) -> TimerAlarm:
        alarm = TimerAlarm(when, do)
        self.soonest = min(self.soonest, when)
        heapq.heappush(self._alarms, (when, next(self._serials), alarm))
        return alarm

    def first(self) -> float | None:
        """Time of the next alarm."""
        alarms = self._alarms
        while alarms and alarms[0][2].do is None:
            heapq.heappop(alarms)
        self.soonest = alarms[0][0] if alarms else math.inf
        return alarms[0][0] if alarms else None

    def run_next(self) -> None:
        """Run the next alarm; there must be one."""
        _, _, alarm = heapq.heappop(self._alarms)
        do, alarm.do = alarm.do, None
        assert do is not None, "`first` clears away what was cancelled"
        do()
