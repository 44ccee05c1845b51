"""Least attained service first, by the GPU time held so far. Skipping, preemptive.

Only round boundaries call for a first plan; in between, idle GPUs are filled. Two jobs of equal service take
each other's GPUs at every first plan, and each time one of them loses a checkpoint and a restart. With a
first plan at every event a busy cluster would do little but restart jobs. `tiresias` does plan at events: its
queues change less often.
"""

from typing import ClassVar

from schemas.plans import Measures
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import SmallestFirst


class Las(SmallestFirst):
    preemptive: ClassVar[bool] = True
    measures: ClassVar[Measures] = Measures(priority="GPU-seconds held so far, least first")

    def figure(self, job: ViewJob, view: View) -> float:  # noqa: ARG002 - only the job counts
        return job.attained_gpu_s
