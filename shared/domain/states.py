"""The life of a job, as one table. An illegal move raises and changes nothing."""

from enum import StrEnum

from schemas.base import Event
from schemas.events import (
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
    JobTypeProfiled,
)


class JobState(StrEnum):
    SUBMITTED = "submitted"
    """accepted; its workload is to be measured, or is being measured"""
    PROFILED = "profiled"
    """measured; not yet estimated"""
    QUEUED = "queued"
    RUNNING = "running"
    PREEMPTED = "preempted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


S = JobState

ENDED = frozenset({S.COMPLETED, S.FAILED, S.CANCELLED, S.REJECTED})
WAITING = frozenset({S.QUEUED, S.PREEMPTED})

MOVES: dict[type[Event], tuple[frozenset[JobState | None], JobState]] = {
    JobSubmitted: (frozenset({None}), S.SUBMITTED),
    JobProfiled: (frozenset({S.SUBMITTED}), S.PROFILED),
    JobQueued: (frozenset({S.PROFILED}), S.QUEUED),
    JobRejected: (frozenset({S.SUBMITTED}), S.REJECTED),
    JobStarted: (WAITING, S.RUNNING),
    JobPreempted: (frozenset({S.RUNNING}), S.PREEMPTED),
    JobCompleted: (frozenset({S.RUNNING, S.PREEMPTED}), S.COMPLETED),
    JobFailed: (frozenset({S.RUNNING, *WAITING}), S.FAILED),
    JobCancelled: (frozenset(S) - ENDED, S.CANCELLED),
}
"""fact → (states that the job may be in before, state after it); None: the job is not known"""

STAYS: dict[type[Event], frozenset[JobState]] = {
    JobTypeProfiled: frozenset({S.PROFILED, S.RUNNING, *WAITING}),
    JobTypeEstimated: frozenset({S.RUNNING, *WAITING}),
    JobPriorityChanged: frozenset(S) - ENDED,
    JobHeld: frozenset(S) - ENDED,
    JobReleased: frozenset(S) - ENDED,
}
"""fact → states that the job may be in, and stays in"""


class IllegalMove(ValueError):
    """A fact about a job that cannot follow from the state the job is in."""


def next_state(state: JobState | None, fact: Event) -> JobState:
    """The state after `fact`. Raises IllegalMove where the tables have no such move."""
    stays = STAYS.get(type(fact))
    allowed, after = MOVES[type(fact)] if stays is None else (stays, state)
    if state not in allowed or after is None:
        raise IllegalMove(f"{fact.tag()} finds the job {state or 'unknown'}")
    return after
