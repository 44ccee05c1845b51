"""HadarE as a policy: from a view to gangs of copies, and why a job has none."""

from collections.abc import Iterable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import JobId, NodeId
from schemas.placement import LOCKSTEP, Configuration, Forked, Gang
from schemas.plans import Layer, PlanKind, Stage, Waiting
from schemas.questions import LAYERS
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Choice, Decision, Trigger, fault
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.hadare.policy import Hadare
from services.planner.solver.effort import Effort
from tests.services.planner.planner_builders import (
    FAST,
    SLOW,
    chosen,
    decide,
    job,
    linear,
    node,
    place_on,
    present,
    silent,
    view,
)
from tests.services.planner.planner_views import mentioned, views

BOTH = (FAST, SLOW)
SPEED = {"a": 10.0, "b": 4.0, "c": 2.0}
"""samples/s of a copy, by the first letter of its node"""


def unlike(wanted: Configurations) -> Estimated:
    even = linear(wanted)
    speed = np.array([SPEED.get(name[0], 3.0) for name in wanted.nodes])
    return Estimated(throughput=speed[wanted.node[wanted.start[:-1]]], layer=even.layer)


def forking(*members: ViewNode) -> tuple[ViewNode, ...]:
    """Nodes whose runner runs forked gangs."""
    return tuple(msgspec.structs.replace(one, modes=("lockstep", "forked")) for one in members)


def small(*names: str) -> tuple[ViewNode, ...]:
    """Nodes of one GPU, each type by its first letter."""
    return forking(*(node(name, 1, gpus=1, gpu_type=name[0]) for name in names))


def task(name: str, demand: Iterable[int] = (1,), **fields: object) -> ViewJob:
    types = {"gpu_types": ("a", "b", "c"), "samples": 1e5}
    return job(name, tuple(demand), **{**types, **fields})


def only(decision: Decision) -> Choice:
    (choice,) = decision.choices
    return choice


def test_a_job_alone_gets_a_copy_on_every_node_each_its_share() -> None:
    choice = only(decide("hadare", view([task("x")], small("a", "b", "c")), unlike))
    assert choice.gang == Gang.of(place_on(a=1, b=1, c=1), Forked(shares=(10 / 16, 4 / 16, 2 / 16)))
    assert choice.throughput == 16.0


def test_copies_are_on_the_nodes_that_run_them_and_others_run_jobs_alone() -> None:
    """a is the fastest and runs none: one job has it alone, the other b and c."""
    nodes = (*small("b", "c"), node("a", 1, gpus=1, gpu_type="a"))
    for policy in ("hadare", "hadare-literal", "hadare+lone=forked"):
        seen = view([task("x"), task("y")], nodes)
        decision = decide(policy, seen, unlike)
        assert fault(seen, decision) is None
        gangs = sorted((choice.gang for choice in decision.choices), key=lambda gang: gang.gpus)
        assert gangs[0] == Gang.of(place_on(a=1), LOCKSTEP)
        assert gangs[1].configuration == place_on(b=1, c=1)
        assert isinstance(gangs[1].sync, Forked)


def test_a_job_takes_one_fast_node_or_copies_on_the_others_whichever_is_faster() -> None:
    nodes = (*small("b", "c"), node("a", 1, gpus=1, gpu_type="a"))
    assert only(decide("hadare", view([task("x")], nodes), unlike)).gang == Gang.of(place_on(a=1))
    more = (*small("b1", "b2", "b3"), node("a", 1, gpus=1, gpu_type="a"))
    assert only(decide("hadare", view([task("x")], more), unlike)).gang.configuration == place_on(
        b1=1, b2=1, b3=1
    )


def test_a_node_on_which_a_copy_ran_out_of_memory_is_for_other_jobs() -> None:
    nodes = small("a", "b", "c")
    starved = task("x", unfit=frozenset({NodeId("a"), NodeId("gone")}))
    assert only(decide("hadare", view([starved], nodes), unlike)).gang.configuration == place_on(b=1, c=1)
    places = chosen(decide("hadare", view([starved, task("y")], nodes), unlike))
    assert places["y"] == place_on(a=1)
    nowhere = task("x", unfit=frozenset({NodeId(name) for name in "abc"}))
    [out] = decide("hadare", view([nowhere], nodes), unlike).left
    assert out.reason is Waiting.NO_CONFIGURATION


def test_a_copy_takes_the_whole_gang_on_one_node() -> None:
    cluster = forking(
        node("a", 2, gpus=2), node("b", 4, gpus=4, gpu_type="b"), node("c", 1, gpus=1, gpu_type="c")
    )
    choice = only(decide("hadare", view([task("x", (2,))], cluster), unlike))
    assert choice.gang.configuration == place_on(a=2, b=2)


def test_jobs_share_a_node_that_has_room_for_several_copies() -> None:
    cluster = forking(node("a", 4, gpus=4))
    decision = decide("hadare", view([task(name, (2,)) for name in "xyz"], cluster), unlike)
    assert [choice.gang.configuration for choice in decision.choices] == [place_on(a=2)] * 2
    assert [left.reason for left in decision.left] == [Waiting.OUTWEIGHED]


def test_example_e7() -> None:
    """P: 10, 4, 2; Q: 3, 3, 3, after nothing passed: P has a, Q the others, and both end at 60 s."""

    def speeds(wanted: Configurations) -> Estimated:
        table = {"P": SPEED, "Q": {"a": 3.0, "b": 3.0, "c": 3.0}}
        cells = zip(wanted.job.tolist(), wanted.node.tolist(), strict=True)
        found = [table[wanted.jobs[one]][wanted.nodes[place]] for one, place in cells]
        return Estimated(throughput=np.array(found), layer=linear(wanted).layer)

    jobs = [task("P", samples=600.0, submitted_at=0.0), task("Q", samples=360.0, submitted_at=0.0)]
    seen = msgspec.structs.replace(view(jobs, small("a", "b", "c"), at=0.0), restart_s=0.0)
    decision = decide("hadare", seen, speeds)
    assert chosen(decision) == {"P": place_on(a=1), "Q": place_on(b=1, c=1)}
    assert (decision.stage, decision.objective, decision.gap) == (Stage.OPTIMAL, 3.875, 0.0)
    assert decision.horizon_s == pytest.approx(60.0)
    assert [decision.standings[JobId(name)].gain for name in "PQ"] == [1.875, 2.0]


def test_a_job_on_one_node_runs_in_lockstep_and_is_left_there() -> None:
    """As long as it is worth more than a start: merged it would restart in every round."""
    jobs = [task("x", present=present(b=1)), task("y", present=present(a=1))]
    decision = decide("hadare+copies=1", view(jobs, small("a", "b")), unlike)
    assert {choice.gang.sync for choice in decision.choices} == {LOCKSTEP}
    literal = decide("hadare-literal+copies=1", view(jobs, small("a", "b")), unlike)
    assert [type(choice.gang.sync) for choice in literal.choices] == [Forked, Forked]


def test_as_printed_nodes_without_a_copy_take_part_in_the_division() -> None:
    decision = decide("hadare-literal+copies=1", view([task("x")], small("a", "b", "c")), unlike)
    assert only(decision).gang == Gang.of(place_on(a=1), Forked(shares=(10 / 16,)))
    given = decide("hadare-literal+copies=1+division=given", view([task("x")], small("a", "b", "c")), unlike)
    assert only(given).gang == Gang.of(place_on(a=1), Forked(shares=(1.0,)))


def test_copies_limit_the_nodes_of_a_job() -> None:
    seen = view([task("x")], small("a", "b", "c"))
    assert only(decide("hadare+copies=2", seen, unlike)).gang.configuration == place_on(a=1, b=1)
    assert decide("hadare+copies=9", seen, unlike) == decide("hadare", seen, unlike)


def test_only_long_jobs_fork_where_that_is_asked_for() -> None:
    """Running times that are left: 100 s, and half of 900 s."""
    for lasting, nodes in ((task("short"), 1), (task("long", age_s=900.0, samples_done=5e4), 3)):
        decision = decide("hadare+fork_from_s=400", view([lasting], small("a", "b", "c")), unlike)
        assert len(only(decision).gang.members) == nodes


def test_a_job_that_may_not_be_moved_gets_copies_for_all_of_its_rest() -> None:
    """They merge once, at the end: shares that sum to less would take the nodes with work left."""
    for literal in ("hadare-literal", "hadare-literal+copies=1"):
        seen = view([task("x", preemptible=False)], small("a", "b", "c"))
        sync = only(decide(literal, seen, unlike)).gang.sync
        assert isinstance(sync, Forked)
        assert sum(sync.shares) == pytest.approx(1.0)


def test_in_its_last_round_a_job_takes_the_nodes_with_which_it_ends_soonest() -> None:
    """100 samples left: 10 s on node a, where it is, or 15 s for a start and 6.25 s on all."""
    ends, goes_on = task("ends", samples_done=1e5 - 100, present=present(a=1)), task("goes-on")
    seen = view([ends], small("a", "b", "c"))
    assert only(decide("hadare", seen, unlike)).gang == Gang.of(place_on(a=1))
    places = chosen(decide("hadare", view([ends, goes_on], small("a", "b", "c")), unlike))
    assert sum(map(len, places.values())) == 3, "no node idles"


def test_weights_that_take_long_to_meet_keep_a_job_on_fewer_nodes_at_its_end() -> None:
    """60 s on a, where it is; on a and b 10 s for a start, 42.9 s, and 4 s for the weights of each copy."""
    cluster = [msgspec.structs.replace(one, network_bandwidth=1e9) for one in small("a", "b")]
    for gigabytes, nodes in ((0.0, 2), (1.0, 1)):
        ends = task("x", samples_done=1e5 - 600, gradient_bytes=gigabytes * 1e9 * 2, present=present(a=1))
        cheap = msgspec.structs.replace(view([ends], cluster), restart_s=10.0)
        assert len(only(decide("hadare", cheap, unlike)).gang.members) == nodes


def test_nodes_that_run_no_copies_have_gangs_in_lockstep() -> None:
    cluster = (node("a", 1, gpus=1), *small("b"))
    decision = decide("hadare", view([task("x"), task("y")], cluster), unlike)
    assert [choice.gang.sync for choice in decision.choices] == [LOCKSTEP] * 2
    assert fault(view([task("x"), task("y")], cluster), decision) is None


def test_a_job_that_fits_no_node_has_no_configuration() -> None:
    decision = decide("hadare", view([task("x", (2,)), task("y")], small("a", "b")), unlike)
    assert {left.job_id: left.reason for left in decision.left} == {"x": Waiting.NO_CONFIGURATION}


def test_without_an_estimate_there_is_no_copy() -> None:
    decision = decide("hadare", view([task("x")], small("a", "b")), silent)
    assert [left.reason for left in decision.left] == [Waiting.NO_ESTIMATE]
    assert decision.horizon_s is None


def test_of_many_jobs_some_wait() -> None:
    jobs = [task(f"x{index}", submitted_at=float(index)) for index in range(9)]
    decision = decide("hadare", view(jobs, small("a", "b", "c")), unlike)
    assert len(decision.choices) == 3
    assert {left.reason for left in decision.left} == {Waiting.OUTWEIGHED}


def test_a_large_cluster_is_planned_without_proof_and_says_how_far_it_may_be() -> None:
    jobs = [task(f"x{index}", samples=1e4 * (index + 1)) for index in range(20)]
    decision = decide(
        "hadare", view(jobs, small(*(f"{kind}{i}" for kind in "abc" for i in range(4)))), unlike
    )
    assert decision.stage == Stage.INCUMBENT
    assert 0.0 < decision.gap < 1.0
    assert decision.objective < decision.bound


def test_without_a_solver_it_is_planned_by_gain_alone() -> None:
    seen = view([task("x"), task("y")], small("a", "b", "c"), effort=Effort(modelled=True, greedy=True))
    decision = decide("hadare", seen, unlike)
    assert decision.stage == Stage.GREEDY
    assert sum(map(len, chosen(decision).values())) == 3


def test_hadare_plans_only_at_the_start_of_rounds() -> None:
    assert Hadare.calls == {Trigger.ROUND: PlanKind.FIRST}


@pytest.mark.parametrize("prior", ["estimator", "pmi"])
def test_a_prior_counts_until_something_was_measured(prior: str) -> None:
    cluster = forking(node("m", 1, gpus=1, gpu_type="rtx-3090"), node("n", 1, gpus=1, gpu_type="rtx-a2000"))
    seen = view([job("x", gpu_types=("rtx-3090", "rtx-a2000"), samples=1e6)], cluster)

    def estimator(layer: Layer) -> object:
        def answer(wanted: Configurations) -> Estimated:
            codes = np.full(len(wanted), LAYERS.index(layer), dtype=np.uint8)
            return Estimated(throughput=np.array([20.0, 10.0]), layer=codes)

        return answer

    faster = {}
    for layer in (Layer.THEORY, Layer.ENTITY):
        sync = only(decide(f"hadare+prior={prior}", seen, estimator(layer))).gang.sync  # type: ignore[arg-type]
        assert isinstance(sync, Forked)
        faster[layer] = sync.shares[0] > sync.shares[1]
    assert faster == {Layer.THEORY: prior == "estimator", Layer.ENTITY: True}


def in_modes(seen: View, every: int = 1) -> View:
    """Every so many of its nodes run copies, from the first."""
    nodes = [forking(one)[0] if index % every == 0 else one for index, one in enumerate(seen.nodes)]
    return msgspec.structs.replace(seen, nodes=tuple(nodes))


@pytest.mark.parametrize(
    "policy", ["hadare", "hadare-literal", "hadare+copies=2", "hadare+prior=pmi+utility=inverse"]
)
@given(seen=views(), every=st.integers(1, 3))
@limits(max_examples=25, deadline=None)
def test_a_decision_is_sound_for_any_nodes_that_run_copies(policy: str, seen: View, every: int) -> None:
    seen = in_modes(seen, every)
    decision = decide(policy, seen)
    assert fault(seen, decision) is None
    assert mentioned(decision) == sorted(one.job_id for one in seen.jobs)
    assert decide(policy, seen) == decision


@given(seen=views())
@limits(max_examples=40, deadline=None)
def test_no_node_idles_while_a_job_could_use_it(seen: View) -> None:
    """Where copies cost nothing, and no round is long enough to be a job's last."""
    jobs = tuple(msgspec.structs.replace(one, gradient_bytes=0.0) for one in seen.jobs)
    free_of_cost = msgspec.structs.replace(
        in_modes(seen), jobs=jobs, restart_s=0.0, restarts_s={}, round_s=0.0
    )
    decision = decide("hadare", free_of_cost)
    free = {one.node_id: one.idle for one in seen.nodes}
    types = {one.node_id: one.gpu_type for one in seen.nodes}
    places: dict[str, Configuration] = chosen(decision)
    for place in places.values():
        for name, gpus in place.items():
            free[name] -= gpus
    sizes = {one.job_id: Hadare(Hadare.Options()).wants(seen) for one in seen.jobs}
    for one in seen.jobs:
        wanted = sizes[one.job_id]
        rows = [wanted.at(row) for row in range(len(wanted)) if wanted.jobs[wanted.job[row]] == one.job_id]
        for place in rows:
            ((name, gpus),) = place.items()
            assert types[name] in one.gpu_types
            assert name in places.get(one.job_id, {}) or free[NodeId(name)] < gpus


@given(
    samples=st.lists(st.floats(1e3, 1e6), min_size=1, max_size=4),
    every=st.integers(1, 3),
    start_s=st.sampled_from([0.0, 15.0, 60.0]),
)
@limits(max_examples=40, deadline=None)
def test_a_repeated_plan_moves_no_job(samples: list[float], every: int, start_s: float) -> None:
    """Where the assignment is proven."""
    jobs = [task(f"x{number}", samples=each, submitted_at=0.0) for number, each in enumerate(samples)]
    nodes = [node(name, 1, gpus=1, gpu_type=name[0]) for name in ("a", "b1", "b2", "c")]
    seen = in_modes(msgspec.structs.replace(view(jobs, nodes, at=50.0), restart_s=start_s), every)
    first = decide("hadare", seen, unlike)
    assert first.stage == Stage.OPTIMAL
    there = {choice.job_id: _present(choice) for choice in first.choices}
    moved = tuple(msgspec.structs.replace(one, present=there.get(one.job_id)) for one in seen.jobs)
    again = decide("hadare", msgspec.structs.replace(seen, jobs=moved), unlike)
    assert chosen(again) == chosen(first)


def _present(choice: Choice) -> Present:
    return msgspec.structs.replace(present(x=1), gang=choice.gang)
