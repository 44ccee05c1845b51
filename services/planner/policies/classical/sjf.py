"""Shortest job first, by the whole expected running time. Skipping, not preemptive.

Triggers: round boundaries; between them, every arrival and every GPU that comes free.
"""

from collections.abc import Sequence

from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.ordered import Ordered, smallest_first


class Sjf(Ordered):
    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: job.age_s)
