"""The progress of an emulated job as a function of time. Pure."""

import math

import msgspec

ROUNDING = 1e-6
"""relative to the whole way: who is this close to its end has reached it"""


class Progress(msgspec.Struct, kw_only=True):
    """Samples done as a function of time: from `since` on, `rate` samples/s."""

    total: float
    floor: float = 0.0
    """where the way to `total` begins: of a copy, far from 0 late in a long job"""
    done: float
    """samples done at `since`"""
    since: float
    rate: float = 0.0

    @property
    def left_s(self) -> float:
        """From `since` to the end, at this rate."""
        left = max(self.total - self.done, 0.0)
        return left / self.rate if self.rate else math.inf if left else 0.0

    @property
    def complete(self) -> bool:
        return self.done >= self.total - (self.total - self.floor) * ROUNDING

    def at(self, now: float) -> float:
        return min(self.done + self.rate * max(now - self.since, 0.0), self.total)

    def settle(self, now: float) -> None:
        """Count what was done until `now`."""
        self.done, self.since = self.at(now), now

    def go_on(self, seconds: float) -> None:
        """Count what is done after so many seconds more; all that is left takes no further moment."""
        ends = seconds >= self.left_s
        self.settle(self.since + seconds)
        if ends:
            self.done = self.total
