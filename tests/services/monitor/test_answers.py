"""What users see of jobs, nodes and the cluster."""

from typing import Any

import msgspec
import pytest

from schemas.base import Event
from schemas.events import GpusWithheld, NodeDrained, NodeRemoved, NodeReturned, ProfileFailed
from schemas.ids import JobId, NodeId
from schemas.placement import Gang
from schemas.plans import Layer, Waiting
from schemas.questions import (
    JOBS_PER_PAGE,
    EstimateQuestion,
    ExplainJob,
    ListJobs,
    ListNodes,
    Refused,
    ShowJob,
    ShowStatus,
)
from schemas.views import HoldView, JobPage, JobSorting, JobView, NodePage, StatusView, WhyView
from shared.domain.ledger import ledger_of
from shared.domain.metrics import summary
from tests.fact_builders import (
    JOB,
    K80,
    NODE,
    V100,
    cancelled,
    completed,
    config,
    failed,
    held,
    in_queue,
    joined,
    left_out,
    lost,
    opened,
    placement,
    plan,
    preempted,
    profile_run,
    profiled,
    released,
    start_ordered,
    started,
    submitted,
    whole_life,
    worker_started,
    worker_stopped,
)
from tests.services.monitor.monitor_world import World, heartbeat


def status(world: World) -> StatusView:
    view = world.ask(ShowStatus())
    assert isinstance(view, StatusView)
    return view


def job(world: World, job_id: str = JOB) -> JobView:
    view = world.ask(ShowJob(job_id=JobId(job_id)))
    assert isinstance(view, JobView)
    return view


def page(world: World, question: ListJobs) -> JobPage:
    view = world.ask(question)
    assert isinstance(view, JobPage)
    return view


def why(*facts: Event, now: float = 0.0) -> WhyView:
    world = World(*facts)
    world.now = now
    view = world.ask(ExplainJob(job_id=JobId(JOB)))
    assert isinstance(view, WhyView)
    return view


# ---- status


def test_the_status_counts_jobs_nodes_and_gpus() -> None:
    view = status(
        World(
            joined(gpus=4),
            joined("node-2", gpus=2, gpu_type="k80"),
            joined("node-3", gpus=8),
            lost("node-3"),
            *in_queue(),
            submitted("job-2"),
            worker_started(gpu_indices=(0, 1)),
        )
    )
    assert view.jobs == {"submitted": 1, "queued": 1}
    assert view.gpus == {K80: (0, 2), V100: (2, 4)}
    assert view.nodes == {"alive": 2, "draining": 0, "lost": 1}


def test_the_status_shows_the_last_plan_and_its_policy() -> None:
    view = status(World(plan(placement(), policy="fifo", gap=0.01)))
    assert view.policy == "fifo"
    assert view.plan is not None
    assert (view.plan.placements, view.plan.gap) == (1, 0.01)


def test_the_status_of_an_empty_cluster_is_empty() -> None:
    view = status(World())
    assert (view.jobs, view.gpus, view.policy, view.plan, view.raqlr) == ({}, {}, None, None, None)


def test_the_status_carries_the_figures() -> None:
    world = World(joined(), *in_queue(), started(at=30), completed(at=80))
    world.now = 100
    view = status(world)
    assert view.metrics["jct_s_mean"] == 80
    assert view.raqlr == pytest.approx(0.3)


def test_the_figures_while_it_runs_are_those_of_the_log_afterwards() -> None:
    world = World(*whole_life(), *whole_life("job-2", at=200.0, place="pl-2"))
    world.now = 400.0
    assert status(world).metrics == summary(ledger_of(world.log), now=400.0, raqlr_window_s=3600.0)


# ---- jobs


def test_a_running_job_shows_where_it_runs_and_how_fast_it_should() -> None:
    two = config(node_1=2)
    world = World(joined(), *in_queue(), plan(placement(on=two)), started(at=5, on=two))
    world.now = 20
    view = job(world)
    assert (view.state, view.gang, view.started_at) == ("running", Gang.of(two), 5)
    assert (view.estimated_throughput, view.layer) == (10.0, Layer.THEORY)
    assert (view.wait_s, view.latency_ratio) == (5, 0.05)


def test_progress_follows_the_heartbeats_while_the_job_runs() -> None:
    world = World(joined(), *in_queue(), started())
    world.hear(heartbeat(progress={JobId(JOB): 321.0}), at=1)
    assert job(world).samples_done == 321
    world.tell(preempted(samples_done=300))
    assert job(world).samples_done == 300


def test_a_failed_job_says_why() -> None:
    view = job(World(joined(), *in_queue(), started(), failed(at=9, reason="exit 1")))
    assert (view.state, view.reason, view.ended_at) == ("failed", "exit 1", 9)


@pytest.mark.parametrize("question", [ShowJob(job_id=JobId("x")), ExplainJob(job_id=JobId("x"))])
def test_an_unknown_job_is_refused(question: ShowJob | ExplainJob) -> None:
    world = World()
    world.monitor.state.seq = 7
    assert world.ask(question) == Refused(reason="job x is not known", seq=7)


def test_a_question_for_another_service_is_refused() -> None:
    question = EstimateQuestion(jobs=(), nodes=(), job=b"", start=b"", node=b"", gpus=b"")
    assert World().ask(question) == Refused(reason="the monitor does not answer EstimateQuestion")


# ---- pages


def five_jobs() -> World:
    return World(*(submitted(f"job-{number}", at=float(number)) for number in range(5)))


def ids(world: World, **question: Any) -> list[str]:  # noqa: ANN401 - any field of ListJobs
    return [view.job_id for view in page(world, ListJobs(**question)).jobs]


def test_jobs_come_in_the_order_of_their_submission() -> None:
    found = page(five_jobs(), ListJobs())
    assert [view.job_id for view in found.jobs] == [f"job-{number}" for number in range(5)]
    assert found.next is None


def test_pages_follow_one_another_without_gap_or_repetition() -> None:
    world, seen, after = five_jobs(), [], None
    while True:
        found = page(world, ListJobs(limit=2, after=after))
        seen += [view.job_id for view in found.jobs]
        after = found.next
        if after is None:
            break
    assert seen == [f"job-{number}" for number in range(5)]


def test_jobs_that_come_between_two_pages_change_nothing_before_them() -> None:
    world = five_jobs()
    first = page(world, ListJobs(limit=4))
    world.tell(submitted("job-0a", at=0.5))
    assert [view.job_id for view in page(world, ListJobs(after=first.next)).jobs] == ["job-4"]


def test_jobs_can_be_chosen_by_state_and_by_project() -> None:
    world = World(submitted("a", project="x"), submitted("b", project="y"), *in_queue("c", project="x"))
    assert [view.job_id for view in page(world, ListJobs(project="x")).jobs] == ["a", "c"]
    assert [view.job_id for view in page(world, ListJobs(project="x", states=("queued",))).jobs] == ["c"]


def test_jobs_can_be_chosen_by_several_states_and_by_user() -> None:
    world = World(
        joined(), submitted("a", user="ada"), submitted("b", user="bob"), *in_queue("c", user="ada")
    )
    world.tell(cancelled("b"))
    assert ids(world, states=("submitted", "cancelled")) == ["a", "b"]
    assert ids(world, user="ada") == ["a", "c"]


def various() -> World:
    """One job in each part of its life, in the order in which they came."""
    world = World(joined(gpus=8), *in_queue("done", at=0.0), started("done", at=10, place="p1"))
    world.tell(completed("done", at=20), *in_queue("runs", at=30.0), started("runs", at=35, place="p2"))
    world.tell(submitted("dropped", at=40.0), cancelled("dropped", at=41.0), submitted("new", at=50.0))
    world.now = 100.0
    return world


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (JobSorting.SUBMITTED, ["done", "runs", "dropped", "new"]),
        (JobSorting.NEWEST, ["new", "dropped", "runs", "done"]),
        (JobSorting.ACTIVE, ["new", "runs", "dropped", "done"]),
        (JobSorting.STARTED, ["runs", "done", "new", "dropped"]),
        (JobSorting.ENDED, ["dropped", "done", "new", "runs"]),
        (JobSorting.WAITED, ["new", "done", "runs", "dropped"]),
    ],
)
def test_jobs_come_in_the_order_asked_for_on_one_page_or_on_many(
    sort: JobSorting, expected: list[str]
) -> None:
    world = various()
    assert ids(world, sort=sort) == expected
    seen, after = list[str](), None
    for _ in expected:
        found = page(world, ListJobs(sort=sort, limit=1, after=after))
        seen += [view.job_id for view in found.jobs]
        after = found.next
    assert (seen, after) == (expected, None)


def test_a_token_of_another_order_is_refused() -> None:
    token = page(five_jobs(), ListJobs(limit=1)).next
    reply = five_jobs().ask(ListJobs(sort=JobSorting.NEWEST, after=token))
    assert reply == Refused(reason="this token is of a page in the order submitted")


@pytest.mark.parametrize("limit", [-5, 0, 1])
def test_a_page_has_at_least_one_job(limit: int) -> None:
    assert len(page(five_jobs(), ListJobs(limit=limit)).jobs) == 1


def test_a_page_has_a_largest_size() -> None:
    world = World(*(submitted(f"job-{number}") for number in range(JOBS_PER_PAGE + 1)))
    found = page(world, ListJobs(limit=100_000))
    assert len(found.jobs) == JOBS_PER_PAGE
    assert found.next is not None
    assert page(world, ListJobs(limit=JOBS_PER_PAGE)) == found


@pytest.mark.parametrize("token", ["", "?", "[1]", '["age", [0, 0, "a"]]', '["newest", [0, 0]]'])
def test_a_made_up_page_token_is_refused(token: str) -> None:
    assert World().ask(ListJobs(after=token)) == Refused(
        reason="this is no page token; give `next` of the page before"
    )


def test_a_state_that_does_not_exist_is_refused() -> None:
    reply = World().ask(ListJobs(states=("queued", "asleep")))
    assert isinstance(reply, Refused)
    assert reply.reason.startswith("state: asleep is none of submitted, profiled, queued")


# ---- why


WHEN_IDLE = "it is measured as soon as GPUs are idle, or from the start of the next round"


def test_a_new_job_waits_to_be_measured() -> None:
    view = why(joined(), submitted())
    assert (view.reason, view.detail) == ("profiling", WHEN_IDLE)


@pytest.mark.parametrize("beside", [[], [joined("node-2", gpu_type=K80), lost("node-2")]])
def test_a_job_that_names_a_type_without_a_node_says_that_it_waits_for_one(beside: list[Event]) -> None:
    facts = [joined(), *beside, submitted(gpu_types=(V100, K80))]
    waits = "waits for one: profile_attempts rounds, or without end if the job can use no other type"
    none = "no node with k80 takes jobs, and the measurement there"
    assert why(*facts).detail == f"{WHEN_IDLE}; {none} {waits}"
    there = joined("node-3", gpu_type=K80)
    assert why(*facts, there).detail == WHEN_IDLE


def test_a_job_under_measurement_says_where() -> None:
    assert why(joined(), submitted(), opened(profile_run())).detail == "it is being measured on v100 (node-1)"


def test_a_job_on_hold_says_since_when_and_by_whom() -> None:
    by_ada = msgspec.structs.replace(held(at=5), by="ada/12ab")
    view = why(joined(), *in_queue(), by_ada, plan(at=7), now=9.0)
    assert (view.reason, view.detail, view.since, view.wait_s) == (Waiting.ON_HOLD, "by ada", 5.0, 5.0)
    assert view.hold == HoldView(at=5.0, by="ada")
    assert why(*in_queue(), held(at=5)).detail == ""
    runs = why(joined(), *in_queue(), started(at=3), held(at=5))
    assert (runs.reason, runs.detail) == ("running", "it runs on node-1 (1 GPU); it is on hold")
    stopped = why(joined(), *in_queue(), started(at=3), held(at=5), preempted(at=8))
    assert (stopped.reason, stopped.since) == (Waiting.ON_HOLD, 5.0)
    kept = why(joined(), *in_queue(preemptible=False), held(at=2), started(at=3))
    assert kept.hold == HoldView(at=2.0, keeps_gpus=True)
    back = why(joined(), *in_queue(preemptible=False), held(at=2), started(at=3), preempted(at=8))
    assert (back.reason, back.hold) == (Waiting.ON_HOLD, HoldView(at=2.0))
    left = msgspec.structs.replace(left_out(), reason=Waiting.ON_HOLD)
    free = why(joined(), *in_queue(), held(at=5), plan(at=6, left_out=(left,)), released(at=7))
    assert (free.reason, free.hold) == (Waiting.NOT_PLANNED, None)
    assert why(joined(), *in_queue(), held(at=5), cancelled(at=6)).hold is None


def test_a_job_that_could_not_be_measured_says_where_and_why() -> None:
    run = profile_run()
    no_profile = ProfileFailed(
        at=2.0,
        job_id=run.job_id,
        placement_id=run.placement_id,
        gpu_type=run.gpu_type,
        node_id=run.node_id,
        reason="exit code 3",
        final=False,
    )
    facts = (joined(), submitted(), opened(run), no_profile)
    could_not = "it could not be measured on v100 (node-1): exit code 3"
    assert why(*facts).detail == f"again from the start of the next round at the latest; {could_not}"
    assert why(*facts, opened(run)).detail == f"on v100 (node-1), now; {could_not}"
    assert job(World(*facts)).unmeasured == "on v100 (node-1): exit code 3"
    assert job(World(*facts, profiled())).unmeasured == ""


def test_a_measured_job_waits_for_its_estimate() -> None:
    assert why(joined(), submitted(), profiled()).reason == Waiting.NO_ESTIMATE


def test_a_job_that_came_after_the_last_plan_waits_for_the_next() -> None:
    assert why(joined(), plan(), *in_queue()).reason == Waiting.NOT_PLANNED


def test_a_job_left_out_has_the_reason_of_the_plan() -> None:
    view = why(joined(), *in_queue(), plan(left_out=(left_out(held_by=["job-9"]),)))
    assert (view.reason, view.detail, view.held_by, view.plan_id) == (
        "outweighed",
        "so it is",
        ("job-9",),
        "plan-1",
    )


def test_a_planned_job_is_starting() -> None:
    view = why(joined(), *in_queue(), plan(placement(on=config(node_1=2))), start_ordered())
    assert view.reason == "starting"
    assert "node-1 (2 GPUs)" in view.detail


def test_a_running_job_says_where() -> None:
    view = why(joined(), *in_queue(), started())
    assert (view.reason, view.detail) == ("running", "it runs on node-1 (1 GPU)")


def test_a_job_whose_gpu_types_are_all_away_says_so() -> None:
    assert why(joined(), *in_queue(gpu_types=(K80,))).reason == "no-nodes"
    assert why(joined(), *in_queue(), lost()).reason == "no-nodes"


def test_an_ended_job_says_how_it_ended() -> None:
    assert why(submitted(), cancelled()).reason == "cancelled"
    view = why(joined(), *in_queue(), started(), failed(reason="exit 1"))
    assert (view.reason, view.detail) == ("failed", "exit 1")


def test_the_expected_wait_is_the_recent_latency_ratio_times_the_age() -> None:
    earlier = [*in_queue("a"), started("a", at=50), completed("a", at=60)]  # waited 50 s of an age of 100 s
    assert why(joined(), *earlier, *in_queue(), now=100).expected_wait_s == pytest.approx(50)


def test_a_waiting_job_shows_its_expected_wait_in_every_list() -> None:
    earlier = [*in_queue("a"), started("a", at=50), completed("a", at=60)]
    world = World(joined(), *earlier, *in_queue())
    world.now = 100
    found = page(world, ListJobs()).jobs
    assert [view.expected_wait_s for view in found] == [None, pytest.approx(50)]
    world.tell(started(at=100))
    assert job(world).expected_wait_s is None


def test_without_an_ended_job_the_expected_wait_is_unknown() -> None:
    assert why(joined(), *in_queue()).expected_wait_s is None


# ---- nodes


def test_nodes_show_their_jobs_and_when_they_were_heard() -> None:
    world = World(joined(), worker_started(gpu_indices=(0, 1, 2)))
    world.hear(heartbeat(), at=2)
    world.now = 3.5
    view = world.ask(ListNodes())
    assert isinstance(view, NodePage)
    [node] = view.nodes
    assert (node.state, node.gpus_free, node.jobs, node.heartbeat_age_s) == ("alive", 5, {JOB: 3}, 1.5)


def test_withheld_gpus_that_a_job_still_holds_are_in_use() -> None:
    kept = GpusWithheld(at=1.0, node_id=NodeId(NODE), gpus={0: "Xid 79", 7: "Xid 79"})
    world = World(joined(), worker_started(gpu_indices=(0, 1, 2)), kept)
    assert status(world).gpus == {V100: (3, 7)}
    view = world.ask(ListNodes())
    assert isinstance(view, NodePage)
    assert view.nodes[0].gpus_free == 4
    world.tell(worker_stopped(at=2.0))
    assert status(world).gpus == {V100: (0, 6)}


def test_a_lost_node_has_no_free_gpus() -> None:
    view = World(joined(), worker_started(), lost()).ask(ListNodes())
    assert isinstance(view, NodePage)
    [node] = view.nodes
    assert (node.state, node.gpus_free, node.jobs, node.heartbeat_age_s) == ("lost", 0, {}, None)


def test_a_removed_node_is_in_no_list_until_it_is_heard_again() -> None:
    world = World(joined(), joined("other", gpu_type=K80), lost(), NodeRemoved(at=1.0, node_id=NodeId(NODE)))
    assert (status(world).nodes, status(world).gpus) == (
        {"alive": 1, "draining": 0, "lost": 0},
        {K80: (0, 8)},
    )
    view = world.ask(ListNodes())
    assert isinstance(view, NodePage)
    assert [one.node.node_id for one in view.nodes] == ["other"]
    [back] = world.hear(heartbeat(), at=2.0)
    assert isinstance(back, NodeReturned)
    assert status(world).nodes["alive"] == 2


def test_a_node_says_how_long_it_stays_and_that_its_agent_leaves() -> None:
    fact = joined()
    goes = msgspec.structs.replace(fact, node=msgspec.structs.replace(fact.node, until=100.0))
    world = World(goes)
    world.now = 40.0
    view = world.ask(ListNodes())
    assert isinstance(view, NodePage)
    assert (view.nodes[0].state, view.nodes[0].left_s) == ("alive", 60.0)
    world.tell(NodeDrained(at=50.0, node_id=fact.node_id, life=fact.life, reason="its time is over"))
    left = world.ask(ListNodes())
    assert isinstance(left, NodePage)
    assert (left.nodes[0].state, left.nodes[0].reason) == ("draining", "its time is over")
    world.tell(msgspec.structs.replace(fact, at=60.0, life="next"))
    again = world.ask(ListNodes())
    assert isinstance(again, NodePage)
    assert (again.nodes[0].state, again.nodes[0].reason, again.nodes[0].left_s) == ("alive", "", None)


def test_a_draining_node_says_so() -> None:
    view = World(joined(), NodeDrained(at=1, node_id=NODE)).ask(ListNodes())
    assert isinstance(view, NodePage)
    assert view.nodes[0].state == "draining"
