"""Which facts are triggers. `Policy.calls` says which kind of plan a trigger calls for, if any."""

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
    JobTypeProfiled,
    NodeDrained,
    NodeJoined,
    NodeRestored,
    NodeReturned,
    PlacementRefused,
    PlanPublished,
    PreemptReason,
    ProfileFailed,
    ProfileMeasured,
    StartOrdered,
    StopOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.plans import PlanKind, Waiting
from services.planner.policies.contract.decision import Trigger

TRIGGERS: dict[type[Event], Trigger] = {
    JobQueued: Trigger.ARRIVAL,
    JobTypeEstimated: Trigger.ARRIVAL,
    JobPreempted: Trigger.FREED,
    JobCompleted: Trigger.FREED,
    JobFailed: Trigger.FREED,
    JobCancelled: Trigger.FREED,
    JobRejected: Trigger.FREED,
    JobHeld: Trigger.FREED,
    JobReleased: Trigger.ARRIVAL,
    PlacementRefused: Trigger.FREED,
    ProfileMeasured: Trigger.FREED,
    ProfileFailed: Trigger.FREED,
    WorkerStopped: Trigger.FREED,
    NodeJoined: Trigger.NODE,
    NodeReturned: Trigger.NODE,
    NodeDrained: Trigger.NODE,
    NodeRestored: Trigger.NODE,
    GpusWithheld: Trigger.NODE,
}

CALLS_FOR_NOTHING: frozenset[type[Event]] = frozenset(
    {
        *(JobSubmitted, JobProfiled, JobTypeProfiled, JobStarted, JobPriorityChanged),
        *(StartOrdered, StopOrdered, WorkerStarted, WorkerCheckpointed),
    }
)
"""facts that call for no plan and do not change when one is due; most facts are such"""


def trigger_of(fact: Event) -> Trigger | None:
    """The trigger that a fact is, or None.

    A plan is a trigger if it left jobs unconsidered, outside its window: idle GPUs may serve them. Jobs that
    it did consider would be left out again for the same reason.
    """
    if isinstance(fact, PlanPublished):
        if fact.kind is PlanKind.FRAGMENT and not fact.placements:
            return None
        considered_all = all(left.reason is not Waiting.OUTSIDE_WINDOW for left in fact.left_out)
        return None if considered_all else Trigger.FREED
    return TRIGGERS.get(type(fact))


def is_a_plans_own(fact: Event) -> bool:
    """Whether the fact is a plan or carries one out.

    Such facts call for no first plan, since with a policy that plans at events each plan would cause the
    next.
    """
    match fact:
        case PlanPublished() | WorkerStopped() | JobPreempted(reason=PreemptReason.PLAN):
            return True
        case JobPreempted(reason=PreemptReason.MERGE, cause=cause) | PlacementRefused(cause=cause):
            return cause is not None and cause.plan_id is not None
        case _:
            return False
