"""Shortest job first, by the whole expected running time. Skipping, not preemptive.

Triggers: round boundaries; between them, every arrival and every GPU that comes free.
"""

from typing import ClassVar

from schemas.plans import Measures
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import SmallestFirst


class Sjf(SmallestFirst):
    measures: ClassVar[Measures] = Measures(priority="expected running seconds, least first")

    def figure(self, job: ViewJob, view: View) -> float:  # noqa: ARG002 - only the job counts
        return job.age_s
