"""The ledger: a fold from the stream of facts to jobs, nodes and plans with their times.

The monitor keeps a ledger while the system runs; a simulation's report makes one afterwards. Both use this
fold, so both get the same figures. A fact that the table of states does not allow changes nothing and is
counted: of several facts that end a job the first one wins.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schemas.base import Event
from schemas.events import (
    GpusWithheld,
    JobCancelled,
    JobCompleted,
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
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    NodeReturned,
    PlacementRefused,
    PlanPublished,
    PolicyChosen,
    ProfileFailed,
    ProfileMeasured,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from shared.domain.ledger import cluster, jobs
from shared.domain.ledger.records import Ledger

__all__ = ["FOLDS", "Ledger", "fold", "forget_jobs", "forget_plans", "ledger_of"]


def ledger_of(facts: Iterable[Event]) -> Ledger:
    """The ledger of a whole log."""
    ledger = Ledger()
    for fact in facts:
        fold(ledger, fact)
    return ledger


def fold(ledger: Ledger, fact: Event) -> None:
    """Enter one fact. Of kinds that change no figure only the time counts."""
    ledger.at = max(ledger.at, fact.at)
    enter = FOLDS.get(type(fact))
    if enter is not None:
        enter(ledger, fact)


def forget_plans(ledger: Ledger, *, keep: int) -> None:
    """Keep about the newest `keep` plans; figures are then about these.

    A tenth more is kept before any is dropped, so calls are cheap.
    """
    if len(ledger.plans) > keep * 1.1:
        del ledger.plans[:-keep]


def forget_jobs(ledger: Ledger, *, keep: int) -> None:
    """The same with ended jobs."""
    if len(ledger.jobs) <= keep * 1.1:
        return
    ended = [record for record in ledger.jobs.values() if record.ended]
    if len(ended) <= keep * 1.1:
        return
    ended.sort(key=lambda record: record.ended_at or 0.0)
    for record in ended[:-keep]:
        ledger.forgotten[record.state] = ledger.forgotten.get(record.state, 0) + 1
        del ledger.jobs[record.job_id]


FOLDS: Mapping[type[Event], Callable[[Ledger, Any], None]] = {
    JobSubmitted: jobs.submit,
    JobProfiled: jobs.profile,
    JobQueued: jobs.queue,
    JobTypeEstimated: jobs.enter_type,
    JobPriorityChanged: jobs.change_priority,
    JobHeld: jobs.hold,
    JobReleased: jobs.release,
    JobStarted: jobs.start,
    JobPreempted: jobs.preempt,
    JobCompleted: jobs.end,
    JobFailed: jobs.end,
    JobCancelled: jobs.end,
    JobRejected: jobs.end,
    PlanPublished: cluster.plan,
    PolicyChosen: cluster.choose_policy,
    PlacementRefused: cluster.refuse,
    ProfilingPlanned: cluster.open_round,
    ProfilingAdded: cluster.add_measurements,
    ProfileMeasured: cluster.measure,
    ProfileFailed: cluster.measure,
    NodeJoined: cluster.join,
    NodeLost: cluster.lose,
    NodeReturned: cluster.change,
    NodeDrained: cluster.change,
    NodeRestored: cluster.change,
    NodeRemoved: cluster.change,
    GpusWithheld: cluster.change,
    StartOrdered: cluster.order_start,
    StopOrdered: cluster.order_stop,
    TurnsOrdered: cluster.turn,
    WorkerStarted: cluster.start_worker,
    WorkerCheckpointed: cluster.checkpoint,
    WorkerStopped: cluster.stop_worker,
}
