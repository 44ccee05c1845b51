"""When the planner plans, from what, and what it publishes."""

import math

import msgspec
import numpy as np
import pytest

from schemas.base import Event
from schemas.events import NodeDrained, NodeRestored, PlacementRefused, PlanPublished, PolicyChosen
from schemas.ids import JobId, NodeId, PlanId
from schemas.placement import Configuration
from schemas.plans import Layer, PlanKind, Waiting
from schemas.plans import Stage as Made
from schemas.settings import Settings
from services.planner.core.state import State
from services.planner.core.tasks import Look
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.estimates import Estimated
from shared.domain.core import Work, WorkFailed
from tests.fact_builders import (
    completed,
    config,
    in_queue,
    joined,
    lost,
    opened,
    plan,
    preempted,
    profile_run,
    profiled,
    queued,
    returned,
    started,
    submitted,
    worker_started,
    worker_stopped,
)
from tests.services.planner.planner_builders import Estimator, Stage, linear, silent

POLICIES = "tests.services.planner.planner_policies:"


def places(made: PlanPublished) -> dict[str, Configuration]:
    return {placement.job_id: placement.gang.configuration for placement in made.placements}


def kinds(stage: Stage) -> list[PlanKind]:
    return [made.kind for made in stage.plans]


def carried_out(stage: Stage, made: PlanPublished) -> None:
    """The gangs of a plan come up at once."""
    for placement in made.placements:
        for node_id, gpus in placement.gang.configuration.items():
            indices = range(gpus)
            stage.tell(
                worker_started(
                    placement.job_id,
                    at=stage.now,
                    place=placement.placement_id,
                    node_id=node_id,
                    gpu_indices=list(indices),
                )
            )
        stage.tell(
            started(
                placement.job_id, at=stage.now, place=placement.placement_id, on=placement.gang.configuration
            )
        )


def cluster(*facts: Event, settings: Settings | None = None) -> Stage:
    """One node of 8 GPUs, then the facts; nothing planned yet."""
    stage = Stage(settings)
    stage.tell(joined(), *facts)
    return stage


# ---- first plans


def test_a_round_is_planned_when_the_profiler_opens_it() -> None:
    stage = cluster(*in_queue(demand=(4,)))
    assert stage.plans == []
    stage.tell(opened(at=0.5))
    assert (stage.plan.kind, stage.plan.round, places(stage.plan)) == (
        PlanKind.FIRST, 0, {"job-1": config(node_1=4)},
    )  # fmt: skip


def test_a_round_is_planned_without_the_profiler_when_it_is_late() -> None:
    stage = cluster(*in_queue())
    stage.until(1.9)
    assert stage.plans == []
    stage.until(2.0)
    assert stage.plan.kind == PlanKind.FIRST


def test_every_round_has_one_first_plan_at_its_boundary_and_grace() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.until(1000.0)
    firsts = [(made.at, made.round) for made in stage.plans if made.kind == PlanKind.FIRST]
    assert firsts == [(2.0, 0), (362.0, 1), (722.0, 2)]


def test_a_late_opening_does_not_plan_the_round_again() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.until(2.0)
    stage.tell(opened(at=3.0))
    assert kinds(stage) == [PlanKind.FIRST]


def test_gpus_promised_to_profiling_are_left_out() -> None:
    stage = cluster(*in_queue(demand=(4, 8)))
    stage.tell(opened(profile_run()))
    assert places(stage.plan) == {"job-1": config(node_1=4)}
    assert stage.plan.idle_gpus == 3


def test_a_grace_longer_than_the_round_does_not_stop_planning() -> None:
    stage = Stage(grace_s=1e6)
    stage.tell(joined(), *in_queue())
    stage.until(1000.0)
    assert [made.round for made in stage.plans if made.kind == PlanKind.FIRST] == [0, 1, 2]


def test_a_plan_says_what_it_is_made_from_by_whom_and_how_well() -> None:
    stage = cluster(*in_queue(demand=(4,)), opened())
    made = stage.plan
    assert (made.policy, made.token, made.made_from, made.stage) == ("hops", 1, 5, Made.OPTIMAL)
    assert (made.gap, made.configurations, made.idle_gpus, made.notes) == (0.0, 1, 4, ())


def test_decision_time_runs_from_the_first_look() -> None:
    stage = cluster(*in_queue())
    stage.work_s = 3.0
    stage.tell(opened(at=1.0))
    stage.until(10.0)
    assert (stage.plans[0].at, stage.plans[0].decision_s) == (4.0, 3.0)


def test_a_job_that_keeps_its_configuration_keeps_its_placement_id() -> None:
    stage = cluster(*in_queue(demand=(8,)), opened())
    carried_out(stage, stage.plan)
    stage.until(400.0)
    first, second = stage.plans
    assert first.placements[0].placement_id == second.placements[0].placement_id


def test_a_job_that_moves_gets_a_new_placement_id() -> None:
    stage = cluster(*in_queue(demand=(4, 8)), opened(profile_run()))
    carried_out(stage, stage.plan)
    stage.tell(worker_stopped(place="pf-1", at=10.0))
    stage.until(400.0)
    assert places(stage.plan) == {"job-1": config(node_1=8)}
    ids = {placement.placement_id for made in stage.plans for placement in made.placements}
    assert len(ids) == 2
    assert not any("." in name for name in ids)  # they become parts of subjects


def test_a_job_left_out_names_who_has_the_gpus() -> None:
    stage = cluster(*in_queue("old", demand=(8,)), *in_queue("new", demand=(8,), at=1.0))
    stage.tell(opened(at=100.0))
    [left] = stage.plan.left_out
    assert (left.job_id, left.to) == ("new", ("old",))


def test_a_first_plan_that_outlasts_its_round_is_published_and_the_present_round_is_next() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.work_s = 800.0
    stage.until(1700.0)
    assert [(made.at, made.round) for made in stage.plans] == [(802.0, 0), (1602.0, 2)]


# ---- fragment plans


def two_jobs() -> Stage:
    """The first job has half of the node; the second arrives after the round's plan."""
    stage = cluster(*in_queue("first", demand=(4,)), opened())
    carried_out(stage, stage.plan)
    stage.until(10.0)
    return stage


def test_a_job_that_no_other_follows_starts_on_idle_gpus_at_once() -> None:
    stage = two_jobs()
    stage.tell(*in_queue("second", at=20.0, demand=(2, 4)))
    assert (stage.plan.at, places(stage.plan)) == (20.0, {"second": config(node_1=4)})


def test_a_job_that_another_follows_is_planned_after_facts_have_settled() -> None:
    stage = two_jobs()
    stage.tell(submitted("third", at=20.0), *in_queue("second", at=20.0, demand=(2, 4)))
    stage.until(20.9)
    assert len(stage.plans) == 1
    stage.until(21.0)
    assert (stage.plan.kind, places(stage.plan)) == (PlanKind.FRAGMENT, {"second": config(node_1=4)})


def test_a_fragment_plan_leaves_running_jobs_alone() -> None:
    stage = two_jobs()
    stage.tell(*in_queue("second", at=20.0, demand=(8,)))
    stage.until(100.0)
    assert kinds(stage) == [PlanKind.FIRST]


def test_gpus_that_come_free_are_planned_again() -> None:
    stage = two_jobs()
    stage.tell(*in_queue("second", at=20.0, demand=(8,)))
    place = stage.plan.placements[0].placement_id
    stage.tell(completed("first", at=50.0, place=place), worker_stopped("first", at=50.0, place=place))
    stage.until(60.0)
    assert places(stage.plan) == {"second": config(node_1=8)}


def test_nothing_changed_no_plan() -> None:
    stage = two_jobs()
    stage.estimator = _unknown_to("elsewhere")
    stage.tell(*in_queue("elsewhere", at=20.0, demand=(1,)))
    stage.until(350.0)
    assert kinds(stage) == [PlanKind.FIRST, PlanKind.FRAGMENT]
    assert stage.plan.left_out[0].reason == Waiting.NO_ESTIMATE


def _unknown_to(job_id: str) -> Estimator:
    def estimator(wanted: Configurations) -> Estimated:
        known = linear(wanted)
        mine = np.array([name == job_id for name in wanted.jobs])[wanted.job]
        return Estimated(throughput=np.where(mine, np.nan, known.throughput), layer=known.layer)

    return estimator


def test_a_refused_placement_is_planned_again() -> None:
    stage = cluster(*in_queue(demand=(8,)), opened())
    made = stage.plan
    stage.tell(
        PlacementRefused(
            at=5.0,
            placement_id=made.placements[0].placement_id,
            plan_id=made.plan_id,
            job_id=JobId("job-1"),
            reason="node busy",
        )
    )
    stage.until(10.0)
    assert stage.plan.kind == PlanKind.FRAGMENT
    assert stage.plan.placements[0].placement_id != made.placements[0].placement_id


def test_a_fragment_left_by_the_first_plan_is_filled() -> None:
    jobs = [
        *in_queue("a", demand=(6,)),
        *in_queue("b", demand=(2,), at=1.0),
        *in_queue("c", demand=(2,), at=2.0),
    ]
    stage = cluster(*jobs)
    stage.tell(joined("node-2", gpus=2, at=3.0), opened(at=100.0))
    stage.until(110.0)
    assert sum(placement.gpus for made in stage.plans for placement in made.placements) == 10


def test_no_two_plans_are_in_the_making() -> None:
    stage = cluster(*in_queue("first", demand=(2,)))
    stage.work_s = 30.0
    stage.tell(opened(at=1.0))
    stage.tell(*in_queue("second", at=2.0, demand=(2,)))
    stage.until(20.0)
    assert len(stage.at_work) == 1
    stage.until(100.0)
    assert [places(made) for made in stage.plans] == [
        {"first": config(node_1=2)},
        {"second": config(node_1=2)},
    ]


def test_a_fragment_plan_that_outlives_its_round_is_dropped() -> None:
    stage = two_jobs()
    stage.work_s = 20.0
    stage.tell(*in_queue("second", at=350.0, demand=(2,)))
    stage.until(375.0)
    stage.work_s = 0.0
    stage.until(400.0)
    assert kinds(stage) == [PlanKind.FIRST, PlanKind.FIRST]


# ---- nodes


def test_a_draining_node_offers_nothing_and_is_left_at_the_next_round() -> None:
    stage = cluster(*in_queue(demand=(4,)), opened())
    carried_out(stage, stage.plan)
    stage.tell(NodeDrained(at=5.0, node_id=NodeId("node-1")), joined("node-2", at=5.0))
    stage.until(300.0)
    assert len(stage.plans) == 1
    stage.until(400.0)
    assert places(stage.plan) == {"job-1": config(node_2=4)}


def test_a_restored_node_offers_its_gpus_again() -> None:
    stage = cluster(NodeDrained(at=0.0, node_id=NodeId("node-1")), *in_queue(demand=(4,)), opened())
    assert places(stage.plan) == {}
    stage.tell(NodeRestored(at=5.0, node_id=NodeId("node-1")))
    stage.until(10.0)
    assert places(stage.plan) == {"job-1": config(node_1=4)}


def test_a_lost_nodes_job_starts_elsewhere() -> None:
    stage = cluster(*in_queue(demand=(4,)), opened())
    carried_out(stage, stage.plan)
    place = stage.plan.placements[0].placement_id
    stage.tell(joined("node-2", at=5.0), lost(at=10.0), preempted(at=11.0, place=place))
    stage.until(20.0)
    assert places(stage.plan) == {"job-1": config(node_2=4)}


def test_a_node_that_returns_offers_what_is_not_claimed() -> None:
    stage = cluster(lost(at=0.5), *in_queue(at=1.0, demand=(4,)))
    stage.until(5.0)
    stage.tell(returned(at=10.0))
    stage.until(20.0)
    assert places(stage.plan) == {"job-1": config(node_1=4)}


def test_a_node_lost_while_a_plan_is_made_is_in_no_placement() -> None:
    stage = cluster(*in_queue(demand=(4,)))
    stage.work_s = 5.0
    stage.tell(opened(at=1.0), lost(at=3.0))
    stage.until(7.0)
    assert places(stage.plan) == {}
    assert [left.job_id for left in stage.plan.left_out] == ["job-1"]


def test_no_nodes_and_no_jobs_are_planned_too() -> None:
    stage = Stage()
    stage.tell(opened())
    assert (places(stage.plan), stage.plan.idle_gpus) == ({}, 0)


# ---- what is not as it should be


def test_without_any_estimate_a_first_plan_keeps_what_runs() -> None:
    stage = cluster(*in_queue("runs", demand=(4,)), opened())
    carried_out(stage, stage.plan)
    kept = stage.plan.placements
    stage.estimator = silent
    stage.tell(*in_queue("waits", at=355.0, demand=(4,)))
    stage.until(365.0)
    first = next(made for made in stage.plans if made.round == 1)
    assert first.placements == kept
    assert [(left.job_id, left.reason) for left in first.left_out] == [("waits", Waiting.NO_ESTIMATE)]
    assert "no estimates" in first.notes[0]


def test_estimates_of_earlier_plans_are_named_in_the_placements() -> None:
    stage = cluster(*in_queue(demand=(4,)))
    stage.estimator = lambda wanted: msgspec.structs.replace(
        linear(wanted), layer=np.full(len(wanted), 3, dtype=np.uint8)
    )
    stage.tell(opened())
    assert stage.plan.placements[0].layer == Layer.CACHED


def test_work_that_fails_as_a_whole_is_tried_again_and_noted() -> None:
    stage = cluster(*in_queue(demand=(4,)))
    stage.fails = 1
    stage.tell(opened())
    assert stage.plans == []
    stage.until(5.0)
    assert places(stage.plan) == {"job-1": config(node_1=4)}
    assert "too long" in stage.plan.notes[0]


# ---- leading


def test_a_planner_that_does_not_lead_folds_facts_and_plans_nothing() -> None:
    stage = Stage(leads=False)
    stage.tell(joined(), *in_queue(), opened())
    stage.until(1000.0)
    assert stage.plans == []
    assert list(stage.core.state.jobs) == ["job-1"]


def test_losing_the_lease_stops_a_plan_in_the_making() -> None:
    stage = cluster(*in_queue())
    stage.work_s = 5.0
    stage.tell(opened(at=1.0))
    stage.lead(None)
    stage.until(400.0)
    assert stage.plans == []


def test_a_planner_that_takes_over_does_not_plan_the_round_again() -> None:
    stage = Stage(leads=False)
    stage.tell(joined(), *in_queue(demand=(8,)), opened(), plan(token=4))
    stage.lead(7)
    stage.until(50.0)
    assert [made.kind for made in stage.plans[1:]] == [PlanKind.FRAGMENT]
    assert stage.plan.token == 7


def test_seeing_a_newer_leaders_plan_ends_leading() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.tell(plan(token=9, plan_id=PlanId("theirs")))
    stage.until(1000.0)
    assert [made.plan_id for made in stage.plans] == ["theirs"]


def test_plan_ids_differ_between_leaders_and_plans() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.until(400.0)
    stage.lead(None)
    stage.lead(12)
    stage.until(1000.0)
    ids = [made.plan_id for made in stage.plans]
    assert len(set(ids)) == len(ids) >= 3


# ---- policies


def test_a_policy_chosen_at_run_time_makes_the_next_plan() -> None:
    stage = cluster(*in_queue(demand=(4, 8)), PolicyChosen(at=0.0, policy="fifo"), opened())
    assert (stage.plan.policy, stage.plan.stage, places(stage.plan)) == (
        "fifo", Made.QUEUE, {"job-1": config(node_1=4)},
    )  # fmt: skip


UNFIT = {
    "nonsense": "policy nonsense is unknown; there are fifo, ",
    "json:loads": "policy json:loads cannot be built: TypeError: ",
    "no.such.module:Policy": "policy no.such.module:Policy: ModuleNotFoundError: ",
    "json:no_such_name": "policy json:no_such_name: json has no no_such_name",
    POLICIES
    + "RaisesWhenBuilt": f"policy {POLICIES}RaisesWhenBuilt cannot be built: RuntimeError: no licence",
    POLICIES + "no_policy": f"{POLICIES}no_policy is no policy: its `calls` are None and no mapping",
    POLICIES + "OddCalls": f"{POLICIES}OddCalls is no policy: its `calls` map a trigger to a kind of plan: ",
    POLICIES + "WithoutDecide": f"{POLICIES}WithoutDecide is no policy: it has no decide",
    POLICIES + "Exits": "SystemExit: 3",
}


@pytest.mark.parametrize("policy", UNFIT)
def test_an_unfit_policy_costs_a_note(policy: str) -> None:
    stage = cluster(*in_queue(), PolicyChosen(at=0.0, policy=policy), opened())
    assert stage.plan.policy == "hops"
    stage.until(400.0)
    [note] = [note for made in stage.plans for note in made.notes]
    assert note.startswith(f"hops plans in place of {policy}: {UNFIT[policy]}")
    assert stage.core.troubles() == (note,)
    stage.tell(PolicyChosen(at=401.0, policy="sjf"))
    stage.until(800.0)
    assert (stage.plan.policy, stage.plan.notes, stage.core.troubles()) == ("sjf", (), ())


@pytest.mark.parametrize("policy", UNFIT)
def test_an_unfit_policy_in_the_stream_costs_a_note_after_every_replay(policy: str) -> None:
    facts = [joined(), *in_queue(demand=(8,)), PolicyChosen(at=0.0, policy=policy), opened()]
    for _ in range(2):
        stage = Stage(leads=False)
        stage.replay(*facts)
        assert (
            stage.core.state.policy == policy
        )  # what was folded is what was published, whatever is installed
        stage.lead(4)
        stage.until(stage.now + 400.0)
        made = [fact for fact in stage.facts[len(facts) :] if isinstance(fact, PlanPublished)]
        assert {plan.policy for plan in made} == {"hops"}
        [note] = [note for plan in made for note in plan.notes]
        assert UNFIT[policy] in note
        facts = stage.facts


def test_where_even_the_configured_policy_is_unfit_the_stand_in_plans() -> None:
    stage = cluster(
        *in_queue(),
        PolicyChosen(at=0.0, policy="json:loads"),
        opened(),
        settings=Settings(policy="json:dumps"),
    )
    assert stage.plan.policy == "fifo"
    assert [note.split(":")[0] for note in stage.plan.notes] == [
        "fifo plans in place of json", "fifo plans in place of json",
    ]  # fmt: skip


def test_no_plan_is_made_before_it_is_known_who_plans() -> None:
    stage = Stage(leads=False)
    stage.looks = False
    stage.tell(PolicyChosen(at=0.0, policy="fifo"), joined(), *in_queue(demand=(4,)), opened())
    stage.lead(1)
    assert stage.plans == []
    stage.hear_of("fifo")
    assert [made.policy for made in stage.plans] == ["fifo"]


def test_a_look_that_fails_makes_the_policy_unfit() -> None:
    stage = Stage(leads=False)
    stage.looks = False
    stage.tell(PolicyChosen(at=0.0, policy="fifo"), joined(), *in_queue(demand=(4,)), opened())
    stage.lead(1)
    stage.hear_of("hops")
    stage._do(stage.hear(WorkFailed(Look(policy="fifo"), "TimeoutError: too long")))
    assert (stage.plan.policy, stage.plan.notes) == (
        "hops", ("hops plans in place of fifo: TimeoutError: too long",),
    )  # fmt: skip


def test_what_calls_for_a_plan_meanwhile_is_not_forgotten() -> None:
    """`srtf` plans at every arrival; this one came while nobody knew."""
    stage = Stage(Settings(policy="srtf"), leads=False)
    stage.looks = False
    stage.tell(joined(), opened(), plan(token=0), *in_queue(at=10.0))
    stage.lead(1)
    stage.hear_of("srtf")
    stage.until(12.0)
    assert [list(places(made)) for made in stage.plans[1:]] == [["job-1"]]


# ---- policies that call for first plans at events, and move jobs only for others that wait

SRTF = Settings(policy="srtf", restart_share_max=1.0, minimum_run_restarts=0.0)


def expected_to_run(age_s: float, job_id: str, gpus: int, *, at: float = 0.0) -> list[Event]:
    return [
        submitted(job_id, at=at, demand=(gpus,)),
        profiled(job_id, at=at),
        queued(job_id, at=at, age_s=age_s),
    ]


def with_a_long_job(gpus: int) -> Stage:
    """It runs on so many GPUs of the one node with 8."""
    stage = cluster(*expected_to_run(1e6, "job-1", gpus), opened(), settings=SRTF)
    carried_out(stage, stage.plan)
    return stage


def test_while_nobody_waits_no_event_calls_for_a_plan() -> None:
    stage = with_a_long_job(4)
    stage.tell(*expected_to_run(1.0, "job-2", 4, at=10.0))
    carried_out(stage, stage.plan)
    place = stage.plan.placements[0].placement_id
    stage.tell(worker_stopped("job-2", at=20.0, place=place), completed("job-2", at=20.0, place=place))
    stage.until(300.0)
    assert kinds(stage) == [PlanKind.FIRST, PlanKind.FRAGMENT]
    stage.until(400.0)
    assert kinds(stage)[2:] == [PlanKind.FIRST]  # of the next round


def test_those_for_whom_nobody_has_to_move_are_served_by_a_fragment_plan() -> None:
    stage = with_a_long_job(4)
    stage.tell(*expected_to_run(1.0, "job-2", 4, at=10.0))
    assert (stage.plan.kind, list(places(stage.plan))) == (PlanKind.FRAGMENT, ["job-2"])


@pytest.mark.parametrize("gpus", [8, 5])
def test_for_one_that_does_not_fit_there_is_a_first_plan_at_once(gpus: int) -> None:
    stage = with_a_long_job(4)
    stage.tell(*expected_to_run(1.0, "job-2", gpus, at=10.0))
    stage.until(12.0)
    assert [(made.kind, made.at) for made in stage.plans[1:]] == [(PlanKind.FIRST, 10.0)]
    assert list(places(stage.plan)) == ["job-2"]


def test_one_whom_a_fragment_plan_cannot_place_after_all_gets_a_first_plan_at_once() -> None:
    """Beside 6 of 8 GPUs 4 are idle, of two types."""
    stage = with_a_long_job(6)
    stage.tell(joined("node-2", at=1.0, gpu_type="b", gpus=2))
    stage.until(5.0)
    before = len(stage.plans)
    stage.tell(*expected_to_run(1.0, "job-2", 4, at=10.0))
    assert [(made.kind, made.at) for made in stage.plans[before:]] == [(PlanKind.FIRST, 10.0)]
    assert list(places(stage.plan)) == ["job-2"]


def test_a_policy_chosen_again_is_looked_at_again() -> None:
    stage = cluster(*in_queue(), PolicyChosen(at=0.0, policy="json:loads"))
    asked = [
        effect.task
        for effect in stage.hear(PolicyChosen(at=1.0, policy="json:loads"))
        if isinstance(effect, Work)
    ]
    assert asked == [Look(policy="json:loads")]


def test_a_leader_set_to_another_policy_than_the_one_before_announces_it() -> None:
    stage = Stage(Settings(policy="fifo"), leads=False)
    stage.tell(joined(), *in_queue(), PolicyChosen(at=0.0, policy="hops"))
    stage.lead(3, announce=True)
    stage.tell(opened(at=1.0))
    assert [fact.policy for fact in stage.facts if isinstance(fact, PolicyChosen)] == ["hops", "fifo"]
    assert stage.plan.policy == "fifo"


def test_a_leader_set_as_the_one_before_keeps_what_was_chosen_since() -> None:
    stage = Stage(Settings(policy="fifo"), leads=False)
    stage.tell(joined(), *in_queue(), PolicyChosen(at=0.0, policy="hops"))
    stage.lead(3)
    stage.tell(opened(at=1.0))
    assert stage.plan.policy == "hops"


# ---- state


def busy_day() -> list[Event]:
    stage = cluster(*(fact for name in "abcdef" for fact in in_queue(name, demand=(2, 4))), opened())
    carried_out(stage, stage.plan)
    stage.until(400.0)
    stage.tell(
        lost(at=410.0), joined("node-2", at=420.0), opened(profile_run(node_id="node-2"), at=725.0, number=2)
    )
    return stage.facts


def test_a_replay_gives_the_same_state() -> None:
    facts = busy_day()
    one, other = Stage(leads=False), Stage(leads=False)
    one.tell(*facts)
    other.tell(*facts)
    assert one.core.state == other.core.state


@pytest.mark.parametrize("cut", [0, 5, 12, 20])
def test_a_snapshot_and_the_rest_of_the_stream_give_the_same_state(cut: int) -> None:
    facts = busy_day()
    whole, half = Stage(leads=False), Stage(leads=False)
    whole.tell(*facts)
    half.tell(*facts[:cut])
    half.core.state = msgspec.msgpack.decode(msgspec.msgpack.encode(half.core.state), type=State)
    half.facts = list(facts[:cut])
    half.tell(*facts[cut:])
    assert half.core.state == whole.core.state


def test_the_planner_wants_to_be_woken_only_while_it_leads() -> None:
    stage = cluster()
    wakeup = stage.core.next_wakeup()
    assert wakeup is not None
    assert math.isfinite(wakeup)
    stage.lead(None)
    assert stage.core.next_wakeup() is None
