"""What the planner makes of copies: merged by every first plan, shown as far as they still run."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import pytest

from schemas.base import Event
from schemas.events import NodeLost, Outcome, PolicyChosen, PreemptReason
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.placement import Forked, Lockstep, Proportional
from schemas.plans import Cause, Placement, PlanKind
from schemas.settings import Settings
from services.planner.core.publication import Frame, published
from services.planner.core.state import TrackedJob
from services.planner.core.staying import staying
from services.planner.core.triggers import is_a_plans_own
from services.planner.core.viewing import view_of
from services.planner.policies.contract.decision import Decision, Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.registry import Registry, names
from tests.fact_builders import (
    JOB,
    checkpointed,
    in_queue,
    joined,
    opened,
    preempted,
    start_ordered,
    started,
    worker_started,
    worker_stopped,
)
from tests.services.planner.planner_builders import MODELLED, Stage

MODES = ("forked", "lockstep", "proportional")
ONE, TWO = NodeId("node-1"), NodeId("node-2")
SETTINGS = Settings(policy="tests.simulation.mode_policies:Copies")


def trains(*, preemptible: bool = True) -> Stage:
    """Two copies of `job-1`, on all of two nodes from 20 s on, of 10,000 samples each."""
    stage = Stage(SETTINGS)
    stage.tell(joined(modes=MODES), joined(TWO, modes=MODES))
    stage.tell(*in_queue(demand=(8,), samples=2e4, preemptible=preemptible), opened())
    [placement] = stage.plan.placements
    name = placement.placement_id
    assert placement.gang.sync == Forked(shares=(0.5, 0.5))
    both = (ONE, TWO)
    up: list[Event] = [start_ordered(at=2.0, place=name, node_id=each, until=1e4) for each in both]
    up += [worker_started(at=20.0, place=name, node_id=each, gpu_indices=range(8)) for each in both]
    stage.tell(*up, msgspec.structs.replace(started(at=20.0, place=name), gang=placement.gang))
    return stage


def apportioned(*, preemptible: bool = False, minimum_run_restarts: float = 0.0) -> Stage:
    """`job-1` on all of two nodes from 20 s on, with a sample less on the one and one more on the other."""
    policy = "tests.simulation.mode_policies:BySpeed"
    stage = Stage(Settings(policy=policy, minimum_run_restarts=minimum_run_restarts))
    stage.tell(joined(modes=MODES), joined(TWO, modes=MODES))
    stage.tell(*in_queue(demand=(16,), samples=2e6, preemptible=preemptible), opened())
    [placement] = stage.plan.placements
    assert isinstance(placement.gang.sync, Proportional)
    name = placement.placement_id
    stage.tell(*[start_ordered(at=2.0, place=name, node_id=each) for each in (ONE, TWO)])
    stage.tell(
        *[worker_started(at=20.0, place=name, node_id=each, gpu_indices=range(8)) for each in (ONE, TWO)]
    )
    stage.tell(msgspec.structs.replace(started(at=20.0, place=name), gang=placement.gang))
    return stage


def tracked(stage: Stage) -> TrackedJob:
    return stage.core.state.jobs[JobId(JOB)]


def shown(stage: Stage) -> ViewJob:
    return first_view(stage).jobs[0]


def first_view(stage: Stage, stays: Mapping[JobId, Placement] = MappingProxyType({})) -> View:
    return view_of(
        stage.core.state,
        kind=PlanKind.FIRST,
        at=stage.now,
        round_s=360.0,
        restart_s=15.0,
        policy="copies",
        effort=MODELLED,
        staying=stays,
    )


def next_round(stage: Stage, number: int = 1) -> None:
    at = 360.0 * number
    stage.until(at)
    stage.tell(opened(at=at, number=number))
    stage.until(at + 1.0)


def test_every_first_plan_merges_the_copies() -> None:
    stage = trains()
    [before] = stage.plan.placements
    next_round(stage)
    [after] = stage.plan.placements
    assert after.gang == before.gang
    assert after.placement_id != before.placement_id


def test_a_job_that_may_not_be_moved_trains_on() -> None:
    stage = trains(preemptible=False)
    [before] = stage.plan.placements
    next_round(stage)
    assert stage.plan.placements == (before,)


@pytest.mark.parametrize("policy", names())
@pytest.mark.parametrize("copies", [True, False])
def test_no_other_policy_moves_a_job_that_may_not_be_moved(policy: str, copies: bool) -> None:  # noqa: FBT001
    """Neither one that plans its mode, nor one that does not."""
    stage = trains(preemptible=False) if copies else apportioned()
    [before] = stage.plan.placements
    stage.tell(PolicyChosen(at=300.0, policy=policy), *in_queue("job-2", demand=(8,), at=301.0))
    next_round(stage)
    next_round(stage, 2)
    assert stage.plans[-1].policy == policy or Trigger.ROUND not in Registry().calls(policy)
    assert all(before in plan.placements for plan in stage.plans if plan.kind is PlanKind.FIRST)


@pytest.mark.parametrize("policy", ["fifo", "hadar", "gavel"])
def test_no_other_policy_moves_a_job_within_its_minimum_run(policy: str) -> None:
    stage = apportioned(preemptible=True, minimum_run_restarts=1e3)
    [before] = stage.plan.placements
    stage.tell(PolicyChosen(at=300.0, policy=policy))
    next_round(stage)
    assert stage.plan.policy == policy
    assert stage.plan.placements == (before,)


def test_another_policy_restarts_a_movable_job_in_lockstep() -> None:
    """So the tests above would see a job that is moved."""
    stage = trains()
    stage.tell(PolicyChosen(at=300.0, policy="fifo"))
    next_round(stage)
    [after] = stage.plan.placements
    assert after.gang.sync == Lockstep()


@pytest.mark.parametrize("configured", ["json:loads", "hops"])
def test_a_policy_in_place_of_one_that_cannot_be_loaded_leaves_jobs_of_other_modes_alone(
    configured: str,
) -> None:
    """Be it `fifo` or the configured one."""
    stage = apportioned(preemptible=True)
    [before] = stage.plan.placements
    stage.restart(Settings(policy=configured, minimum_run_restarts=0.0))
    stage.tell(PolicyChosen(at=300.0, policy="json:loads"), *in_queue("job-2", demand=(8,), at=301.0))
    next_round(stage)
    assert stage.plan.policy == ("fifo" if configured == "json:loads" else configured)
    assert stage.plan.placements == (before,)


def being_planned(*happens: Event, preemptible: bool = False) -> Sequence[Placement]:
    """What a plan makes of two copies of which it says nothing, where this happens while it is made."""
    stage = trains(preemptible=preemptible)
    state = stage.core.state
    view = first_view(stage, staying(state, 360.0, SETTINGS).placements)
    frame = Frame(
        view=view, policy="copies", token=1, made_from=0, at=361.0, notes=(), node_facts=state.node_facts
    )
    stage.tell(*happens)
    return published(state, frame, Decision(choices=())).placements


NAME = PlacementId("job-1-1-0")


@pytest.mark.parametrize(
    "happens",
    [
        worker_stopped(at=360.5, place=NAME, node_id=ONE, outcome=Outcome.QUOTA, samples_done=1e4),
        NodeLost(at=360.5, node_id=ONE),
    ],
)
def test_a_copy_lost_while_a_plan_is_made_leaves_the_others(happens: Event) -> None:
    [whole] = being_planned()
    [rest] = being_planned(happens)
    assert (whole.placement_id, whole.gang.nodes) == (NAME, (ONE, TWO))
    assert (rest.placement_id, rest.gang.nodes) == (NAME, (TWO,))
    assert rest.throughput == pytest.approx(whole.throughput / 2)


def test_a_decision_that_says_nothing_of_copies_leaves_them_training() -> None:
    """The stand-in's decision, where hadare fails."""
    assert being_planned(preemptible=True) == being_planned()


def test_a_late_fact_of_a_copy_that_was_merged_counts_no_more() -> None:
    stage = trains()
    name = stage.plan.placements[0].placement_id
    stage.tell(NodeLost(at=50.0, node_id=TWO))
    stage.tell(preempted(at=400.0, place=name, reason=PreemptReason.NODE_LOST, samples_done=5.0))
    late = worker_stopped(at=401.0, place=name, node_id=TWO, outcome=Outcome.QUOTA, samples_done=1e4)
    stage.tell(late, checkpointed(at=402.0, place=name, node_id=TWO, samples_done=1e4))
    assert tracked(stage).samples_done == 5.0


def test_merging_is_no_restart_and_has_no_budget() -> None:
    stage = trains()
    [placement] = stage.plan.placements
    merged = preempted(at=400.0, place=placement.placement_id, reason=PreemptReason.MERGE, samples_done=9.0)
    next_round(stage)
    assert stage.core.state.moves_from == 0.0
    stage.tell(merged)
    assert (tracked(stage).restarts, tracked(stage).samples_done) == (0, 9.0)
    assert tracked(stage).attained_gpu_s == 380.0 * 16


def test_the_checkpoints_of_copies_add_up() -> None:
    stage = trains()
    name = stage.plan.placements[0].placement_id
    stage.tell(checkpointed(at=50.0, place=name, node_id=ONE, samples_done=3000.0))
    stage.tell(checkpointed(at=60.0, place=name, node_id=TWO, samples_done=2000.0))
    assert tracked(stage).samples_done == 5000.0


def test_a_copy_that_ended_is_shown_no_more_and_its_gpus_are_idle() -> None:
    stage = trains()
    [placement] = stage.plan.placements
    stage.tell(
        worker_stopped(
            at=220.0,
            place=placement.placement_id,
            node_id=ONE,
            outcome=Outcome.QUOTA,
            samples_done=1e4,
        )
    )
    job = shown(stage)
    assert job.present is not None
    assert (job.present.gang.nodes, job.present.starting) == ((TWO,), False)
    assert job.present.throughput == pytest.approx(placement.throughput / 2)
    assert job.samples_done == 1e4
    assert job.attained_gpu_s == 200.0 * 16
    assert stage.core.state.claims.claimed == {TWO: 8}
    stage.now = 320.0
    assert shown(stage).attained_gpu_s == 200.0 * 16 + 100.0 * 8


@pytest.mark.parametrize("final", [True, False])
def test_a_node_where_a_copy_ran_out_of_memory_is_named_until_it_joins_again(final: bool) -> None:  # noqa: FBT001
    stage = trains()
    before = shown(stage)
    [placement] = stage.plan.placements
    failed = worker_stopped(at=220.0, place=placement.placement_id, node_id=ONE, outcome=Outcome.FAILED)
    stage.tell(msgspec.structs.replace(failed, final=final))
    assert (before.unfit, shown(stage).unfit) == (frozenset(), frozenset({ONE} if final else ()))
    stage.tell(joined(at=300.0, life="2", modes=MODES))
    assert shown(stage).unfit == frozenset()


def test_a_copy_on_a_lost_node_is_shown_no_more_and_its_gpus_stay_claimed() -> None:
    stage = trains()
    stage.tell(NodeLost(at=220.0, node_id=ONE))
    job = shown(stage)
    assert job.present is not None
    assert job.present.gang.nodes == (TWO,)
    assert stage.core.state.claims.claimed == {ONE: 8, TWO: 8}


def test_a_plan_s_own_merge_calls_for_no_first_plan_and_another_does() -> None:
    assert is_a_plans_own(
        msgspec.structs.replace(preempted(reason=PreemptReason.MERGE), cause=Cause(plan_id=PlanId("plan-1")))
    )
    assert not is_a_plans_own(preempted(reason=PreemptReason.MERGE))
