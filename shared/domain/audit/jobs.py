"""Rules about jobs: no job is lost, starts twice or after its end, or completes without its work.

A rule is given the log as it was before a fact, the fact's sequence, and the fact.
"""

import math
from collections.abc import Iterator

from schemas.base import Event
from schemas.events import (
    JobCompleted,
    JobEvent,
    JobFailed,
    JobPreempted,
    JobStarted,
    PlanPublished,
    StartOrdered,
)
from schemas.plans import Cause, PlanKind
from shared.domain.audit.log import OVER, Log, Violation, broken
from shared.domain.states import ENDED, JobState
from shared.domain.tally import ROUNDING


def states_follow_the_table(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """A fact that the table of states forbids is a violation, unless it crossed an earlier fact on its way.

    After a job's end any fact about it may still arrive. JobCompleted or JobFailed may arrive after the
    preemption of the placement that it names, and a job that waits completes only by one that was preempted.
    A second start has a rule of its own.
    """
    if not isinstance(fact, JobEvent):
        return
    job = log.job(fact.job_id)
    late = isinstance(fact, JobCompleted) and job.state is JobState.PREEMPTED
    if log.after(fact) is not None and not late:
        return
    crossed = (
        isinstance(fact, JobCompleted | JobFailed) and log.place(fact.job_id, fact.placement_id).preempted
    )
    second_start = isinstance(fact, JobStarted) and job.state is JobState.RUNNING
    if job.state not in ENDED and not crossed and not second_start:
        yield broken("state-table", fact, f"{fact.job_id} is {job.state or 'unknown'}")


def no_job_starts_twice(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """A job that was started is preempted before it is started again."""
    if isinstance(fact, JobStarted) and log.job(fact.job_id).state is JobState.RUNNING:
        yield broken("started-twice", fact, f"{fact.job_id} runs already")


def no_job_starts_after_its_end(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """No service that has read the end of a job starts anything for it.

    A start may cross the end on its way (a cancellation comes at any time), and then its workers are
    stopped. But a service that acts on a fact of the stream knows all facts before it. So an order is a
    violation if it follows a plan that came after the end, and a JobStarted if it follows a WorkerStarted
    that came after the end.
    """
    if not isinstance(fact, StartOrdered | JobStarted):
        return
    job, key = log.job(fact.job_id), fact.placement_id
    if not job.ended:
        return
    place = log.place(fact.job_id, key)
    if job is OVER:
        yield broken("start-after-end", fact, f"{fact.job_id} had ended long before")
    elif isinstance(fact, StartOrdered) and place.planned > job.ended:
        yield broken("start-after-end", fact, f"{fact.job_id} had ended when {key} was planned")
    elif isinstance(fact, JobStarted) and place.worker > job.ended:
        yield broken("start-after-end", fact, f"{fact.job_id} had ended when {key} came up")


def nothing_starts_unplanned(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """Every start has the id of a placement in a plan, or of a measurement in a round."""
    if not isinstance(fact, StartOrdered) or log.job(fact.job_id) is OVER:
        return
    if not log.place(fact.job_id, fact.placement_id).planned:
        yield broken("start-unplanned", fact, f"no plan has {fact.placement_id}")


def completed_jobs_did_their_work(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    spec = log.job(fact.job_id).spec if isinstance(fact, JobCompleted) else None
    if isinstance(fact, JobCompleted) and spec and log.after(fact) is not None:
        wanted, done = spec.samples, fact.samples_done
        if done < wanted * (1 - ROUNDING):
            yield broken("work-undone", fact, f"{fact.job_id} did {done:g} of {wanted:g} samples")


def samples_are_counted_once(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """A run ends with no more samples than its leaders reported, those of all copies together."""
    if not isinstance(fact, JobPreempted | JobCompleted):
        return
    spec, tally = log.job(fact.job_id).spec, log.place(fact.job_id, fact.placement_id).tally
    if spec is None or tally is None:
        return
    counted = tally.merged(spec.samples) if tally.leaders else math.inf
    if fact.samples_done > counted * (1 + ROUNDING):
        detail = f"{fact.job_id} has {fact.samples_done:g} samples, its workers did {counted:g}"
        yield broken("work-overcounted", fact, detail)


def no_job_is_forgotten(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """A round's first plan mentions every job that was queued when it was made and has not ended since."""
    if not isinstance(fact, PlanPublished) or fact.kind is not PlanKind.FIRST:
        return
    mentioned = {placement.job_id for placement in fact.placements}
    mentioned.update(left.job_id for left in fact.left_out)
    for job_id, job in log.open.items():
        if 0 < job.queued <= fact.made_from and job_id not in mentioned:
            yield broken("job-lost", fact, f"{fact.plan_id} forgets {job_id}")


def places_are_kept(log: Log, _: int, fact: Event) -> Iterator[Violation]:
    """No plan preempts a job that is not preemptible, if the plan's maker knew that the job ran.

    A drain may: the cause of the preemption then names a node.
    """
    match fact:
        case JobPreempted(cause=Cause(plan_id=str(plan_id), node=None)):
            started = log.place(fact.job_id, fact.placement_id).started
            if 0 < started <= log.plans.get(plan_id, 0):
                yield broken("place-taken", fact, f"{plan_id} takes the place of {fact.job_id}")
        case _:
            pass


def every_job_ended(log: Log) -> Iterator[Violation]:
    """Every submitted job has ended. Only for the log of a system that had nothing left to do."""
    for job_id, job in log.open.items():
        if job.last is not None:
            yield broken("job-lost", job.last, f"{job_id} was left {job.state}")
