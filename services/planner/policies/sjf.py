"""Shortest job first, by the whole expected running time. Skipping, not preemptive.

Ticks: round boundaries; between them, every arrival and every GPU that comes free.
"""

from collections.abc import Sequence

from services.planner.policies.ordered import Ordered, smallest_first
from services.planner.view import View, ViewJob


class Sjf(Ordered):
    def order(self, view: View) -> Sequence[ViewJob]:
        return smallest_first(view, lambda job: job.age_s)
