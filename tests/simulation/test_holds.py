"""A job is submitted on hold, or put on hold while it runs, given another priority, and released."""

from typing import TypeGuard

import pytest

from loadgen.fault_injection import Stack
from loadgen.scenarios import arrivals, load_scenario
from loadgen.simulation import simulate
from schemas.base import Event
from schemas.events import (
    JobCompleted,
    JobEvent,
    JobHeld,
    JobPreempted,
    JobPriorityChanged,
    JobProfiled,
    JobQueued,
    JobReleased,
    JobStarted,
    JobSubmitted,
    PlanPublished,
)
from schemas.plans import Waiting
from schemas.views import Submitted
from services.admission.questions import SetHold, SetPriority, SubmitHeld
from shared.domain.audit import audit
from shared.domain.ledger import ledger_of

TINY = load_scenario("tiny")
ROUND_S, HOLD_S = 120.0, 2_000.0


async def hold_and_release(stack: Stack) -> None:
    """Of the first job that runs."""
    while not (running := [fact for fact in stack.stored(0) if isinstance(fact, JobStarted)]):
        await stack.sleep(10.0)
    job_id = running[0].job_id
    await stack.sleep(30.0)
    await stack.put_to("admission", SetHold(job_id=job_id, held=True))
    await stack.sleep(HOLD_S / 2)
    await stack.put_to("admission", SetPriority(job_id=job_id, priority=9.0))
    await stack.sleep(HOLD_S / 2)
    await stack.put_to("admission", SetHold(job_id=job_id, held=False))


async def submit_on_hold(stack: Stack) -> None:
    """The first job of all, of a workload that others have too."""
    job = arrivals(TINY, seed=1)[0].job
    answer = await stack.put_to("admission", SubmitHeld(job=job, key="held"))
    assert isinstance(answer, Submitted)
    await stack.sleep(HOLD_S)
    await stack.put_to("admission", SetHold(job_id=answer.job_id, held=False))


def made_before(fact: Event, released: JobReleased) -> TypeGuard[PlanPublished]:
    return isinstance(fact, PlanPublished) and fact.at < released.at


@pytest.mark.parametrize("policy", ["hops", "las", "hare"])
def test_a_job_that_is_submitted_on_hold_is_neither_measured_nor_planned_before_its_release(
    policy: str,
) -> None:
    ran, other = (
        simulate(TINY, policy=policy, disturb=[submit_on_hold], engine=engine)
        for engine in ("conductor", "loop")
    )
    assert ran.result.event_log_hash == other.result.event_log_hash
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
    [held] = [fact for fact in ran.events if isinstance(fact, JobSubmitted) and fact.on_hold]
    own = [fact for fact in ran.events if getattr(fact, "job_id", None) == held.job_id]
    [released] = [fact for fact in own if isinstance(fact, JobReleased)]
    before = own[: own.index(released)]
    assert {type(fact) for fact in before} <= {JobSubmitted, JobProfiled, JobQueued}
    assert isinstance(own[-1], JobCompleted)
    planned = {one.job_id for fact in ran.events if made_before(fact, released) for one in fact.placements}
    assert held.job_id not in planned
    assert planned
    assert ledger_of(ran.events).jobs[held.job_id].on_hold_s == pytest.approx(released.at - held.at)


@pytest.mark.parametrize("policy", ["hops", "gavel", "sia", "hare", "allox", "jps", "tiresias", "yarn-cs"])
def test_a_running_job_on_hold_saves_and_stops_and_goes_on_once_it_is_released(policy: str) -> None:
    ran, other = (
        simulate(TINY, policy=policy, disturb=[hold_and_release], engine=engine)
        for engine in ("conductor", "loop")
    )
    assert ran.result.event_log_hash == other.result.event_log_hash
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
    [held] = [fact for fact in ran.events if isinstance(fact, JobHeld)]
    own = [fact for fact in ran.events if isinstance(fact, JobEvent) and fact.job_id == held.job_id]
    own = own[own.index(held) :]
    assert [type(fact) for fact in own[:5]] == [
        *(JobHeld, JobPreempted, JobPriorityChanged, JobReleased, JobStarted)
    ]
    assert isinstance(own[-1], JobCompleted)
    stopped, released = own[1], own[3]
    assert isinstance(stopped, JobPreempted)
    assert stopped.at - held.at < ROUND_S + 60.0
    assert stopped.samples_done > 0
    assert stopped.cause is not None
    assert stopped.cause.on_hold
    plans = [fact for fact in ran.events if isinstance(fact, PlanPublished)]
    between = [made for made in plans if held.at < made.at < released.at]
    assert held.job_id not in {placement.job_id for made in between for placement in made.placements}
    reasons = {left.reason for made in between for left in made.left_out if left.job_id == held.job_id}
    assert reasons == {Waiting.ON_HOLD}
    record = ledger_of(ran.events).jobs[held.job_id]
    assert record.on_hold_s == pytest.approx(released.at - stopped.at)
