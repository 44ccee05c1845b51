"""How facts about jobs enter the ledger."""

from collections.abc import Sequence

import msgspec

from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobFailed,
    JobHeld,
    JobPreempted,
    JobPriorityChanged,
    JobProfiled,
    JobQueued,
    JobRejected,
    JobReleased,
    JobStarted,
    JobSubmitted,
    JobTypeEstimated,
    PreemptReason,
)
from schemas.ids import PlacementId
from shared.domain import gangs
from shared.domain.ledger.records import Broken, Hold, JobRecord, Ledger, Run, RunSums
from shared.domain.states import IllegalMove, JobState, next_state
from shared.domain.tally import Leader, Tally

SAVED_ALL = frozenset({PreemptReason.PLAN, PreemptReason.NODE_LEFT, PreemptReason.MERGE})
"""reasons for which a job is ordered to stop, and saves all that it has done first"""


def submit(ledger: Ledger, fact: JobSubmitted) -> None:
    if fact.job_id in ledger.jobs:
        ledger.void += 1
        return
    if ledger.first_submitted_at is None:
        ledger.first_submitted_at = fact.at
    ledger.jobs[fact.job_id] = JobRecord(
        job_id=fact.job_id,
        spec=fact.spec,
        submitted_at=fact.at,
        since=fact.at,
        hold=Hold(at=fact.at, by=fact.by, wait_s=0.0) if fact.on_hold else None,
    )


def _move(ledger: Ledger, fact: JobEvent) -> JobRecord | None:
    """The job in its new state, or None if the table of states has no such move."""
    record = ledger.jobs.get(fact.job_id)
    try:
        state = next_state(record.state if record else None, fact)
    except IllegalMove:
        ledger.void += 1
        return None
    assert record is not None, "only JobSubmitted finds a job unknown"
    record.state, record.since = state, fact.at
    return record


def profile(ledger: Ledger, fact: JobProfiled) -> None:
    _move(ledger, fact)


def queue(ledger: Ledger, fact: JobQueued) -> None:
    if record := _move(ledger, fact):
        record.age_s, record.single_gpu = fact.age_s, fact.single_gpu


def enter_type(ledger: Ledger, fact: JobTypeEstimated) -> None:
    if record := ledger.jobs.get(fact.job_id):
        record.single_gpu = record.single_gpu | {fact.gpu_type: fact.single_gpu}


def change_priority(ledger: Ledger, fact: JobPriorityChanged) -> None:
    if record := _open(ledger, fact):
        record.spec = msgspec.structs.replace(record.spec, priority=fact.priority)


def hold(ledger: Ledger, fact: JobHeld) -> None:
    record = _open(ledger, fact)
    if record is not None and record.hold is None:
        record.hold = Hold(at=fact.at, by=fact.by, wait_s=record.wait_s(fact.at))


def release(ledger: Ledger, fact: JobReleased) -> None:
    record = _open(ledger, fact)
    if record is not None and record.hold is not None:
        before_s, record.hold = record.hold.wait_s, None
        record.on_hold_s += max(record.wait_s(fact.at) - before_s, 0.0)


def _open(ledger: Ledger, fact: JobEvent) -> JobRecord | None:
    """The job, which stays in its state; None if it is unknown or has ended."""
    record = ledger.jobs.get(fact.job_id)
    if record is None or record.ended:
        ledger.void += 1
        return None
    return record


def start(ledger: Ledger, fact: JobStarted) -> None:
    record = _move(ledger, fact)
    if record is None:
        return
    assert not record.runs or record.runs[-1].ended_at is not None, "one run at a time"
    run = Run(
        placement_id=fact.placement_id,
        gang=fact.gang,
        started_at=fact.at,
        samples_from=record.samples_done,
        saved_at=fact.at,
    )
    placement = ledger.planned.get(fact.job_id)
    if placement is not None and placement.placement_id == fact.placement_id:
        run.throughput, run.layer, run.share = placement.throughput, placement.layer, placement.share
    chosen = ledger.chosen.get(fact.job_id)
    if chosen is not None and chosen.placement_id == fact.placement_id:
        run.plan_id, run.standing = chosen.plan_id, chosen.standing
    if record.ordered == fact.placement_id:
        run.start_s = max(fact.at - record.ordered_at, 0.0)
        record.tally.begin(fact.at)
    else:
        record.tally = Tally.of(fact.gang, record.samples_done, fact.at)
    if record.started_at is None:
        record.started_at = fact.at
    elif run.start_s is not None:  # since the order the GPUs were held to restore the job
        record.lost_gpu_s += run.start_s * run.gpus
    record.runs.append(run)
    record.starts += 1


def preempt(ledger: Ledger, fact: JobPreempted) -> None:
    record = _move(ledger, fact)
    if record is None:
        return
    run = record.runs[-1]
    run.preempted, run.cause = fact.reason, fact.cause
    record.restarts += fact.reason is not PreemptReason.MERGE
    record.ordered = None
    record.samples_done = fact.samples_done
    run.broken = broken_as(record, fact.placement_id)
    if fact.reason is PreemptReason.INTERRUPTED:
        count_interruption(record)
    for leader in record.tally.running if fact.reason not in SAVED_ALL else ():
        lose_work(record, leader, fact.at)
    _close(record, fact.at)
    placement = ledger.planned.get(fact.job_id)
    if placement is not None and placement.placement_id == fact.placement_id:
        del ledger.planned[fact.job_id]


def end(ledger: Ledger, fact: JobCompleted | JobFailed | JobCancelled | JobRejected) -> None:
    before = ledger.jobs.get(fact.job_id)
    was_running = before is not None and before.state is JobState.RUNNING
    record = _move(ledger, fact)
    if record is None:
        return
    record.ended_at = fact.at
    match fact:
        case JobCompleted(samples_done=samples_done):
            record.samples_done = samples_done
        case JobFailed(reason=reason) | JobRejected(reason=reason):
            record.reason = reason
        case _:
            pass
    if was_running:
        _close(record, fact.at)
    ledger.planned.pop(fact.job_id, None)
    ledger.verdicts.pop(fact.job_id, None)
    ledger.chosen.pop(fact.job_id, None)


def is_present(record: JobRecord, placement_id: PlacementId) -> bool:
    """Whether the job trains on the placement, or comes up on it."""
    trains = record.present is not None and record.present.placement_id == placement_id
    return trains or record.ordered == placement_id


def waits_after(record: JobRecord, placement_id: PlacementId) -> bool:
    """Whether the job was preempted from the placement, and runs nowhere since: its workers may complete it.

    Where it runs again, it may have written over what they had left as its result. Of copies the merged
    samples count.
    """
    run = record.runs[-1] if record.runs and record.state is JobState.PREEMPTED else None
    return run is not None and run.placement_id == placement_id and not gangs.merges(run.gang)


def broken_as(record: JobRecord, placement_id: PlacementId) -> Broken | None:
    """How a placement of the job ended by itself, if it did and no later placement has."""
    broken = record.broken
    return broken if broken is not None and broken.placement_id == placement_id else None


def lose_work(record: JobRecord, leader: Leader, at: float) -> None:
    """Count as lost what the workers of a leader did from its last checkpoint until they were to stop.

    What they take to stop counts by itself.
    """
    run = record.runs[-1] if record.runs else None
    if run is not None and run.ended_at is None and run.stop_ordered_at is not None:
        at = min(at, run.stop_ordered_at)
    record.lost_gpu_s += max(at - leader.at, 0.0) * leader.gpus * (run.share if run is not None else 1.0)


def count_interruption(record: JobRecord) -> None:
    progress = record.samples_done > record.samples_then
    record.interruptions += 1
    record.fruitless = 1 if progress else record.fruitless + 1
    record.samples_then = record.samples_done


def _close(record: JobRecord, at: float) -> None:
    run = record.runs[-1]
    assert run.ended_at is None, "a run ends once"
    run.ended_at = max(at, run.started_at)
    run.samples_to = record.samples_done if run.trained is None else run.trained
    run.copies = record.tally.by_copy()
    record.run_s += run.ended_at - run.started_at


# ---- runs that are not kept


def drop_runs(record: JobRecord, keep: int) -> None:
    """Keep the newest runs of a job; of those before, only their sums."""
    over = max(len(record.runs) - keep, 0)
    _add(record.runs_before, record, record.runs[:over])
    del record.runs[:over]


def add_runs(sums: RunSums, record: JobRecord) -> None:
    """Add all runs of a job, whether they are kept or not."""
    sums.include(record.runs_before)
    _add(sums, record, record.runs)


def _add(sums: RunSums, record: JobRecord, oldest: Sequence[Run]) -> None:
    """Add the oldest of the runs that are kept."""
    dropped = record.starts - len(record.runs)
    for number, run in enumerate(oldest, start=dropped):
        sums.add(run, record.spec.workload.batch_size, first=number == 0)
