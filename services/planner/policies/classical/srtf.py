"""Shortest remaining time first, by the expected running time that is left. Skipping, preemptive.

Triggers: arrivals, completions, changes of nodes, round boundaries.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from schemas.plans import PlanKind
from services.planner.policies.contract.decision import Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import EVENTS, Ordered, smallest_first
from services.planner.policies.kit.priority import shortest_remaining


class Srtf(Ordered):
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    preemptive: ClassVar[bool] = True

    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: -shortest_remaining(job, view))
