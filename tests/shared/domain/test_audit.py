"""The audit finds nothing in a log where all is well, and each planted violation by its own rule."""

import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest

from schemas.base import Event
from schemas.events import NodeLost, Outcome, PlacementRefused, PreemptReason, WorkerStopped
from schemas.ids import JobId, PlacementId, PlanId
from schemas.plans import PlanKind
from shared.domain.audit import Audit, audit, event_log_hash
from tests.fact_builders import (
    JOB,
    K80,
    NODE,
    V100,
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
    profiled,
    queued,
    returned,
    start_ordered,
    started,
    stop_ordered,
    submitted,
    type_estimated,
    type_profiled,
    whole_life,
    worker_started,
    worker_stopped,
)


def rules(*facts: Event, drained: bool = False) -> list[str]:
    """The rules that the log breaks."""
    return [violation.rule for violation in audit(facts, drained=drained)]


def planned(job_id: str = JOB, *, place: str = "pl-1", at: float = 0.0, token: int = 1) -> list[Event]:
    """A plan with one placement, of its own id."""
    return [plan(placement(job_id, place=place), at=at, plan_id=PlanId(f"plan-of-{place}"), token=token)]


def up(job_id: str = JOB, *, place: str = "pl-1", gpu: int = 0) -> list[Event]:
    return [start_ordered(job_id, place=place), worker_started(job_id, place=place, gpu_indices=(gpu,))]


def running(job_id: str = JOB, *, place: str = "pl-1", gpu: int = 0) -> list[Event]:
    """From the plan to JobStarted on one GPU of node-1."""
    return [
        *planned(job_id, place=place),
        *up(job_id, place=place, gpu=gpu),
        started(job_id, place=place),
    ]


# ---- all is well


def test_a_complete_job_breaks_no_rule() -> None:
    assert rules(*whole_life(), drained=True) == []


def test_a_fact_published_twice_breaks_no_rule() -> None:
    assert rules(*(fact for fact in whole_life() for _ in range(2)), drained=True) == []


def test_a_job_may_run_again_after_a_preemption() -> None:
    stopped = worker_stopped(outcome=Outcome.CHECKPOINTED, samples_done=10)
    log = [joined(), *in_queue(), *running(), stop_ordered(), stopped, preempted()]
    assert rules(*log, *running(place="pl-2")) == []


def test_a_start_may_cross_a_cancellation() -> None:
    assert rules(joined(), *in_queue(), *planned(), *up(), cancelled(), started()) == []
    assert rules(joined(), *in_queue(), *planned(), cancelled(), *up()) == []


def test_a_completion_may_cross_the_preemption_of_its_placement() -> None:
    assert rules(joined(), *in_queue(), *running(), preempted(), completed()) == []


def test_anything_may_arrive_after_the_end() -> None:
    assert rules(joined(), submitted(), cancelled(), profiled(), queued(), failed(), preempted()) == []


def test_a_job_that_waits_is_not_lost() -> None:
    assert rules(joined(), *in_queue(), plan(left_out=(left_out(),), made_from=4)) == []


# ---- jobs


def test_a_job_without_an_end_is_lost_once_the_log_is_drained() -> None:
    assert rules(joined(), *in_queue(), drained=True) == ["job-lost"]


def test_a_plan_that_forgets_a_queued_job_loses_it() -> None:
    assert rules(joined(), *in_queue(), plan(made_from=4)) == ["job-lost"]


def test_a_plan_made_before_the_job_came_need_not_know_it() -> None:
    assert rules(joined(), *in_queue(), plan(made_from=3)) == []


def test_a_plan_need_not_speak_of_a_job_that_ended() -> None:
    assert rules(joined(), *in_queue(), cancelled(), plan(made_from=5)) == []


def test_a_job_must_not_start_twice() -> None:
    log = [joined(), *in_queue(), *running(), *running(place="pl-2", gpu=1)]
    assert rules(*log) == ["started-twice"]


def test_a_job_must_not_start_before_it_is_queued() -> None:
    assert rules(joined(), submitted(), *running()) == ["state-table"]


def test_a_job_that_was_not_submitted_has_no_facts() -> None:
    assert "state-table" in rules(joined(), preempted())


def test_an_order_to_start_must_not_follow_a_plan_from_after_the_end() -> None:
    log = [joined(), *in_queue(), cancelled(), *planned(), start_ordered()]
    assert rules(*log) == ["start-after-end"]


def test_a_job_must_not_be_reported_started_after_its_end_was_read() -> None:
    log = [joined(), *in_queue(), *planned(), cancelled(), *up(), started()]
    assert rules(*log) == ["start-after-end"]


def test_a_measurement_must_not_start_after_the_end() -> None:
    log = [joined(), submitted(), cancelled(), opened(profile_run(place="pf-1"))]
    assert rules(*log, start_ordered(place="pf-1", profile_iterations=30)) == ["start-after-end"]


def test_no_job_starts_without_a_plan() -> None:
    assert rules(joined(), *in_queue(), start_ordered(place="pl-9")) == ["start-unplanned"]


def test_a_completed_job_has_done_all_its_samples() -> None:
    log = [joined(), *in_queue(), *running()]
    assert rules(*log, worker_stopped(samples_done=999), completed(samples_done=999)) == ["work-undone"]
    nearly = 1000 * (1 - 1e-9)
    assert rules(*log, worker_stopped(samples_done=nearly), completed(samples_done=nearly)) == []


def test_a_job_has_no_more_samples_than_its_workers_did() -> None:
    log = [joined(), *in_queue(), *running(), checkpointed(samples_done=400.0)]
    assert rules(*log, preempted(samples_done=400.0)) == []
    assert rules(*log, preempted(samples_done=401.0)) == ["work-overcounted"]


# ---- GPUs


def test_a_gpu_must_not_have_two_owners() -> None:
    log = [joined(), *in_queue("a"), *in_queue("b")]
    assert rules(*log, *running("a", place="pl-a"), *running("b", place="pl-b")) == ["gpu-two-owners"]


def test_a_measurement_owns_its_gpu_too() -> None:
    log = [joined(), submitted("a"), *in_queue("b"), opened(profile_run("a", place="pf-1"))]
    measuring = [start_ordered("a", place="pf-1", profile_iterations=30), worker_started("a", place="pf-1")]
    assert rules(*log, *measuring, *running("b")) == ["gpu-two-owners"]


def test_a_gpu_is_free_once_its_worker_stopped() -> None:
    log = [joined(), *in_queue("a"), *in_queue("b"), *running("a", place="pl-a")]
    assert rules(*log, worker_stopped("a", place="pl-a"), *running("b", place="pl-b")) == []


def test_a_node_that_comes_back_in_the_same_life_still_has_its_workers() -> None:
    log = [joined(), *in_queue("a"), *in_queue("b"), *running("a", place="pl-a"), lost()]
    gone = preempted("a", place="pl-a", reason=PreemptReason.NODE_LOST)
    assert rules(*log, gone, returned(), *running("b", place="pl-b")) == ["gpu-two-owners"]


def test_a_new_life_frees_the_gpus_of_the_workers_it_does_not_list() -> None:
    log = [joined(), *in_queue("a"), *in_queue("b"), *running("a", place="pl-a")]
    assert rules(*log, joined(life="2"), *running("b", place="pl-b")) == []
    kept = joined(life="2", workers=["pl-a"])
    assert rules(*log, kept, *running("b", place="pl-b")) == ["gpu-two-owners"]


def test_a_worker_cannot_have_a_gpu_that_is_not_there() -> None:
    assert rules(joined(gpus=1), *in_queue(), *planned(), *up(gpu=1)) == ["gpu-unknown"]


def test_a_worker_that_a_node_with_fewer_gpus_lists_may_have_one_that_is_gone() -> None:
    log = [joined(gpus=4), *in_queue(), *planned(), joined(gpus=1, life="2", workers=["pl-1"])]
    assert rules(*log, *up(gpu=3)) == []
    assert rules(*log[:-1], joined(gpus=1, life="2"), *up(gpu=3)) == ["gpu-unknown"]


def test_a_gang_must_be_whole_when_its_job_starts() -> None:
    both = config(node_1=1, node_2=1)
    log = [joined(), joined("node-2"), *in_queue(), plan(placement(on=both)), *up()]
    assert rules(*log, started(on=both)) == ["gang-broken"]
    assert rules(*log, worker_started(node_id="node-2"), started(on=both)) == []


ON_BOTH = config(node_1=1, node_2=1)


@pytest.mark.parametrize(
    "gone", [worker_stopped(), lost(NODE), joined(life="2"), joined(life="2", workers=["elsewhere"])]
)
def test_all_workers_of_a_gang_are_up_at_the_same_time(gone: Event) -> None:
    log = [joined(), joined("node-2"), *in_queue(), plan(placement(on=ON_BOTH)), *up()]
    last, start = worker_started(node_id="node-2"), started(on=ON_BOTH)
    assert rules(*log, gone, last, start) == ["gang-broken"]
    assert rules(*log, last, gone, start) == []


def test_a_gang_whose_worker_outlived_its_agent_is_whole() -> None:
    log = [joined(), joined("node-2"), *in_queue(), plan(placement(on=ON_BOTH)), *up()]
    again = joined(life="2", workers=["pl-1"])
    assert rules(*log, again, worker_started(node_id="node-2"), started(on=ON_BOTH)) == []


def test_a_worker_with_too_few_gpus_breaks_the_gang() -> None:
    four = config(node_1=4)
    log = [joined(), *in_queue(), plan(placement(on=four)), *up(), started(on=four)]
    assert rules(*log) == ["gang-broken"]


# ---- plans


def test_a_plan_must_not_overbook_a_node() -> None:
    log = [joined(gpus=4), *in_queue("a"), *in_queue("b")]
    two = [placement("a", place="pl-a", on=config(node_1=4)), placement("b", place="pl-b")]
    assert rules(*log, plan(*two)) == ["node-overbooked"]


def fragment(*, place: str = "pl-b") -> Event:
    wants = placement("b", place=place, on=config(node_1=1))
    return plan(wants, kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2"))


def test_a_fragment_plan_must_leave_running_jobs_alone() -> None:
    log = [joined(gpus=4), *in_queue("a"), *in_queue("b"), plan(placement("a", on=config(node_1=4)))]
    assert rules(*log, fragment()) == ["node-overbooked"]


FREED = [
    completed("a"),
    cancelled("a"),
    failed("a"),
    worker_stopped("a"),
    lost(NODE),
    PlacementRefused(
        at=0, placement_id=PlacementId("pl-1"), plan_id=PlanId("p"), job_id=JobId("a"), reason="no"
    ),
]


@pytest.mark.parametrize("freed", FREED)
def test_a_fragment_plan_may_use_freed_gpus(freed: Event) -> None:
    log = [joined(gpus=4), *in_queue("a"), *in_queue("b"), plan(placement("a", on=config(node_1=4)))]
    assert "node-overbooked" not in rules(*log, freed, fragment())


@pytest.mark.parametrize("freed", FREED[1:])  # a job that never started cannot complete
def test_a_plan_that_was_made_before_does_not_take_freed_gpus_again(freed: Event) -> None:
    whole = placement("a", on=config(node_1=4))
    log = [joined(gpus=4), *in_queue("a"), *in_queue("b"), plan(whole)]
    again = plan(whole, plan_id=PlanId("plan-again"), made_from=len(log))
    assert "node-overbooked" not in rules(*log, freed, again, fragment())
    later = msgspec.structs.replace(again, made_from=len(log) + 1)
    assert ("node-overbooked" in rules(*log, freed, later, fragment())) is (type(freed) in MAY_STAND)


MAY_STAND = {WorkerStopped, NodeLost, PlacementRefused}
"""facts after which a plan may have the placement again, for all that the rule knows"""


def test_a_new_leader_need_not_know_the_old_one_s_last_plan() -> None:
    log = [joined(gpus=4), *in_queue("a"), *in_queue("b"), plan(placement("a", on=config(node_1=4)))]
    new = {"kind": PlanKind.FRAGMENT, "plan_id": PlanId("plan-2"), "token": 2}
    wants = placement("b", place="pl-b")
    assert rules(*log, plan(wants, **new, made_from=len(log) - 1)) == []
    assert rules(*log, plan(wants, **new, made_from=len(log))) == ["node-overbooked"]


def test_sequences_say_which_facts_a_plan_was_made_from() -> None:
    log = [joined(), *in_queue(), plan(made_from=10)]
    assert rules(*log) == ["job-lost"]
    assert audit(log, seqs=[1, 2, 3, 11, 12]) == []


def test_a_plan_must_not_place_a_job_twice() -> None:
    log = [joined(), *in_queue(), plan(placement(place="pl-1"), placement(place="pl-2"))]
    assert rules(*log) == ["placed-twice"]


def test_a_plan_with_an_older_token_must_not_be_followed() -> None:
    log = [joined(), *in_queue(), plan(token=5), *planned(token=4)]
    assert rules(*log) == []
    assert rules(*log, start_ordered()) == ["stale-plan-followed"]


def test_a_stale_plan_may_repeat_a_placement_of_the_newer_one() -> None:
    log = [joined(), *in_queue(), *planned(token=5), plan(placement(), token=4)]
    assert rules(*log, start_ordered()) == []


def test_a_placement_must_have_a_gpu_count_of_the_demand() -> None:
    log = [joined(), *in_queue(demand=(2, 4)), plan(placement(on=config(node_1=3)))]
    assert rules(*log) == ["gpu-count"]


def test_a_placement_must_be_on_a_type_that_the_job_may_use() -> None:
    assert rules(joined(), *in_queue(gpu_types=(K80,)), plan(placement())) == ["gpu-type"]


def test_a_placement_must_be_on_a_type_that_the_job_can_use() -> None:
    log = [joined(), submitted(), profiled(unusable=["v100"]), queued(), plan(placement())]
    assert rules(*log) == ["gpu-type"]


def test_a_type_that_a_job_lacked_may_be_used_once_the_job_is_profiled_there() -> None:
    log = [joined(), submitted(), profiled(unusable=["v100"]), queued()]
    assert rules(*log, type_profiled(gpu_type=V100), type_estimated(gpu_type=V100), plan(placement())) == []
    assert rules(joined(), submitted(), type_profiled(gpu_type=V100)) == ["state-table"]


def test_a_plan_need_not_know_which_gpus_a_node_came_back_with_while_it_was_made() -> None:
    log = [joined(), *in_queue(gpu_types=("v100",)), joined(gpu_type=K80, gpus=2, life="2")]
    wants = placement(on=config(node_1=4))
    assert rules(*log, plan(wants, made_from=len(log) - 1)) == []
    assert rules(*log, plan(wants, made_from=len(log))) == ["node-overbooked", "gpu-type"]


def test_a_plan_need_not_know_that_one_before_it_was_made_for_other_gpus() -> None:
    """A node came back with fewer GPUs while that one was made; the placer refuses what does not fit."""
    whole, other = placement("a", on=config(node_1=4)), placement("b", place="pl-b", on=config(node_2=1))
    log = [joined(gpus=4), joined("node-2", gpus=4), *in_queue("a"), *in_queue("b")]
    made_from = len(log)
    log.append(joined(gpus=2, life="2"))
    rest = plan(other, kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2"), made_from=len(log))
    assert "node-overbooked" not in rules(*log, plan(whole, made_from=made_from), rest)
    assert "node-overbooked" in rules(*log, plan(whole, made_from=len(log)), rest)


def test_no_job_starts_on_a_type_that_its_plan_could_not_know() -> None:
    log = [joined(), *in_queue(gpu_types=("v100",)), joined(gpu_type=K80, life="2")]
    facts = [plan(placement(), made_from=len(log) - 1), start_ordered(), *up(), started()]
    assert rules(*log, *facts) == ["gpu-type"]


def test_a_plan_knows_the_gpus_of_a_node_that_comes_back_with_the_same() -> None:
    log = [joined(), *in_queue(gpu_types=(K80,)), joined(life="2")]
    assert rules(*log, plan(placement(), made_from=len(log) - 1)) == ["gpu-type"]


def test_a_plan_places_only_jobs_and_nodes_that_are_there() -> None:
    assert rules(joined(), plan(placement())) == ["job-unknown"]
    assert "node-unknown" in rules(*in_queue(), plan(placement()))


# ---- how much is kept


def lives(count: int) -> Iterator[Event]:
    """The facts of so many jobs, one after the other."""
    yield joined()
    for number in range(count):
        job, place = f"job-{number}", f"pl-{number}"
        yield from in_queue(job)
        yield from running(job, place=place)
        yield worker_stopped(job, place=place)
        yield completed(job, place=place)


def peak_bytes(count: int) -> int:
    tracemalloc.start()
    done = Audit(kept=100)
    for seq, fact in enumerate(lives(count), start=1):
        done.take(seq, fact)
    assert done.found(drained=True) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_only_the_id_of_an_ended_job_is_kept() -> None:
    """A fact alone has hundreds of bytes, and a job ten of them here."""
    assert (peak_bytes(2_000) - peak_bytes(200)) / 1_800 < 200


def test_a_job_that_ended_long_ago_must_not_start() -> None:
    done = Audit(kept=5)
    late = [start_ordered("job-0", place="pl-0"), started("job-0", place="pl-0")]
    for seq, fact in enumerate([*lives(20), profiled("job-0"), cancelled("job-0"), *late], start=1):
        done.take(seq, fact)
    assert [one.rule for one in done.found(drained=True)] == ["start-after-end", "start-after-end"]


def test_the_number_of_violations_is_bounded() -> None:
    log = [joined(), *(preempted(f"job-{number}", place=f"pl-{number}") for number in range(2_000))]
    assert len(audit(log)) == 1_000


# ---- what a violation says, and the hash


def test_a_violation_names_the_fact_that_broke_the_rule() -> None:
    [violation] = audit([joined(), *in_queue(), start_ordered(at=7, place="pl-9")])
    assert (violation.at, violation.event_id) == (7, "worker.start-ordered/pl-9/node-1")
    assert violation.detail == "no plan has pl-9"


def test_the_hash_depends_on_every_fact_and_their_order() -> None:
    log = whole_life()
    assert event_log_hash(log) == event_log_hash(whole_life())
    assert event_log_hash(log) != event_log_hash(log[:-1])
    assert event_log_hash(log) != event_log_hash([*log[1:], log[0]])
    assert event_log_hash([checkpointed(samples_done=1)]) != event_log_hash([checkpointed(samples_done=2)])


def test_the_hash_leaves_out_times_that_depend_on_the_machine() -> None:
    fast, slow = plan(solve_s=0.1), plan(solve_s=9.9)
    assert event_log_hash([fast]) == event_log_hash([slow])
    assert event_log_hash([fast]) != event_log_hash([msgspec.structs.replace(fast, objective=2.0)])
