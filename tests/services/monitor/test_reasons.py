"""What the reason follows from: place in the queue, holders, plans, and the ends of earlier runs."""

import msgspec
import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.base import Event
from schemas.events import NodeDrained, PlanPublished, PreemptReason
from schemas.ids import JobId, PlanId
from schemas.plans import Beneficiary, Cause, Measures, PlanKind, Standing, Waiting
from schemas.questions import ExplainJob, ShowJob
from schemas.views import JobView, WhyView
from services.monitor.folds import FOLDS, fold
from services.monitor.reasons import PREEMPTIONS_SHOWN, why
from services.monitor.state import State
from tests.fact_builders import (
    JOB,
    K80,
    NODE,
    V100,
    completed,
    config,
    in_queue,
    joined,
    left_out,
    lost,
    placement,
    plan,
    preempted,
    profiled,
    queued,
    refused,
    started,
    stop_ordered,
    submitted,
    worker_started,
)
from tests.services.monitor.monitor_world import World

HOLDER = "job-9"
MINE, THEIRS = Standing(priority=0.5, gain=1.5), Standing(priority=2.0, gain=4.0)
MEASURES = Measures(priority="latency ratio", gain="gain")


def held() -> list[Event]:
    """One node of four GPUs; the first plan gives two to a job and leaves another out."""
    return [
        joined(gpus=4),
        *in_queue(HOLDER, at=1.0),
        *in_queue(at=2.0),
        plan(
            placement(HOLDER, place="pl-9", on=config(node_1=2)),
            at=10.0,
            left_out=(left_out("other"), left_out(held_by=[HOLDER])),
            measures=MEASURES,
            standings={JobId(JOB): MINE, JobId(HOLDER): THEIRS},
        ),
        started(HOLDER, at=20.0, place="pl-9", on=config(node_1=2)),
    ]


def explained(*facts: Event, now: float = 100.0, job_id: str = JOB) -> WhyView:
    world = World(*facts)
    world.now = now
    view = world.ask(ExplainJob(job_id=JobId(job_id)))
    assert isinstance(view, WhyView)
    return view


def test_a_job_left_out_shows_its_place_and_its_standing() -> None:
    view = explained(*held())
    assert (view.position, view.queue_length, view.standing, view.wait_s) == (2, 2, MINE, 98.0)
    assert view.plan is not None
    assert (view.plan.plan_id, view.plan.measures) == ("plan-1", MEASURES)


def test_holders_come_with_their_gpus_and_their_standing() -> None:
    [holder] = explained(*held()).holders
    assert (holder.job_id, holder.gpus, holder.started_at, holder.standing) == (HOLDER, 2, 20.0, THEIRS)
    assert holder.submitted_at == 1.0


def test_a_holder_that_has_ended_holds_nothing() -> None:
    assert explained(*held(), completed(HOLDER, at=50.0, place="pl-9")).holders == ()


def test_a_holder_whose_run_ended_with_its_node_holds_nothing() -> None:
    gone = preempted(HOLDER, at=50.0, place="pl-9", reason=PreemptReason.NODE_LOST)
    assert explained(*held(), joined("node-2"), lost(at=50.0), gone).holders == ()


def test_the_reason_holds_since_the_first_plan_that_said_so() -> None:
    again = plan(at=40.0, plan_id=PlanId("plan-2"), left_out=(left_out(held_by=[HOLDER]),))
    other = plan(at=60.0, plan_id=PlanId("plan-3"), left_out=(left_out(reason=Waiting.OUTSIDE_WINDOW),))
    assert explained(*held(), again).since == 10.0
    assert explained(*held(), again, other).since == 60.0


def test_a_job_is_starting_since_the_plan_that_placed_it_and_its_last_run_s_end() -> None:
    placed = plan(placement(), at=50.0, plan_id=PlanId("plan-2"))
    assert explained(*held(), placed).since == 50.0
    moved = plan(placement(HOLDER, place="pl-2"), at=60.0, plan_id=PlanId("plan-2"))
    view = explained(*held(), moved, preempted(HOLDER, at=70.0, place="pl-9"), job_id=HOLDER)
    assert (view.reason, view.since) == ("starting", 70.0)


def test_a_job_waits_for_a_node_since_the_last_one_could_not_be_used() -> None:
    drained = NodeDrained(at=40.0, node_id=NODE)
    view = explained(*held(), joined("node-2"), lost("node-2", at=30.0), drained, lost(at=50.0))
    assert (view.reason, view.since) == ("no-nodes", 40.0)
    assert explained(submitted(), joined(), drained, profiled(at=41.0), queued(at=42.0)).since == 40.0
    assert explained(joined(), drained, *in_queue(at=60.0)).since == 60.0
    assert explained(joined(), *in_queue(at=10.0, gpu_types=(K80,))).since == 10.0
    ran = [started(at=20.0), lost(at=30.0), preempted(at=31.0)]
    assert explained(joined(), *in_queue(), *ran).since == 31.0


def test_while_it_waits_for_a_node_no_other_reason_holds() -> None:
    assert explained(submitted(), joined(at=60.0)).since == 60.0
    assert explained(submitted(), joined(at=60.0), joined("node-2", at=70.0)).since == 60.0
    back = [lost(at=40.0), joined(at=50.0, life="2")]
    view = explained(*held(), *back)
    assert (view.reason, view.since) == ("outweighed", 50.0)


def test_a_refused_job_that_is_held_back_stays_refused() -> None:
    """The planner leaves it out of the views of the next plans, which then say nothing about it."""
    facts = [joined(), *in_queue(), plan(placement()), refused(at=20.0)]
    view = explained(*facts, plan(at=30.0, plan_id=PlanId("plan-2")))
    assert (view.reason, view.since) == ("refused", 20.0)
    view = explained(*facts, fragment(Waiting.NO_CONFIGURATION))
    assert (view.reason, view.since) == ("no-configuration", 40.0)


def fragment(reason: Waiting) -> PlanPublished:
    kind = PlanKind.FRAGMENT
    return plan(at=40.0, plan_id=PlanId("plan-2"), kind=kind, left_out=(left_out(reason=reason),))


def test_a_fragment_plan_without_room_leaves_the_reason_to_the_first_plan() -> None:
    view = explained(*held(), fragment(Waiting.NO_CONFIGURATION))
    assert (view.reason, view.plan_id, view.standing) == ("outweighed", "plan-1", MINE)
    assert explained(*held(), fragment(Waiting.OUTSIDE_WINDOW)).plan_id == "plan-2"
    next_round = plan(at=60.0, plan_id=PlanId("plan-3"), left_out=(left_out(held_by=[HOLDER]),))
    assert explained(*held(), fragment(Waiting.NO_CONFIGURATION), next_round).since == 10.0


def test_a_job_that_came_within_the_round_has_the_fragment_plan_s_reason() -> None:
    facts = [joined(gpus=4), plan(), *in_queue(at=20.0), fragment(Waiting.NO_CONFIGURATION)]
    assert explained(*facts).reason == "no-configuration"


ONLY_MIXED = "so only a policy that mixes GPU types can place it"


@pytest.mark.parametrize(("gpus", "said"), [(4, None), (3, ONLY_MIXED), (2, "too few for it")])
def test_a_job_that_no_type_alone_can_hold_says_so(gpus: int, said: str | None) -> None:
    cluster = [joined("node-1", gpus=gpus), joined("node-2", gpus=1, gpu_type=K80)]
    left = msgspec.structs.replace(left_out(reason=Waiting.NO_CONFIGURATION), detail="")
    wide = in_queue(demand=(4, 8), gpu_types=(V100, K80))
    view = explained(*cluster, *wide, plan(left_out=(left,)))
    there = f"it needs at least 4 GPUs; of the types that it may use there are 1 k80, {gpus} v100"
    assert (view.reason, view.detail) == ("no-configuration", f"{there}, {said}" if said else "")


def test_a_running_job_names_the_plan_that_placed_it_and_not_the_newest() -> None:
    kept = plan(placement(HOLDER, place="pl-9", on=config(node_1=2)), at=30.0, plan_id=PlanId("plan-2"))
    view = explained(*held(), kept, job_id=HOLDER)
    assert (view.plan_id, view.standing, view.since) == ("plan-1", THEIRS, 20.0)
    assert view.gang is not None
    assert view.estimated_throughput == 10.0


def test_a_starting_job_names_the_jobs_still_stopping_on_its_nodes() -> None:
    facts = [
        joined(gpus=4),
        *in_queue(HOLDER),
        started(HOLDER, place="pl-9"),
        worker_started(HOLDER, place="pl-9"),
        *in_queue(),
        plan(placement(), at=10.0),
        stop_ordered(HOLDER, at=11.0, place="pl-9"),
    ]
    view = explained(*facts)
    assert (view.reason, view.plan_id) == ("starting", "plan-1")
    assert view.detail == "placed on node-1 (1 GPU); still stopping there: job-9 on node-1"


CAUSE = Cause(
    plan_id=PlanId("plan-2"),
    to=(Beneficiary(job_id=JobId("winner"), gpus=2, standing=THEIRS),),
    measures=MEASURES,
)


def stopped(cause: Cause | None, reason: PreemptReason = PreemptReason.PLAN) -> Event:
    return msgspec.structs.replace(
        preempted(HOLDER, at=70.0, place="pl-9", reason=reason, samples_done=300.0), cause=cause
    )


def test_a_preempted_job_says_where_it_ran_and_which_job_took_its_gpus() -> None:
    moved = explained(*held(), stopped(CAUSE), job_id=HOLDER).last_preemption
    assert moved is not None
    assert (moved.started_at, moved.at, moved.samples_done, moved.cause) == (20.0, 70.0, 300.0, CAUSE)
    assert moved.gang.configuration == config(node_1=2)


def test_the_moves_of_a_job_are_shown_only_when_it_is_asked_for_alone() -> None:
    world = World(*held(), stopped(None, PreemptReason.NODE_LOST))
    view = world.ask(ShowJob(job_id=JobId(HOLDER)))
    assert isinstance(view, JobView)
    assert [(move.reason, move.cause) for move in view.preemptions] == [(PreemptReason.NODE_LOST, None)]


def test_moves_are_bounded() -> None:
    runs = [
        fact
        for number in range(PREEMPTIONS_SHOWN + 5)
        for fact in (
            started(HOLDER, at=100.0 + number, place=f"p-{number}"),
            preempted(HOLDER, at=100.5 + number, place=f"p-{number}"),
        )
    ]
    world = World(joined(gpus=4), *in_queue(HOLDER), *runs)
    view = world.ask(ShowJob(job_id=JobId(HOLDER)))
    assert isinstance(view, JobView)
    assert [move.at for move in view.preemptions] == [
        100.5 + number for number in range(5, PREEMPTIONS_SHOWN + 5)
    ]


@pytest.mark.parametrize("policy", ["hops", "sia", "gavel", "tiresias", "las", "fifo", "yarn-cs"])
def test_every_policy_can_say_why_of_every_job_at_any_time(policy: str) -> None:
    state, seen = State(), set()
    for fact in simulate(load_scenario("tiny"), policy=policy).events:
        if type(fact) in FOLDS:
            fold(state, fact, interruptions_max=3)
        if not isinstance(fact, PlanPublished):
            continue
        for record in state.ledger.jobs.values():
            view = why(state.ledger, record, None, fact.at)
            seen.add(view.reason)
            assert view.detail or view.reason in set(Waiting)
            assert view.since is None or view.since <= fact.at
            assert view.position is None or 1 <= view.position <= (view.queue_length or 0)
            if view.state == "running":
                assert view.plan is not None, "what runs was planned"
    assert {"running", "completed"} <= seen
