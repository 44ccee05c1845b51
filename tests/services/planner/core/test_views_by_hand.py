"""Views worked by hand: what a policy sees of jobs that wait, run or stay, and which GPUs it may use."""

from typing import Any

import msgspec
import pytest

from schemas.base import Event
from schemas.events import NodeDrained, NodeRestored, ProfileFailed
from schemas.ids import JobId, NodeId, PlacementId, PlanId, RotaId
from schemas.placement import Gang, Relaxed
from schemas.plans import Placement, PlanKind
from schemas.settings import Settings
from services.planner.core.folds import fold
from services.planner.core.state import State
from services.planner.core.viewing import Memo, closed_nodes, idle_gpus, view_of
from services.planner.policies.contract.view import View, ViewJob
from shared.domain.residents import Residents
from shared.domain.states import JobState
from tests.fact_builders import (
    JOB,
    K80,
    NODE,
    V100,
    config,
    in_queue,
    joined,
    opened,
    placement,
    plan,
    preempted,
    profile_run,
    profiled,
    refused,
    start_ordered,
    started,
    submitted,
    type_estimated,
    type_profiled,
    worker_started,
    worker_stopped,
)
from tests.services.planner.planner_builders import MODELLED

OTHER = NodeId("node-2")
HERE = config(node_1=2)


def state_of(*facts: Event) -> State:
    state = State()
    for fact in facts:
        fold(state, fact)
    return state


def seen(state: State, *, at: float = 100.0, kind: PlanKind = PlanKind.FIRST, **fields: Any) -> View:  # noqa: ANN401 - any argument of `view_of`
    asked = {"round_s": 360.0, "restart_s": 15.0, "policy": "hops", "effort": MODELLED, **fields}
    return view_of(state, kind=kind, at=at, **asked)


def the_job(state: State, *, at: float = 100.0) -> ViewJob:
    [job] = seen(state, at=at).jobs
    return job


def idle(view: View) -> dict[str, int]:
    return {node.node_id: node.idle for node in view.nodes}


def gpus(view: View) -> dict[str, tuple[int, int]]:
    """By node: all GPUs that count, and the idle ones."""
    return {node.node_id: (node.gpus, node.idle) for node in view.nodes}


def on(gpus: int, *, job_id: str = JOB, place: str = "pl-1", node: str = NODE) -> Placement:
    return placement(job_id, place=place, on={NodeId(node): gpus})


# ---- jobs


def waits(**fields: object) -> State:
    state = state_of(joined(), *in_queue(at=5.0))
    for name, value in fields.items():
        setattr(state.jobs[JOB], name, value)
    return state


def test_a_priority_near_0_is_shown_as_the_least_one_that_policies_can_weigh() -> None:
    """A job's file may name any above 0. With one of 1e-308 `hopyard`, `gavel` and `hadar` made no plan."""
    assert the_job(waits(priority=1e-308)).priority == 1e-6
    assert the_job(waits(priority=0.5)).priority == 0.5


def test_a_job_has_waited_since_its_submission_but_for_what_it_held() -> None:
    assert the_job(waits(held_s=20.0)).wait_s == 75.0
    assert the_job(waits(held_s=94.5)).wait_s == 0.5
    assert the_job(waits(held_s=120.0)).wait_s == 0.0


def test_a_job_has_not_done_more_than_its_samples() -> None:
    assert the_job(waits(samples_done=10.0)).samples_done == 10.0
    assert the_job(waits(samples_done=1001.0)).samples_done == 1000.0


def test_a_worker_of_a_refused_placement_says_nothing_of_a_job_s_progress() -> None:
    """It found an older checkpoint. As placer and ledger do, it counts once the job starts from it."""
    facts = [
        joined(),
        *in_queue(),
        started(place="pl-1"),
        preempted(place="pl-1", samples_done=500.0),
        plan(placement(place="pl-2"), kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2")),
        start_ordered(place="pl-2", samples_done=500.0),
    ]
    came = worker_started(place="pl-2", samples_restored=200.0)
    assert the_job(state_of(*facts, came)).samples_done == 200.0
    assert the_job(state_of(*facts, refused(place="pl-2"), came)).samples_done == 500.0


def runs(**fields: object) -> State:
    """On two GPUs from 60 s on, by a plan that expects ten samples a second."""
    state = state_of(
        joined(),
        *in_queue(at=5.0),
        plan(on(2), kind=PlanKind.FRAGMENT),
        start_ordered(),
        worker_started(gpu_indices=range(2)),
        started(at=60.0, on=HERE),
    )
    for name, value in fields.items():
        setattr(state.jobs[JOB], name, value)
    return state


PAST: dict[str, object] = {
    "held_s": 20.0,
    "attained_gpu_s": 7.0,
    "received_s": {V100: 3.0},
    "samples_done": 100.0,
}


def test_what_a_job_that_runs_has_had_so_far() -> None:
    job = the_job(runs(**PAST, ahead=30.0, ahead_at=80.0))
    assert (job.wait_s, job.attained_gpu_s, job.received_s) == (35.0, 7.0 + 2 * 40.0, {V100: 43.0})
    assert job.samples_done == 100.0 + 30.0 + 10.0 * 20.0
    assert job.present is not None
    assert (job.present.gang.configuration, job.present.starting) == (HERE, False)


def test_a_job_that_takes_turns_has_its_share_of_the_time() -> None:
    for share in (0.0, 0.25):
        job = the_job(runs(**PAST, share=share))
        assert (job.attained_gpu_s, job.received_s) == (7.0 + share * 2 * 40.0, {V100: 3.0 + share * 40.0})


def test_a_job_that_runs_has_not_waited_for_less_than_nothing_nor_done_more_than_all() -> None:
    assert the_job(runs(held_s=54.5)).wait_s == 0.5
    assert the_job(runs(held_s=60.0)).wait_s == 0.0
    assert the_job(runs(samples_done=900.0, ahead_at=80.0)).samples_done == 1000.0


def test_a_job_that_no_plan_keeps_runs_on_but_nobody_knows_how_fast() -> None:
    state = runs(**PAST, ahead=30.0, ahead_at=80.0)
    fold(state, plan())
    job = the_job(state)
    assert job.present is None
    assert (job.attained_gpu_s, job.received_s, job.samples_done) == (87.0, {V100: 43.0}, 130.0)


def test_a_gang_of_two_types_receives_of_each_by_its_gpus() -> None:
    both = config(node_1=1, node_2=3)
    state = state_of(
        joined(),
        joined(OTHER, gpu_type=K80),
        *in_queue(demand=(4,)),
        plan(placement(on=both)),
        started(at=60.0, on=both),
    )
    assert the_job(state).received_s == {V100: 10.0, K80: 30.0}


def test_a_job_starts_where_it_is_placed_until_it_runs_there() -> None:
    state = state_of(joined(), *in_queue(), plan(on(2)))
    present = the_job(state).present
    assert present is not None
    assert (present.gang.configuration, present.starting) == (HERE, True)
    assert (present.placement_id, present.throughput, present.share) == ("pl-1", 10.0, 1.0)


@pytest.mark.parametrize(("place", "starting"), [(0, True), (1, False)])
def test_a_job_that_will_take_other_turns_runs_there_already(place: int, *, starting: bool) -> None:
    """The same rota with other turns; or another rota."""

    def turning(rota: RotaId, turn: int) -> Gang:
        return Gang.of(HERE, Relaxed(tasks=((1, 1),), rota=rota, place=turn, turns=2))

    wanted = turning(RotaId("rota-1" if place else "rota-2"), place)
    there = msgspec.structs.replace(on(2), gang=wanted)
    state = state_of(joined(modes=("lockstep", "relaxed")), *in_queue(), plan(there))
    job = state.jobs[JOB]
    job.running, job.status = turning(RotaId("rota-1"), 0), JobState.RUNNING
    present = the_job(state).present
    assert present is not None
    assert present.starting is starting


def test_a_job_has_no_place_where_its_gang_is_broken_or_misfits_it() -> None:
    state = runs()
    state.claims.broken.add(PlacementId("pl-1"))
    assert the_job(state).present is None
    assert the_job(state_of(joined(), *in_queue(demand=(1,)), plan(on(2)))).present is None


def test_a_job_that_was_refused_is_not_shown_until_its_time() -> None:
    state = state_of(joined(), *in_queue("a"), *in_queue("b"))
    state.jobs[JobId("a")].put_off_until = 100.0
    for at, names in ((99.0, ["b"]), (100.0, ["a", "b"]), (101.0, ["a", "b"])):
        assert [job.job_id for job in seen(state, at=at).jobs] == names
        assert [job.job_id for job in seen(state, at=at, kind=PlanKind.FRAGMENT).jobs] == names
    assert seen(waits(put_off_until=101.0)).jobs == ()


def test_a_job_is_shown_once_it_is_queued_and_in_the_order_of_submission() -> None:
    state = state_of(joined(), *in_queue("late", at=9.0), *in_queue("b", at=3.0), *in_queue("a", at=3.0))
    fold(state, submitted("coming"))
    assert [job.job_id for job in seen(state).jobs] == ["a", "b", "late"]
    assert (seen(state).jobs_present, seen(state).jobs_coming) == (4, 1)


def test_a_job_that_waits_for_a_node_to_be_measured_on_is_not_counted_as_coming() -> None:
    state = state_of(joined(), joined(OTHER, gpu_type=K80), submitted("new", gpu_types=(K80,)))
    assert seen(state).jobs_coming == 1
    fold(state, NodeDrained(at=0.0, node_id=OTHER))
    assert (seen(state).jobs_present, seen(state).jobs_coming) == (1, 0)
    fold(state, profiled("new"))
    assert seen(state).jobs_coming == 1


def test_a_job_that_failed_on_each_open_type_is_not_counted_as_coming() -> None:
    """It waits for a node of another type, and jobs that `jps` gathers waited with it."""
    state = state_of(joined(), joined(OTHER, gpu_type=K80), submitted("new"))
    fold(state, NodeDrained(at=0.0, node_id=OTHER))
    assert seen(state).jobs_coming == 1
    for place, node_id, final, coming in (
        ("pf-1", NODE, False, 1),
        ("pf-2", OTHER, True, 1),  # of a measurement that is not this node's
        ("pf-2", NODE, True, 0),
    ):
        fold(state, opened(profile_run("new", place=place)))
        fold(
            state,
            ProfileFailed(
                at=1.0,
                job_id=JobId("new"),
                placement_id=PlacementId(place),
                gpu_type=V100,
                node_id=NodeId(node_id),
                reason="no memory",
                final=final,
            ),
        )
        assert seen(state).jobs_coming == coming
    fold(state, NodeRestored(at=2.0, node_id=OTHER))
    assert seen(state).jobs_coming == 1


def test_the_memory_is_shown_to_the_policy_that_left_it() -> None:
    state = State()
    state.memory, state.memory_of = b"left", str(b"hops", "ascii")
    found = {name: seen(state, policy=name).memory for name in ("hop", "hops", "hopyard")}
    assert found == {"hop": b"", "hops": b"left", "hopyard": b""}


def test_rounds_are_counted_from_nought() -> None:
    assert [seen(State(), at=at).round for at in (0.0, 359.0, 360.0, 719.0, 720.0)] == [0, 0, 1, 1, 2]


# ---- GPUs


def measuring(*places: str) -> list[Event]:
    """A node of four GPUs, and so many measurements on it."""
    return [joined(gpus=4), submitted("new"), opened(*[profile_run("new", place=one) for one in places])]


@pytest.mark.parametrize(("stays", "measured", "left"), [(4, 1, 4), (3, 1, 3), (3, 2, 3), (1, 2, 2)])
def test_a_measurement_takes_no_gpu_from_a_job_that_stays(stays: int, measured: int, left: int) -> None:
    there = on(stays)
    names = [f"pf-{number}" for number in range(measured)]
    state = state_of(*measuring(*names), *in_queue(demand=(1, 3, 4)), plan(there))
    view = seen(state, staying={JOB: there}, shown=True)
    assert idle(view) == {NODE: left}
    assert [(job.job_id, job.stays) for job in view.jobs] == [(JOB, True)]


def test_a_job_that_stays_unseen_holds_its_gpus() -> None:
    one, other = on(1), on(2, job_id="other", place="pl-2", node=OTHER)
    state = state_of(*measuring("pf-0"), joined(OTHER), *in_queue("a"), *in_queue("other"), *in_queue())
    fold(state, plan(one, other))
    view = seen(state, staying={each.job_id: each for each in (one, other)})
    assert idle(view) == {NODE: 2, OTHER: 6}
    assert [(job.job_id, job.stays) for job in view.jobs] == [("a", False)]
    found = {job_id: (present.gang, present.starting) for job_id, present in view.apart.items()}
    assert found == {each.job_id: (each.gang, False) for each in (one, other)}


def test_jobs_on_a_node_that_has_become_too_small_for_them_are_apart() -> None:
    one, two, away = (
        on(gpus, job_id=job_id, place=job_id, node=node)
        for job_id, gpus, node in (("one", 3, NODE), ("two", 2, NODE), ("away", 8, OTHER))
    )
    state = state_of(joined(gpus=8), joined(OTHER), *in_queue("one", demand=(3,)), *in_queue("two"))
    for fact in (*in_queue("away", demand=(8,)), plan(one, two, away), joined(gpus=4, life="2")):
        fold(state, fact)
    view = seen(state, staying={each.job_id: each for each in (one, two, away)}, shown=True)
    assert set(view.apart) == {"one", "two"}
    assert [(job.job_id, job.stays) for job in view.jobs] == [("away", True)]
    assert idle(view) == {NODE: 0, OTHER: 8}


@pytest.mark.parametrize("preemptible", [True, False])
def test_gpus_that_are_held_to_the_end_by_a_job_outside_the_view_are_not_shown(*, preemptible: bool) -> None:
    """A job that may be moved later holds its GPUs for a while only; one that is shown has its GPUs shown."""
    there, whole = on(1), on(8, job_id="whole", place="pl-2", node=OTHER)
    state = state_of(joined(gpus=4), joined(OTHER))
    for job_id, demand in ((JOB, (1,)), ("whole", (8,))):
        for fact in in_queue(job_id, demand=demand, preemptible=preemptible):
            fold(state, fact)
    fold(state, plan(there, whole))
    stay = {each.job_id: each for each in (there, whole)}
    assert gpus(seen(state, staying=stay)) == (
        {NODE: (4, 3), OTHER: (8, 0)} if preemptible else {NODE: (3, 3)}
    )
    assert gpus(seen(state, staying=stay, shown=True)) == {NODE: (4, 4), OTHER: (8, 8)}


def test_a_closed_node_shows_the_gpus_of_jobs_that_stay() -> None:
    there = on(3)
    state = state_of(joined(gpus=4), joined(OTHER), *in_queue(demand=(3,)), plan(there))
    shut = frozenset({NODE})
    shows = seen(state, staying={JOB: there}, shown=True, closed=shut)
    assert gpus(shows) == {NODE: (3, 3), OTHER: (8, 8)}
    assert [node.closed for node in shows.nodes] == [True, False]
    assert gpus(seen(state, staying={JOB: there}, closed=shut)) == {OTHER: (8, 8)}
    assert gpus(seen(state, closed=shut)) == {OTHER: (8, 8)}
    fragment = seen(state, staying={JOB: there}, shown=True, closed=shut, kind=PlanKind.FRAGMENT)
    assert gpus(fragment) == {OTHER: (8, 8)}
    assert (idle_gpus(state), idle_gpus(state, closed=shut)) == (1 + 8, 8)


def test_the_types_of_a_job_are_those_that_the_cluster_has() -> None:
    state = state_of(joined(), *in_queue())
    state.jobs[JOB].gpu_types = (K80, V100)
    assert the_job(state).gpu_types == (V100,)


def test_a_further_type_of_a_job_counts_once_its_speed_is_known() -> None:
    memo = Memo()
    state = state_of(joined(), joined(OTHER, gpu_type=K80), *in_queue())
    before = seen(state, memo=memo).jobs[0]
    fold(state, type_profiled())
    assert seen(state, memo=memo).jobs == (before,)
    fold(state, type_estimated(single_gpu=5.0))
    [after] = seen(state, memo=memo).jobs
    assert after.gpu_types == (K80, V100)
    assert after.single_gpu == {**before.single_gpu, K80: 5.0}
    assert after == seen(state).jobs[0]


# ---- starts and switches


def test_processes_that_stand_by_count_on_nodes_that_are_used() -> None:
    state = state_of(joined(), joined(OTHER), *in_queue("a"), *in_queue("b"), *in_queue("c"))
    state.residents[NODE] = Residents(processes={JobId("a"): 2, JobId("b"): 1})
    state.residents[OTHER] = Residents(processes={JobId("a"): 3})
    shown = {job.job_id: job.warm for job in seen(state).jobs}
    assert shown == {"a": {NODE: 2, OTHER: 3}, "b": {NODE: 1}, "c": {}}
    fold(state, NodeDrained(at=1.0, node_id=OTHER))
    assert {job.job_id: job.warm for job in seen(state).jobs} == {"a": {NODE: 2}, "b": {NODE: 1}, "c": {}}


def test_restarts_are_shown_of_workloads_that_were_seen() -> None:
    state = state_of(joined(), *in_queue())
    assert (seen(state).restarts_s, seen(state).restart_s) == ({}, 15.0)
    workload = state.jobs[JOB].workload
    state.restarts.started(workload, [V100], 9.0)
    [(found, seconds)] = seen(state).restarts_s.items()
    assert (found, seconds) == (workload, state.restarts.expected_s(workload, 15.0))
    assert 9.0 < seconds[V100] < 15.0 + 9.0


def test_switches_are_shown_of_workloads_that_were_seen_where_a_job_is_warm() -> None:
    state = state_of(joined(), *in_queue())
    workload = state.jobs[JOB].workload
    state.restarts.switched(workload, [V100], 2.0)
    assert seen(state, switch_s=1.0).switches_s == {}
    state.residents[NODE] = Residents(processes={JobId(JOB): 2})
    view = seen(state, switch_s=1.0)
    assert view.switches_s == {workload: state.restarts.expected_switches_s(workload, 1.0)}
    assert set(view.switches_s[workload]) == {V100}
    state.jobs[JOB].workload = msgspec.convert("another", type(workload))
    assert seen(state, switch_s=1.0).switches_s == seen(state, switch_s=1.0).restarts_s == {}


def test_a_view_with_a_memo_shows_no_jobs_of_the_past() -> None:
    """More jobs have ended than a memo keeps."""
    state, memo = state_of(joined()), Memo()
    for number in range(150):
        for fact in in_queue(f"job-{number}"):
            fold(state, fact)
    seen(state, memo=memo)
    assert len(memo.jobs) == 150
    for number in range(140):
        del state.jobs[JobId(f"job-{number}")], state.waiting[JobId(f"job-{number}")]
    again = seen(state, memo=memo)
    assert len(memo.jobs) == 10
    assert again == seen(state)


@pytest.mark.parametrize(
    "news",
    [
        {"single_gpu": {V100: 99.0}},
        {"single_gpu": {V100: 10.0}, "age_s": 77.0},  # queued anew, at the speeds that it had
        {"restarts": 1},
        {"attained_gpu_s": 5.0},
        {"received_s": {V100: 5.0}},
        {"unfit": frozenset({NODE, OTHER})},
        {"unfit": frozenset()},
    ],
)
def test_what_changes_of_a_job_is_shown_though_a_memo_has_it(news: dict[str, object]) -> None:
    state, memo = waits(unfit=frozenset({NODE})), Memo()
    before = seen(state, memo=memo)
    for name, value in news.items():
        setattr(state.jobs[JOB], name, value)
    after = seen(state, memo=memo)
    assert after == seen(state) != before


def test_a_gang_that_breaks_has_no_place_though_a_memo_has_one() -> None:
    both = config(node_1=1, node_2=1)
    state = state_of(joined(), joined(OTHER), *in_queue(), plan(placement(on=both)))
    for node_id in both:
        fold(state, worker_started(node_id=node_id))
    fold(state, started(at=60.0, on=both))
    memo = Memo()
    assert [job.present is None for job in seen(state, memo=memo).jobs] == [False]
    fold(state, worker_stopped(node_id=OTHER, at=90.0))
    after = seen(state, memo=memo)
    assert [job.present is None for job in after.jobs] == [True]
    assert after == seen(state)


@pytest.mark.parametrize("beside", [[], [joined()]])
def test_a_node_closes_once_it_goes_away(beside: list[Event]) -> None:
    settings, memo = Settings(), Memo()
    state = state_of(*beside, joined(OTHER), *in_queue())
    assert closed_nodes(state, 100.0, settings, memo) == frozenset()
    fact = joined(OTHER, life="2")
    fold(state, msgspec.structs.replace(fact, node=msgspec.structs.replace(fact.node, until=100.0)))
    assert closed_nodes(state, 100.0, settings, memo) == {OTHER}
