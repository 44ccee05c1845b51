"""The audit's rules at their edges; facts are read from bytes, as they are from the stream."""

import msgspec
import pytest

from schemas.base import Event
from schemas.codec import decode_fact, encode
from schemas.events import JobPreempted, PlacementRefused, PreemptReason, StartOrdered
from schemas.ids import JobId, NodeId, PlacementId, PlanId, RotaId
from schemas.placement import Gang, Proportional, Relaxed
from schemas.plans import Cause, Placement, PlanKind
from shared.domain.audit import Audit, Violation, audit
from shared.domain.tally import ROUNDING
from tests.fact_builders import (
    JOB,
    K80,
    NODE,
    cancelled,
    checkpointed,
    completed,
    config,
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
    queued,
    start_ordered,
    started,
    submitted,
    worker_started,
    worker_stopped,
)

MODES = ("lockstep", "relaxed", "proportional")


def found(*facts: Event, drained: bool = False) -> list[Violation]:
    """No two facts share an object, so that what is the same only as an object is not the same here."""
    read = [decode_fact(encode(fact)) for fact in facts]
    return audit([fact for fact in read if fact is not None], drained=drained)


def rules(*facts: Event, drained: bool = False) -> list[str]:
    return [violation.rule for violation in found(*facts, drained=drained)]


def details(*facts: Event) -> list[str]:
    return [violation.detail for violation in found(*facts)]


def planned(job_id: str = JOB, *, place: str = "pl-1", on: Gang | None = None) -> list[Event]:
    there = placement(job_id, place=place)
    wanted = msgspec.structs.replace(there, gang=on or there.gang)
    return [plan(wanted, plan_id=PlanId(f"plan-of-{place}"))]


def running(job_id: str = JOB, *, place: str = "pl-1", gpu: int = 0, node_id: str = NODE) -> list[Event]:
    on = Gang.of({NodeId(node_id): 1})
    return [
        *planned(job_id, place=place, on=on),
        start_ordered(job_id, place=place, node_id=node_id),
        worker_started(job_id, place=place, gpu_indices=(gpu,), node_id=node_id),
        started(job_id, place=place, on=on),
    ]


# ---- GPUs


@pytest.mark.parametrize("names", [("pl-a", "pl-b"), ("pl-b", "pl-a")])
def test_a_gpu_has_one_owner_whatever_their_names(names: tuple[str, str]) -> None:
    one, other = (running(job, place=place) for job, place in zip("ab", names, strict=True))
    log = [joined(), *in_queue("a"), *in_queue("b"), *one, *other]
    assert details(*log) == [f"GPU 0 of node-1 is {names[0]}'s and {names[1]} takes it"]


def test_a_worker_that_is_reported_again_owns_its_gpus_still() -> None:
    log = [joined(), *in_queue(), *running()]
    again = worker_started(at=5.0)
    assert rules(*log, again) == []


def turning(place: int = 0, turns: int = 1, *, gpus: int = 1, rota: str = "rota-1") -> Gang:
    sync = Relaxed(tasks=((1,) * gpus,), rota=RotaId(rota), place=place, turns=turns)
    return Gang.of({NodeId(NODE): gpus}, sync)


def up(job_id: str, place: str, gang: Gang) -> list[Event]:
    order = msgspec.structs.replace(start_ordered(job_id, place=place), gang=gang)
    return [order, worker_started(job_id, place=place, gpu_indices=range(gang.gpus))]


def placed(job_id: str, place: str, gang: Gang) -> Placement:
    return msgspec.structs.replace(placement(job_id, place=place), gang=gang)


ROTA = [joined(modes=MODES, gpus=4), *in_queue("a"), *in_queue("b")]


def test_a_rota_is_one_owner_of_its_gpus() -> None:
    first, second = turning(0, gpus=4), turning(1, gpus=4)
    both = plan(placed("a", "pl-a", first), placed("b", "pl-b", second))
    assert rules(*ROTA, both, *up("a", "pl-a", first), *up("b", "pl-b", second)) == []
    stranger = turning(1, gpus=4, rota="rota-2")
    assert "gpu-two-owners" in rules(*ROTA, both, *up("a", "pl-a", first), *up("b", "pl-b", stranger))


@pytest.mark.parametrize("other", [turning(0), turning(1, gpus=2)])
def test_gangs_of_a_rota_have_the_same_gpus_and_places_of_their_own(other: Gang) -> None:
    both = plan(placed("a", "pl-a", turning(0)), placed("b", "pl-b", other))
    assert "rota-discord" in rules(*ROTA, both)


@pytest.mark.parametrize(("gpu", "unknown"), [(0, False), (3, False), (4, True), (5, True)])
def test_a_node_has_gpus_up_to_its_last(gpu: int, unknown: bool) -> None:  # noqa: FBT001
    log = [joined(gpus=4), *in_queue(), *running(gpu=gpu)]
    assert rules(*log) == ["gpu-unknown"] * unknown


@pytest.mark.parametrize(("up", "whole"), [(1, False), (2, True), (3, False)])
def test_a_gang_has_as_many_gpus_up_as_it_was_planned_with(up: int, whole: bool) -> None:  # noqa: FBT001
    two = Gang.of({NodeId(NODE): 2})
    log = [joined(), *in_queue(), *planned(on=two), start_ordered(), worker_started(gpu_indices=range(up))]
    expected = [] if whole else [f"{up} of 2 GPUs are up on node-1"]
    assert details(*log, started(on=two)) == expected


def test_a_gang_without_a_worker_has_no_gpus_up() -> None:
    log = [joined(), *in_queue(), *planned(), start_ordered()]
    assert details(*log, started()) == ["0 of 1 GPUs are up on node-1"]


def test_an_unknown_node_has_no_gpus() -> None:
    assert set(rules(*in_queue(), *planned())) == {"node-overbooked", "node-unknown"}
    assert "plan-of-pl-1: 1 of 0 GPUs on node-1" in details(*in_queue(), *planned())


def test_a_new_leader_knows_the_old_ones_plans_up_to_where_its_own_was_made_from() -> None:
    log = [joined(gpus=4), *in_queue("a"), *in_queue("b"), plan(placement("a", on=config(node_1=4)))]
    wants = placement("b", place="pl-b")
    for later, expected in ((0, ["node-overbooked"]), (1, ["node-overbooked"]), (-1, [])):
        new = plan(
            wants, kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2"), token=300, made_from=len(log) + later
        )
        between = [lost("elsewhere")] * max(later, 0)
        assert rules(*log, *between, new) == expected


def test_a_first_plan_replaces_all_that_stood() -> None:
    log = [joined(gpus=4), *in_queue("a"), *in_queue("b"), plan(placement("a", on=config(node_1=4)))]
    wants = placement("b", place="pl-b", on=config(node_1=4))
    left = (left_out("a"),)
    assert rules(*log, plan(wants, left_out=left, plan_id=PlanId("plan-2"), made_from=len(log))) == []


def test_an_outdated_plan_changes_nothing_of_what_stands() -> None:
    log = [joined(gpus=4), *in_queue("a"), *in_queue("b"), plan(placement("a", on=config(node_1=4)), token=5)]
    outdated = plan(plan_id=PlanId("old"), token=4)
    wants = plan(placement("b", place="pl-b"), kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2"), token=5)
    assert rules(*log, outdated, wants) == ["node-overbooked"]
    assert rules(*log, plan(placement("b", place="pl-b"), kind=PlanKind.FRAGMENT, token=4)) == []


# ---- what a job may have


def test_a_gang_on_several_nodes_is_on_types_that_the_job_may_use_on_each() -> None:
    """A node of a rota where the job computes nothing does not count."""
    log = [
        joined(modes=MODES),
        joined("node-2", gpu_type=K80, modes=MODES),
        joined("node-3", gpu_type=K80, modes=MODES),
        *in_queue(gpu_types=("v100",), demand=(1, 2, 3)),
    ]
    three = {NodeId(f"node-{number}"): 1 for number in (1, 2, 3)}
    sync = Relaxed(tasks=((1,), (0,), (1,)), rota=RotaId("rota-1"))
    assert details(*log, *planned(on=Gang.of(three, sync))) == [f"{JOB} cannot use {K80} of node-3"]
    assert rules(*log, *planned(on=Gang.of(three))) == ["gpu-type", "gpu-type"]


def test_an_unknown_node_hides_no_wrong_type_on_another() -> None:
    log = [joined("node-2", gpu_type=K80), *in_queue(gpu_types=("v100",))]
    gang = Gang.of({NodeId("absent"): 1, NodeId("node-2"): 1})
    assert {"node-unknown", "gpu-type"} <= set(rules(*log, *planned(on=gang)))


@pytest.mark.parametrize(("samples", "broken"), [((64, 64), False), ((32, 96), False), ((64, 65), True)])
def test_samples_of_an_iteration_are_a_batch_for_each_gpu(samples: tuple[int, int], broken: bool) -> None:  # noqa: FBT001
    log = [joined(modes=MODES), joined("node-2", modes=MODES), *in_queue()]
    gang = Gang.of({NodeId(NODE): 1, NodeId("node-2"): 1}, Proportional(samples=samples))
    assert rules(*log, *planned(on=gang)) == ["shares-whole"] * broken


def test_a_gang_that_starts_meets_the_demand_too() -> None:
    log = [joined(), *in_queue(demand=(1,)), *planned(), start_ordered(), worker_started(gpu_indices=(0, 1))]
    assert rules(*log, started(on=config(node_1=2))) == ["gpu-count"]


# ---- jobs


def test_a_fact_that_the_table_forbids_names_the_state() -> None:
    assert details(joined(), submitted(), preempted()) == [f"{JOB} is submitted"]
    assert details(joined(), preempted()) == [f"{JOB} is unknown"]


def test_a_job_that_waits_for_its_estimate_or_is_unknown_starts_before_it_may() -> None:
    log = [joined(), submitted(), profiled(), *running()]
    assert details(*log) == [f"{JOB} is profiled"]
    assert f"{JOB} is unknown" in details(joined(), *running())


def test_a_completion_without_a_start_is_forbidden_and_one_that_crossed_a_preemption_is_not() -> None:
    end = completed()
    assert "state-table" in rules(joined(), *in_queue(), end)
    log = [joined(), *in_queue(), *running()]
    gone = preempted(reason=PreemptReason.NODE_LOST)
    assert rules(*log, gone, end) == []
    other = msgspec.structs.replace(end, placement_id=PlacementId("pl-2"))
    assert rules(*log, gone, other) == ["state-table"]


def test_a_preemption_that_was_void_excuses_no_end() -> None:
    assert rules(joined(), *in_queue(), preempted(), completed()) == ["state-table", "state-table"]


def test_a_plan_forgets_no_job_that_was_queued_before_the_fact_it_was_made_from() -> None:
    log = [joined(), *in_queue()]
    for made_from, expected in ((3, []), (4, ["job-lost"]), (5, ["job-lost"])):
        assert rules(*log, plan(made_from=made_from)) == expected
    assert rules(joined(), submitted(), plan(made_from=2)) == []
    assert rules(*log, plan(kind=PlanKind.FRAGMENT, made_from=4)) == []


def test_a_job_that_was_queued_again_counts_from_its_first_time() -> None:
    log = [joined(), *in_queue(), queued(at=5.0)]
    assert "job-lost" in rules(*log, plan(made_from=4))


def test_each_job_that_a_plan_forgets_is_lost() -> None:
    log = [joined(), *in_queue("a"), *in_queue("b"), *in_queue("c")]
    assert details(*log, plan(left_out=(left_out("b"),), made_from=10)) == [
        "plan-1 forgets a",
        "plan-1 forgets c",
    ]


def taken(plan_id: str | None, node: str | None = None, *, place: str = "pl-1") -> JobPreempted:
    cause = Cause(
        plan_id=None if plan_id is None else PlanId(plan_id), node=None if node is None else NodeId(node)
    )
    return msgspec.structs.replace(preempted(place=place), cause=cause)


def bound(*, preemptible: bool, made_from: int) -> list[Event]:
    """Its JobStarted is the eighth fact; then a plan is made."""
    log = [joined(), *in_queue(preemptible=preemptible), *running()]
    assert len(log) == 8
    return [*log, plan(plan_id=PlanId("plan-2"), left_out=(left_out(),), made_from=made_from)]


def test_no_plan_takes_the_place_of_a_job_that_is_not_preemptible() -> None:
    for made_from, expected in ((7, []), (8, ["place-taken"]), (9, ["place-taken"])):
        assert rules(*bound(preemptible=False, made_from=made_from), taken("plan-2")) == expected


def test_the_newest_plans_are_remembered() -> None:
    done = Audit(kept=2)
    for seq, fact in enumerate([*bound(preemptible=False, made_from=8), taken("plan-2")], start=1):
        if seq == 9:
            done.take(seq, plan(plan_id=PlanId("plan-1"), left_out=(left_out(),)))
        done.take(seq, fact)
    assert [one.rule for one in done.found()] == ["place-taken"]


def test_a_place_may_be_taken_from_a_preemptible_job_or_for_another_reason_than_a_plan() -> None:
    assert rules(*bound(preemptible=True, made_from=9), taken("plan-2")) == []
    log = bound(preemptible=False, made_from=9)
    assert rules(*log, taken("plan-2", NODE)) == []
    assert rules(*log, taken(None)) == []
    assert rules(*log, preempted()) == []
    assert rules(*log, taken("plan-3")) == []


def test_a_job_of_a_drained_log_has_ended_and_an_unknown_job_is_none() -> None:
    assert rules(joined(), *in_queue("a"), *in_queue("b"), cancelled("a"), drained=True) == ["job-lost"]
    assert found(joined(), submitted(), drained=True)[0].detail == f"{JOB} was left submitted"


def test_an_order_that_crosses_the_end_is_no_mistake_and_one_that_follows_it_is() -> None:
    before = [joined(), *in_queue(), *planned()]
    assert rules(*before, cancelled(), start_ordered()) == []
    late = [joined(), *in_queue(), cancelled(), *planned(), start_ordered()]
    assert details(*late) == [f"{JOB} had ended when pl-1 was planned"]
    up = [*before, cancelled(), start_ordered(), worker_started(), started()]
    assert details(*up) == [f"{JOB} had ended when pl-1 came up"]
    crossed = [*before, start_ordered(), worker_started(), cancelled(), started()]
    assert rules(*crossed) == []


# ---- samples


def restored(samples: float) -> list[Event]:
    log: list[Event] = [joined(), *in_queue(), *planned(), start_ordered(samples_done=100.0)]
    return [*log, worker_started(samples_restored=samples), started()]


def test_samples_count_from_the_checkpoint_that_was_found() -> None:
    assert rules(*restored(50.0), preempted(samples_done=50.0)) == []
    assert details(*restored(50.0), preempted(samples_done=100.0)) == [
        f"{JOB} has 100 samples, its workers did 50"
    ]


def test_what_a_worker_that_does_not_lead_counted_is_not_the_jobs() -> None:
    log = [joined(), *in_queue(), *running()]
    follower = worker_stopped(samples_done=400.0, leads=False)
    assert rules(*log, follower, preempted(samples_done=400.0)) == ["work-overcounted"]
    assert rules(*log, worker_stopped(samples_done=400.0), preempted(samples_done=400.0)) == []
    assert rules(*log, checkpointed(node_id="node-2"), preempted(samples_done=500.0)) == ["work-overcounted"]


def test_a_measurement_counts_no_samples() -> None:
    log = [joined(), *in_queue(), opened(profile_run(place="pf-1"))]
    order = start_ordered(place="pf-1", profile_iterations=20)
    assert rules(*log, order, checkpointed(place="pf-1"), preempted(place="pf-1", samples_done=600.0)) == [
        "state-table"
    ]


def test_a_completed_job_did_its_samples_to_within_rounding() -> None:
    log = [joined(), *in_queue(), *running(), worker_stopped(samples_done=2000.0)]
    for samples, expected in (
        (999.0, ["work-undone"]),
        (999.995, ["work-undone"]),
        (1000.0 * (1 - ROUNDING), []),  # enough for the placer
        (999.9999, []),
        (1000.0, []),
        (1001.0, []),
    ):
        assert rules(*log, completed(samples_done=samples)) == expected
    assert details(*log, completed(samples_done=999.0)) == [f"{JOB} did 999 of 1000 samples"]


def test_a_completion_that_is_void_need_not_have_done_the_work() -> None:
    early = completed(samples_done=0.0)
    assert rules(joined(), *in_queue(), early) == ["state-table"]
    assert rules(joined(), early) == ["state-table"]
    assert rules(joined(), *in_queue(), *running(), cancelled(), early) == []


def test_a_run_has_its_workers_samples_to_within_rounding() -> None:
    log = [joined(), *in_queue(), *running(), checkpointed(samples_done=400.0)]
    assert rules(*log, preempted(samples_done=400.0 * (1 + ROUNDING / 2))) == []
    assert rules(*log, preempted(samples_done=400.0 * (1 + ROUNDING * 2))) == ["work-overcounted"]


# ---- orders and plans


def test_an_order_to_a_placement_that_only_an_outdated_plan_has_says_which() -> None:
    log = [joined(), *in_queue(), plan(token=500), plan(placement(), plan_id=PlanId("old"), token=400)]
    assert details(*log, start_ordered()) == ["pl-1 is of token 400, 500 came before"]


def test_a_placement_that_a_plan_of_the_newest_token_has_too_may_be_followed() -> None:
    log = [joined(), *in_queue(), plan(token=500), plan(placement(), plan_id=PlanId("old"), token=400)]
    fresh = plan(placement(), plan_id=PlanId("new"), token=500)
    assert rules(*log, fresh, start_ordered()) == []


def test_a_plan_with_three_places_for_a_job_is_broken_twice() -> None:
    places = [placement(place=f"pl-{number}") for number in range(3)]
    assert rules(joined(), *in_queue(), plan(*places)) == ["placed-twice", "placed-twice"]


REFUSED = PlacementRefused(
    at=0, placement_id=PlacementId("pl-1"), plan_id=PlanId("p"), job_id=JobId("a"), reason="no"
)


@pytest.mark.parametrize(
    ("fact", "frees"),
    [
        (REFUSED, True),
        (msgspec.structs.replace(REFUSED, placement_id=PlacementId("pl-9")), False),
        (cancelled("a"), True),
        (cancelled("b"), False),
        (cancelled("A"), False),
        (lost(NODE), True),
        (lost("node-2"), False),
        (joined(gpus=4, life="2"), True),
        (joined("node-2"), False),
        (profiled("a"), False),
    ],
)
def test_a_placement_stands_until_something_ends_it(fact: Event, frees: bool) -> None:  # noqa: FBT001
    log = [joined(gpus=4), *in_queue("a"), *in_queue("c"), *in_queue("b")]
    first = plan(placement("a", on=config(node_1=4)))
    wants = plan(placement("c", place="pl-c"), kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2"))
    assert ("node-overbooked" in rules(*log, first, fact, wants)) is not frees


def test_all_runs_of_a_round_are_planned() -> None:
    runs = [profile_run(place="pf-1"), profile_run(place="pf-2")]
    orders: list[StartOrdered] = [start_ordered(place=run.placement_id, profile_iterations=9) for run in runs]
    assert rules(joined(), submitted(), opened(*runs), *orders) == []
    assert rules(joined(), submitted(), opened(runs[0]), *orders) == ["start-unplanned"]
