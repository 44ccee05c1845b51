"""The budget of a computation: seconds of the wall clock, or modelled seconds, computed from its work."""

import math
import time

import msgspec


class Budget(msgspec.Struct):
    """Seconds that run from the construction on. Modelled seconds are equal on every machine."""

    seconds: float = math.inf
    modelled: bool = True
    work_s: float = 0.0
    """modelled seconds, as charged"""
    began: float = msgspec.field(default_factory=time.perf_counter)

    def charge(self, work_s: float) -> None:
        """Count the modelled seconds of some work. They do not affect a budget of the wall clock."""
        self.work_s += work_s

    @property
    def spent_s(self) -> float:
        return self.work_s if self.modelled else time.perf_counter() - self.began

    @property
    def left_s(self) -> float:
        """Seconds that are left; below 0 once the budget is overspent."""
        return self.seconds - self.spent_s
