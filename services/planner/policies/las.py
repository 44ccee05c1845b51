"""Least attained service first, by the GPU time held so far. Skipping, preemptive.

Ticks: round boundaries only. Two jobs of equal service overtake each other at every tick, and each time
one of them pays for a checkpoint and a restart; were every event a tick, a busy cluster would do little
else. Between ticks idle GPUs are filled. `tiresias` is the policy that ticks at events.
"""

from collections.abc import Sequence
from typing import ClassVar

from services.planner.policies.ordered import Ordered, smallest_first
from services.planner.view import View, ViewJob


class Las(Ordered):
    preemptive: ClassVar[bool] = True

    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: job.attained_gpu_s)
