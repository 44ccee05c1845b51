"""How the placer handles workers that end by themselves: interrupted, failed, restored, adopted."""

import pytest

from schemas.events import (
    GangFormed,
    JobCompleted,
    JobPreempted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Outcome,
    PlacementRefused,
    PreemptReason,
    StartOrdered,
    StopOrdered,
)
from schemas.ids import JobId, NodeId
from schemas.plans import Cause
from shared.domain.ledger import ledger_of
from tests.fact_builders import profiled, queued
from tests.services.placer.placer_bench import JOB, OTHER, A, B, Bench, node, place, worker_started
from tests.services.placer.test_core import kinds, only

MEETING = "a.example:29500"
AGAIN = JobId("job-3")
"""a job with a retry"""


def test_a_gang_that_has_to_meet_is_formed_on_every_node() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.plan(placement)
    assert bench.tell(worker_started(placement, A, 2, meeting=MEETING)) == []
    facts = bench.tell(worker_started(placement, B, 2))
    formed = [fact for fact in facts if isinstance(fact, GangFormed)]
    assert [(fact.node_id, fact.meeting) for fact in formed] == [(A, MEETING), (B, MEETING)]


@pytest.mark.parametrize("restored", [200.0, 800.0])
def test_the_restored_samples_count_and_not_the_ordered_ones(restored: float) -> None:
    bench = Bench()
    first, second = place("p1", a=4), place("p2", b=4)
    bench.start(first)
    bench.plan(second)
    bench.stop(first, A, Outcome.CHECKPOINTED, samples=500.0)
    bench.tell(worker_started(second, B, 4, samples_restored=restored))
    bench.plan()
    facts = bench.stop(second, B, Outcome.INTERRUPTED)
    assert only(JobPreempted, facts).samples_done == restored


def test_an_interrupted_worker_ends_its_gang_at_once_and_not_its_job() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.start(placement)
    assert only(StopOrdered, bench.stop(placement, B, Outcome.INTERRUPTED)).node_id == A
    preempted = only(JobPreempted, bench.stop(placement, A, Outcome.INTERRUPTED, samples=300.0))
    assert (preempted.reason, preempted.samples_done) == (PreemptReason.INTERRUPTED, 300.0)
    assert kinds(bench.plan(place("p2", a=4))) == [StartOrdered]


@pytest.mark.parametrize("then", [Outcome.COMPLETED, Outcome.INTERRUPTED])
def test_a_worker_that_has_done_all_samples_leaves_the_leader_to_end_by_itself(then: Outcome) -> None:
    """Rank 0 may evaluate and save the model: stopped each time, the job would never be complete."""
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.start(placement)
    assert bench.stop(placement, B, Outcome.COMPLETED, samples=1_000.0) == []
    assert bench.plan(placement) == []
    facts = bench.stop(placement, A, then, samples=1_000.0)
    assert kinds(facts) == ([] if then is Outcome.COMPLETED else [JobPreempted])
    assert bench.core.state.jobs[JOB].ended is (then is Outcome.COMPLETED)
    assert bench.core.state.placements == {}


def test_a_leader_that_goes_on_alone_is_stopped_like_a_gang() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.start(placement)
    bench.stop(placement, B, Outcome.COMPLETED, samples=1_000.0)
    assert only(StopOrdered, bench.plan()).node_id == A
    assert only(JobPreempted, bench.stop(placement, A, Outcome.CHECKPOINTED, samples=1_000.0))


def test_an_interruption_on_the_way_up_takes_the_placement_back() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.plan(placement)
    refused = only(PlacementRefused, bench.stop(placement, A, Outcome.INTERRUPTED))
    assert refused.reason == "taken back before it started: its processes were interrupted"


def test_a_failure_ends_the_job_though_a_peer_reported_first_that_it_lost_the_worker() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.start(placement)
    bench.stop(placement, B, Outcome.INTERRUPTED)
    assert bench.stop(placement, A, Outcome.FAILED) == []  # the monitor says what becomes of the job
    assert only(PlacementRefused, bench.plan(place("p2", a=4))).reason == "the job's last worker has ended it"


def test_a_job_with_retries_fails_back_into_the_queue_until_they_are_used_up() -> None:
    bench = Bench()
    bench.submit(AGAIN, retries=1)
    first, second = place("p1", AGAIN, a=2, b=2), place("p2", AGAIN, a=4)
    bench.start(first)
    bench.stop(first, B, Outcome.INTERRUPTED)
    preempted = only(JobPreempted, bench.stop(first, A, Outcome.FAILED))
    assert preempted.reason is PreemptReason.FAILED
    bench.start(second)
    assert bench.stop(second, A, Outcome.FAILED) == []


def test_a_job_fails_once_it_has_failed_more_often_than_its_retries() -> None:
    bench = Bench()
    bench.submit(AGAIN, retries=2)
    for number in range(2):
        placement = place(f"p{number}", AGAIN, a=4)
        bench.start(placement)
        assert JobPreempted in kinds(bench.stop(placement, A, Outcome.FAILED))
    last = place("p2", AGAIN, a=4)
    bench.start(last)
    assert bench.stop(last, A, Outcome.FAILED) == []
    assert bench.core.state.jobs[AGAIN].ended


@pytest.mark.parametrize("order", [(A, B), (B, A)])
@pytest.mark.parametrize("unasked", [Outcome.CHECKPOINTED, Outcome.INTERRUPTED])
def test_a_gang_that_stops_since_one_of_its_nodes_leaves_ends_for_that_reason(
    order: tuple[NodeId, NodeId], unasked: Outcome
) -> None:
    """Whichever of the workers is the first to report its end, and though only one was asked to stop."""
    bench = Bench()
    placement = place("p1", a=2, b=2)
    for fact in (profiled(JOB), queued(JOB)):
        bench.tell(fact)
    bench.start(placement)
    bench.tell(NodeDrained(at=44.0, node_id=B, life="1"))
    outcomes = {A: unasked, B: Outcome.CHECKPOINTED}
    facts = [fact for one in order for fact in bench.stop(placement, one, outcomes[one], 500.0)]
    preempted = only(JobPreempted, facts)
    assert (preempted.reason, preempted.cause) == (PreemptReason.NODE_LEFT, Cause(node=B))
    record = ledger_of(bench.log).jobs[JOB]
    assert (record.samples_done, record.interruptions, record.lost_gpu_s) == (500.0, 0, 0.0)


def test_a_worker_that_stops_by_itself_ends_its_gang_and_is_named() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.start(placement)
    bench.stop(placement, B, Outcome.CHECKPOINTED)
    preempted = only(JobPreempted, bench.stop(placement, A, Outcome.CHECKPOINTED))
    assert (preempted.reason, preempted.cause) == (PreemptReason.PLAN, Cause(node=B))


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.COMPLETED])
def test_the_end_of_a_refused_placement_s_worker_does_not_end_the_job(outcome: Outcome) -> None:
    """Its gang was not up in time; the monitor heeds no worker of it any more."""
    bench = Bench()
    late = place("p1", a=4)
    bench.plan(late)
    bench.wake(70.0)
    bench.stop(late, A, outcome)
    assert kinds(bench.plan(place("p2", b=4))) == [StartOrdered]


def test_a_worker_done_before_its_gang_was_whole_does_not_complete_the_job() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.plan(placement)
    bench.stop(placement, A, Outcome.COMPLETED)
    assert kinds(bench.stop(placement, B, Outcome.CHECKPOINTED)) == [PlacementRefused]
    assert kinds(bench.plan(place("p2", b=4))) == [StartOrdered]


def test_a_worker_done_on_the_way_up_of_a_gang_taken_back_does_not_complete_the_job() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.plan(placement)
    bench.plan()
    bench.stop(placement, A, Outcome.COMPLETED)
    bench.stop(placement, B, Outcome.CHECKPOINTED)
    assert kinds(bench.plan(place("p2", b=4))) == [StartOrdered]


def test_two_workers_of_a_gang_that_fail_are_one_failure() -> None:
    bench = Bench()
    bench.submit(AGAIN, retries=1)
    placement = place("p1", AGAIN, a=2, b=2)
    bench.start(placement)
    bench.stop(placement, A, Outcome.FAILED)
    assert only(JobPreempted, bench.stop(placement, B, Outcome.FAILED)).reason is PreemptReason.FAILED


def test_a_gang_trains_on_when_the_agent_of_one_of_its_nodes_restarts_with_it() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.start(placement)
    again = NodeJoined(at=60.0, node_id=A, node=node(A), life="2", workers=(placement.placement_id,))
    assert bench.tell(again) == []
    assert bench.plan(placement) == []


def test_a_lost_node_that_comes_back_with_its_workers_holds_their_gpus_until_they_have_stopped() -> None:
    bench = Bench(nodes=(A,))
    stale, new = place("p1", a=4), place("p2", OTHER, a=4)
    bench.start(stale)
    bench.tell(NodeLost(at=45.0, node_id=A))
    bench.tell(NodeJoined(at=60.0, node_id=A, node=node(A), life="2", workers=(stale.placement_id,)))
    assert bench.plan(new) == []
    assert kinds(bench.stop(stale, A, Outcome.CHECKPOINTED)) == [StartOrdered]


def test_a_job_that_had_completed_before_its_node_was_lost_does_not_start_again() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.start(placement)
    assert only(JobPreempted, bench.tell(NodeLost(at=45.0, node_id=A))).job_id == JOB
    bench.stop(placement, A, Outcome.COMPLETED, samples=1e6)
    end = JobCompleted(at=50.0, job_id=JOB, placement_id=placement.placement_id, samples_done=1e6)
    assert bench.tell(end) == []
    refused = only(PlacementRefused, bench.plan(place("p2", b=4)))
    assert refused.reason == "the job has ended, or was cancelled"


def test_a_completion_stops_a_placement_that_comes_up_after_the_node_was_lost() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.start(placement)
    bench.tell(NodeLost(at=45.0, node_id=A))
    again = place("p2", b=4)
    assert kinds(bench.plan(again)) == [StartOrdered]
    end = JobCompleted(at=50.0, job_id=JOB, placement_id=placement.placement_id, samples_done=1e6)
    assert only(StopOrdered, bench.tell(end)).placement_id == again.placement_id
    assert bench.stop(again, B, Outcome.CHECKPOINTED) == []
    assert bench.core.state.placements == {}
