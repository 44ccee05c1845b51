"""What a page over the cluster is made of: the timeline and its revisions, jobs in short, runs, plans."""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from schemas.base import Event, Message, Question
from schemas.events import FACTS, JobCompleted, NodeDrained, NodeRemoved, NodeRestored, Outcome, PreemptReason
from schemas.ids import JobId, PlanId
from schemas.overview import PlanDetail, PlanPage, RunPage, SummaryPage, TimelineView, Which
from schemas.plans import LeftOut, Waiting
from schemas.questions import (
    ListNodes,
    ListPlans,
    ListRuns,
    ListSummaries,
    Refused,
    ShowPlan,
    ShowTimeline,
)
from schemas.views import NodePage
from services.monitor.folds import FOLDS
from tests.fact_builders import (
    JOB,
    NODE,
    cancelled,
    checkpointed,
    completed,
    config,
    failed,
    in_queue,
    joined,
    left_out,
    lost,
    opened,
    placement,
    plan,
    preempted,
    profile_run,
    returned,
    start_ordered,
    started,
    submitted,
    worker_started,
    worker_stopped,
)
from tests.services.monitor.monitor_world import World, heartbeat

M = TypeVar("M", bound=Message)


def asked(world: World, question: Question, kind: type[M]) -> M:
    reply = world.ask(question)
    assert isinstance(reply, kind), reply
    return reply


def timeline(world: World, after: int = 0, limit: int = 1_000) -> TimelineView:
    return asked(world, ShowTimeline(after=after, limit=limit), TimelineView)


def summaries(world: World, which: Which = Which.WAITING, limit: int = 100) -> SummaryPage:
    return asked(world, ListSummaries(which=which, limit=limit), SummaryPage)


def training(*, at: float = 10.0) -> list[Event]:
    return [
        joined(),
        *in_queue(),
        plan(placement(on=config(node_1=2))),
        start_ordered(at=at),
        worker_started(at=at, gpu_indices=(0, 1)),
        started(at=at, on=config(node_1=2)),
    ]


# ---- the timeline


def test_a_holding_lasts_from_the_start_of_the_processes_to_their_end() -> None:
    world = World(*training())
    [going_on] = timeline(world).holdings
    assert (going_on.node_id, going_on.job_id, going_on.gpu_indices) == (NODE, JOB, (0, 1))
    assert (going_on.since, going_on.until, going_on.measures) == (10, None, False)
    world.tell(worker_stopped(at=90))
    [over] = timeline(world).holdings
    assert (over.since, over.until, over.end) == (10, 90, Outcome.COMPLETED)


def test_a_measurement_is_no_training() -> None:
    world = World(joined(), submitted(), opened(profile_run(place="pf-1")), worker_started(place="pf-1"))
    [holding] = timeline(world).holdings
    assert holding.measures


def test_a_reader_gets_the_changes_since_its_revision() -> None:
    world = World(*training())
    first = timeline(world)
    assert timeline(world, first.revision).holdings == ()
    world.tell(worker_stopped(at=90))
    second = timeline(world, first.revision)
    assert [each.until for each in second.holdings] == [90]
    assert timeline(world, second.revision).holdings == ()


def test_a_long_answer_comes_in_complete_parts() -> None:
    ends = [Outcome.CHECKPOINTED] * 3
    facts: list[Event] = [joined()]
    for number, outcome in enumerate(ends):
        facts += [worker_started(place=f"pl-{number}", at=number), worker_stopped(place=f"pl-{number}", at=9)]
        facts += [worker_started(place=f"on-{number}", at=number)] if outcome else []
    world, after, seen = World(*facts), 0, list[str]()
    while True:
        page = timeline(world, after, limit=2)
        seen += [each.placement_id for each in page.holdings]
        after = page.revision
        if not page.more:
            break
    assert sorted(seen) == ["on-0", "on-1", "on-2", "pl-0", "pl-1", "pl-2"]


@pytest.mark.parametrize(
    ("begun", "over", "state"),
    [
        (lost(at=20), returned(at=50), "lost"),
        (lost(at=20), joined(at=50, life="2"), "lost"),
        (NodeDrained(at=20, node_id=NODE), NodeRestored(at=50, node_id=NODE), "draining"),
        (NodeDrained(at=20, node_id=NODE, life="1"), joined(at=50, life="2"), "leaving"),
    ],
)
def test_a_node_out_of_use_shows_from_when_until_when(begun: Event, over: Event, state: str) -> None:
    world = World(joined(), begun)
    assert [(each.state, each.since, each.until) for each in timeline(world).spells] == [(state, 20, None)]
    world.tell(over)
    assert [(each.state, each.since, each.until) for each in timeline(world).spells] == [(state, 20, 50)]


@pytest.mark.parametrize(
    ("facts", "spells", "state"),
    [
        ([joined(life="2", at=10), NodeDrained(at=20, node_id=NODE, life="1")], [], "alive"),
        ([NodeDrained(at=10, node_id=NODE, life="1"), joined(at=20)], [("leaving", 10, None)], "draining"),
        ([lost("never joined", at=10)], [], "alive"),
    ],
)
def test_the_timeline_agrees_with_the_list_of_nodes(
    facts: list[Event], spells: list[tuple[str, float, float | None]], state: str
) -> None:
    world = World(joined(), *facts)
    assert [(each.state, each.since, each.until) for each in timeline(world).spells] == spells
    assert [each.state for each in asked(world, ListNodes(), NodePage).nodes] == [state]


def test_a_removed_node_has_no_lane() -> None:
    world = World(joined(), joined("other"), lost(at=10), NodeRemoved(at=20, node_id=NODE))
    assert [lane.node_id for lane in timeline(world).nodes] == ["other"]


@pytest.mark.parametrize(
    ("fact", "end"), [(lost(at=30), "node-lost"), (joined(at=30, life="2"), "agent-restarted")]
)
def test_a_holding_ends_when_its_node_is_lost_or_begins_a_new_life(fact: Event, end: str) -> None:
    [holding] = timeline(World(*training(), fact)).holdings
    assert (holding.until, holding.end) == (30, end)


def test_workers_that_outlive_their_agent_go_on() -> None:
    [holding] = timeline(World(*training(), joined(at=30, life="2", workers=["pl-1"]))).holdings
    assert holding.until is None


def test_a_planned_placement_is_shown_until_it_starts() -> None:
    world = World(joined(), *in_queue(), plan(placement()))
    assert [each.job_id for each in timeline(world).planned] == [JOB]
    world.tell(start_ordered(), worker_started(), started())
    assert timeline(world).planned == ()
    world.tell(worker_stopped(outcome=Outcome.CHECKPOINTED), preempted())
    assert timeline(world).planned == ()


def test_a_running_job_is_expected_to_end_at_the_speed_that_was_measured() -> None:
    world = World(*training(at=10.0))
    world.now = 10.0
    assert timeline(world).expected == {"pl-1": 110.0}  # 1,000 samples, estimated at 10 a second
    world.hear(heartbeat(progress={JobId(JOB): 200.0}), at=20.0)
    assert timeline(world).expected == {"pl-1": 60.0}  # 200 in ten seconds


def test_the_timeline_says_from_when_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.monitor.history.HOLDINGS_KEPT", 10)
    world = World(joined())
    assert timeline(world).complete_from is None
    for number in range(30):
        world.tell(
            worker_started(place=f"pl-{number}", at=number), worker_stopped(place=f"pl-{number}", at=number)
        )
    view = timeline(world)
    assert 10 <= len(view.holdings) <= 11
    assert view.complete_from == 29 - len(view.holdings)


def test_a_restart_from_the_snapshot_keeps_the_revisions() -> None:
    world = World(*training(), lost(at=30))
    before = timeline(world)
    world.restart(at=0.0, snapshot=True)
    assert timeline(world) == before


# ---- jobs in short


def test_jobs_that_wait_say_why_the_longest_first() -> None:
    world = World(
        joined(),
        *in_queue("b", at=5.0),
        *in_queue("a", at=1.0),
        plan(left_out=(left_out("a", Waiting.OUTWEIGHED), left_out("b", Waiting.NO_CONFIGURATION))),
    )
    world.now = 11.0
    page = summaries(world)
    assert [(each.job_id, each.wait_s, each.reason) for each in page.jobs] == [
        ("a", 10.0, "outweighed"),
        ("b", 6.0, "no-configuration"),
    ]
    assert (summaries(world, limit=1).total, len(summaries(world, limit=1).jobs)) == (2, 1)


def test_an_outweighed_job_names_the_holders_of_the_gpus() -> None:
    out = LeftOut(job_id=JobId(JOB), reason=Waiting.OUTWEIGHED, held_by=(JobId("a"), JobId("b")))
    [waits] = summaries(World(joined(), *in_queue(), plan(left_out=(out,)))).jobs
    assert waits.detail == "a, b have the GPUs"


def test_running_and_ended_jobs_the_newest_first() -> None:
    facts = [joined(), *(fact for name in "abc" for fact in in_queue(name))]
    facts += [started("a", at=1, place="1"), started("b", at=2, place="2"), started("c", at=3, place="3")]
    world = World(*facts)
    assert [each.job_id for each in summaries(world, Which.RUNNING).jobs] == ["c", "b", "a"]
    world.tell(completed("b", at=9, place="2"), cancelled("c", at=8))
    ended = summaries(world, Which.ENDED).jobs
    assert [(each.job_id, each.state) for each in ended] == [("b", "completed"), ("c", "cancelled")]
    assert summaries(world).jobs == ()


def test_progress_is_a_share() -> None:
    world = World(*training())
    world.hear(heartbeat(progress={JobId(JOB): 250.0}), at=20.0)
    [running] = summaries(world, Which.RUNNING).jobs
    assert (running.progress, running.expected_end) == (0.25, 50.0)


# ---- runs


def test_runs_show_estimated_and_measured_throughput() -> None:
    world = World(
        *training(at=10.0),
        worker_stopped(at=60, outcome=Outcome.CHECKPOINTED),
        preempted(at=60, samples_done=400.0),
        started(at=100, place="pl-2", on=config(node_1=1)),
    )
    world.hear(heartbeat(progress={JobId(JOB): 600.0}), at=200.0)
    page = asked(world, ListRuns(job_id=JobId(JOB)), RunPage)
    assert [
        (run.gang.gpus, run.started_at, run.ended_at, run.estimated_throughput, run.measured_throughput)
        for run in page.runs
    ] == [(2, 10, 60, 10.0, 8.0), (1, 100, None, None, 2.0)]
    assert page.total == 2
    assert [(run.plan_id, run.preempted) for run in page.runs] == [("plan-1", "plan"), (None, None)]


def test_an_ended_job_still_shows_where_it_ran() -> None:
    world = World(*training(at=10.0), worker_stopped(at=110))
    [run] = asked(world, ListRuns(job_id=JobId(JOB)), RunPage).runs
    assert (run.ended_at, run.measured_throughput) == (110, 10.0)


@pytest.mark.parametrize("end", [cancelled(at=80), failed(at=80), completed(at=80, place="pl-3")])
@pytest.mark.parametrize("why", [PreemptReason.PLAN, PreemptReason.MERGE])
@pytest.mark.parametrize("kept", [1, 0])
def test_the_total_counts_every_run_once(
    end: Event, why: PreemptReason, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.monitor.history.JOBS_WITH_RUNS_KEPT", kept)
    first = [*training(), preempted(at=50, reason=why)]
    world = World(*first, started(at=60, place="pl-2"), preempted(at=70, place="pl-2"))
    runs = 3 if isinstance(end, JobCompleted) else 2
    world.tell(*[started(at=75, place="pl-3")] * (runs - 2), end)
    page = asked(world, ListRuns(job_id=JobId(JOB)), RunPage)
    assert (len(page.runs), page.total) == (runs if kept else 0, runs)


def test_an_unfinished_job_keeps_its_newest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.monitor.history.RUNS_KEPT", 2)
    world = World(joined(), *in_queue())
    for number in range(4):
        start = [start_ordered(at=number, place=f"pl-{number}"), started(at=number, place=f"pl-{number}")]
        world.tell(*start, preempted(at=number, place=f"pl-{number}"))
    world.tell(started(at=9, place="pl-9"))
    page = asked(world, ListRuns(job_id=JobId(JOB)), RunPage)
    assert ([run.placement_id for run in page.runs], page.total) == (["pl-2", "pl-3", "pl-9"], 5)
    assert world.monitor.state.ledger.jobs[JobId(JOB)].runs_before.switches == 1


def test_plans_are_dropped_though_no_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.monitor.history.PLANS_WITH_FIGURES_KEPT", 10)
    world = World(*in_queue(), *(plan(plan_id=PlanId(f"plan-{number}")) for number in range(12)))
    kept = [record.view.plan_id for record in world.monitor.state.ledger.plans]
    assert kept == [f"plan-{number}" for number in range(2, 12)]


def test_the_measured_throughput_of_an_interrupted_run_ends_at_its_last_checkpoint() -> None:
    world = World(
        *training(at=10.0),
        checkpointed(at=50.0, samples_done=400.0),
        worker_stopped(at=90.0, outcome=Outcome.INTERRUPTED, samples_done=400.0),
        preempted(at=90.0, samples_done=400.0, reason=PreemptReason.INTERRUPTED),
    )
    [run] = asked(world, ListRuns(job_id=JobId(JOB)), RunPage).runs
    assert (run.ended_at, run.samples_to, run.measured_throughput) == (90.0, 400.0, 10.0)


def test_a_run_that_ended_before_it_saved_anything_has_no_measure() -> None:
    lost = preempted(at=90.0, samples_done=0.0, reason=PreemptReason.NODE_LOST)
    [run] = asked(World(*training(at=10.0), lost), ListRuns(job_id=JobId(JOB)), RunPage).runs
    assert (run.samples_to, run.measured_throughput) == (0.0, None)


def test_a_run_that_has_just_begun_has_no_measure() -> None:
    world = World(*training(at=10.0))
    world.now = 10.2
    [run] = asked(world, ListRuns(job_id=JobId(JOB)), RunPage).runs
    assert run.measured_throughput is None


# ---- plans


def plans(world: World) -> Sequence[str]:
    return [each.plan.plan_id for each in asked(world, ListPlans(limit=50), PlanPage).plans]


def test_the_last_plans_come_newest_first_with_the_jobs_they_left_out() -> None:
    out = (left_out("a"), left_out("b"), left_out("c", Waiting.NO_CONFIGURATION))
    world = World(plan(plan_id="one"), plan(plan_id="two", left_out=out))
    newest, _ = asked(world, ListPlans(), PlanPage).plans
    assert (newest.plan.plan_id, newest.left_out) == ("two", {"outweighed": 2, "no-configuration": 1})
    detail = asked(world, ShowPlan(plan_id=PlanId("two")), PlanDetail)
    assert [each.job_id for each in detail.left_out] == ["a", "b", "c"]


def test_plans_of_an_older_leader_and_old_plans_are_not_shown() -> None:
    world = World(
        *(plan(plan_id=f"p-{number}", token=2) for number in range(60)), plan(plan_id="old", token=1)
    )
    assert plans(world) == [f"p-{number}" for number in range(59, 9, -1)]
    assert isinstance(world.ask(ShowPlan(plan_id=PlanId("p-0"))), Refused)


def test_the_runs_of_an_unknown_job_are_refused() -> None:
    assert World().ask(ListRuns(job_id=JobId("x"))) == Refused(reason="job x is not known")


def test_the_facts_of_a_job_are_all_that_name_it() -> None:
    naming = {kind for kind in FACTS.values() if "job_id" in kind.__struct_fields__}
    assert naming <= FOLDS
