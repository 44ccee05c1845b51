"""How each fact changes the state, and which ends of jobs are published for it. The table is at the end.

The ledger takes in every fact of its own table; some change what only the monitor keeps besides.
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
from shared.domain.ledger.jobs import broken_as, is_present
from shared.domain.ledger.records import JobRecord
from shared.domain.tally import WELL

JOBS_KEPT = 10_000
"""ended jobs that figures and questions can still be about"""
PLANS_KEPT = 10_000


def fold(state: State, fact: Event, interruptions_max: int) -> list[End]:
    """Change `state` by one fact of `FOLDS`; the ends of jobs to publish for it."""
    history.note(state.history, fact, state.seq)
    ledger.fold(state.ledger, fact)
    history.remember(state.history, state.ledger, fact)
    besides = _BESIDES.get(type(fact))
    if besides is None:
        return []
    ends = [end for end in besides(state, fact, interruptions_max) if end.job_id not in state.ending]
    state.ending |= {end.job_id: end for end in ends}
    return ends


def _worker_stopped(state: State, fact: WorkerStopped, _: int) -> Iterator[End]:
    record = state.ledger.jobs.get(fact.job_id)
    speaks = record is not None and not record.ended and has_orders(state.ledger, fact)
    end = _end_of(record, fact) if record is not None and speaks else None
    if end is None:
        return
    assert record is not None, "nothing ends that is not known"
    if isinstance(end, JobCompleted) and record.present is None:
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
    _settle(state, fact.job_id)
    record = state.ledger.jobs.get(fact.job_id)
    broken = broken_as(record, fact.placement_id) if record is not None and not record.ended else None
    if record is None or broken is None or broken.outcome is not Outcome.INTERRUPTED:
        return
    if record.fruitless >= interruptions_max:
        times = f"interrupted {record.fruitless} times without a new checkpoint in between"
        reason = f"{times}, at last: {broken.reason or 'nobody knows why'}"
        yield JobFailed(at=fact.at, job_id=fact.job_id, placement_id=fact.placement_id, reason=reason)


def _ended(state: State, fact: JobEvent, _: int) -> Iterator[End]:
    _settle(state, fact.job_id)
    state.early.pop(fact.job_id, None)
    record = state.ledger.jobs.get(fact.job_id)
    if record is not None and record.ended:
        history.forget_runs(state.history, state.ledger.jobs, fact.job_id)
    ledger.forget(state.ledger, keep_jobs=JOBS_KEPT, keep_plans=PLANS_KEPT)
    yield from ()


def _settle(state: State, job_id: JobId) -> None:
    """Drop an end that has come back from the stream or is void."""
    record = state.ledger.jobs.get(job_id)
    end = state.ending.get(job_id)
    if end is not None and (record is None or record.ended or not is_present(record, end.placement_id)):
        del state.ending[job_id]


def _end_of(record: JobRecord, fact: WorkerStopped) -> End | None:
    """The end of the job that follows from a worker's end; None for a measurement or an earlier placement.

    One failed worker fails the gang, even while the gang is coming up; and the job, once it has no retries.
    Of copies that train, the one that ends last decides, as the ledger has it.
    """
    if not is_present(record, fact.placement_id):
        return None
    if record.tally.copies and record.present is not None:
        return _end_of_copies(record, fact)
    if fact.outcome is Outcome.COMPLETED and fact.leads:
        return JobCompleted(
            at=fact.at,
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
    """The job is complete when what all copies did is all there is to do; it failed as its last copy did."""
    if fact.outcome in WELL:
        done = record.tally.merged(record.spec.samples)
        if not record.tally.complete(record.spec.samples):
            return None
        return JobCompleted(at=fact.at, job_id=fact.job_id, placement_id=fact.placement_id, samples_done=done)
    return _failed(record, fact) if record.tally.wasted else None


_BESIDES: Mapping[type[Event], Callable[[State, Any, int], Iterator[End]]] = {
    WorkerStopped: _worker_stopped,
    JobStarted: _started,
    JobPreempted: _no_longer_runs,
    PlacementRefused: _no_longer_runs,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobCancelled: _ended,
    JobRejected: _ended,
}

FOLDS: frozenset[type[Event]] = frozenset({*ledger.FOLDS, *history.FOLDS, *_BESIDES, GangFormed})
"""facts that change the state"""

QUIET = frozenset(kind for kind in FOLDS if kind not in _BESIDES and not issubclass(kind, NodeEvent))
"""those of them that end no job and have no part in when one ends or a node is lost"""
