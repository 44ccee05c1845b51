"""Shortest remaining service first, by the expected GPU time that is left. Skipping, preemptive.

The expected running time is that on the mean of the job's GPU counts, so its service is that time times
the mean. Triggers: arrivals, completions, changes of nodes, round boundaries.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from schemas.plans import Measures, PlanKind
from services.planner.policies.contract.decision import Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import EVENTS, SmallestFirst
from services.planner.policies.kit.priority import shortest_remaining


class Srsf(SmallestFirst):
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    preemptive: ClassVar[bool] = True
    measures: ClassVar[Measures] = Measures(priority="expected GPU-seconds left, least first")

    def figure(self, job: ViewJob, view: View) -> float:
        return -shortest_remaining(job, view) * _mean(job.demand)


def _mean(demand: Sequence[int]) -> float:
    return sum(demand) / len(demand)
