"""What every policy must keep to, whatever it is asked."""

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from planner_builders import FAST, SLOW, decide, job, linear, node, place_on, silent, view

from schemas.ids import PlacementId
from schemas.plans import Layer, PlanKind, Waiting
from schemas.settings import Settings
from services.planner.policies.contract import Choice, Decision, fault
from services.planner.registry import Registry, UnknownPolicy, names
from services.planner.view import Present, View, ViewJob, ViewNode

POLICIES = [*names(), "services.planner.policies.fifo:Fifo"]
every_policy = pytest.mark.parametrize("policy", POLICIES)


@st.composite
def views(draw: st.DrawFn) -> View:
    cluster = [
        node(f"n{index}", draw(st.integers(0, 4)), gpus=4, gpu_type=draw(st.sampled_from([FAST, SLOW])))
        for index in range(draw(st.integers(0, 5)))
    ]
    kind = draw(st.sampled_from(list(PlanKind)))
    jobs = [_job(draw, index, cluster, kind) for index in range(draw(st.integers(0, 6)))]
    return view(jobs, cluster, kind=kind)


def _job(draw: st.DrawFn, index: int, cluster: list[ViewNode], kind: PlanKind) -> ViewJob:
    demand = sorted(draw(st.sets(st.integers(1, 8), min_size=1, max_size=4)))
    types = tuple(sorted(draw(st.sets(st.sampled_from([FAST, SLOW])))))
    own = [member for member in cluster if member.gpu_type in types]
    here = None
    if kind == PlanKind.FIRST and own and draw(st.booleans()):
        place = place_on(**{draw(st.sampled_from(own)).node_id: demand[0]})
        here = Present(
            placement_id=PlacementId(f"p{index}"), configuration=place, throughput=1.0, layer=Layer.TYPE
        )
    return job(
        f"j{index}",
        demand,
        gpu_types=types,
        sensitivity=draw(st.floats(1.0, 3.0)),
        wait_s=draw(st.floats(0.0, 1000.0)),
        age_s=draw(st.floats(1.0, 1000.0)),
        submitted_at=float(index),
        present=here,
    )


@every_policy
@given(seen=views())
@limits(max_examples=40, deadline=None)
def test_a_decision_is_sound(policy: str, seen: View) -> None:
    decision = decide(policy, seen)  # which checks capacity, gangs, one configuration a job
    assert fault(seen, decision) is None


@every_policy
@given(seen=views())
@limits(max_examples=25, deadline=None)
def test_every_job_is_placed_or_has_a_reason(policy: str, seen: View) -> None:
    decision = decide(policy, seen)
    told = [choice.job_id for choice in decision.choices] + [left.job_id for left in decision.left]
    assert sorted(told) == sorted(job.job_id for job in seen.jobs)


@every_policy
@given(seen=views())
@limits(max_examples=25, deadline=None)
def test_the_same_view_gives_the_same_decision(policy: str, seen: View) -> None:
    assert decide(policy, seen) == decide(policy, seen)


@every_policy
@given(seen=views())
@limits(max_examples=15, deadline=None)
def test_a_silent_estimator_breaks_nothing(policy: str, seen: View) -> None:
    assert fault(seen, decide(policy, seen, estimator=silent)) is None


def choice(name: str, **place: int) -> Choice:
    return Choice(
        job_id=job(name).job_id, configuration=place_on(**place), throughput=1.0, layer=Layer.THEORY
    )


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ([choice("x", a0=2), choice("x", a0=2)], "2 configurations for job x"),
        ([choice("stranger", a0=2)], "1 configurations for job stranger"),
        ([choice("x", a0=3)], "3 GPUs for job x"),
        ([choice("x", elsewhere=2)], "job x on node elsewhere"),
        ([choice("x", b0=2)], "job x on node b0"),
        ([choice("x", a0=2), choice("y", a0=2)], "node a0 is over-allocated"),
        ([choice("x", a0=2)], None),
    ],
)
def test_each_broken_rule_is_named(choices: list[Choice], complaint: str | None) -> None:
    seen = view([job("x", (2,)), job("y", (2,))], [node("a0", 3), node("b0", gpu_type=SLOW)])
    assert fault(seen, Decision(choices=tuple(choices))) == complaint


def test_a_policy_is_found_by_name_or_by_module_and_attribute() -> None:
    registry = Registry(Settings())
    assert registry.find("fifo") is registry.find("fifo")
    assert type(registry.find("services.planner.policies.hops:Hops")) is type(registry.find("hops"))


@pytest.mark.parametrize("name", ["nonsense", "no.such.module:Policy", "services.planner:Nothing"])
def test_an_unknown_policy_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(UnknownPolicy, match=name.partition(":")[0]):
        Registry(Settings()).find(name)


def test_reasons_are_those_users_know() -> None:
    decision = decide("hops", view([job("x", (9,))], [node("a0")]), estimator=linear)
    assert decision.left[0].reason == Waiting.NO_CONFIGURATION
