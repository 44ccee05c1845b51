"""Least attained service first, by the GPU time held so far. Skipping, preemptive.

Triggers of a whole plan: round boundaries only. Two jobs of equal service overtake each other at every
plan, and each time one of them pays for a checkpoint and a restart; with a plan at every event a busy
cluster would do little else. In between, idle GPUs are filled. `tiresias` is the policy that plans at
events.
"""

from typing import ClassVar

from schemas.plans import Measures
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import SmallestFirst


class Las(SmallestFirst):
    preemptive: ClassVar[bool] = True
    measures: ClassVar[Measures] = Measures(priority="GPU-seconds held so far, least first")

    def figure(self, job: ViewJob, view: View) -> float:  # noqa: ARG002 - the job says it all
        return job.attained_gpu_s
