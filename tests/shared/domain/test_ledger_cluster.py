"""The ledger's plans, nodes and workers."""

import msgspec
import pytest

from schemas.base import Event
from schemas.events import (
    Outcome,
    PlacementRefused,
    PlanPublished,
    PolicyChosen,
    ProfileFailed,
    ProfileMeasured,
    TurnsOrdered,
)
from schemas.ids import JobId, NodeId, PlacementId, PlanId, RotaId
from schemas.placement import Forked, Gang, Relaxed
from schemas.plans import Placement, PlanKind, Standing, Waiting
from shared.domain.ledger import ledger_of
from shared.domain.ledger.cluster import NODES_KEPT
from shared.domain.ledger.records import JobRecord, NodeRecord, Run, Supply
from shared.domain.tally import Course
from tests.fact_builders import (
    JOB,
    K80,
    NODE,
    V100,
    cancelled,
    checkpointed,
    config,
    in_queue,
    joined,
    left_out,
    lost,
    opened,
    placement,
    plan,
    profile_run,
    refused,
    returned,
    start_ordered,
    started,
    stop_ordered,
    submitted,
    worker_started,
    worker_stopped,
)


def node(*facts: Event) -> NodeRecord:
    return ledger_of(facts).nodes[NODE]


def test_a_worker_holds_its_gpus_until_it_stops() -> None:
    assert node(joined(), worker_started(gpu_indices=(0, 3))).gpus_in_use == 2
    assert node(joined(), worker_started(), worker_stopped()).gpus_in_use == 0


def test_busy_time_is_added_up_by_node_and_by_gpu() -> None:
    known = node(joined(), worker_started(at=10, gpu_indices=(0, 1)), worker_stopped(at=25))
    assert (known.busy_s, known.gpu_busy_s) == (15, 30)


def test_a_lost_node_keeps_its_workers_and_is_not_busy() -> None:
    known = node(joined(), worker_started(at=0), lost(at=10), returned(at=50), worker_stopped(at=55))
    assert known.busy_s == 15
    assert known.up == [(0, 10, 8, V100)]


def test_a_new_life_keeps_only_the_workers_it_lists() -> None:
    facts = (joined(), worker_started(place="a"), worker_started(place="b", gpu_indices=(1,)))
    assert [*node(*facts, joined(life="2", workers=["b"])).workers] == ["b"]


def test_a_lost_node_is_alive_again_when_it_returns() -> None:
    assert not node(joined(), lost()).alive
    assert node(joined(), lost(), returned()).alive
    assert node(joined(), lost(), joined(life="2")).alive


def test_a_type_is_there_as_long_as_one_of_its_nodes_is_usable() -> None:
    two = [joined(), joined("node-2", at=5)]
    assert ledger_of([*two, lost(at=10)]).supply == {V100: Supply(usable=True, since=0)}
    assert ledger_of([*two, lost(at=10), lost("node-2", at=20)]).supply == {
        V100: Supply(usable=False, since=20)
    }
    other = ledger_of([joined(), joined(at=30, life="2", gpu_type=K80), lost("unknown", at=40)])
    assert other.supply == {V100: Supply(usable=False, since=30), K80: Supply(usable=True, since=30)}


def test_the_plan_that_opens_a_round_replaces_all_verdicts() -> None:
    ledger = ledger_of([plan(left_out=(left_out("a"),)), plan(plan_id=PlanId("plan-2"))])
    assert ledger.verdicts == {}


def test_a_fragment_plan_speaks_only_of_the_jobs_it_names() -> None:
    first = plan(placement("a"), left_out=(left_out("b"), left_out("c")))
    fragment = plan(placement("b", place="pl-2"), kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2"))
    ledger = ledger_of([first, fragment])
    assert [*ledger.planned] == ["a", "b"]
    assert [*ledger.verdicts] == ["c"]


def test_a_plan_of_an_older_leader_changes_nothing() -> None:
    ledger = ledger_of([plan(token=2), plan(placement(), token=1, policy="fifo")])
    assert (len(ledger.plans), ledger.policy, ledger.planned) == (1, "hops", {})


def test_a_refused_placement_is_a_verdict() -> None:
    refused = PlacementRefused(
        at=0, placement_id=PlacementId("pl-1"), plan_id=PlanId("plan-1"), job_id=JOB, reason="gone"
    )
    ledger = ledger_of([*in_queue(), plan(placement()), refused])
    assert ledger.planned == {}
    assert (ledger.verdicts[JOB].reason, ledger.verdicts[JOB].detail) == ("refused", "gone")


@pytest.mark.parametrize(
    ("reason", "fragments"), [(Waiting.OUTWEIGHED, 5), (Waiting.NO_CONFIGURATION, 5), (Waiting.PROFILING, 0)]
)
def test_idle_gpus_are_fragments_where_a_job_could_have_run(reason: Waiting, fragments: int) -> None:
    ledger = ledger_of([plan(left_out=(left_out(JOB, reason),), idle_gpus=5)])
    assert ledger.plans[0].fragments == fragments


def test_measurements_of_jobs_that_moved_on_are_forgotten() -> None:
    ledger = ledger_of([submitted(), opened(profile_run(place="pf-1"))])
    assert [*ledger.measuring] == ["pf-1"]
    ledger = ledger_of([*in_queue(), opened(profile_run(place="pf-1")), opened(number=1)])
    assert [*ledger.measuring] == []


# ---- plans, one after another


def second(*placements: Placement, **fields: object) -> PlanPublished:
    return plan(*placements, plan_id=PlanId("plan-2"), **fields)


def test_a_job_that_stays_was_placed_by_the_plan_that_placed_it_first() -> None:
    stays = ledger_of([plan(placement("a", place="p1")), second(placement("a", place="p1"))])
    moves = ledger_of([plan(placement("a", place="p1")), second(placement("a", place="p2"))])
    assert [one.chosen[JobId("a")].plan_id for one in (stays, moves)] == ["plan-1", "plan-2"]


def test_a_plan_behind_a_job_s_end_says_nothing_about_it() -> None:
    facts = [*in_queue("a"), *in_queue("b"), cancelled("a"), cancelled("b")]
    ledger = ledger_of([*facts, plan(placement("a"), left_out=(left_out("b"),))])
    assert (ledger.planned, ledger.chosen, ledger.verdicts) == ({}, {}, {})


def test_a_job_that_stays_in_its_rota_may_get_another_share_of_it() -> None:
    """A report of an older placement says nothing about the run."""

    def share(place: str) -> float:
        half = msgspec.structs.replace(placement("a", place=place), share=0.5)
        facts = [plan(placement("a", place=place)), started("a", place="p1"), second(half)]
        run = ledger_of([*in_queue("a"), *facts]).jobs[JobId("a")].present
        assert run is not None
        return run.share

    assert (share("p1"), share("p2")) == (0.5, 1.0)


def test_other_turns_are_those_of_the_present_run() -> None:
    gang = Gang.of(config(node_1=1), Relaxed(tasks=((2,),), rota=RotaId("r"), turns=1))

    def turns(place: str) -> int:
        turn = TurnsOrdered(
            at=1.0,
            job_id=JOB,
            placement_id=PlacementId(place),
            node_id=NODE,
            gang=Gang(gang.members, msgspec.structs.replace(gang.sync, turns=4)),
            plan_id=PlanId("plan-2"),
        )
        run = ledger_of([*in_queue(), started(place="p1", on=gang), turn]).jobs[JOB].present
        assert run is not None
        assert isinstance(run.gang.sync, Relaxed)
        return run.gang.sync.turns

    assert (turns("p1"), turns("p2")) == (4, 1)


def test_a_verdict_dates_from_the_first_plan_that_gave_it() -> None:
    small = [left_out("b"), left_out("a", Waiting.NO_CONFIGURATION)]
    verdicts = ledger_of(
        [
            plan(left_out=[left_out("a", Waiting.NO_CONFIGURATION)], at=10.0),
            second(left_out=small, at=20.0, standings={JobId("a"): Standing(priority=2.0)}),
        ]
    ).verdicts
    own = verdicts[JobId("a")]
    assert (own.since, own.plan_id, own.position, own.waiting) == (10.0, "plan-2", 2, 2)
    assert own.standing == Standing(priority=2.0)
    other = ledger_of([plan(left_out=[left_out("a")], at=10.0), second(left_out=small, at=20.0)]).verdicts
    assert other[JobId("a")].since == 20.0, "for another reason"


def test_a_verdict_knows_how_those_stood_that_have_the_gpus() -> None:
    standings = {JobId("x"): Standing(priority=3.0)}
    held = plan(left_out=[left_out("a", held_by=("x", "y"))], standings=standings)
    assert ledger_of([held]).verdicts[JobId("a")].rivals == (Standing(priority=3.0), None)


def test_a_fragment_plan_s_verdict_keeps_what_the_first_plan_said() -> None:
    first = plan(left_out=[left_out("a", Waiting.OUTSIDE_WINDOW)])
    fragments = [
        plan(left_out=[left_out("a")], kind=PlanKind.FRAGMENT, plan_id=PlanId(f"f-{number}"))
        for number in (1, 2)
    ]
    own = ledger_of([first, *fragments]).verdicts[JobId("a")]
    assert own.first is not None
    assert (own.plan_id, own.first.plan_id, own.first.reason) == ("f-2", "plan-1", "outside-window")
    assert ledger_of(fragments[:1]).verdicts[JobId("a")].first is None
    assert ledger_of([first, second(left_out=[left_out("a")])]).verdicts[JobId("a")].first is None


def test_the_first_policy_is_the_one_that_was_chosen_and_later_those_of_plans() -> None:
    chosen = [PolicyChosen(at=0.0, policy=name) for name in ("sia", "fifo")]
    assert ledger_of(chosen[:1]).policy == "sia"
    assert ledger_of([plan(policy="hops"), chosen[1]]).policy == "hops"


# ---- refusals and measurements


def test_a_placement_that_came_up_too_late_counts_as_an_interruption() -> None:
    facts = [*in_queue(), start_ordered(place="p1")]
    late = ledger_of([*facts, refused(place="p1", late=True)]).jobs[JOB]
    assert late.broken is not None
    assert (late.broken.outcome, late.broken.placement_id) == (Outcome.INTERRUPTED, "p1")
    assert (late.interruptions, late.ordered) == (1, None)
    early = ledger_of([*facts, refused(place="p1")]).jobs[JOB]
    assert (early.broken, early.interruptions, early.ordered) == (None, 0, None)


def test_the_refusal_of_another_placement_changes_nothing() -> None:
    facts = [*in_queue(), plan(placement(place="p2")), start_ordered(place="p2"), refused(place="p1")]
    ledger = ledger_of(facts)
    assert (ledger.jobs[JOB].ordered, [*ledger.planned], ledger.verdicts) == ("p2", [JOB], {})


def measured(node_id: str = NODE, *, failed: bool = False) -> Event:
    fields = {"at": 5.0, "job_id": JOB, "placement_id": PlacementId("pf-1"), "node_id": NodeId(node_id)}
    if failed:
        return ProfileFailed(**fields, gpu_type=V100, reason="out of memory", final=True)  # type: ignore[arg-type]
    times = dict.fromkeys(("data_s", "forward_s", "backward_s", "update_s", "iteration_s"), (0.1,))
    return ProfileMeasured(**fields, **times, gpu_type=V100, parameters=1e6)  # type: ignore[arg-type]


def test_a_measurement_ends_with_the_report_of_its_node() -> None:
    facts = [submitted(), opened(profile_run(place="pf-1"))]
    for other in ("a-node", "z-node"):
        assert [*ledger_of([*facts, measured(other)]).measuring] == ["pf-1"]
    ended = ledger_of([*facts, measured(failed=True)])
    assert [*ended.measuring] == []
    assert ended.jobs[JOB].unmeasured == "on v100 (node-1): out of memory"
    assert ledger_of([*facts, measured(failed=True), measured()]).jobs[JOB].unmeasured == ""


# ---- orders and reports


def test_a_measurement_is_no_order_of_the_job_s_own() -> None:
    measures = start_ordered(place="pf-1", profile_iterations=30)
    job = ledger_of([*in_queue(), start_ordered(place="p1", at=3.0), measures]).jobs[JOB]
    assert (job.ordered, job.ordered_at) == ("p1", 3.0)


def test_only_the_newest_nodes_of_a_job_are_remembered() -> None:
    orders = [start_ordered(node_id=f"n-{number}", place=f"p-{number}") for number in range(NODES_KEPT + 1)]
    nodes = ledger_of([*in_queue(), *orders]).jobs[JOB].nodes
    assert (len(nodes), "n-0" in nodes, "n-1" in nodes) == (NODES_KEPT, False, True)


def test_reports_of_a_node_without_orders_count_for_nothing() -> None:
    facts = [*in_queue(), joined(), start_ordered(place="p1"), worker_started(place="p1"), started()]
    strange = worker_stopped(place="p1", node_id="elsewhere", outcome=Outcome.FAILED, samples_done=900.0)
    job = ledger_of([*facts, strange, checkpointed(place="p1", node_id="elsewhere")]).jobs[JOB]
    assert (job.samples_done, job.broken) == (0.0, None)


def test_a_stop_counts_from_its_first_order() -> None:
    facts = [*in_queue(), joined(), start_ordered(place="p1"), worker_started(place="p1", gpu_indices=(0, 1))]
    stops = [stop_ordered(place="p1", at=at) for at in (10.0, 14.0)]
    end = worker_stopped(place="p1", at=16.0, outcome=Outcome.CHECKPOINTED)
    ledger = ledger_of([*facts, started(place="p1"), *stops, end])
    run = ledger.jobs[JOB].present
    assert run is not None
    assert (run.stop_ordered_at, ledger.jobs[JOB].lost_gpu_s) == (10.0, 12.0)


@pytest.mark.parametrize(("ended_at", "lost_gpu_s"), [(25.0, 15.0), (9.0, 0.0)])
def test_to_save_in_a_rota_costs_the_job_its_share_of_the_gpus(ended_at: float, lost_gpu_s: float) -> None:
    """Two GPUs by halves, from the order at 10; a clock that is behind the order's costs nothing."""
    half = msgspec.structs.replace(placement(place="p1"), share=0.5)
    up = worker_started(place="p1", gpu_indices=(0, 1))
    end = worker_stopped(place="p1", at=ended_at, outcome=Outcome.CHECKPOINTED)
    facts = [*in_queue(), joined(), plan(half), start_ordered(place="p1"), up, started(place="p1")]
    assert ledger_of([*facts, stop_ordered(place="p1", at=10.0), end]).jobs[JOB].lost_gpu_s == lost_gpu_s


# ---- copies, lost and saved


OTHER = "node-2"


def two_copies(samples: float = 1000.0) -> list[Event]:
    """A job of two copies, each to do half, that trains since 10."""
    nodes = (NODE, OTHER)
    gang = Gang.of({NodeId(node): 1 for node in nodes}, Forked(shares=(0.5, 0.5)))
    orders = [start_ordered(place="p1", at=5.0, node_id=node, until=samples / 2) for node in nodes]
    up = [worker_started(place="p1", at=10.0, node_id=node) for node in nodes]
    joins = [joined(), joined(OTHER)]
    return [*in_queue(samples=samples), *joins, *orders, *up, started(place="p1", at=10.0, on=gang)]


def job_after(*facts: Event) -> JobRecord:
    return ledger_of([*two_copies(), *facts]).jobs[JOB]


def test_a_copy_on_a_lost_node_loses_what_it_did_since_its_checkpoint() -> None:
    saved = checkpointed(place="p1", at=30.0, samples_done=100.0)
    job = job_after(saved, lost(at=50.0))
    assert job.lost_gpu_s == 20.0
    assert job.tally.leaders[NodeId(NODE)].course is Course.LOST
    assert job.tally.leaders[NodeId(OTHER)].course is Course.RUNS
    assert job_after(saved, lost(at=50.0), lost(at=70.0)).lost_gpu_s == 20.0, "it is lost once"


def test_the_order_to_stop_a_lost_copy_stops_no_other() -> None:
    gone = lost(at=50.0), stop_ordered(place="p1", at=50.0)
    assert present_of(job_after(*gone)).stop_ordered_at is None
    later = stop_ordered(place="p1", at=360.0, node_id=OTHER)
    assert present_of(job_after(*gone, later)).stop_ordered_at == 360.0


def present_of(record: JobRecord) -> Run:
    assert record.present is not None
    return record.present


def test_a_gang_without_copies_loses_nothing_before_its_job_is_preempted() -> None:
    facts = [
        *in_queue(),
        joined(),
        start_ordered(place="p1"),
        worker_started(place="p1"),
        started(place="p1"),
    ]
    assert ledger_of([*facts, lost(at=50.0)]).jobs[JOB].lost_gpu_s == 0.0


def test_a_new_life_of_an_agent_has_lost_the_copies_that_it_does_not_list() -> None:
    gone = job_after(joined(at=40.0, life="2"))
    assert (gone.lost_gpu_s, gone.tally.leaders[NodeId(NODE)].course) == (30.0, Course.LOST)
    for same in (joined(at=40.0, life="2", workers=["p1"]), joined(at=40.0, life="1", workers=["p1"])):
        assert job_after(same).lost_gpu_s == 0.0


def test_a_copy_that_saved_loses_nothing_and_one_that_broke_does() -> None:
    saved = job_after(worker_stopped(place="p1", at=40.0, outcome=Outcome.QUOTA, samples_done=500.0))
    assert (saved.lost_gpu_s, saved.samples_done, saved.broken) == (0.0, 500.0, None)
    broke = job_after(worker_stopped(place="p1", at=40.0, outcome=Outcome.INTERRUPTED, samples_done=0.0))
    assert (broke.lost_gpu_s, broke.broken) == (30.0, None), "the other copy trains on"


def test_a_copy_that_breaks_while_it_stops_has_lost_that_time_once() -> None:
    broke = worker_stopped(place="p1", at=40.0, outcome=Outcome.INTERRUPTED, samples_done=0.0)
    assert job_after(stop_ordered(place="p1", at=25.0), broke).lost_gpu_s == 30.0


def test_the_last_copy_to_break_says_why_the_placement_broke_if_none_has_saved() -> None:
    def broke(node_id: str, reason: str) -> Event:
        return worker_stopped(
            place="p1", node_id=node_id, outcome=Outcome.FAILED, samples_done=0.0, reason=reason
        )

    both = job_after(broke(NODE, "first"), broke(OTHER, "second"))
    assert both.broken is not None
    assert (both.broken.reason, both.failures) == ("second", 1)
    saved = worker_stopped(place="p1", outcome=Outcome.QUOTA, samples_done=500.0)
    assert job_after(saved, broke(OTHER, "second")).broken is None


def test_a_copy_may_end_with_a_checkpoint_that_it_did_not_report() -> None:
    def ended(samples: float, *, leads: bool = True) -> float:
        facts = (
            checkpointed(place="p1", samples_done=200.0),
            worker_stopped(place="p1", outcome=Outcome.INTERRUPTED, samples_done=samples, leads=leads),
        )
        return job_after(*facts).samples_done

    assert [ended(300.0), ended(100.0), ended(300.0, leads=False)] == [300.0, 200.0, 200.0]


# ---- why a placement broke


def ends(*outcomes: tuple[str, Outcome]) -> JobRecord:
    nodes = [*dict(outcomes)]
    orders = [start_ordered(place="p1", node_id=node) for node in nodes]
    stops = [
        worker_stopped(place="p1", node_id=node, outcome=outcome, reason=f"on {node}", samples_done=0.0)
        for node, outcome in outcomes
    ]
    return ledger_of([*in_queue(), *orders, started(place="p1"), *stops]).jobs[JOB]


def test_a_placement_broke_as_its_first_worker_that_failed_else_as_the_first_interrupted() -> None:
    cases = {
        ("on a", 1): (("a", Outcome.FAILED), ("b", Outcome.FAILED)),
        ("on b", 1): (("a", Outcome.INTERRUPTED), ("b", Outcome.FAILED)),
        ("on a", 0): (("a", Outcome.INTERRUPTED), ("b", Outcome.INTERRUPTED)),
    }
    for (reason, failures), outcomes in cases.items():
        job = ends(*outcomes)
        assert job.broken is not None
        assert (job.broken.reason, job.failures) == (reason, failures)
    assert ends(("a", Outcome.CHECKPOINTED), ("b", Outcome.COMPLETED)).broken is None


def test_a_worker_of_an_older_placement_breaks_nothing() -> None:
    facts = [*in_queue(), start_ordered(place="p1"), start_ordered(place="p2")]
    old = worker_stopped(place="p1", outcome=Outcome.FAILED)
    assert ledger_of([*facts, old]).jobs[JOB].broken is None


# ---- checkpoints


def test_work_goes_on_from_the_checkpoint_that_is_really_there() -> None:
    order = start_ordered(place="p1", samples_done=500.0)
    base = [*in_queue(), joined(), order]
    found = ledger_of([*base, worker_started(place="p1", samples_restored=300.0)]).jobs[JOB]
    assert (found.samples_done, found.tally.leaders[NodeId(NODE)].done) == (300.0, 300.0)
    other = ledger_of([*base, worker_started(place="p0", samples_restored=300.0)]).jobs[JOB]
    assert other.tally.leaders[NodeId(NODE)].done == 500.0, "of another placement"


def test_a_checkpoint_counts_once_and_the_end_of_a_job_is_none() -> None:
    facts = [
        *in_queue(),
        joined(),
        start_ordered(place="p1"),
        worker_started(place="p1"),
        started(place="p1"),
    ]
    saved = checkpointed(place="p1", samples_done=400.0, at=20.0)
    stopped = worker_stopped(place="p1", samples_done=400.0, outcome=Outcome.CHECKPOINTED, at=21.0)
    assert ledger_of([*facts, saved, stopped]).jobs[JOB].checkpoints == 1
    assert ledger_of([*facts, saved, worker_stopped(place="p1")]).jobs[JOB].checkpoints == 1
    later = checkpointed(place="p1", samples_done=500.0, at=22.0)
    assert ledger_of([*facts, saved, later]).jobs[JOB].checkpoints == 2
