"""Which jobs a first plan leaves where they are, and what it is charged for moving the others."""

import math

import msgspec
import pytest

from schemas.events import GpusWithheld, NodeDrained, NodeLost, NodeRestored, Outcome, PlanPublished
from schemas.ids import GpuType, JobId, NodeId, PlanId, RotaId
from schemas.placement import Forked, Gang, Relaxed
from schemas.plans import Placement, PlanKind
from schemas.settings import Settings
from services.planner.core.folds import fold
from services.planner.core.restart_times import SWITCH_S
from services.planner.core.state import State
from services.planner.core.staying import Stays, charge, staying
from tests.fact_builders import (
    NODE,
    V100,
    config,
    in_queue,
    joined,
    opened,
    placement,
    plan,
    profile_run,
    worker_stopped,
)
from tests.services.planner.planner_builders import Stage
from tests.services.planner.planner_stages import carried_out, places
from tests.services.planner.planner_states import comes_up, on, runs, state_of, there

A, B, C = (JobId(name) for name in "abc")
MINIMUM = Settings(minimum_run_restarts=4.0, restart_share_max=1.0, restart_prior_s=15.0)
"""a job may be moved once it has run for 60 s, where no restart was measured"""
BUDGET = Settings(minimum_run_restarts=0.0, restart_share_max=0.1, restart_prior_s=15.0)
COPIES = Gang.of({NodeId("node-1"): 4, NodeId("node-2"): 4}, Forked(shares=(0.5, 0.5)))


def running(
    *, at: float = 100.0, gang: Gang | None = None, preemptible: bool = True, nodes: int = 1
) -> State:
    state = state_of(A, B, C, nodes=nodes, preemptible=preemptible)
    runs(state, A, gang or on(4), "pl-a", at=at)
    return state


# ---- the minimum


@pytest.mark.parametrize(("at", "stays"), [(100.0, True), (159.9, True), (160.0, False), (161.0, False)])
def test_a_job_stays_until_it_has_run_for_its_minimum(at: float, stays: bool) -> None:  # noqa: FBT001
    state = running()
    expected = Stays({A: there(state, A)}, 160.0) if stays else Stays()
    assert staying(state, at, MINIMUM) == expected


def test_a_job_that_started_with_the_cluster_stays_for_its_minimum_too() -> None:
    state = running(at=0.0)
    assert staying(state, 30.0, MINIMUM) == Stays({A: there(state, A)}, 60.0)


def test_a_planned_job_that_has_ended_stays_nowhere_and_one_that_cannot_stay_hides_no_other() -> None:
    state = state_of(A, B, nodes=2)
    runs(state, A, COPIES, "pl-a", at=100.0)
    runs(state, B, on(4), "pl-b", at=100.0)
    placements = (placement(JobId("ended"), place="pl-0"), there(state, A), there(state, B))
    fold(state, plan(*placements, plan_id=PlanId("plan-2")))
    assert list(state.claims.of_job) == [A, B]
    assert staying(state, 110.0, MINIMUM) == Stays({B: there(state, B)}, 160.0)
    closed = frozenset({NodeId(NODE)})
    assert staying(state, 1e6, MINIMUM, closed).placements == {A: there(state, A), B: there(state, B)}


def test_the_first_of_several_minimums_is_when_a_plan_may_move_more() -> None:
    state = running()
    runs(state, B, on(2), "pl-b", at=110.0)
    runs(state, C, on(2), "pl-c", at=90.0)
    found = staying(state, 120.0, MINIMUM)
    assert (set(found.placements), found.until) == ({A, B, C}, 150.0)
    found = staying(state, 155.0, MINIMUM)
    assert (set(found.placements), found.until) == ({A, B}, 160.0)


def test_the_minimum_is_of_the_restarts_that_were_measured_for_the_workload() -> None:
    """Another's slow restarts hold no job for longer."""
    state = running()
    state.restarts.started(state.jobs[A].workload, [GpuType(V100)], 70.0)
    assert staying(state, 100.0, MINIMUM).until == pytest.approx(100.0 + 4 * ((10 + 10 + 70) / 3 + 5))
    state = running()
    state.restarts.started(next(iter(state_of(A).jobs.values())).workload + "x", [GpuType(V100)], 1e6)  # type: ignore[arg-type]
    assert staying(state, 159.0, MINIMUM).until == 160.0
    assert staying(state, 160.0, MINIMUM) == Stays()


def test_without_a_minimum_and_a_budget_no_job_stays() -> None:
    settings = msgspec.structs.replace(MINIMUM, minimum_run_restarts=0.0)
    assert staying(running(), 100.0, settings) == Stays()


def test_a_job_that_comes_up_counts_as_running_from_now_on() -> None:
    state = state_of(A)
    comes_up(state, A, on(4), "pl-a", at=5.0)
    assert staying(state, 90.0, MINIMUM) == Stays({A: there(state, A)}, 150.0)


def test_a_job_that_is_only_planned_may_be_planned_anew() -> None:
    state = state_of(A)
    fold(state, plan(placement(A, place="pl-a")))
    assert staying(state, 1.0, MINIMUM) == Stays()


@pytest.mark.parametrize("settings", [MINIMUM, BUDGET])
def test_a_job_that_is_not_preemptible_stays_for_ever(settings: Settings) -> None:
    state = running(preemptible=False)
    assert staying(state, 1e6, settings) == Stays({A: there(state, A)}, math.inf)


def test_neither_limit_holds_copies_unless_their_job_is_not_preemptible() -> None:
    state = running(gang=COPIES, nodes=2)
    assert staying(state, 100.0, MINIMUM) == Stays()
    state = running(gang=COPIES, nodes=2, preemptible=False)
    assert set(staying(state, 100.0, MINIMUM).placements) == {A}


def test_no_job_stays_on_a_node_that_is_lost_or_drains() -> None:
    for fact in (NodeLost(at=101.0, node_id=NodeId(NODE)), NodeDrained(at=101.0, node_id=NodeId(NODE))):
        state = running(gang=Gang.of({NodeId("node-1"): 2, NodeId("node-2"): 2}), nodes=2, preemptible=False)
        fold(state, fact)
        assert staying(state, 102.0, MINIMUM) == Stays()


def test_no_job_stays_in_a_gang_that_has_lost_a_worker() -> None:
    state = running(gang=Gang.of({NodeId("node-1"): 2, NodeId("node-2"): 2}), nodes=2)
    fold(state, worker_stopped(A, at=101.0, place="pl-a", node_id="node-2"))
    assert staying(state, 102.0, MINIMUM) == Stays()


def test_a_job_that_runs_elsewhere_by_now_does_not_stay_where_it_is_planned() -> None:
    state = running()
    moved = msgspec.structs.replace(placement(A, place="pl-b"), gang=on(8))
    fold(state, plan(moved, plan_id=PlanId("plan-2")))
    assert staying(state, 101.0, MINIMUM) == Stays()


def test_no_job_stays_where_its_demand_does_not_fit() -> None:
    state = running(gang=on(5))
    assert staying(state, 101.0, MINIMUM) == Stays()


# ---- closed nodes


def test_what_runs_on_a_closed_node_stays_whatever_the_limits() -> None:
    state = running(nodes=2, gang=Gang.of({NodeId("node-1"): 2, NodeId("node-2"): 2}))
    runs(state, B, on(2), "pl-b", at=100.0)
    found = staying(state, 1e6, MINIMUM, frozenset({NodeId("node-2")}))
    assert found == Stays({A: there(state, A)}, math.inf)
    found = staying(state, 110.0, MINIMUM, frozenset({NodeId("node-2")}))
    assert found == Stays({A: there(state, A), B: there(state, B)}, 160.0)


# ---- rotas


def turning(place: int, rota: str = "rota-1", *, gpus: int = 4) -> Gang:
    sync = Relaxed(tasks=((1,) * gpus,), rota=RotaId(rota), place=place)
    return Gang.of({NodeId(NODE): gpus}, sync)


def test_if_one_job_of_a_rota_stays_all_do() -> None:
    state = state_of(A, B, C)
    runs(state, A, turning(0), "pl-a", at=100.0, share=0.5)
    runs(state, B, turning(1), "pl-b", share=0.5)
    runs(state, C, on(4), "pl-c")
    assert set(staying(state, 110.0, MINIMUM).placements) == {A, B}
    assert staying(state, 110.0, MINIMUM).until == 160.0
    assert staying(state, 160.0, MINIMUM) == Stays()


def test_other_rotas_and_jobs_without_one_are_not_held_by_it() -> None:
    state = state_of(A, B, C)
    runs(state, A, turning(0), "pl-a", at=100.0, share=0.5)
    runs(state, B, turning(0, "rota-2"), "pl-b")
    assert set(staying(state, 110.0, MINIMUM).placements) == {A}
    runs(state, C, on(4), "pl-c", at=109.0)
    assert set(staying(state, 165.0, MINIMUM).placements) == {C}


def test_a_job_in_other_turns_than_it_is_planned_in_stays() -> None:
    state = state_of(A)
    runs(state, A, turning(0), "pl-a", at=100.0)
    other = msgspec.structs.replace(there(state, A), gang=turning(2))
    fold(state, plan(other, kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2")))
    assert state.jobs[A].running == turning(0)
    assert staying(state, 110.0, MINIMUM) == Stays({A: other}, 160.0)


# ---- the budget


def test_while_moves_are_to_be_paid_back_no_running_job_is_moved() -> None:
    state = running()
    state.moves_from = 300.0
    for at in (150.0, 299.0):
        assert staying(state, at, BUDGET) == Stays({A: there(state, A)}, 300.0)
    assert staying(state, 300.0, BUDGET) == Stays()
    both = msgspec.structs.replace(BUDGET, minimum_run_restarts=4.0)
    assert staying(state, 150.0, both).until == 300.0
    state.moves_from = 120.0
    assert staying(state, 110.0, both).until == 160.0


def test_without_a_limit_of_the_budget_nothing_is_to_be_paid_back() -> None:
    state = running()
    state.moves_from = 300.0
    assert staying(state, 200.0, MINIMUM) == Stays()


def test_the_budget_holds_no_job_that_comes_up() -> None:
    state = state_of(A)
    comes_up(state, A, on(4), "pl-a", at=5.0)
    state.moves_from = 300.0
    assert staying(state, 90.0, BUDGET) == Stays()


def test_the_budget_holds_no_job_on_a_node_with_more_gpus_claimed_than_it_has() -> None:
    state = running(gang=on(8))
    state.moves_from = 300.0
    assert set(staying(state, 110.0, BUDGET).placements) == {A}
    fold(state, opened(profile_run(B), at=110.0))
    assert staying(state, 110.0, BUDGET) == Stays()
    assert set(staying(state, 110.0, MINIMUM).placements) == {A}


def test_a_job_on_all_gpus_but_one_that_broke_is_not_in_the_budget() -> None:
    state = running(gang=on(8))
    state.moves_from = 300.0
    fold(state, GpusWithheld(at=101.0, node_id=NodeId(NODE), gpus={0: "broken"}))
    fold(state, NodeRestored(at=101.0, node_id=NodeId(NODE)))
    assert staying(state, 110.0, BUDGET) == Stays()


# ---- what a plan is charged


def first(
    *placements: Placement, at: float = 200.0, token: int = 1, kind: PlanKind = PlanKind.FIRST
) -> PlanPublished:
    return plan(*placements, at=at, token=token, kind=kind, plan_id=PlanId("next"))


def test_a_plan_is_charged_for_each_running_job_that_it_ends() -> None:
    """15 s of 4 GPUs, and of half the time of 2; a tenth of the 8 GPUs pays it back."""
    state = running()
    runs(state, B, on(2), "pl-b", share=0.5)
    runs(state, C, on(2), "pl-c")
    charge(state, first(there(state, C)), BUDGET)
    assert state.moves_from == pytest.approx(200.0 + 15.0 * (4 + 0.5 * 2) / (0.1 * 8))


def test_a_plan_that_comes_before_others_are_paid_back_adds_to_them() -> None:
    state = running()
    state.moves_from = 500.0
    charge(state, first(), BUDGET)
    assert state.moves_from == pytest.approx(500.0 + 15.0 * 4 / (0.1 * 8))


@pytest.mark.parametrize(
    ("made", "settings"),
    [
        (first(token=7, kind=PlanKind.FRAGMENT), BUDGET),
        (first(token=6), BUDGET),
        (first(token=7), msgspec.structs.replace(BUDGET, restart_share_max=1.0)),
    ],
)
def test_only_first_plans_of_the_newest_leader_are_charged(made: PlanPublished, settings: Settings) -> None:
    state = running()
    state.token = 7
    charge(state, made, settings)
    assert state.moves_from == 0.0
    for token in (7, 8):
        before = state.moves_from
        charge(state, msgspec.structs.replace(made, token=token, kind=PlanKind.FIRST), BUDGET)
        assert state.moves_from > max(before, 200.0)


def test_a_plan_that_ends_no_running_job_costs_nothing() -> None:
    state = running()
    comes_up(state, B, on(4), "pl-b")
    charge(state, first(there(state, A)), BUDGET)
    assert state.moves_from == 0.0


def test_a_job_that_is_stopping_is_charged_once() -> None:
    state = running(nodes=2)
    charge(state, first(), BUDGET)
    paid_at = state.moves_from
    for again in (first(), first(placement(A, place="pl-b"))):
        fold(state, first())
        charge(state, again, BUDGET)
        assert state.moves_from == paid_at


def test_a_plan_does_not_pay_for_a_job_that_lost_a_worker() -> None:
    two_nodes = Gang.of({NodeId("node-1"): 4, NodeId("node-2"): 4})
    state = running(gang=two_nodes, nodes=3)
    fold(state, worker_stopped(A, place="pl-a", node_id="node-2", outcome=Outcome.FAILED))
    charge(state, first(), BUDGET)
    assert state.moves_from == 0.0


@pytest.mark.parametrize("fact", [NodeDrained, NodeLost])
def test_a_plan_does_not_pay_for_a_job_whose_node_drains_or_is_lost(
    fact: type[NodeDrained | NodeLost],
) -> None:
    state = running(nodes=2)
    fold(state, fact(at=101.0, node_id=NodeId(NODE)))
    runs(state, B, Gang.of({NodeId("node-2"): 2}), "pl-b")
    charge(state, first(placement(A, place="pl-c"), there(state, B)), BUDGET)
    assert state.moves_from == 0.0
    charge(state, first(placement(A, place="pl-c")), BUDGET)
    assert state.moves_from == pytest.approx(200.0 + 15.0 * 2 / (0.1 * 8)), "it moves B of its own accord"


def test_only_usable_nodes_pay_back() -> None:
    state = running(nodes=3)
    fold(state, NodeDrained(at=101.0, node_id=NodeId("node-2")))
    charge(state, first(), BUDGET)
    assert state.moves_from == pytest.approx(200.0 + 15.0 * 4 / (0.1 * 16))


def test_nodes_that_come_back_pay_from_then_on() -> None:
    """60 GPU-seconds: of 0.8 a second until 240 s, and of 2.4 from then on, whenever one looks."""
    state = running(nodes=3)
    for node_id in ("node-2", "node-3"):
        fold(state, NodeDrained(at=101.0, node_id=NodeId(node_id)))
    charge(state, first(), BUDGET)
    runs(state, B, on(2), "pl-b")
    assert staying(state, 239.9, BUDGET).until == pytest.approx(275.0)
    for node_id in ("node-2", "node-3"):
        fold(state, NodeRestored(at=240.0, node_id=NodeId(node_id)))
    paid_at = 240.0 + (60.0 - 0.8 * 40.0) / 2.4
    assert [staying(state, at, BUDGET).until for at in (240.0, paid_at - 0.1)] == pytest.approx([paid_at] * 2)
    assert staying(state, paid_at + 0.1, BUDGET) == Stays()


def test_nodes_that_drain_or_are_lost_pay_no_more() -> None:
    """60 GPU-seconds: of 2.4 a second until 210 s, of 1.6 until 220 s, then of 0.8."""
    state = running(nodes=3)
    charge(state, first(), BUDGET)
    runs(state, B, on(2), "pl-b")
    fold(state, NodeDrained(at=210.0, node_id=NodeId("node-2")))
    fold(state, NodeLost(at=220.0, node_id=NodeId("node-3")))
    assert staying(state, 230.0, BUDGET).until == pytest.approx(220.0 + (60.0 - 24.0 - 16.0) / 0.8)


def test_without_a_usable_node_there_is_nothing_to_pay_with() -> None:
    state = running()
    fold(state, NodeDrained(at=101.0, node_id=NodeId(NODE)))
    charge(state, first(), BUDGET)
    assert state.moves_from == 0.0


def test_copies_that_get_new_shares_are_merged_at_no_charge() -> None:
    state = running(gang=COPIES, nodes=2)
    again = msgspec.structs.replace(placement(A, place="pl-b"), gang=COPIES)
    charge(state, first(again), BUDGET)
    assert state.moves_from == 0.0
    alone = msgspec.structs.replace(again, gang=on(8))
    charge(state, first(alone), BUDGET)
    assert state.moves_from == pytest.approx(200.0 + 15.0 * 8 / (0.1 * 16))


def test_a_gang_that_is_forked_restarts() -> None:
    state = running(nodes=2)
    forked = msgspec.structs.replace(placement(A, place="pl-b"), gang=COPIES)
    charge(state, first(forked), BUDGET)
    assert state.moves_from == pytest.approx(200.0 + 15.0 * 4 / (0.1 * 16))


@pytest.mark.parametrize(("warm", "cost_s"), [(True, SWITCH_S["hare"]), (False, 15.0)])
def test_a_move_to_where_its_processes_stand_by_costs_a_switch(warm: bool, cost_s: float) -> None:  # noqa: FBT001
    settings = msgspec.structs.replace(BUDGET, switching="hare")
    state = state_of(nodes=2)
    for fact in in_queue(A, demand=(4,)):
        fold(state, fact)
    known = state.nodes[NodeId("node-2")]
    known.residents_max = 4 if warm else 0
    elsewhere = Gang.of({NodeId("node-2"): 4}, Relaxed(tasks=((1,) * 4,)))
    comes_up(state, A, elsewhere, "pl-0")
    fold(state, worker_stopped(A, place="pl-0", node_id="node-2", outcome=Outcome.CHECKPOINTED))
    state.jobs[A].ordered_at = None
    runs(state, A, on(4), "pl-a", at=100.0)
    back = msgspec.structs.replace(placement(A, place="pl-b"), gang=elsewhere)
    charge(state, first(back), settings)
    assert state.moves_from == pytest.approx(200.0 + cost_s * 4 / (0.1 * 16))


@pytest.mark.parametrize("policy", ["hops", "sia", "fifo", "gavel"])
def test_a_drain_that_was_lifted_meanwhile_takes_no_job_s_place(policy: str) -> None:
    """The plan is made while the node drains, and published when it does not any more."""
    stage = Stage(Settings(policy=policy, round_s=360.0))
    stage.tell(joined(), *in_queue(demand=(8,), preemptible=False, samples=1e9), opened())
    stage.until(5.0)
    carried_out(stage, stage.plan)
    stage.until(700.0)
    stage.tell(NodeDrained(at=700.0, node_id=NodeId(NODE)))
    stage.work_s, before = 5.0, len(stage.plans)
    stage.until(722.5)
    assert len(stage.plans) == before, "in the making"
    stage.tell(NodeRestored(at=722.6, node_id=NodeId(NODE)))
    stage.until(740.0)
    assert len(stage.plans) > before
    assert all(places(made) == {"job-1": config(node_1=8)} for made in stage.plans[before:])
