"""How each fact changes the monitor's state, and which JobCompleted or JobFailed follow from it.

The ledger and the history fold the facts of their own tables; the table at the end of this module adds what
only the monitor does with a fact.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from schemas.base import Event
from schemas.events import (
    GangFormed,
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobFailed,
    JobPreempted,
    JobRejected,
    JobStarted,
    JobTypeProfiled,
    NodeEvent,
    Outcome,
    PlacementRefused,
    WorkerStopped,
)
from schemas.ids import JobId
from services.monitor import history
from services.monitor.state import End, State
from shared.domain import ledger
from shared.domain.ledger.cluster import has_orders
from shared.domain.ledger.jobs import broken_as, drop_runs, is_present, waits_after
from shared.domain.ledger.records import JobRecord
from shared.domain.tally import WELL

JOBS_KEPT = 10_000
"""ended jobs that stay in the ledger, for metrics and answers"""


def fold(state: State, fact: Event, interruptions_max: int) -> list[End]:
    """Change `state` by one fact of `FOLDS`; returns the ends of jobs to publish because of it."""
    history.record_seq(state.history, fact, state.seq)
    ledger.fold(state.ledger, fact)
    history.record(state.history, state.ledger, fact)
    own_fold = _OWN_FOLDS.get(type(fact))
    if own_fold is None:
        return []
    ends = [end for end in own_fold(state, fact, interruptions_max) if end.job_id not in state.ending]
    state.ending |= {end.job_id: end for end in ends}
    return ends


def _worker_stopped(state: State, fact: WorkerStopped, _: int) -> Iterator[End]:
    record = state.ledger.jobs.get(fact.job_id)
    if record is None or record.ended or not has_orders(state.ledger, fact):
        return
    end = _end_of(record, fact)
    if end is None:
        return
    if isinstance(end, JobCompleted) and record.ordered == fact.placement_id and record.present is None:
        state.early[fact.job_id] = end
    else:
        yield end


def _started(state: State, fact: JobStarted, _: int) -> Iterator[End]:
    end = state.early.pop(fact.job_id, None)
    if end is not None and end.placement_id == fact.placement_id:
        yield end


def _no_longer_runs(
    state: State, fact: JobPreempted | PlacementRefused, interruptions_max: int
) -> Iterator[End]:
    _drop_ending(state, fact.job_id)
    record = state.ledger.jobs.get(fact.job_id)
    if record is not None:
        drop_runs(record, keep=history.RUNS_KEPT)
    broken = broken_as(record, fact.placement_id) if record is not None and not record.ended else None
    if record is None or broken is None or broken.outcome is not Outcome.INTERRUPTED:
        return
    if record.fruitless >= interruptions_max:
        times = f"interrupted {record.fruitless} times without a new checkpoint in between"
        reason = f"{times}, at last: {broken.reason or 'the reason is unknown'}"
        yield JobFailed(at=fact.at, job_id=fact.job_id, placement_id=fact.placement_id, reason=reason)


def _ended(state: State, fact: JobEvent, _: int) -> Iterator[End]:
    _drop_ending(state, fact.job_id)
    state.early.pop(fact.job_id, None)
    record = state.ledger.jobs.get(fact.job_id)
    if record is not None and record.ended:
        history.forget_runs(state.history, state.ledger.jobs, fact.job_id)
    ledger.forget_jobs(state.ledger, keep=JOBS_KEPT)
    yield from ()


def _drop_ending(state: State, job_id: JobId) -> None:
    """Forget the published end of a job once the stream has brought it back, or once it is void."""
    record = state.ledger.jobs.get(job_id)
    end = state.ending.get(job_id)
    if end is None:
        return
    late = record is not None and isinstance(end, JobCompleted) and waits_after(record, end.placement_id)
    if record is None or record.ended or not (late or is_present(record, end.placement_id)):
        del state.ending[job_id]


def _end_of(record: JobRecord, fact: WorkerStopped) -> End | None:
    """The end of the job that follows from a worker's end; None if the job goes on.

    None too for the worker of a measurement or of an earlier placement, unless that completed the job before
    it was counted as gone. One failed worker fails the gang, even while the gang is coming up, and fails the
    job once it has no retries left. If the job trains as copies, the worker that ends last decides.
    """
    completed = fact.outcome is Outcome.COMPLETED and fact.leads
    late = completed and waits_after(record, fact.placement_id)
    if not late and not is_present(record, fact.placement_id):
        return None
    if record.tally.copies and record.present is not None:
        return _end_of_copies(record, fact)
    if completed:
        return JobCompleted(
            at=max(fact.at, record.since),
            job_id=fact.job_id,
            placement_id=fact.placement_id,
            samples_done=fact.samples_done,
        )
    return _failed(record, fact)


def _failed(record: JobRecord, fact: WorkerStopped) -> JobFailed | None:
    if fact.outcome is Outcome.FAILED and record.failures > record.spec.retries:
        reason = fact.reason or f"a process on {fact.node_id} failed"
        return JobFailed(at=fact.at, job_id=fact.job_id, placement_id=fact.placement_id, reason=reason)
    return None


def _end_of_copies(record: JobRecord, fact: WorkerStopped) -> End | None:
    """The job is complete once the samples of all copies add up to its samples.

    It fails with its last copy.
    """
    if fact.outcome in WELL:
        done = record.tally.merged(record.spec.samples)
        if not record.tally.complete(record.spec.samples):
            return None
        return JobCompleted(at=fact.at, job_id=fact.job_id, placement_id=fact.placement_id, samples_done=done)
    return _failed(record, fact) if record.tally.wasted else None


_OWN_FOLDS: Mapping[type[Event], Callable[[State, Any, int], Iterator[End]]] = {
    WorkerStopped: _worker_stopped,
    JobStarted: _started,
    JobPreempted: _no_longer_runs,
    PlacementRefused: _no_longer_runs,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobCancelled: _ended,
    JobRejected: _ended,
}

FOLDS: frozenset[type[Event]] = frozenset(
    {*ledger.FOLDS, *history.FOLDS, *_OWN_FOLDS, GangFormed, JobTypeProfiled}
)
"""facts that the monitor folds"""

QUIET = frozenset(kind for kind in FOLDS if kind not in _OWN_FOLDS and not issubclass(kind, NodeEvent))
"""those of `FOLDS` that decide neither the end of a job nor the loss of a node"""
