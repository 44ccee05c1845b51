"""Which GPUs the planner believes to be spoken for."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Event
from schemas.events import PlacementRefused, PlanPublished, ProfileFailed
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId, RotaId
from schemas.placement import Configuration, Forked, Gang, Relaxed
from schemas.plans import Placement, PlanKind
from services.planner.core.claims import Claims
from services.planner.core.folds import fold
from services.planner.core.state import State
from services.planner.core.viewing import idle_gpus, view_of, waiting
from services.planner.policies.contract.view import View, ViewJob
from services.planner.solver.effort import Effort
from shared.domain import gangs
from tests.fact_builders import (
    K80,
    a_node,
    cancelled,
    completed,
    config,
    in_queue,
    joined,
    lost,
    opened,
    placement,
    plan,
    preempted,
    profile_run,
    start_ordered,
    started,
    worker_started,
    worker_stopped,
)

TWO = config(node_1=2)


def after(*facts: Event) -> State:
    state = State()
    for fact in facts:
        fold(state, fact)
    return state


def running(*gpus: int) -> list[Event]:
    """Node-1 with 8 GPUs, and job-1 on two of them."""
    return [
        joined(),
        *in_queue(demand=(2,)),
        plan(placement(on=TWO)),
        worker_started(at=10.0, gpu_indices=gpus or (0, 1)),
        started(at=10.0, on=TWO),
    ]


def refused() -> PlacementRefused:
    return PlacementRefused(
        at=1.0, placement_id=PlacementId("pl-1"), plan_id=PlanId("plan-1"), job_id=JobId("job-1"), reason="so"
    )


def profile_over() -> ProfileFailed:
    return ProfileFailed(
        at=1.0,
        job_id=JobId("job-1"),
        placement_id=PlacementId("pf-1"),
        gpu_type=GpuType("v100"),
        node_id=NodeId("node-1"),
        reason="no",
        final=True,
    )


@pytest.mark.parametrize(
    ("facts", "idle"),
    [
        ([joined()], 8),
        (running(), 6),
        ([*running()[:5]], 6),  # planned, not started
        ([*running()[:5], refused()], 8),
        ([*running()[:5], refused(), worker_started(gpu_indices=(0, 1))], 6),  # too late taken back
        ([*running()[:5], cancelled(at=5.0)], 8),  # before anything started
        ([*running(), completed(at=20.0)], 6),  # the worker is still there
        ([*running(), completed(at=20.0), worker_stopped(at=21.0)], 8),
        ([*running(), cancelled(at=20.0), worker_stopped(at=21.0)], 8),
        ([*running(), worker_stopped(at=20.0), preempted(at=20.0)], 8),
        ([*running(), plan(plan_id=PlanId("plan-2"))], 6),  # superseded, still stopping
        ([*running()[:5], plan(plan_id=PlanId("plan-2"))], 8),  # superseded, never started
        ([*running()[:5], plan(plan_id=PlanId("plan-2"), kind=PlanKind.FRAGMENT)], 6),
        ([*running(), lost(at=20.0)], 0),
        ([*running(), joined(at=20.0, life="2")], 8),  # a new life without the worker
        ([*running(), joined(at=20.0, life="2", workers=["pl-1"])], 6),
        ([joined(), opened(profile_run(), profile_run(place="pf-2"))], 6),
        ([joined(), opened(profile_run()), worker_started(place="pf-1")], 7),
        ([joined(), opened(profile_run()), profile_over()], 8),
        ([joined(), opened(profile_run()), worker_started(place="pf-1"), profile_over()], 7),
        ([joined(), opened(profile_run()), worker_stopped(place="pf-1")], 8),
        ([joined(), opened(profile_run()), joined(life="2")], 7),
    ],
)
def test_idle_gpus(facts: list[Event], idle: int) -> None:
    assert idle_gpus(after(*facts)) == idle


def test_a_first_plan_may_use_all_gpus_but_those_that_profiling_has() -> None:
    other = joined("node-2", gpu_type=K80)
    profiles = opened(*(profile_run(place=f"pf-{number}") for number in range(3)))
    nodes = view_of_all(after(*running(), other, profiles)).nodes
    assert {node.node_id: node.idle for node in nodes} == {"node-1": 5, "node-2": 8}


def test_a_plan_of_a_replaced_leader_is_ignored() -> None:
    facts = [joined(), *in_queue(), plan(token=5), plan(placement(), plan_id=PlanId("old"), token=4)]
    assert idle_gpus(after(*facts)) == 8


def test_a_fragment_plan_adds_to_the_planned_claims() -> None:
    more = plan(placement("job-2", place="pl-2"), plan_id=PlanId("plan-2"), kind=PlanKind.FRAGMENT)
    assert idle_gpus(after(*running(), *in_queue("job-2"), more)) == 5


def test_a_job_with_a_promise_of_gpus_waits_no_more() -> None:
    assert waiting(after(joined(), *in_queue())) == ["job-1"]
    assert waiting(after(*running()[:5])) == []
    assert waiting(after(*running()[:5], refused())) == ["job-1"]


def seen(state: State, at: float) -> ViewJob:
    [only] = view_of_all(state, at).jobs
    return only


def view_of_all(state: State, at: float = 0.0) -> View:
    return view_of(
        state, kind=PlanKind.FIRST, at=at, round_s=360.0, restart_s=15.0, policy="hops", effort=Effort()
    )


def test_a_job_waits_from_its_submission_and_not_while_it_holds_gpus() -> None:
    state = after(*running())  # submitted at 0, started at 10
    assert seen(state, 50.0).wait_s == 10.0
    fold(state, preempted(at=60.0, samples_done=300.0))
    assert seen(state, 100.0).wait_s == 50.0


def test_attained_service_is_gpus_times_time_by_placement() -> None:
    state = after(*running())
    assert seen(state, 50.0).attained_gpu_s == 80.0
    fold(state, preempted(at=60.0))
    later = seen(state, 100.0)
    assert (later.attained_gpu_s, later.received_s, later.restarts) == (100.0, {"v100": 50.0}, 1)


def test_time_on_several_types_is_credited_by_their_shares_of_the_gang() -> None:
    """Three GPUs, one of them a K80, for 30 s and then for 60 s."""
    both = config(node_1=2, node_2=1)
    state = after(
        joined(),
        joined("node-2", gpu_type=K80),
        *in_queue(demand=(3,)),
        plan(placement(on=both)),
        *(worker_started(node_id=node, at=10.0) for node in ("node-1", "node-2")),
        started(at=10.0, on=both),
    )
    assert seen(state, 40.0).received_s == pytest.approx({"k80": 10.0, "v100": 20.0})
    fold(state, preempted(at=70.0))
    later = seen(state, 100.0)
    assert later.received_s == pytest.approx({"k80": 20.0, "v100": 40.0})
    assert sum(later.received_s.values()) * 3 == pytest.approx(later.attained_gpu_s)


def test_progress_is_the_reported_one_and_then_estimated() -> None:
    state = after(*running())
    assert seen(state, 20.0).samples_done == 100.0  # 10 samples/s since second 10
    fold(state, preempted(at=60.0, samples_done=300.0))
    assert seen(state, 100.0).samples_done == 300.0


def test_progress_never_passes_the_end() -> None:
    assert seen(after(*running()), 1e6).samples_done == 1000.0


def test_an_ended_job_is_forgotten_and_a_late_fact_about_it_is_void() -> None:
    state = after(*running(), completed(at=20.0), cancelled(at=21.0), preempted(at=22.0))
    assert state.jobs == {}


def test_a_job_sees_only_the_types_it_was_measured_on() -> None:
    state = after(joined(), joined("node-2", gpu_type="k80"), *in_queue())
    assert seen(state, 1.0).gpu_types == ("v100",)


# ---- whatever happens

Happening = Callable[[Claims], None]

JOBS = ("job-1", "job-2", "job-3")
IN_TURNS = ("job-4", "job-5")
"""on GPUs that they share"""


def turning(job_id: str, which: str, rota: str, on: Configuration) -> Placement:
    [gpus] = on.values()
    taking_turns = Relaxed(tasks=((1,) * gpus,), rota=RotaId(rota))
    plain = placement(job_id, place=f"{job_id}-{which}", on=on)
    return msgspec.structs.replace(plain, gang=Gang.of(on, taking_turns))


PLACES: dict[str, Placement] = {
    one.placement_id: one
    for ones in (
        *(
            (
                placement(job_id, place=f"{job_id}-a", on=config(node_1=3 + number)),
                placement(job_id, place=f"{job_id}-b", on=config(node_1=1, node_2=5 - number)),
            )
            for number, job_id in enumerate(JOBS)
        ),
        *(
            (
                turning(job_id, "a", "all-of-one", config(node_1=2)),
                turning(job_id, "b", "some-of-two", config(node_2=3)),
            )
            for job_id in IN_TURNS
        ),
    )
    for one in ones
}
PROFILES = ("pf-1", "pf-2", "pf-3")
WORKERS = (*PLACES, *PROFILES)
HOLDERS: dict[str, str] = {name: name for name in PROFILES} | {
    name: gangs.rota(one.gang) or name for name, one in PLACES.items()
}
"""who has the GPUs: placements that take turns, together"""

some_node = st.sampled_from(["node-1", "node-2"])
a_worker = st.sampled_from(WORKERS)


def fold_plan(claims: Claims, fact: PlanPublished) -> None:
    claims.plan(fact.kind, fact.placements)


def on_plan(chosen: dict[str, str], kind: PlanKind) -> Happening:
    places = [PLACES[f"{job_id}-{which}"] for job_id, which in chosen.items()]
    return lambda claims: fold_plan(claims, plan(*places, kind=kind))


def on_order(place: str, node_id: str) -> Happening:
    gang = PLACES[place].gang
    nodes = tuple([a_node(each) for each in gang.nodes])
    fact = msgspec.structs.replace(start_ordered(place=place, node_id=node_id), gang=gang, nodes=nodes)

    def happening(claims: Claims) -> None:
        if place in claims.planned and node_id in gang.nodes:  # nothing else is ordered
            claims.order(fact)

    return happening


def on_start(place: str, node_id: str, gpus: int) -> Happening:
    def happening(claims: Claims) -> None:
        ordered = node_id in claims.ordered.get(PlacementId(place), ())
        if ordered or {place} & {*claims.planned, *claims.profiles}:  # nothing else is started
            claims.start_worker(worker_started(place=place, node_id=node_id, gpu_indices=range(gpus)))

    return happening


def on_stop(place: str, node_id: str) -> Happening:
    return lambda claims: claims.stop_worker(worker_stopped(place=place, node_id=node_id))


def on_restart(node_id: str, listed: set[str]) -> Happening:
    return lambda claims: claims.restart_node(joined(node_id, life="2", workers=sorted(listed)))


def on_profiles(place: str, node_id: str) -> Happening:
    return lambda claims: claims.reserve(opened(profile_run(place=place, node_id=node_id)))


def on_profiles_over(claims: Claims) -> None:
    for placement_id, node_id in [*claims.profiles.items()]:
        claims.end_profile(placement_id, node_id)


happenings = st.lists(
    st.one_of(
        st.builds(
            on_plan,
            st.dictionaries(st.sampled_from(JOBS + IN_TURNS), st.sampled_from("ab")),
            st.sampled_from([PlanKind.FIRST, PlanKind.FRAGMENT]),
        ),
        st.builds(on_order, st.sampled_from(sorted(PLACES)), some_node),
        st.builds(on_start, a_worker, some_node, st.integers(1, 5)),
        st.builds(on_stop, a_worker, some_node),
        st.builds(on_restart, some_node, st.sets(a_worker)),
        st.builds(on_profiles, st.sampled_from(PROFILES), some_node),
        st.sampled_from(sorted(PLACES)).map(lambda place: lambda claims: claims.withdraw(PlacementId(place))),
        st.sampled_from(JOBS + IN_TURNS).map(lambda job_id: lambda claims: claims.drop_job(JobId(job_id))),
    ),
    max_size=20,
)


def by_definition(claims: Claims) -> dict[NodeId, int]:
    """Of each placement or measurement the larger of what it was promised and what its workers hold.

    Where placements take turns, the largest of theirs.
    """
    largest: dict[tuple[str, NodeId], int] = {}
    for name in map(PlacementId, WORKERS):
        planned, node_id = claims.planned.get(name), claims.profiles.get(name)
        promised = planned.gang.configuration if planned else {node_id: 1} if node_id else {}
        for place in (promised, claims.workers.get(name, {})):
            for node, gpus in place.items():
                own = HOLDERS[name], node
                largest[own] = max(largest.get(own, 0), gpus)
    gpus_of: dict[NodeId, int] = {}
    for (_, node), gpus in largest.items():
        gpus_of[node] = gpus_of.get(node, 0) + gpus
    return gpus_of


@given(happenings)
def test_a_node_s_claim_is_the_sum_of_planned_and_held_gpus(happens: list[Happening]) -> None:
    claims = Claims()
    for happening in happens:
        happening(claims)
        assert claims.claimed == by_definition(claims)


def test_a_worker_that_comes_up_after_its_job_was_cancelled_claims_no_further_gpus() -> None:
    """A job of a rota was cancelled while its worker came up: the GPUs are those that the others have."""
    mine, others = PLACES["job-4-a"], PLACES["job-5-a"]
    ordered = msgspec.structs.replace(start_ordered("job-4", place=mine.placement_id), gang=mine.gang)
    here = [joined(), *in_queue("job-4", demand=(2,)), *in_queue("job-5", demand=(2,)), plan(mine, others)]
    late = [ordered, cancelled("job-4"), worker_started("job-4", place=mine.placement_id, gpu_indices=(0, 1))]
    assert idle_gpus(after(*here)) == idle_gpus(after(*here, *late)) == 6


@given(happenings)
def test_a_rota_is_forgotten_once_no_worker_can_come_up(happens: list[Happening]) -> None:
    claims = Claims()
    for happening in (*happens, *(on_restart(node_id, set()) for node_id in ("node-1", "node-2"))):
        happening(claims)
    on_profiles_over(claims)
    fold_plan(claims, plan())
    assert {*claims.claimed, *claims.ordered, *claims.rotas, *claims.workers} == set()


@given(happenings)
def test_where_a_job_runs_is_a_placement_of_its_own(happens: list[Happening]) -> None:
    claims = Claims()
    for happening in happens:
        happening(claims)
        placed = {job_id: claims.placement_of(JobId(job_id)) for job_id in JOBS + IN_TURNS}
        assert {place.job_id for place in placed.values() if place} == claims.of_job.keys()
        assert all(place.job_id == job_id for job_id, place in placed.items() if place)


@pytest.mark.parametrize(("old", "new"), ["ab", "ba"])
def test_a_late_fact_about_a_job_s_old_place_does_not_change_its_new_one(old: str, new: str) -> None:
    claims = Claims()
    on_plan({"job-1": old}, PlanKind.FIRST)(claims)
    on_plan({"job-1": new}, PlanKind.FRAGMENT)(claims)
    claims.withdraw(PlacementId(f"job-1-{old}"))
    assert claims.placement_of(JobId("job-1")) == PLACES[f"job-1-{new}"]
    assert claims.claimed == PLACES[f"job-1-{new}"].gang.configuration


BOTH = config(node_1=2, node_2=2)
COPIES = Gang.of(BOTH, Forked(shares=(0.75, 0.25)))


@pytest.mark.parametrize(
    ("gang", "node_id", "left", "broken"),
    [
        (Gang.of(BOTH), "node-1", Gang.of(config(node_2=2)), True),
        (COPIES, "node-1", Gang.of(config(node_2=2), Forked(shares=(0.25,))), False),
        (Gang.of(BOTH), "node-3", Gang.of(BOTH), False),
        (Gang.of(TWO), "node-1", None, False),
    ],
)
def test_a_gang_that_lost_a_worker_trains_no_more_and_copies_do(
    gang: Gang,
    node_id: str,
    left: Gang | None,
    broken: bool,  # noqa: FBT001
) -> None:
    one = msgspec.structs.replace(placement(), gang=gang)
    claims = Claims()
    fold_plan(claims, plan(one))
    claims.stop_worker(worker_stopped(node_id=node_id))
    assert [rest.gang for rest in claims.planned.values()] == ([left] if left else [])
    assert (one.placement_id in claims.broken) == broken
    fold_plan(claims, plan())
    assert not claims.broken


def test_a_gang_whose_worker_has_done_all_samples_stays_while_its_leader_goes_on() -> None:
    one = msgspec.structs.replace(placement(), gang=Gang.of(BOTH))
    claims = Claims()
    fold_plan(claims, plan(one))
    for node_id in BOTH:
        claims.start_worker(worker_started(node_id=node_id, gpu_indices=(0, 1)))
    claimed = dict(claims.claimed)
    claims.stop_worker(worker_stopped(node_id="node-2", leads=False))
    assert claims.planned == {one.placement_id: one}
    assert not claims.broken
    assert claims.claimed == claimed
    claims.stop_worker(worker_stopped(node_id="node-1"))
    assert one.placement_id in claims.broken


def test_a_copy_that_is_left_is_as_fast_as_its_share() -> None:
    whole = msgspec.structs.replace(placement(), gang=COPIES)
    claims = Claims()
    fold_plan(claims, plan(whole))
    claims.stop_worker(worker_stopped(node_id="node-1"))
    [rest] = claims.planned.values()
    assert rest.throughput == pytest.approx(0.25 * whole.throughput)


def test_a_worker_that_stops_leaves_those_of_other_nodes_their_gpus() -> None:
    for gone, left in (("node-1", "node-2"), ("node-2", "node-1")):
        claims = Claims()
        fold_plan(claims, plan(msgspec.structs.replace(placement(), gang=Gang.of(BOTH))))
        for node_id in BOTH:
            claims.start_worker(worker_started(node_id=node_id, gpu_indices=(0, 1)))
        fold_plan(claims, plan())
        claims.stop_worker(worker_stopped(node_id=gone))
        assert claims.claimed == {left: 2}


def test_only_copies_are_fewer_when_a_node_is_lost() -> None:
    for gang, left in ((COPIES, ["node-2"]), (Gang.of(BOTH), ["node-1", "node-2"])):
        one = msgspec.structs.replace(placement(), gang=gang)
        claims = Claims()
        claims.lose_copy(one.placement_id, NodeId("node-1"))
        fold_plan(claims, plan(one))
        claims.lose_copy(one.placement_id, NodeId("node-1"))
        assert list(claims.claimed) == left


def test_a_gang_that_is_planned_whole_again_claims_all_of_it() -> None:
    """The plan was made before the planner heard that a worker had gone."""
    claims = Claims()
    for happening in (on_plan({"job-1": "b"}, PlanKind.FIRST), on_stop("job-1-b", "node-1")):
        happening(claims)
    assert list(claims.claimed) == ["node-2"]
    on_plan({"job-1": "b"}, PlanKind.FIRST)(claims)
    assert claims.claimed == PLACES["job-1-b"].gang.configuration


@given(happenings)
def test_without_workers_and_plans_no_claim_is_left(happens: list[Happening]) -> None:
    claims = Claims()
    for happening in (*happens, on_restart("node-1", set()), on_restart("node-2", set())):
        happening(claims)
    on_profiles_over(claims)
    fold_plan(claims, plan())
    assert claims == Claims()


def test_a_plan_that_comes_after_the_end_of_a_job_claims_no_gpus_for_it() -> None:
    """The leader's process is over, another is still stopping."""
    both = placement(on=BOTH)
    facts = [joined(), joined("node-2"), *in_queue(demand=(4,)), plan(both)]
    ups = [worker_started(at=10.0, node_id=one, gpu_indices=(0, 1)) for one in ("node-1", "node-2")]
    ends = [worker_stopped(at=20.0), completed(at=20.1)]
    state = after(*facts, *ups, started(at=10.0, on=BOTH), *ends, plan(both, plan_id=PlanId("plan-2")))
    assert state.claims.claimed == config(node_2=2)
    fold(state, worker_stopped(at=22.0, node_id="node-2", leads=False))
    assert (state.claims.claimed, state.claims.planned) == ({}, {})


def test_a_plan_that_comes_after_the_end_of_a_copy_claims_no_gpus_for_it() -> None:
    shared = msgspec.structs.replace(placement(), gang=COPIES)
    claims = Claims()
    fold_plan(claims, plan(shared))
    for node_id in ("node-1", "node-2"):
        claims.start_worker(worker_started(node_id=node_id, gpu_indices=(0, 1)))
    claims.stop_worker(worker_stopped(node_id="node-1"))
    fold_plan(claims, plan(shared, plan_id=PlanId("plan-2")))
    assert claims.claimed == config(node_2=2)
