"""Tiresias (NSDI '19): discretised two-dimensional least attained service. Skipping, preemptive.

K queues by attained service (`programs/tiresias_queues`), served in order; what does not fit is
skipped. Ticks: arrivals, completions, changes of nodes, demotions, promotions, round boundaries; every
tick is a whole plan.

Tensor sizes are not known here, so a job's skew is judged by what it causes: a job whose throughput
suffers from spreading (ρ above `sensitivity_threshold`) is consolidated, or waits; any other takes a
single node too, but failing that the fullest nodes first, which leaves the fewest fragments.

Gittins order needs the services of other jobs. No history is at hand, so they are those expected of the
jobs that are there; a caller that has a history gives it.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from schemas.ids import JobId
from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.policies.contract import Trigger
from services.planner.policies.ordered import EVENTS, Ordered, Verdict, held
from services.planner.programs.gittins import AuthorsGittins, Gittins
from services.planner.programs.placing import Style
from services.planner.programs.rigid import rigid
from services.planner.programs.tiresias_queues import (
    Queues,
    Rank,
    Rules,
    Seen,
    advanced,
    in_order,
    next_move_in,
    settled,
)
from services.planner.view import View, ViewJob

SOONEST_S = 1.0
"""between one tick that is waited for and the next"""


class Tiresias(Ordered):
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    preemptive: ClassVar[bool] = True

    def __init__(self, settings: Settings, history: Sequence[float] = ()) -> None:
        """`history`: services of earlier jobs, in GPU·s."""
        super().__init__(settings)
        self._rules = Rules(
            thresholds=tuple(sorted(map(float, settings.tiresias_thresholds.split()))),
            by_gpus=settings.tiresias_service == "gpu-time",
            promote_knob=settings.tiresias_promote_knob,
            authors=settings.tiresias_faithful,
        )
        self._learnt = self._gittins(history) if history else None

    def order(self, view: View) -> Sequence[ViewJob]:
        return _jobs(view, self._queues(view))

    def verdict(self, view: View) -> Verdict:
        queues = self._queues(view)
        served = self.serve(view, _jobs(view, queues))
        if view.kind is PlanKind.FRAGMENT:  # it shows no running jobs: the next whole plan moves the queues
            return Verdict(served=served, memory=view.memory)
        queues = settled(queues, served.placed)
        delay_s = next_move_in(queues, self._seen(view), served.placed, self._rules)
        return Verdict(
            served=served,
            memory=msgspec.msgpack.encode(queues),
            again_at=None if delay_s is None else view.at + max(delay_s, SOONEST_S),
        )

    def style(self, job: ViewJob) -> Style:
        skewed = job.sensitivity > self.settings.sensitivity_threshold
        return Style.CONSOLIDATED if skewed else Style.FRAGMENTS

    def _queues(self, view: View) -> Queues:
        """As they are to be served now."""
        seen = self._seen(view)
        queues = advanced(remembered(view.memory), seen, self._rules)
        return in_order(queues, seen, self._rules, self._rank(view))

    def _seen(self, view: View) -> dict[JobId, Seen]:
        return {job.job_id: self._job(job, view.at) for job in view.jobs}

    def _job(self, job: ViewJob, now: float) -> Seen:
        place = held(job)
        return Seen(
            gpus=sum(place.values()) or rigid(job.demand, self.settings.rigid_demand),
            submitted_at=job.submitted_at,
            held_s=max(now - job.submitted_at - job.wait_s, 0.0),
            held_gpu_s=job.attained_gpu_s,
            waited_s=job.wait_s,
            running=bool(place),
        )

    def _rank(self, view: View) -> Rank | None:
        if self.settings.tiresias_order == "fifo":
            return None
        expected = (job.age_s * sum(job.demand) / len(job.demand) for job in view.jobs)
        return self._learnt or self._gittins(list(expected))

    def _gittins(self, services: Sequence[float]) -> Rank:
        build = AuthorsGittins if self._rules.authors else Gittins
        return build(services, self._rules.thresholds[0]).index


def remembered(memory: bytes) -> Queues:
    """The queues of the last decision; none from memory that is not ours."""
    try:
        queues = msgspec.msgpack.decode(memory, type=Queues)
    except msgspec.MsgspecError:
        return ()
    names = [own.job_id for line in queues for own in line]
    return queues if len(names) == len(set(names)) else ()


def _jobs(view: View, queues: Queues) -> list[ViewJob]:
    jobs = {job.job_id: job for job in view.jobs}
    return [jobs[own.job_id] for line in queues for own in line]
