"""First in, first out, not preemptive. Needs no solver; the strict one stands in for other policies.

Strict: a job that does not fit now holds up all jobs that came after it. Skipping: the next job that fits
starts. First plans at round boundaries keep every job where it is, except those whose GPUs went to profiling
or whose node drains: these are placed again.
"""

from collections.abc import Sequence
from typing import ClassVar

from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import Ordered


class Fifo(Ordered):
    """First in, first out, not preemptive: a job that does not fit now holds up all after it."""

    strict: ClassVar[bool] = True

    def order(self, view: View) -> Sequence[ViewJob]:
        return view.jobs


class FifoSkipping(Fifo):
    """First in, first out, not preemptive: the next that fits starts (greedy backfilling)."""

    strict: ClassVar[bool] = False
