"""What the policies decide: each thing that the paper leaves open, and the options."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import settings as limits

from schemas.ids import JobId
from schemas.plans import Stage, Waiting
from services.planner.policies.contract.view import View
from services.planner.policies.hadar.jobs import mean_speed, value
from services.planner.solver.effort import Effort
from tests.services.planner.planner_builders import chosen, decide, job, node, present, silent, view
from tests.services.planner.planner_views import views
from tests.services.planner.policies.hadar.hadar_builders import (
    PRINTED,
    A,
    B,
    C,
    Model,
    cluster,
    planned,
    running_on,
    seen,
    speeds_of,
    view_job,
)

POLICIES = ("hadar", "hadar-literal", "hadar-delay")
TWO_TYPES = cluster(k=2, v=2)
LONG = Model(2, (4.0, 4.0), 800)


# ---- whole decisions


@pytest.mark.parametrize("policy", POLICIES)
def test_the_worked_example(policy: str) -> None:
    decision = planned({"a": A, "b": B, "c": C}, TWO_TYPES, policy, **PRINTED)
    assert chosen(decision) == {"a": {"v": 2}, "b": {"k": 1}}
    assert {choice.job_id: choice.throughput for choice in decision.choices} == {"a": 8.0, "b": 2.0}
    assert [(left.job_id, left.reason) for left in decision.left] == [("c", Waiting.OUTWEIGHED)]
    assert decision.configurations == 8


def test_value_bound_gap_and_standings_are_published() -> None:
    decision = planned({"a": A, "b": B, "c": C}, TWO_TYPES, **PRINTED)
    assert decision.objective == pytest.approx(9.997803, abs=1e-6)
    assert decision.bound == pytest.approx(12.997070, abs=1e-6)
    assert decision.gap == pytest.approx(1 - 9.997803 / 12.997070, abs=1e-6)
    assert decision.stage is Stage.INCUMBENT
    stood = decision.standings[JobId("c")]
    assert stood.numbers == pytest.approx((2.997803 / 3, 2.997803), abs=1e-6)
    assert stood.stay is None


def test_a_bound_that_is_met_says_optimal() -> None:
    decision = planned({"a": A}, TWO_TYPES, **PRINTED)
    assert decision.stage is Stage.OPTIMAL
    assert decision.gap == pytest.approx(0.0, abs=1e-9)


def test_a_gang_mixes_types_and_runs_at_the_pace_of_the_slowest() -> None:
    models = {"c": C}
    [choice] = planned(models, TWO_TYPES, **PRINTED).choices
    assert choice.gang.configuration == {"v": 2, "k": 1}
    assert choice.throughput == 3.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cluster_of_one_type_has_no_mixed_gangs(policy: str) -> None:
    nodes = cluster(v0=4, v1=4)
    models = {name: Model(gpus, (1.0,), 50) for name, gpus in (("a", 3), ("b", 3), ("c", 2))}
    decision = planned(models, nodes, policy)
    assert {choice.throughput for choice in decision.choices} == {3.0, 2.0}
    assert sum(choice.gang.gpus for choice in decision.choices) == 8


# ---- what the paper leaves open


@pytest.mark.parametrize(("rule", "gpus"), [("min", 1), ("median", 2), ("max", 4)])
def test_an_elastic_demand_is_one_count_of_those_that_fit(rule: str, gpus: int) -> None:
    shown = seen({}, TWO_TYPES)
    own = job("a", (1, 2, 4, 8), gpu_types=("k", "v"), samples=16.0)
    decision = planned(
        {"a": A}, TWO_TYPES, given=msgspec.structs.replace(shown, jobs=(own,)), rigid_demand=rule
    )
    assert decision.choices[0].gang.gpus == gpus


def test_types_count_together_where_a_gang_may_mix_and_only_usable_ones() -> None:
    decision = planned({"all": Model(4, (1.0, 1.0), 4), "v": Model(3, (0.0, 1.0), 3)}, TWO_TYPES, **PRINTED)
    assert chosen(decision) == {"all": {"k": 2, "v": 2}}
    assert [(left.job_id, left.reason) for left in decision.left] == [("v", Waiting.NO_CONFIGURATION)]


def test_utilities_are_comparable_between_models_unless_they_are_raw() -> None:
    """A model of many small samples against one of few large ones: one GPU, the second is the shorter."""
    models = {"few": Model(1, (1.0,), 10), "many": Model(1, (1000.0,), 100_000)}
    alone = cluster(v=1)
    assert set(chosen(planned(models, alone, utility="normalised", restart_s=0))) == {"few"}
    assert set(chosen(planned(models, alone, utility="inverse", restart_s=0))) == {"few"}
    assert set(chosen(planned(models, alone, utility="raw", restart_s=0))) == {"many"}


def test_the_value_of_a_job_falls_with_its_completion_time() -> None:
    assert mean_speed((4.0, 1.0, 0.0), (2, 2, 8)) == 2.5
    assert value(20.0, 5.0, float("inf")) == 4.0
    assert value(20.0, 5.0, 3.0) == pytest.approx(20 / 5 - 20 / 8)


def test_with_the_delay_at_stake_a_short_job_that_waited_goes_before_a_long_one() -> None:
    """One GPU. The long one's whole utility is nearly 1; a slot of delay costs it hardly anything."""
    models = {"long": Model(1, (1.0,), 1000.0), "short": Model(1, (1.0,), 1.0, -10.0)}
    assert set(chosen(planned(models, cluster(v=1), stake="total", restart_s=0))) == {"long"}
    assert set(chosen(planned(models, cluster(v=1), stake="delay", restart_s=0))) == {"short"}


def test_the_queue_is_by_payoff_a_gpu_or_by_arrival() -> None:
    """Only the best place of each: with B first A is left the slow GPUs."""
    models = {"1b": B, "2a": A, "3c": C}
    by_payoff = planned(models, TWO_TYPES, **PRINTED)
    by_arrival = planned(models, TWO_TYPES, **PRINTED, order="arrival")
    assert by_payoff.objective == pytest.approx(9.997803, abs=1e-6)
    assert by_arrival.objective == pytest.approx(7.998535, abs=1e-6)
    assert all(standing.priority is None for standing in by_arrival.standings.values())


def test_paid_to_its_end_a_long_job_leaves_idle_gpus_idle() -> None:
    models = {"now": Model(3, (4.0,), 12), "long": Model(1, (4.0,), 80_000)}
    nodes = cluster(v=4)
    assert len(planned(models, nodes, **PRINTED).choices) == 2
    assert set(chosen(planned(models, nodes, **PRINTED, cost_over="finish"))) == {"now"}


def test_a_running_job_is_placed_again_unless_only_waiting_ones_are() -> None:
    slow = view_job("a", Model(2, (1.0, 4.0), 1600), ("k", "v"), present=present(k=2))  # type: ignore[arg-type]
    shown = msgspec.structs.replace(seen({}, TWO_TYPES), jobs=(slow,))
    models = {"a": Model(2, (1.0, 4.0), 1600)}
    assert chosen(planned(models, TWO_TYPES, given=shown)) == {"a": {"v": 2}}
    assert chosen(planned(models, TWO_TYPES, given=shown, requeue="waiting")) == {"a": {"k": 2}}


def test_a_restart_must_pay() -> None:
    """Ten of the twenty slots that are left on the faster GPUs are lost to the move."""
    models = {"a": Model(2, (1.0, 1.4), 56)}
    own = view_job("a", models["a"], ("k", "v"), present=present(k=2))  # type: ignore[arg-type]
    shown = msgspec.structs.replace(seen({}, TWO_TYPES), jobs=(own,))
    assert chosen(planned(models, TWO_TYPES, given=shown, restart_s=0)) == {"a": {"v": 2}}
    assert chosen(planned(models, TWO_TYPES, given=shown, restart_s=10)) == {"a": {"k": 2}}


def test_a_job_of_unknown_speed_waits_for_an_estimate_and_one_that_runs_goes_on() -> None:
    models = {"new": A, "old": A}
    jobs = [view_job("new", A, ("k", "v")), view_job("old", A, ("k", "v"), present=present(v=2))]  # type: ignore[arg-type]
    shown = msgspec.structs.replace(seen(models, TWO_TYPES), jobs=tuple(jobs))
    for policy in POLICIES:
        decision = decide(policy, shown, silent)
        assert chosen(decision) == {"old": {"v": 2}}
        assert [(left.job_id, left.reason) for left in decision.left] == [("new", Waiting.NO_ESTIMATE)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_must_stay_keeps_any_number_of_gpus(policy: str) -> None:
    models = {"a": Model(2, (1.0, 4.0), 16), "b": A}
    here = view_job("a", models["a"], ("k", "v"), present=present(k=1), stays=True)  # type: ignore[arg-type]
    shown = msgspec.structs.replace(seen({}, TWO_TYPES), jobs=(here, view_job("b", A, ("k", "v"))))  # type: ignore[arg-type]
    decision = planned(models, TWO_TYPES, policy, given=shown)
    assert chosen(decision) == {"a": {"k": 1}, "b": {"v": 2}}


# ---- always

MIRRORED = view(
    [
        job("j0", (1, 2, 3), gpu_types=("a",), samples=1000.0),
        job("j1", (1, 2, 3), gpu_types=("b",), samples=1000.0, submitted_at=1.0),
        job("j2", (5,), gpu_types=("a", "b"), samples=1000.0, samples_done=712.423828125, submitted_at=2.0),
        job("j3", (7,), gpu_types=("a", "b"), samples=1000.0, submitted_at=3.0),
    ],
    [node(name, 3, gpus=4, gpu_type=gpu_type) for name, gpu_type in (("n0", "a"), ("n1", "b"), ("n2", "b"))],
)
"""two nodes that may trade places: the costs of a gang on both were summed in the order of their ids"""


@given(shown=views())
@limits(max_examples=40, deadline=None)
def test_beside_a_job_that_waits_hadar_delay_leaves_no_gang_s_worth_of_gpus(shown: View) -> None:
    decision = decide("hadar-delay", shown)
    idle = {one.node_id: one.idle for one in shown.nodes}
    for choice in decision.choices:
        for one in choice.gang.members:
            idle[one.node] -= one.gpus
    jobs = {one.job_id: one for one in shown.jobs}
    for left in decision.left:
        own = jobs[left.job_id]
        usable = sum(idle[one.node_id] for one in shown.nodes if one.gpu_type in own.gpu_types)
        every = sum(one.gpus for one in shown.nodes if one.gpu_type in own.gpu_types)
        possible = [gpus for gpus in own.demand if gpus <= every]
        if possible and left.reason is not Waiting.NO_ESTIMATE:
            assert possible[(len(possible) - 1) // 2] > usable


@given(shown=views())
@limits(max_examples=30, deadline=None)
def test_without_effort_the_queue_is_served_in_order(shown: View) -> None:
    quick = msgspec.structs.replace(shown, effort=Effort(greedy=True, modelled=True))
    decision = decide("hadar", quick)
    assert not shown.jobs or not decision.choices or decision.stage is Stage.GREEDY


@given(shown=views())
@example(shown=MIRRORED)
@limits(max_examples=60, deadline=None)
def test_a_repeated_plan_moves_jobs_only_for_more_value(shown: View) -> None:
    """Exactly solved, and moves cost nothing. A place that a job has is offered to it in every state, so the
    second look may find more than the first."""
    first = decide("hadar", shown, beam=0, restart_s=0)
    here = {
        choice.job_id: running_on(choice.gang.configuration, choice.throughput, choice.job_id)
        for choice in first.choices
    }
    jobs = tuple(msgspec.structs.replace(one, present=here.get(one.job_id)) for one in shown.jobs)
    again = decide("hadar", msgspec.structs.replace(shown, jobs=jobs), beam=0, restart_s=0)
    assert again.objective >= first.objective * (1 - 1e-9)
    if again.objective <= first.objective * (1 + 1e-9):
        assert chosen(again) == chosen(first)


def test_nodes_alike_are_one_state() -> None:
    """Forty nodes and thirty jobs in no time: without merging this would not end."""
    nodes = [node(f"v{index:02d}", 4, gpus=4, gpu_type="v") for index in range(40)]
    models = {f"j{index:02d}": Model(1 + index % 4, (1.0,), 50 + index) for index in range(30)}
    decision = decide("hadar", seen(models, nodes), speeds_of(models, nodes))
    assert len(decision.choices) == 30
    assert decision.solve_s < 1.0
    assert view().jobs == ()
