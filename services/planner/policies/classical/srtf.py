"""Shortest remaining time first, by the expected running time that is left. Skipping, preemptive.

Triggers: arrivals, completions, changes of nodes, round boundaries.
"""

from collections.abc import Mapping
from typing import ClassVar

from schemas.plans import Measures, PlanKind
from services.planner.policies.contract.decision import Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import EVENTS, SmallestFirst
from services.planner.policies.kit.priority import shortest_remaining


class Srtf(SmallestFirst):
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    preemptive: ClassVar[bool] = True
    measures: ClassVar[Measures] = Measures(priority="expected running seconds left, least first")

    def figure(self, job: ViewJob, view: View) -> float:
        return -shortest_remaining(job, view)
