"""Rules about jobs: none lost, none started twice or after its end, each complete when it says so."""

import math
from collections.abc import Iterator

from schemas.events import (
    JobCompleted,
    JobFailed,
    JobPreempted,
    JobQueued,
    JobStarted,
    PlanPublished,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import JobId, PlacementId, PlanId
from schemas.plans import Cause, PlanKind
from shared.domain.audit.log import Log, Violation, broken, moves
from shared.domain.states import ENDED, JobState
from shared.domain.tally import ROUNDING, Tally


def states_follow_the_table(log: Log) -> Iterator[Violation]:
    """Whatever the table forbids is a mistake, but for facts that crossed an earlier one on its way.

    After a job's end anything about it may still arrive. An end may arrive after the preemption of the
    placement it speaks of. A second start has a rule of its own.
    """
    preempted: set[PlacementId] = set()
    for move in moves(log):
        fact = move.fact
        if move.after is not None:
            if isinstance(fact, JobPreempted):
                preempted.add(fact.placement_id)
            continue
        crossed = isinstance(fact, JobCompleted | JobFailed) and fact.placement_id in preempted
        second_start = isinstance(fact, JobStarted) and move.before is JobState.RUNNING
        if move.before not in ENDED and not crossed and not second_start:
            yield broken("state-table", fact, f"{fact.job_id} is {move.before or 'unknown'}")


def no_job_starts_twice(log: Log) -> Iterator[Violation]:
    """Between two starts there is a preemption."""
    for move in moves(log):
        if isinstance(move.fact, JobStarted) and move.before is JobState.RUNNING:
            yield broken("started-twice", move.fact, f"{move.fact.job_id} runs already")


def no_job_starts_after_its_end(log: Log) -> Iterator[Violation]:
    """Nothing is started for a job by somebody who has read that it ended.

    A start may cross the end on its way (a cancellation comes at any time), and then its workers are
    stopped. But whoever reads the stream and acts on a fact knows all facts before it: an order that
    follows a plan from after the end, or a JobStarted that follows a worker from after it, is a mistake.
    """
    ends = _ends(log)
    planned: dict[PlacementId, int] = {}
    last_worker: dict[PlacementId, int] = {}
    for seq, fact in log.facts:
        match fact:
            case PlanPublished(placements=placements):
                for placement in placements:
                    planned.setdefault(placement.placement_id, seq)
            case ProfilingPlanned(runs=runs) | ProfilingAdded(runs=runs):
                for run in runs:
                    planned.setdefault(run.placement_id, seq)
            case StartOrdered(placement_id=key) if planned.get(key, 0) > ends.get(fact.job_id, seq):
                yield broken("start-after-end", fact, f"{fact.job_id} had ended when {key} was planned")
            case WorkerStarted(placement_id=key):
                last_worker[key] = seq
            case JobStarted(placement_id=key) if last_worker.get(key, 0) > ends.get(fact.job_id, seq):
                yield broken("start-after-end", fact, f"{fact.job_id} had ended when {key} came up")
            case _:
                pass


def nothing_starts_unplanned(log: Log) -> Iterator[Violation]:
    """Every start has the placement id of a plan, or of a measurement of a round."""
    planned: set[PlacementId] = set()
    for _, fact in log.facts:
        match fact:
            case PlanPublished(placements=placements):
                planned.update(placement.placement_id for placement in placements)
            case ProfilingPlanned(runs=runs) | ProfilingAdded(runs=runs):
                planned.update(run.placement_id for run in runs)
            case StartOrdered(placement_id=key) if key not in planned:
                yield broken("start-unplanned", fact, f"no plan has {key}")
            case _:
                pass


def completed_jobs_did_their_work(log: Log) -> Iterator[Violation]:
    for move in moves(log):
        if isinstance(move.fact, JobCompleted) and move.after is not None:
            wanted, done = log.specs[move.fact.job_id].samples, move.fact.samples_done
            if done < wanted * (1 - ROUNDING):
                yield broken(
                    "work-undone", move.fact, f"{move.fact.job_id} did {done:g} of {wanted:g} samples"
                )


def samples_are_counted_once(log: Log) -> Iterator[Violation]:
    """A run ends with no more samples than its leaders reported, all copies together."""
    tallies: dict[PlacementId, Tally] = {}
    for _, fact in log.facts:
        match fact:
            case StartOrdered(profile_iterations=0):
                tallies.setdefault(fact.placement_id, Tally()).order(fact)
            case WorkerStarted(samples_restored=float(samples)) if fact.placement_id in tallies:
                tallies[fact.placement_id].restore(fact.node_id, samples)
            case WorkerCheckpointed() | WorkerStopped(leads=True) if fact.placement_id in tallies:
                tallies[fact.placement_id].count(fact.node_id, fact.samples_done, fact.at)
            case JobPreempted() | JobCompleted() if fact.job_id in log.specs:
                tally = tallies.pop(fact.placement_id, Tally())
                counted = tally.merged(log.specs[fact.job_id].samples) if tally.leaders else math.inf
                if fact.samples_done > counted * (1 + ROUNDING):
                    detail = f"{fact.job_id} has {fact.samples_done:g} samples, its workers did {counted:g}"
                    yield broken("work-overcounted", fact, detail)
            case _:
                pass


def no_job_is_forgotten(log: Log) -> Iterator[Violation]:
    """A plan that opens a round mentions every job it was made from that has not ended meanwhile."""
    queued: dict[JobId, int] = {}
    ends = _ends(log)
    for seq, fact in log.facts:
        if isinstance(fact, JobQueued):
            queued.setdefault(fact.job_id, seq)
        if isinstance(fact, PlanPublished) and fact.kind is PlanKind.FIRST:
            mentioned = {placement.job_id for placement in fact.placements}
            mentioned.update(left.job_id for left in fact.left_out)
            over = [job_id for job_id in queued if ends.get(job_id, seq) < seq]
            for job_id in over:
                del queued[job_id]
            for job_id, since in queued.items():
                if since <= fact.made_from and job_id not in mentioned:
                    yield broken("job-lost", fact, f"{fact.plan_id} forgets {job_id}")


def places_are_kept(log: Log) -> Iterator[Violation]:
    """No plan whose maker knew that a job runs takes its place away if it is not preemptible.

    A drain does, as the cause then says.
    """
    started: dict[PlacementId, int] = {}
    plans: dict[PlanId, PlanPublished] = {}
    for seq, fact in log.facts:
        match fact:
            case PlanPublished():
                plans[fact.plan_id] = fact
            case JobStarted() if fact.job_id in log.specs and not log.specs[fact.job_id].preemptible:
                started[fact.placement_id] = seq
            case JobPreempted(cause=Cause(plan_id=str(plan_id), node=None)):
                if started.get(fact.placement_id, seq) <= plans[plan_id].made_from:
                    yield broken("place-taken", fact, f"{plan_id} takes the place of {fact.job_id}")
            case _:
                pass


def every_job_ended(log: Log) -> Iterator[Violation]:
    """Only for the log of a system that has nothing left to do."""
    last = {move.fact.job_id: move for move in moves(log) if move.after is not None}
    for job_id, move in last.items():
        if move.after not in ENDED:
            yield broken("job-lost", move.fact, f"{job_id} was left {move.after}")


def _ends(log: Log) -> dict[JobId, int]:
    """Where in the stream each ended job ended."""
    return {move.fact.job_id: move.seq for move in moves(log) if move.after in ENDED}
