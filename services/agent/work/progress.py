"""The progress of an emulated job as a function of time. Pure."""

import math

import msgspec

ROUNDING = 1e-6
"""share of all samples that may be missing at the end, for rounding"""


class Progress(msgspec.Struct, kw_only=True):
    """Samples done as a function of time: from `since` on, `rate` samples/s."""

    total: float
    floor: float = 0.0
    """samples at its start: above 0 for a copy, so that `ROUNDING` is relative to its share"""
    done: float
    """samples done at `since`"""
    since: float
    rate: float = 0.0

    @property
    def left_s(self) -> float:
        """Seconds from `since` to the end at this rate; infinite at rate 0."""
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
        """Move `since` on by `seconds`. If the end is within them, exactly `total` samples are done."""
        ends = seconds >= self.left_s
        self.settle(self.since + seconds)
        if ends:
            self.done = self.total
