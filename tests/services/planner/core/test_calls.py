"""Plans that are called for by what happened, so that no job waits for an event that may never come.

The policies without rounds are the hard case: nothing but events makes them plan.
"""

import msgspec
import pytest

from schemas.base import Event
from schemas.events import NodeDrained, NodeLost, PlacementRefused, PolicyChosen, ProfilingAdded
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.plans import Cause
from schemas.settings import Settings
from services.planner.policies.contract.decision import Trigger
from services.planner.policies.registry import Registry, names, options_kind
from tests.fact_builders import in_queue, joined, opened, profile_run, refused, submitted
from tests.services.planner.planner_builders import Stage
from tests.services.planner.planner_stages import carried_out, places

J = JobId("j")
MODES = ("lockstep", "relaxed", "forked", "proportional")
WITHOUT_ROUNDS = [name for name in names() if Trigger.ROUND not in Registry().calls(name)]


def stage_of(policy: str) -> Stage:
    """Two nodes of 8 GPUs."""
    stage = Stage(Settings(policy=policy))
    stage.tell(joined("node-1", modes=MODES), joined("node-2", modes=MODES))
    stage.until(5.0)
    return stage


def other(node_id: NodeId) -> NodeId:
    return NodeId({"node-1": "node-2", "node-2": "node-1"}[node_id])


def test_some_policies_have_no_rounds() -> None:
    assert len(WITHOUT_ROUNDS) >= 10


@pytest.mark.parametrize("policy", WITHOUT_ROUNDS)
@pytest.mark.parametrize("goes", [NodeLost, NodeDrained])
def test_a_job_whose_node_goes_while_it_is_planned_is_planned_again(
    policy: str, goes: type[NodeLost | NodeDrained]
) -> None:
    stage = stage_of(policy)
    stage.work_s = 0.5
    stage.tell(*in_queue("j", at=10.0, demand=(4,)))
    stage.until(10.2)
    (choice,) = stage.at_work[0][1].decision.choices
    (node_id,) = choice.gang.nodes
    stage.tell(goes(at=10.3, node_id=node_id))
    stage.until(20.0)
    assert list(places(stage.plan)["j"]) == [other(node_id)]


@pytest.mark.parametrize("policy", WITHOUT_ROUNDS)
def test_a_drained_node_is_emptied(policy: str) -> None:
    stage = stage_of(policy)
    stage.tell(*in_queue("j", at=10.0, demand=(4,), samples=1e9))
    stage.until(20.0)
    carried_out(stage, stage.plan)
    (node_id,) = places(stage.plan)["j"]
    stage.until(4_000.0)
    stage.tell(NodeDrained(at=4_000.0, node_id=node_id))
    stage.until(4_010.0)
    assert list(places(stage.plan)["j"]) == [other(node_id)]


@pytest.mark.parametrize("policy", WITHOUT_ROUNDS)
def test_a_measurement_gets_the_gpu_of_a_running_job_where_none_is_idle(policy: str) -> None:
    """Else a workload that comes to a full cluster would wait to be measured until some job ends."""
    rigid = "rigid_demand" in options_kind(policy).__struct_fields__
    stage = Stage(Settings(policy=f"{policy}+rigid_demand=max" if rigid else policy))
    modes = MODES if policy == "hare" else ("lockstep",)
    stage.tell(joined("node-1", modes=modes), *in_queue("j", at=10.0, demand=(4, 8), samples=1e9))
    stage.until(20.0)
    carried_out(stage, stage.plan)
    stage.until(4_000.0)
    assert held(stage) == 8
    stage.tell(submitted("new", at=4_000.0), opened(profile_run("new"), at=4_320.0, number=12))
    stage.until(4_325.0)
    assert stage.plan.at > 4_320.0
    assert held(stage) <= 7
    made = len(stage.plans)
    stage.until(4_500.0)
    assert len(stage.plans) == made


@pytest.mark.parametrize("policy", WITHOUT_ROUNDS)
def test_a_measurement_that_no_job_can_make_room_for_calls_for_no_plan(policy: str) -> None:
    """Else a plan would be made every round in vain, and may move other jobs each time."""
    rigid = "rigid_demand" in options_kind(policy).__struct_fields__
    stage = Stage(Settings(policy=f"{policy}+rigid_demand=max" if rigid else policy))
    modes = MODES if policy == "hare" else ("lockstep",)
    stage.tell(joined("node-1", modes=modes))
    stage.tell(*in_queue("j", at=10.0, demand=(8,), samples=1e9, preemptible=False))
    stage.until(20.0)
    carried_out(stage, stage.plan)
    stage.until(4_000.0)
    assert held(stage) == 8
    made = len(stage.plans)
    stage.tell(submitted("new", at=4_000.0), opened(profile_run("new"), at=4_320.0, number=12))
    stage.until(4_500.0)
    assert len(stage.plans) == made


def held(stage: Stage) -> int:
    return sum(sum(place.values()) for place in places(stage.plan).values())


@pytest.mark.parametrize("policy", WITHOUT_ROUNDS)
def test_a_measurement_that_is_added_within_a_round_takes_no_gpu_from_a_job(policy: str) -> None:
    """It was meant for an idle GPU, on which a job was planned at the same time."""
    rigid = "rigid_demand" in options_kind(policy).__struct_fields__
    stage = Stage(Settings(policy=f"{policy}+rigid_demand=max" if rigid else policy))
    stage.tell(joined("node-1", modes=MODES if policy == "hare" else ("lockstep",)))
    stage.tell(*in_queue("j", at=10.0, demand=(4, 8), samples=1e9))
    stage.until(20.0)
    carried_out(stage, stage.plan)
    stage.until(4_000.0)
    made = len(stage.plans)
    run = profile_run("new")
    stage.tell(submitted("new", at=4_000.0), ProfilingAdded(at=4_010.0, round=11, number=0, runs=(run,)))
    stage.until(4_200.0)
    assert len(stage.plans) == made


@pytest.mark.parametrize("policy", WITHOUT_ROUNDS)
def test_a_measurement_on_an_idle_gpu_calls_for_no_plan(policy: str) -> None:
    stage = stage_of(policy)
    stage.tell(*in_queue("j", at=10.0, demand=(4,), samples=1e9))
    stage.until(20.0)
    carried_out(stage, stage.plan)
    stage.until(4_000.0)
    made = len(stage.plans)
    stage.tell(submitted("new", at=4_000.0), opened(profile_run("new"), at=4_320.0, number=12))
    stage.until(4_500.0)
    assert len(stage.plans) == made


@pytest.mark.parametrize("policy", ["hops", "fifo", "allox", "hare"])
def test_another_policy_plans_the_jobs_that_wait_when_it_is_chosen(policy: str) -> None:
    stage = stage_of("hadar")  # plans at rounds only
    stage.until(400.0)
    stage.tell(*in_queue("j", at=400.0, demand=(4,)))
    stage.until(500.0)
    assert "j" not in places(stage.plan)
    stage.tell(PolicyChosen(at=500.0, policy=policy))
    stage.until(510.0)
    assert "j" in places(stage.plan)


@pytest.mark.parametrize("policy", ["hops", "fifo", *WITHOUT_ROUNDS])
@pytest.mark.parametrize("event", [None, joined("node-3", at=53.0, gpus=1)])
def test_a_refused_job_is_planned_at_the_end_of_its_hold_whatever_else_happens(
    policy: str, event: Event | None
) -> None:
    stage = stage_of(policy)
    stage.tell(*in_queue("j", at=10.0, demand=(4,), samples=1e9))
    at = 20.0
    for _ in range(6):
        stage.until(at)
        place = stage.plan.placements[0].placement_id
        stage.tell(refused("j", at=at, place=place))
        refused_at, until = at, stage.core.state.jobs[J].put_off_until
        at = max(at, until) + 5.0
    assert until - refused_at == 8.0
    if event is not None:
        stage.tell(event)
    stage.until(until - 0.5)
    assert "j" not in stage.core.state.claims.of_job
    stage.until(until + 3.0)
    assert "j" in stage.core.state.claims.of_job


def test_a_planner_that_restarts_plans_a_refused_job_at_the_end_of_its_hold() -> None:
    stage = stage_of("allox")
    stage.tell(*in_queue("j", at=10.0, demand=(4,), samples=1e9))
    for at in (20.0, 30.0, 40.0, 50.0, 60.0, 70.0):
        stage.until(at)
        stage.tell(refused("j", at=at, place=stage.plan.placements[0].placement_id))
    put_off_until = stage.core.state.jobs[J].put_off_until
    assert put_off_until > stage.now + 5.0
    facts, stage.facts = stage.facts, []
    stage.replay(*facts)
    stage.lead(2)
    stage.until(put_off_until + 3.0)
    assert "j" in stage.core.state.claims.of_job


def dies(stage: Stage) -> None:
    """The planner, while it makes a plan; another begins with a snapshot of what it knew."""
    assert stage.at_work
    stage.at_work = []
    stage.restart(stage.settings)


def full_stage(policy: str) -> Stage:
    """`j` may run on all 16 GPUs, `k` has come, and its plan is in the making."""
    stage = stage_of(policy)
    stage.tell(*in_queue("j", at=10.0, demand=(4, 8, 16), samples=1e9))
    stage.until(20.0)
    carried_out(stage, stage.plan)
    stage.until(1_000.0)
    stage.work_s = 3.0
    stage.tell(*in_queue("k", at=1_000.0, demand=(4, 8, 16), samples=1e6))
    stage.until(1_001.5)
    return stage


@pytest.mark.parametrize("policy", WITHOUT_ROUNDS)
def test_a_planner_that_restarts_while_it_plans_an_arrival_makes_that_plan(policy: str) -> None:
    lives, restarts = full_stage(policy), full_stage(policy)
    dies(restarts)
    for stage in (lives, restarts):
        stage.until(1_010.0)
    assert places(restarts.plan) == places(lives.plan)
    assert restarts.plan.kind == lives.plan.kind


def test_a_planner_that_restarts_while_it_plans_for_a_node_makes_that_plan_though_no_job_waits() -> None:
    stage = Stage(Settings(policy="jps"))
    stage.tell(joined("node-1", modes=MODES), *in_queue("j", at=10.0, demand=(8, 16), samples=1e9))
    stage.until(20.0)
    carried_out(stage, stage.plan)
    stage.until(1_000.0)
    stage.work_s = 3.0
    stage.tell(joined("node-2", at=1_000.0, modes=MODES))
    stage.until(1_002.0)
    dies(stage)
    stage.until(1_010.0)
    assert places(stage.plan) == {"j": {"node-1": 8, "node-2": 8}}


def taken_back(stage: Stage, place: str) -> PlacementRefused:
    cause = Cause(plan_id=PlanId(stage.plan.plan_id))
    return msgspec.structs.replace(refused("j", at=stage.now, place=place), cause=cause)


def test_a_placement_that_a_later_plan_took_back_is_no_refusal_of_the_job() -> None:
    stage = stage_of("jps")
    stage.tell(*in_queue("j", at=10.0, demand=(4,), samples=1e9))
    stage.until(20.0)
    job = stage.core.state.jobs[J]
    for number in range(8):
        stage.tell(taken_back(stage, f"earlier-{number}"))
    assert (job.refusals, job.put_off_until) == (0, 0.0)
    assert "j" in stage.core.state.claims.of_job
    made = len(stage.plans)
    stage.until(60.0)
    assert len(stage.plans) == made  # each plan would cause the next


def test_a_measurement_that_found_no_gpu_is_no_refusal_of_the_job() -> None:
    stage = stage_of("hops")
    stage.tell(*in_queue("j", at=10.0, demand=(4,)))
    stage.core.state.claims.profiles |= {PlacementId(f"pf-{number}"): NodeId("node-1") for number in range(6)}
    for number in range(6):
        stage.tell(refused("j", at=11.0, place=f"pf-{number}"))
    assert stage.core.state.jobs[J].refusals == 0
