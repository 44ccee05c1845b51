"""Policies that move every job that they may move, at every event."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from schemas.plans import PlanKind
from services.planner.policies.contract.decision import Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.known_jobs import Cluster, KnownJob
from services.planner.policies.kit.ordered import EVENTS, Ordered, WalkResult

TURN_S = 45.0
"""long enough for a job to get somewhere between two restarts"""


class Restless(Ordered):
    """Changes the order of the queue from time to time, and places every job again in every plan."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    preemptive: ClassVar[bool] = True
    moves_for_waiting: bool = False

    def order(self, view: View) -> Sequence[ViewJob]:
        turn = int(view.at // TURN_S) % max(len(view.jobs), 1)
        return [*view.jobs[turn:], *view.jobs[:turn]]

    def verdict(self, view: View) -> WalkResult:
        served = self.serve(view, self.order(view))
        return WalkResult(served=served, again_at=view.at + TURN_S)

    def _known(self, job: ViewJob, cluster: Cluster) -> KnownJob:
        return super()._known(_unsettled(job), cluster)


class Blind(Restless):
    """As `Restless`, but is not shown the jobs that stay."""

    sees_staying: ClassVar[bool] = False


def _unsettled(job: ViewJob) -> ViewJob:
    """As if it ran nowhere, and liked its slowest type best."""
    if job.stays:
        return job
    slow_first = {name: 1.0 / speed for name, speed in job.single_gpu.items()}
    return msgspec.structs.replace(job, present=None, single_gpu=slow_first)
