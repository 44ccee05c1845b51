"""Shortest remaining service first, by the expected GPU time that is left. Skipping, preemptive.

The expected running time is that on the mean of the job's GPU counts, so its service is that time times
the mean. Triggers: arrivals, completions, changes of nodes, round boundaries.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from schemas.plans import PlanKind
from services.planner.policies.contract.decision import Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import EVENTS, Ordered, smallest_first
from services.planner.policies.kit.priority import shortest_remaining


class Srsf(Ordered):
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    preemptive: ClassVar[bool] = True

    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: -shortest_remaining(job, view) * _mean(job.demand))


def _mean(demand: Sequence[int]) -> float:
    return sum(demand) / len(demand)
