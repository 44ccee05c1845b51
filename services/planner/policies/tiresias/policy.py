"""Tiresias (NSDI '19): discretised two-dimensional least attained service. Skipping, preemptive.

Jobs are in K queues by attained service (`queues`). The queues are served in order, and a job that does not
fit is skipped. Arrivals, completions, changes of nodes, demotions, promotions and round boundaries call for a
first plan, if a job waits that idle GPUs cannot serve (`moves_for_waiting`).

Tiresias judges by the skew of a job's tensor sizes whether to consolidate it. These are not known here, so
the effect is used: a job whose throughput suffers from spreading (ρ above `sensitivity_threshold`) is
consolidated, or waits. Any other job takes a single node if one has room, else the fullest nodes first, which
leaves the fewest fragments.

The Gittins index needs the services of other jobs. Without a history they are the services expected of the
jobs in the view; a caller that has a history gives it to the constructor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.ids import JobId
from schemas.plans import Measures, PlanKind, Standing
from services.planner.policies.contract.decision import SOONEST_S, Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.gangs import Style
from services.planner.policies.kit.ordered import EVENTS, Ordered, WalkResult
from services.planner.policies.kit.rigid import RigidOptions, rigid
from services.planner.policies.kit.thresholds import Thresholds, ascending
from services.planner.policies.tiresias.gittins import AuthorsGittins, Gittins
from services.planner.policies.tiresias.memory import is_exact, remembered, stored
from services.planner.policies.tiresias.queues import (
    JobFigures,
    Queues,
    Rank,
    Rules,
    advanced,
    in_order,
    next_move_in,
    settled,
)


class TiresiasOptions(RigidOptions, frozen=True, kw_only=True):
    thresholds: Thresholds = "3250 7200"
    """the attained service in GPU·s at which each queue but the last ends, ascending"""
    service: Literal["gpu-time", "time"] = "gpu-time"
    """whether service is GPU time or running time; with `time`, the thresholds are seconds"""
    order: Literal["fifo", "gittins"] = "fifo"
    """within a queue: by start, or by the Gittins index of the attained service"""
    promote_knob: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """a job that has waited so many times as long as it ran goes back to the first queue; 0: never"""
    faithful: bool = False
    """with the quirks of the authors' simulator"""
    sensitivity_threshold: Annotated[float, Meta(gt=0)] = 1.4
    """ρ above which a job is consolidated, or waits"""


class Tiresias(Ordered):
    Options = TiresiasOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    preemptive: ClassVar[bool] = True
    measures: ClassVar[Measures] = Measures(priority="level, by attained service, 1 first")

    def __init__(self, options: TiresiasOptions, history: Sequence[float] = ()) -> None:
        """`history`: services of earlier jobs, in GPU·s."""
        super().__init__(options)
        self._options = options
        self._rules = Rules(
            thresholds=ascending(options.thresholds),
            by_gpus=options.service == "gpu-time",
            promote_knob=options.promote_knob,
            authors=options.faithful,
        )
        self.moves_for_waiting = not options.faithful  # the authors' demotions need a plan at every event
        self._learnt = self._gittins(history) if history else None
        self._remembered: tuple[bytes, Queues] = b"", ()
        """the memory of the last decision, encoded and as queues"""

    def order(self, view: View) -> Sequence[ViewJob]:
        return _jobs(view, self._queues(view, self._seen(view)))

    def verdict(self, view: View) -> WalkResult:
        seen = self._seen(view)
        queues = self._queues(view, seen)
        served, standings = self.serve(view, _jobs(view, queues)), _standings(queues)
        if view.kind is PlanKind.FRAGMENT:  # running jobs are not shown, so the next first plan moves jobs
            return WalkResult(served=served, memory=view.memory, standings=standings)
        queues = settled(queues, served.placed)
        delay_s = next_move_in(queues, seen, served.placed, self._rules)
        memory = stored(queues)
        self._remembered = memory, queues if is_exact(memory) else remembered(memory, seen)
        return WalkResult(
            served=served,
            memory=memory,
            again_at=None if delay_s is None else view.at + max(delay_s, SOONEST_S),
            standings=standings,
        )

    def style(self, job: ViewJob) -> Style:
        skewed = job.sensitivity > self._options.sensitivity_threshold
        return Style.CONSOLIDATED if skewed else Style.FRAGMENTS

    def _queues(self, view: View, seen: Mapping[JobId, JobFigures]) -> Queues:
        """The queues of now, each in the order in which it is served."""
        memory, known = self._remembered
        before = known if view.memory == memory else remembered(view.memory, seen)
        queues = advanced(before, seen, self._rules)
        return in_order(queues, seen, self._rules, self._rank(view))

    def _seen(self, view: View) -> Mapping[JobId, JobFigures]:
        return _Seen({job.job_id: job for job in view.jobs}, lambda job: self._job(job, view.at))

    def _job(self, job: ViewJob, now: float) -> JobFigures:
        present = job.present
        return JobFigures(
            gpus=rigid(job.demand, self.rigid_demand) if present is None else present.gang.gpus,
            submitted_at=job.submitted_at,
            held_s=max(now - job.submitted_at - job.wait_s, 0.0),
            held_gpu_s=job.attained_gpu_s,
            waited_s=job.wait_s,
            running=present is not None,
        )

    def _rank(self, view: View) -> Rank | None:
        if self._options.order == "fifo":
            return None
        expected = (job.age_s * sum(job.demand) / len(job.demand) for job in view.jobs)
        return self._learnt or self._gittins(list(expected))

    def _gittins(self, services: Sequence[float]) -> Rank:
        build = AuthorsGittins if self._rules.authors else Gittins
        return build(services, self._rules.thresholds[0]).index


class _Seen(Mapping[JobId, JobFigures]):
    """The figures of jobs, computed when asked for: most jobs are in the last queue and need none."""

    def __init__(self, jobs: Mapping[JobId, ViewJob], look: Callable[[ViewJob], JobFigures]) -> None:
        self._jobs = jobs
        self._look = look
        self._known: dict[JobId, JobFigures] = {}

    def __getitem__(self, job_id: JobId) -> JobFigures:
        known = self._known.get(job_id)
        if known is None:
            known = self._known[job_id] = self._look(self._jobs[job_id])
        return known

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)


def _standings(queues: Queues) -> dict[JobId, Standing]:
    numbers = [Standing(priority=float(number)) for number, _ in enumerate(queues, start=1)]
    return {own.job_id: number for number, line in zip(numbers, queues, strict=True) for own in line}


def _jobs(view: View, queues: Queues) -> list[ViewJob]:
    jobs = {job.job_id: job for job in view.jobs}
    return [jobs[own.job_id] for line in queues for own in line]
