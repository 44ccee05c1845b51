"""Which facts are triggers, and which a plan caused itself."""

import msgspec
import pytest

from schemas.base import Event
from schemas.events import JobPreempted, JobRejected, NodeDrained, PlacementRefused, PreemptReason
from schemas.ids import JobId, NodeId, PlanId
from schemas.plans import Cause, LeftOut, PlanKind, Waiting
from services.planner.core.triggers import CALLS_FOR_NOTHING, TRIGGERS, is_a_plans_own, trigger_of
from services.planner.policies.contract.decision import Trigger
from tests.fact_builders import (
    JOB,
    NODE,
    completed,
    joined,
    left_out,
    placement,
    plan,
    preempted,
    queued,
    refused,
    started,
    type_estimated,
    type_profiled,
    worker_stopped,
)


def test_a_fact_that_is_a_trigger_changes_when_a_plan_is_due() -> None:
    assert not CALLS_FOR_NOTHING & TRIGGERS.keys()


@pytest.mark.parametrize(
    ("fact", "trigger"),
    [
        (queued(), Trigger.ARRIVAL),
        (type_estimated(), Trigger.ARRIVAL),
        (type_profiled(), None),
        (completed(), Trigger.FREED),
        (JobRejected(at=0.0, job_id=JobId(JOB), reason="it runs on no GPU type"), Trigger.FREED),
        (preempted(), Trigger.FREED),
        (worker_stopped(), Trigger.FREED),
        (joined(), Trigger.NODE),
        (NodeDrained(at=0.0, node_id=NodeId(NODE)), Trigger.NODE),
        (started(), None),
    ],
)
def test_a_fact_is_the_trigger_of_its_kind(fact: Event, trigger: Trigger | None) -> None:
    assert trigger_of(fact) is trigger


OUTSIDE = left_out("outside", reason=Waiting.OUTSIDE_WINDOW)
CONSIDERED = left_out("considered", reason=Waiting.NO_CONFIGURATION)


@pytest.mark.parametrize(
    ("left", "trigger"),
    [
        ((), None),
        *(((left_out(reason=reason),), None) for reason in Waiting if reason is not Waiting.OUTSIDE_WINDOW),
        ((OUTSIDE,), Trigger.FREED),
        ((CONSIDERED, OUTSIDE), Trigger.FREED),
    ],
)
def test_a_plan_that_left_jobs_unconsidered_is_a_trigger(
    left: tuple[LeftOut, ...], trigger: Trigger | None
) -> None:
    first = plan(left_out=left)
    assert first.kind is PlanKind.FIRST
    assert trigger_of(first) is trigger
    assert trigger_of(plan(placement(), left_out=left, kind=PlanKind.FRAGMENT)) is trigger


def test_a_fragment_plan_that_placed_no_job_is_no_trigger() -> None:
    """Else it would cause the same plan again and again."""
    assert trigger_of(plan(left_out=(OUTSIDE,), kind=PlanKind.FRAGMENT)) is None


BY_PLANS = (PreemptReason.PLAN, PreemptReason.MERGE)
BY_PLAN = Cause(plan_id=PlanId("plan-1"))
BY_NODE = Cause(node=NodeId(NODE))
"""of copies that are merged since the last one's node is lost"""


def ended(reason: PreemptReason, cause: Cause | None = None) -> JobPreempted:
    return msgspec.structs.replace(preempted(reason=reason), cause=cause)


def taken_back(cause: Cause | None = None) -> PlacementRefused:
    return msgspec.structs.replace(refused(), cause=cause)


@pytest.mark.parametrize(
    ("fact", "own"),
    [
        (ended(PreemptReason.PLAN), True),
        (ended(PreemptReason.PLAN, BY_PLAN), True),
        (ended(PreemptReason.MERGE, BY_PLAN), True),
        (ended(PreemptReason.MERGE, BY_NODE), False),
        (ended(PreemptReason.MERGE), False),
        *((ended(reason, BY_NODE), False) for reason in PreemptReason if reason not in BY_PLANS),
        *((ended(reason, BY_PLAN), False) for reason in PreemptReason if reason not in BY_PLANS),
        (taken_back(BY_PLAN), True),
        (taken_back(BY_NODE), False),
        (taken_back(), False),
        (plan(), True),
        (worker_stopped(), True),
        (queued(), False),
        (completed(), False),
    ],
)
def test_what_carries_out_a_plan_is_its_own(fact: Event, own: bool) -> None:  # noqa: FBT001
    assert is_a_plans_own(fact) is own
