"""Capacity queues after Apache YARN's capacity scheduler, as GPU clusters run it: gangs, no preemption.

Each project has a queue. The queue that uses the least of its capacity is served next, its jobs first in,
first out, strict: a job that does not fit holds up its own queue and no other. Capacities are elastic: GPUs
that one queue leaves idle may be used by any other, until the jobs on them end. Arrivals, completions,
changes of nodes and round boundaries all call for a first plan, which keeps every job where it is: the view
of a fragment plan does not show what each queue uses.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from schemas.plans import PlanKind
from services.planner.policies.contract.decision import Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.known_jobs import held
from services.planner.policies.kit.ordered import EVENTS, Ordered
from services.planner.policies.kit.rigid import RigidOptions

UNNAMED = 1.0
"""the capacity of a project that the option does not name"""
LEAST = 1e-9
"""the capacity of a project to which the option gives 0: it is served when no other waits"""


class YarnOptions(RigidOptions, frozen=True, kw_only=True):
    capacities: Annotated[
        str, Meta(pattern=r"^([^\s=]+=\d+(\.\d+)?( +|$))*$", description="PROJECT=SHARE, between spaces")
    ] = ""
    """relative capacities of the projects' queues, as `vision=3 speech=1`; those not named have 1"""


class YarnCs(Ordered):
    Options = YarnOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    strict: ClassVar[bool] = True

    def __init__(self, options: YarnOptions) -> None:
        super().__init__(options)
        self._capacity = capacities(options.capacities)

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
        return [*running, *self._turns(view, waiting, used)]

    def _turns(
        self, view: View, waiting: dict[str, deque[ViewJob]], used: dict[str, float]
    ) -> Iterable[ViewJob]:
        """The waiting jobs in the order of service, as if all that fit the empty cluster fitted now.

        A job that does not fit holds up only its own queue, so the order of the others stays the same.
        """
        known = self._look(view)
        first = [self._need(project, used.get(project, 0)) for project in waiting]
        heapq.heapify(first)
        while first:
            _, project = first[0]
            job = waiting[project].popleft()
            used[project] = used.get(project, 0) + known[job.job_id].queued.gpus
            if waiting[project]:
                heapq.heapreplace(first, self._need(project, used[project]))
            else:
                heapq.heappop(first)
            yield job

    def _need(self, project: str, used: float) -> tuple[float, str]:
        """What queues are served by, the least first: the part of its capacity in use, then the name."""
        return used / self._capacity.get(project, UNNAMED), project


def capacities(text: str) -> dict[str, float]:
    """Relative capacities by project, from `vision=3 speech=1`."""
    pairs = (pair.partition("=") for pair in text.split())
    return {project: max(float(share), LEAST) for project, _, share in pairs}
