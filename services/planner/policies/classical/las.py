"""Least attained service first, by the GPU time held so far. Skipping, preemptive.

Triggers of a whole plan: round boundaries only. Two jobs of equal service overtake each other at every
plan, and each time one of them pays for a checkpoint and a restart; with a plan at every event a busy
cluster would do little else. In between, idle GPUs are filled. `tiresias` is the policy that plans at
events.
"""

from collections.abc import Sequence
from typing import ClassVar

from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import Ordered, smallest_first


class Las(Ordered):
    preemptive: ClassVar[bool] = True

    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: job.attained_gpu_s)
