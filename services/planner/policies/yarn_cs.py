"""Capacity queues after Apache YARN's capacity scheduler, as GPU clusters run it: gangs, no preemption.

One queue a project. The queue that uses least of its capacity is served next, its jobs first in, first
out, strict: a job that does not fit holds up its own queue and no other. Capacities are elastic: what a
queue leaves idle any other may use, and keeps until its jobs end. Ticks: arrivals, completions, changes
of nodes, round boundaries; all are whole plans, which keep every job where it is, because a fragment
plan does not see what each queue uses.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.policies.contract import Trigger
from services.planner.policies.ordered import EVENTS, Ordered, held
from services.planner.programs.rigid import rigid
from services.planner.view import View, ViewJob

UNNAMED = 1.0
"""the capacity of a project that the setting does not name"""
LEAST = 1e-9
"""the capacity of a project with none: it is served when no other waits"""


class YarnCs(Ordered):
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    strict: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._capacity = capacities(settings.yarn_capacities)

    def line(self, job: ViewJob) -> str:
        return job.project

    def order(self, view: View) -> Sequence[ViewJob]:
        used: dict[str, float] = {}
        waiting: dict[str, deque[ViewJob]] = {}
        running = [job for job in view.jobs if held(job)]
        for job in running:
            used[job.project] = used.get(job.project, 0) + sum(held(job).values())
        for job in view.jobs:
            if not held(job):
                waiting.setdefault(job.project, deque()).append(job)
        return [*running, *self._turns(waiting, used)]

    def _turns(self, waiting: dict[str, deque[ViewJob]], used: dict[str, float]) -> Iterable[ViewJob]:
        """As if every job fitted: one that does not holds up its own queue only, so others' turns stand."""
        while waiting:
            project = min(waiting, key=lambda name: (used.get(name, 0) / self._share(name), name))
            job = waiting[project].popleft()
            used[project] = used.get(project, 0) + rigid(job.demand, self.settings.rigid_demand)
            if not waiting[project]:
                del waiting[project]
            yield job

    def _share(self, project: str) -> float:
        return self._capacity.get(project, UNNAMED)


def capacities(text: str) -> dict[str, float]:
    """Relative capacities by project, from `vision=3 speech=1`."""
    pairs = (pair.partition("=") for pair in text.split())
    return {project: max(float(share), LEAST) for project, _, share in pairs}
